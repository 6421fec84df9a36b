// What was spent over time, and when the limit is reached at this pace.
import * as Plot from "@observablehq/plot";
import { isNarrow, moments, paragraph, replace, short, themeOf, widthOf } from "./theme";
import type { BudgetLineProps } from "./types";

export function render(element: HTMLElement, props: BudgetLineProps): void {
  const theme = themeOf(element);
  if (props.points.length === 0) {
    replace(element, paragraph("Nothing has been charged yet."));
    return;
  }
  const rows = props.points.map((point) => ({ at: new Date(point.at), spent: point.spent }));
  const last = rows[rows.length - 1];
  const domain = moments(rows[0]?.at ?? new Date(), props.until ? new Date(props.until) : (last?.at ?? new Date()));
  const chart = Plot.plot({
    width: widthOf(element),
    height: 260,
    marginLeft: 52,
    marginBottom: 44,
    marginRight: 100,
    style: { background: "transparent", color: theme.ink, fontSize: "13px" },
    x: { label: null, type: "utc", domain, ticks: isNarrow(element) ? 3 : 7 },
    y: { label: "amounts of charges, added up (ε)", grid: true, domain: [0, Math.max(last?.spent ?? 0, props.limit ?? 0) * 1.08] },
    ariaLabel: "budget spent over time",
    marks: [
      ...(props.limit === null
        ? []
        : [
            Plot.ruleY([props.limit], { stroke: theme.warning, strokeWidth: 2 }),
            Plot.text([props.limit], { y: (limit: number) => limit, text: (limit: number) => `limit ${short(limit)}`, frameAnchor: "right", textAnchor: "start", dx: 6, fill: theme.warning }),
          ]),
      Plot.areaY(rows, { x: "at", y: "spent", fill: theme.accent, fillOpacity: 0.15, curve: "step-after" }),
      Plot.lineY(rows, { x: "at", y: "spent", stroke: theme.accent, strokeWidth: 2.5, curve: "step-after" }),
      ...(props.until && props.limit !== null && last
        ? [
            Plot.lineY([last, { at: new Date(props.until), spent: props.limit }], { x: "at", y: "spent", stroke: theme.accent, strokeDasharray: "4 4" }),
          ]
        : []),
    ],
  });
  replace(element, chart);
}
