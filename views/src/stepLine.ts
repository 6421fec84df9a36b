// One number over the steps of a stream, with a mark at the step that is shown.
import * as Plot from "@observablehq/plot";
import { replace, themeOf, widthOf } from "./theme";
import type { StepLineProps } from "./types";

export function render(element: HTMLElement, props: StepLineProps): void {
  const theme = themeOf(element);
  const rows = props.values.map((value, step) => ({ step: step + 1, value }));
  const chart = Plot.plot({
    width: widthOf(element),
    height: 130,
    marginLeft: 48,
    marginBottom: 34,
    style: { background: "transparent", color: theme.ink, fontSize: "13px" },
    x: { label: "step", labelAnchor: "center", labelArrow: "none" },
    y: { label: props.what, grid: true, ticks: 4, zero: true },
    ariaLabel: props.what,
    marks: [
      Plot.lineY(rows, { x: "step", y: "value", stroke: theme.accent, strokeWidth: 1.5 }),
      Plot.ruleX([props.at + 1], { stroke: theme.warning, strokeWidth: 2 }),
    ],
  });
  replace(element, chart);
}
