// Simulated releases as a cloud around the truth: what a reader of the release would see.
import * as Plot from "@observablehq/plot";
import { clipped, isNarrow, replace, short, themeOf, widthOf } from "./theme";
import type { NoisePreviewProps } from "./types";

export function render(element: HTMLElement, props: NoisePreviewProps): void {
  const theme = themeOf(element);
  const cloud = props.simulated.flatMap((release) =>
    release.map((value, at) => ({ label: props.labels[at] ?? "", value })),
  );
  const truth = (props.truth ?? []).map((value, at) => ({ label: props.labels[at] ?? "", value }));
  const chart = Plot.plot({
    width: widthOf(element),
    height: 60 + 40 * props.labels.length,
    marginLeft: isNarrow(element) ? 88 : 130,
    marginRight: isNarrow(element) ? 84 : 110,
    marginBottom: 46,
    style: { background: "transparent", color: theme.ink, fontSize: "13px" },
    x: { label: props.unit, labelAnchor: "center", labelArrow: "none", labelOffset: 40, grid: true, nice: true, ticks: isNarrow(element) ? 3 : 6 },
    y: { label: null, domain: props.labels, tickFormat: (name: string) => clipped(name, isNarrow(element) ? 9 : 14), padding: 0.4 },
    ariaLabel: "simulated releases around the true answer",
    marks: [
      Plot.tickX(cloud, { x: "value", y: "label", stroke: theme.accent, strokeOpacity: 0.25, strokeWidth: 2 }),
      Plot.tickX(truth, { x: "value", y: "label", stroke: theme.ink, strokeWidth: 2.5 }),
      Plot.text(truth, {
        y: "label",
        text: (row) => `true ${short(row.value)}`,
        frameAnchor: "right",
        textAnchor: "start",
        dx: 10,
      }),
    ],
  });
  replace(element, chart);
}
