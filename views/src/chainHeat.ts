// How one state follows another: a transition matrix as a heat map with its numbers.
import * as Plot from "@observablehq/plot";
import { clipped, isNarrow, percent, replace, themeOf, widthOf } from "./theme";
import type { ChainHeatProps } from "./types";

const MOST_NUMBERS = 12; // with more states the cells are too small to hold a number

export function render(element: HTMLElement, props: ChainHeatProps): void {
  const theme = themeOf(element);
  const [size, narrow] = [props.states.length, isNarrow(element)];
  const left = narrow ? 84 : 124;
  const cells = props.transition.flatMap((row, from) =>
    row.map((share, to) => ({ from: props.states[from] ?? "", to: props.states[to] ?? "", share })),
  );
  const width = Math.min(widthOf(element), left + 20 + 70 * size);
  const chart = Plot.plot({
    width,
    height: 84 + Math.max(28, (width - left - 20) / size) * 0.7 * size,
    marginLeft: left,
    marginBottom: 56,
    style: { background: "transparent", color: theme.ink, fontSize: "13px" },
    x: { label: props.axes?.[1] ?? "next (%)", labelAnchor: "center", labelArrow: "none", labelOffset: 50, domain: props.states, tickFormat: (name: string) => clipped(name, narrow ? 6 : 10), tickRotate: size > 6 ? -30 : 0 },
    y: { label: props.axes?.[0] ?? "now", labelAnchor: "center", labelArrow: "none", domain: props.states, tickFormat: (name: string) => clipped(name, narrow ? 7 : 12) },
    color: { type: "linear", domain: [0, 1], range: [theme.ground, theme.accent] },
    ariaLabel: "how likely each state follows each other",
    marks: [
      Plot.cell(cells, { x: "to", y: "from", fill: "share", inset: 0.5, title: (cell) => `${cell.from} → ${cell.to}: ${percent(cell.share)}` }),
      ...(size <= MOST_NUMBERS
        ? [
            Plot.text(cells, {
              x: "to",
              y: "from",
              text: (cell) => whole(cell.share),
              fill: (cell) => (cell.share > 0.55 ? theme.ground : theme.ink),
              fontSize: 12,
            }),
          ]
        : []),
    ],
  });
  replace(element, chart);
}

/** Percent in so few letters that they fit a cell. */
function whole(share: number): string {
  if (share === 0) return "·";
  return share < 0.01 ? "<1" : share > 0.99 && share < 1 ? ">99" : `${Math.round(100 * share)}`;
}
