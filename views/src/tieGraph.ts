// Who is tied to whom: people as dots, ties as lines, dark where one person's value tells most.
import * as Plot from "@observablehq/plot";
import { clipped, paragraph, replace, short, themeOf, widthOf } from "./theme";
import type { TieGraphProps } from "./types";

export function render(element: HTMLElement, props: TieGraphProps): void {
  const theme = themeOf(element);
  const ties = props.edges.map(([one, other]) => ({ a: props.nodes[one], b: props.nodes[other] }));
  const most = Math.max(1e-12, ...props.nodes.map((node) => node.value));
  const width = widthOf(element);
  const chart = Plot.plot({
    width,
    height: Math.min(560, width * 0.7),
    style: { background: "transparent", color: theme.ink, fontSize: "12px" },
    margin: 14,
    x: { axis: null },
    y: { axis: null },
    color: { type: "linear", domain: [0, most], range: [theme.ground, theme.accent], label: props.what },
    ariaLabel: `${props.nodes.length} people and ${props.edges.length} ties`,
    marks: [
      Plot.link(ties, { x1: (tie) => tie.a?.x, y1: (tie) => tie.a?.y, x2: (tie) => tie.b?.x, y2: (tie) => tie.b?.y, stroke: theme.faint, strokeOpacity: 0.6 }),
      Plot.dot(props.nodes, {
        x: "x",
        y: "y",
        r: props.nodes.length > 80 ? 4 : 7,
        fill: "value",
        stroke: theme.ink,
        title: (node) => `${clipped(node.name)}: ${short(node.value)}`,
      }),
    ],
  });
  replace(element, chart, paragraph(`Stronger colour: ${props.what} (at most ${short(most)}).`));
}
