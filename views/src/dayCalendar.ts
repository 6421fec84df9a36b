// A day of contexts: a lane each, dark where it is likely, striped where it is hidden.
import * as Plot from "@observablehq/plot";
import { clipped, isNarrow, percent, replace, themeOf, timeTicks, widthOf } from "./theme";
import type { DayCalendarProps } from "./types";

export function render(element: HTMLElement, props: DayCalendarProps): void {
  const theme = themeOf(element);
  const cells = props.slots.flatMap((slot, t) =>
    props.contexts.map((context, at) => ({
      t,
      slot,
      context,
      prior: props.prior[t]?.[at] ?? 0,
      shown: props.shown[t]?.[at] ?? null,
    })),
  );
  const possible = cells.filter((cell) => cell.shown !== null);
  const until = props.at ?? Infinity;
  const played = (props.played ?? []).map((context, t) => ({ t, context })).filter((row) => row.t <= until);
  const truth = (props.truth ?? []).map((context, t) => ({ t, context })).filter((row) => row.t <= until);
  const sensitive = new Set(props.sensitive);
  const chart = Plot.plot({
    width: widthOf(element),
    height: 70 + 34 * props.contexts.length,
    marginLeft: isNarrow(element) ? 92 : 120,
    marginBottom: 40,
    style: { background: "transparent", color: theme.ink, fontSize: "13px" },
    x: { label: null, type: "linear", domain: [0, props.slots.length], ticks: timeTicks(element), tickFormat: (t: number) => props.slots[t] ?? "" },
    y: {
      label: null,
      domain: props.contexts,
      tickFormat: (name: string) => `${sensitive.has(name) ? "◆ " : ""}${clipped(name, isNarrow(element) ? 10 : 14)}`,
    },
    ariaLabel: "contexts of the day, and how often each is shown",
    marks: [
      Plot.rect(possible, {
        x1: "t",
        x2: (cell) => cell.t + 1,
        y: "context",
        fill: theme.faint,
        fillOpacity: (cell) => 0.08 + 0.5 * Math.sqrt(cell.prior),
        insetTop: 2,
        insetBottom: 2,
      }),
      Plot.rect(possible.filter((cell) => (cell.shown ?? 0) > 0), {
        x1: "t",
        x2: (cell) => cell.t + 1,
        y: "context",
        fill: theme.accent,
        fillOpacity: (cell) => 0.85 * (cell.shown ?? 0),
        insetTop: 8,
        insetBottom: 8,
        title: (cell) =>
          `${cell.slot} ${cell.context}: taken ${percent(cell.prior)}, shown ${percent(cell.shown ?? 0)} of the time`,
      }),
      ...(props.at === undefined ? [] : [Plot.ruleX([props.at + 0.5], { stroke: theme.faint, strokeWidth: 1 })]),
      Plot.dot(truth.filter((row) => props.played?.[row.t] == null), {
        x: (row) => row.t + 0.5,
        y: "context",
        stroke: theme.warning,
        r: 3,
      }),
      Plot.dot(played.filter((row) => row.context !== null), {
        x: (row) => row.t + 0.5,
        y: "context",
        fill: theme.ink,
        r: 3,
      }),
    ],
  });
  replace(element, chart);
}
