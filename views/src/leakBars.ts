// The error of every mechanism side by side, least first; those that do not apply say why.
import * as Plot from "@observablehq/plot";
import { clipped, isNarrow, paragraph, replace, short, themeOf, widthOf } from "./theme";
import type { LeakBarsProps } from "./types";

export function render(element: HTMLElement, props: LeakBarsProps): void {
  const theme = themeOf(element);
  const rows = props.mechanisms
    .filter((row) => row.error !== null)
    .sort((one, other) => (one.error ?? 0) - (other.error ?? 0));
  if (rows.length === 0) {
    replace(element, paragraph("No mechanism applies here."), refusals(props));
    return;
  }
  const fill = (row: (typeof rows)[number]) =>
    row.chosen ? theme.accent : row.standing === "proved" ? theme.faint : theme.warning;
  const narrow = isNarrow(element);
  const chart = Plot.plot({
    width: widthOf(element),
    height: 20 + 28 * rows.length,
    marginLeft: narrow ? 124 : 180,
    marginRight: narrow ? 64 : 150,
    marginTop: 4,
    marginBottom: 4,
    style: { background: "transparent", color: theme.ink, fontSize: "13px" },
    x: { axis: null, type: "symlog" },
    y: { label: null, domain: rows.map((row) => row.name), tickFormat: (name: string) => clipped(name, narrow ? 14 : 24) },
    ariaLabel: "error of each mechanism",
    marks: [
      Plot.barX(rows, { x: "error", y: "name", fill, title: "standing", insetTop: 3, insetBottom: 3 }),
      Plot.text(rows, {
        x: "error",
        y: "name",
        text: (row) => `${short(row.error ?? 0)}${narrow || row.standing === "proved" ? "" : ` · ${row.standing}`}`,
        textAnchor: "start",
        dx: 6,
      }),
    ],
  });
  replace(element, paragraph(`error on average, in ${props.unit} (each length on a scale of powers of ten)`), chart, refusals(props));
}

function refusals(props: LeakBarsProps): HTMLElement {
  const refused = props.mechanisms.filter((row) => row.refusal !== null);
  const details = document.createElement("details");
  if (refused.length === 0) return details;
  const summary = document.createElement("summary");
  summary.textContent = `${refused.length} others do not apply`;
  const list = document.createElement("ul");
  for (const row of refused) {
    const item = document.createElement("li");
    item.textContent = `${row.name}: ${row.refusal}`;
    list.append(item);
  }
  details.append(summary, list);
  return details;
}
