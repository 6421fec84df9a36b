// What an adversary believes, slot by slot: before, with naive hiding, and under the promise.
import * as Plot from "@observablehq/plot";
import { isNarrow, replace, themeOf, timeTicks, widthOf } from "./theme";
import type { BeliefCurvesProps, Curve } from "./types";

export function render(element: HTMLElement, props: BeliefCurvesProps): void {
  const theme = themeOf(element);
  const colour: Record<Curve["kind"], string> = {
    prior: theme.faint,
    naive: theme.warning,
    promised: theme.accent,
  };
  const line = (curve: Curve) =>
    curve.values
      .map((value, t) => ({ t, value, name: curve.name }))
      .filter((row) => row.value !== null && (curve.kind === "prior" || row.t <= (props.at ?? Infinity)));
  const bound = (props.bound ?? []).map((value, t) => ({ t, value })).filter((row) => row.value !== null);
  const chart = Plot.plot({
    width: widthOf(element),
    height: 300,
    marginLeft: 48,
    marginTop: isNarrow(element) ? 96 : 24,
    marginRight: isNarrow(element) ? 16 : 130,
    marginBottom: 40,
    style: { background: "transparent", color: theme.ink, fontSize: "13px" },
    x: { label: null, domain: [0, Math.max(1, props.slots.length - 1)], ticks: timeTicks(element), tickFormat: (t: number) => props.slots[t] ?? "" },
    y: { label: `belief: ${props.what}`, domain: [0, 1], percent: false, grid: true, tickFormat: (share: number) => `${Math.round(100 * share)} %` },
    ariaLabel: `belief over the day: ${props.what}`,
    marks: [
      Plot.lineY(bound, { x: "t", y: "value", stroke: theme.ink, strokeDasharray: "4 4", strokeWidth: 1 }),
      ...props.curves.map((curve) =>
        Plot.lineY(line(curve), { x: "t", y: "value", stroke: colour[curve.kind], strokeWidth: curve.kind === "prior" ? 1.5 : 2.5 }),
      ),
      ...(props.at === undefined ? [] : [Plot.ruleX([props.at], { stroke: theme.faint, strokeWidth: 1 })]),
      ...props.curves.map((curve, at) =>
        Plot.text([curve.name], {
          text: (name: string) => name,
          ...legend(element, at),
          fill: colour[curve.kind],
        }),
      ),
      ...(bound.length > 0
        ? [Plot.text(["- - promise"], { text: (name: string) => name, ...legend(element, props.curves.length) })]
        : []),
    ],
  });
  replace(element, chart);
}

/** Where the name of a curve stands: beside the chart, or above it on a phone. */
function legend(element: HTMLElement, at: number): Plot.TextOptions {
  return isNarrow(element)
    ? { frameAnchor: "top-left", textAnchor: "start", dx: 0, dy: -68 + 16 * at }
    : { frameAnchor: "top-right", textAnchor: "start", dx: 8, dy: 4 + 18 * at };
}
