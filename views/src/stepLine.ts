// One number over the steps of a stream, with a mark at the step that is shown.
import * as Plot from "@observablehq/plot";
import { replace, themeOf, widthOf } from "./theme";
import type { StepLineProps } from "./types";

interface Drawn {
  values: number[];
  width: number;
  ink: string;
  mark: Element | null;
  x: (step: number) => number;
}
const KNOWN = new WeakMap<HTMLElement, Drawn>();

export function render(element: HTMLElement, props: StepLineProps): void {
  const [theme, width] = [themeOf(element), widthOf(element)];
  let drawn = KNOWN.get(element);
  if (drawn?.values !== props.values || drawn.width !== width || drawn.ink !== theme.ink) {
    drawn = draw(element, props, width);
    KNOWN.set(element, drawn);
  }
  // only the mark moves while a track plays
  const x = drawn.x(props.at + 1);
  drawn.mark?.setAttribute("x1", String(x));
  drawn.mark?.setAttribute("x2", String(x));
}

function draw(element: HTMLElement, props: StepLineProps, width: number): Drawn {
  const theme = themeOf(element);
  const rows = props.values.map((value, step) => ({ step: step + 1, value }));
  const chart = Plot.plot({
    width,
    height: 136,
    marginLeft: 48,
    marginRight: 16,
    marginBottom: 40,
    style: { background: "transparent", color: theme.ink, fontSize: "13px" },
    x: { label: "step", labelAnchor: "center", labelArrow: "none", labelOffset: 36 },
    y: { label: props.what, grid: true, ticks: 4, zero: true, ...(props.top ? { domain: [0, props.top] } : {}) },
    ariaLabel: props.what,
    marks: [
      Plot.lineY(rows, { x: "step", y: "value", stroke: theme.accent, strokeWidth: 1.5 }),
      Plot.ruleX([props.at + 1], { stroke: theme.warning, strokeWidth: 2, className: "step-mark" }),
    ],
  });
  replace(element, chart);
  const scale = chart.scale("x");
  const x = (step: number) => Number(scale?.apply(step) ?? 0);
  return { values: props.values, width, ink: theme.ink, mark: chart.querySelector(".step-mark line, line.step-mark"), x };
}
