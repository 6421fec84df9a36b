// What an audit measured: the loss against the promise, the output that tells most, beliefs.
import * as Plot from "@observablehq/plot";
import { percent, replace, short, themeOf, widthOf } from "./theme";
import type { AuditDensitiesProps } from "./types";

export function render(element: HTMLElement, props: AuditDensitiesProps): void {
  const charts = [lossChart(element, props)];
  if (props.curve.length > 1) charts.push(outputChart(element, props));
  if (props.belief.length > 0) charts.push(beliefChart(element, props));
  replace(element, ...charts);
}

function lossChart(element: HTMLElement, props: AuditDensitiesProps): Element {
  const theme = themeOf(element);
  const [promised, lower] = [props.promised ?? 0, props.lower ?? Infinity];
  const upper = props.upper ?? Infinity;
  const known = [promised, lower, upper].filter(Number.isFinite);
  const top = Math.max(1e-9, ...known) * 1.2;
  const broken = lower > promised * (1 + 1e-9);
  return Plot.plot({
    width: widthOf(element),
    height: 130,
    marginTop: 34,
    marginBottom: 44,
    marginLeft: 90,
    marginRight: 110,
    style: { background: "transparent", color: theme.ink, fontSize: "13px" },
    x: { label: "log-odds that some output may change", labelAnchor: "center", labelArrow: "none", labelOffset: 38, domain: [0, top], grid: true },
    y: { label: null, domain: ["measured"] },
    ariaLabel: `measured loss ${short(lower)} to ${short(upper)}, promised ${short(promised)}`,
    marks: [
      Plot.barX([Math.min(lower, top)], { x: (loss: number) => loss, y: () => "measured", fill: broken ? theme.warning : theme.accent }),
      Plot.ruleX([Math.min(lower, top), Math.min(upper, top)], { stroke: theme.ink }),
      Plot.ruleX([promised], { stroke: theme.warning, strokeWidth: 2.5, strokeDasharray: "5 3" }),
      Plot.text([promised], { x: (value: number) => value, text: (value: number) => `promised ${short(value)}`, frameAnchor: "top", dy: -18, fill: theme.warning }),
    ],
  });
}

function outputChart(element: HTMLElement, props: AuditDensitiesProps): Element {
  const theme = themeOf(element);
  const rows = props.curve.flatMap(([x, one, other]) => [
    { x, y: one, name: "one value" },
    { x, y: other, name: "the other" },
  ]);
  return Plot.plot({
    width: widthOf(element),
    height: 240,
    marginLeft: 60,
    style: { background: "transparent", color: theme.ink, fontSize: "13px" },
    x: { label: `released value (${props.unit})`, labelAnchor: "center", labelArrow: "none" },
    y: { label: "how likely (log)", type: "linear", grid: true },
    color: { domain: ["one value", "the other"], range: [theme.accent, theme.warning], legend: true },
    ariaLabel: "how likely each output is under the two values of the secret",
    marks: [Plot.lineY(rows, { x: "x", y: "y", stroke: "name", strokeWidth: 2 })],
  });
}

function beliefChart(element: HTMLElement, props: AuditDensitiesProps): Element {
  const theme = themeOf(element);
  const rows = props.belief.flatMap((row) => [
    { name: row.name, when: "before", share: row.before },
    { name: row.name, when: "after", share: row.after },
  ]);
  return Plot.plot({
    width: widthOf(element),
    height: 60 + 44 * props.belief.length,
    marginLeft: 60,
    marginRight: 110,
    style: { background: "transparent", color: theme.ink, fontSize: "13px" },
    x: { label: null, domain: [0, 1], grid: true, tickFormat: (share: number) => `${Math.round(100 * share)} %` },
    y: { label: null, domain: ["before", "after"] },
    fy: { label: null },
    ariaLabel: "belief before and after the worst output",
    marks: [
      Plot.barX(rows, { x: "share", y: "when", fy: "name", fill: (row) => (row.when === "after" ? theme.warning : theme.faint), insetTop: 2, insetBottom: 2 }),
      Plot.text(rows, { x: "share", y: "when", fy: "name", text: (row) => percent(row.share), textAnchor: "start", dx: 4 }),
    ],
  });
}
