// What an audit measured: the loss against the promise, the output that tells most, beliefs.
import * as Plot from "@observablehq/plot";
import { clipped, isNarrow, paragraph, percent, replace, short, themeOf, widthOf } from "./theme";
import type { AuditDensitiesProps } from "./types";

/** One bar: its value, or its two ends where only an interval is known. */
interface Bar {
  name: string;
  value: number;
  low?: number;
  colour: string;
}

export function render(element: HTMLElement, props: AuditDensitiesProps): void {
  const parts: Node[] = props.losses.length > 0 ? titled(props.title, lossChart(element, props)) : [];
  if (props.adversaries.length > 0)
    parts.push(...titled("Rise of a belief, by what an adversary knows", adversaryChart(element, props)));
  if (props.belief.length > 0) parts.push(...titled(`Belief about ${props.subject || "the secret"}, before and after ${props.losses.length > 0 ? "the worst output" : "a release"}`, beliefChart(element, props)));
  if (props.curve.length > 1) {
    parts.push(...titled("How likely each output is", outputChart(element, props)));
    parts.push(...titled("What each output tells", ratioChart(element, props)));
  }
  if (props.shares.length > 0) parts.push(...titled(`How often ${props.event}`, shareChart(element, props)));
  replace(element, ...parts);
}

function titled(words: string, chart: Node): Node[] {
  return [paragraph(words, "view-title"), chart];
}

function lossChart(element: HTMLElement, props: AuditDensitiesProps): Element {
  const theme = themeOf(element);
  const rows: Bar[] = props.losses.map((loss) => ({
    name: loss.name,
    value: loss.value ?? Infinity,
    low: loss.low ?? loss.value ?? Infinity,
    colour: !loss.measured ? theme.faint : props.broken ? theme.warning : theme.accent,
  }));
  return bars(element, rows, props.promised, short, rows.map((row) => `${row.name} ${short(row.value)}`).join(", "));
}

function adversaryChart(element: HTMLElement, props: AuditDensitiesProps): Element {
  const theme = themeOf(element);
  const rows = props.adversaries.map((one) => ({
    name: one.name,
    value: one.rise,
    colour: one.rise <= (props.promised ?? 0) ? theme.accent : theme.warning,
  }));
  return bars(element, rows, props.promised, percent, "how far a belief can rise, by what an adversary knows");
}

function shareChart(element: HTMLElement, props: AuditDensitiesProps): Element {
  const theme = themeOf(element);
  const rows = props.shares.map((one) => ({ name: `given ${one.name}`, value: one.share, colour: theme.accent }));
  return bars(element, rows, null, percent, `how often ${props.event}`);
}

