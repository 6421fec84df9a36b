// All views by name: the same in the studio, in notebooks and in reports.
import { render as auditDensities } from "./auditDensities";
import { render as beliefCurves } from "./beliefCurves";
import { render as beliefMap } from "./beliefMap";
import { render as budgetLine } from "./budgetLine";
import { render as chainHeat } from "./chainHeat";
import { render as dayCalendar } from "./dayCalendar";
import { render as leakBars } from "./leakBars";
import { render as noisePreview } from "./noisePreview";
import { render as player } from "./player";
import { render as policyEditor } from "./policyEditor";
import { render as stepLine } from "./stepLine";
import { render as tieGraph } from "./tieGraph";
import type { ViewProps } from "./types";

type Render<Props> = (element: HTMLElement, props: Props) => void;

export const VIEWS: { [Name in keyof ViewProps]: Render<ViewProps[Name]> } = {
  auditDensities,
  beliefCurves,
  beliefMap,
  budgetLine,
  chainHeat,
  dayCalendar,
  leakBars,
  noisePreview,
  player,
  policyEditor,
  stepLine,
  tieGraph,
};

export type ViewName = keyof ViewProps;