/** Bars with their numbers; an infinite one fills the width, the part that is not sure is pale. */
function bars(element: HTMLElement, rows: Bar[], mark: number | null, say: (value: number) => string, label: string): Element {
  const theme = themeOf(element);
  const known = [...rows.flatMap((row) => [row.value, row.low ?? 0]), mark ?? 0].filter(Number.isFinite);
  const top = Math.max(1e-9, ...known) * 1.1;
  const end = (value: number) => Math.min(Math.max(value, 0), top);
  const said = (row: Bar) => {
    const [low, high] = [say(row.low ?? row.value), say(row.value)];
    return low === high ? high : `${low} to ${high}`;
  };
  return Plot.plot({
    width: widthOf(element),
    height: 16 + 30 * rows.length,
    marginTop: 4,
    marginBottom: 8,
    marginLeft: isNarrow(element) ? 92 : 150,
    marginRight: isNarrow(element) ? 92 : 170,
    style: { background: "transparent", color: theme.ink, fontSize: "13px" },
    x: { axis: null, domain: [0, top] },
    y: { label: null, domain: rows.map((row) => row.name), tickSize: 0, tickFormat: (name: string) => clipped(name, isNarrow(element) ? 13 : 22) },
    ariaLabel: label,
    marks: [
      Plot.barX(rows, { x: (row) => end(row.value), y: "name", fill: "colour", fillOpacity: 0.4, insetTop: 4, insetBottom: 4 }),
      Plot.barX(rows, { x: (row) => end(row.low ?? row.value), y: "name", fill: "colour", insetTop: 4, insetBottom: 4 }),
      Plot.text(rows, { x: (row) => end(row.value), y: "name", text: said, textAnchor: "start", dx: 6 }),
      ...(mark === null ? [] : [Plot.ruleX([mark], { stroke: theme.ink, strokeDasharray: "4 3" })]),
    ],
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
    height: 46 + 60 * props.belief.length,
    marginTop: 4,
    marginLeft: isNarrow(element) ? 92 : 150,
    marginRight: isNarrow(element) ? 92 : 170,
    style: { background: "transparent", color: theme.ink, fontSize: "13px" },
    x: { label: null, domain: [0, 1], grid: true, ticks: isNarrow(element) ? 3 : 6, tickFormat: (share: number) => `${Math.round(100 * share)} %` },
    y: { label: null, domain: ["before", "after"], tickSize: 0 },
    fy: { label: null, domain: props.belief.map((row) => row.name), tickFormat: (name: string) => clipped(name, isNarrow(element) ? 11 : 22) },
    ariaLabel: "belief before and after the worst output",
    marks: [
      Plot.barX(rows, { x: "share", y: "when", fy: "name", fill: (row) => (row.when === "after" ? theme.warning : theme.faint), insetTop: 2, insetBottom: 2 }),
      Plot.text(rows.filter((row) => row.share <= 0.85), { x: "share", y: "when", fy: "name", text: (row) => percent(row.share), textAnchor: "start", dx: 4 }),
      // a bar that is nearly whole holds its number
      Plot.text(rows.filter((row) => row.share > 0.85), { x: "share", y: "when", fy: "name", text: (row) => percent(row.share), textAnchor: "end", dx: -6, fill: theme.ground }),
    ],
  });
}

function outputChart(element: HTMLElement, props: AuditDensitiesProps): Element {
  const theme = themeOf(element);
  const names = props.belief.map((row) => `given ${clipped(row.name)}`);
  const rows = props.curve.flatMap(([x, one, other]) => [
    { x, y: Math.exp(one), name: names[0] ?? "one value" },
    { x, y: Math.exp(other), name: names[1] ?? "the other" },
  ]);
  return Plot.plot({
    ...frame(element, props),
    y: { label: "probability", grid: true, ticks: 5 },
    color: { domain: [...new Set(rows.map((row) => row.name))], range: [theme.warning, theme.accent], legend: true },
    ariaLabel: "how likely each output is under the two values of the secret",
    marks: [Plot.lineY(rows, { x: "x", y: "y", stroke: "name", strokeWidth: 2 })],
  });
}

function ratioChart(element: HTMLElement, props: AuditDensitiesProps): Element {
  const theme = themeOf(element);
  const rows = props.curve.map(([x, one, other]) => ({ x, y: one - other }));
  const limits = props.promised === null ? [] : [props.promised, -props.promised];
  return Plot.plot({
    ...frame(element, props),
    y: { label: "change of the log-odds (dashed: the promise)", grid: true, ticks: 5 },
    ariaLabel: "what each output tells, with the promise",
    marks: [
      Plot.ruleY(limits, { stroke: theme.ink, strokeDasharray: "4 3" }),
      Plot.lineY(rows, { x: "x", y: "y", stroke: props.broken ? theme.warning : theme.accent, strokeWidth: 2 }),
    ],
  });
}

function frame(element: HTMLElement, props: AuditDensitiesProps): Plot.PlotOptions {
  return {
    width: widthOf(element),
    height: 240,
    marginLeft: 60,
    marginBottom: 44,
    style: { background: "transparent", color: themeOf(element).ink, fontSize: "13px" },
    x: { label: `released value${props.unit ? ` (${props.unit})` : ""}`, labelAnchor: "center", labelArrow: "none", labelOffset: 38 },
  };
}
