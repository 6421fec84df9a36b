// Colours and words that all views share. Two hues, told apart by colour-blind eyes; the rest is grey.

export interface Theme {
  ink: string;
  faint: string;
  ground: string;
  accent: string;
  warning: string;
}

const LIGHT: Theme = {
  ink: "#1c2529",
  faint: "#8a979d",
  ground: "#ffffff",
  accent: "#0b6e8f",
  warning: "#b5480a",
};
const DARK: Theme = {
  ink: "#e6edf0",
  faint: "#7d8b92",
  ground: "#12191d",
  accent: "#5cc1e6",
  warning: "#f2a065",
};

/** The colours of the page the element stands on: its own choice, else the reader's. */
export function themeOf(element: Element): Theme {
  const chosen = element.closest<HTMLElement>("[data-theme]")?.dataset.theme;
  const dark =
    chosen === undefined
      ? typeof matchMedia === "function" && matchMedia("(prefers-color-scheme: dark)").matches
      : chosen === "dark";
  return dark ? DARK : LIGHT;
}

/** Call whenever the reader turns to light or dark; what comes back ends that. */
export function onTheme(call: () => void): () => void {
  if (typeof matchMedia !== "function") return () => undefined;
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", call);
  return () => scheme.removeEventListener("change", call);
}

/** A number in words: three significant digits, no exponent where a person reads it. */
export function short(value: number): string {
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size > 0 && size < 1e-4) return value.toExponential(1);
  if (size >= 1e15) return `${value < 0 ? "−" : ""}10^${Math.floor(Math.log10(size))}`;
  if (size >= 1e6) return new Intl.NumberFormat("en", { notation: "compact", compactDisplay: "long", maximumSignificantDigits: 3 }).format(value);
  return new Intl.NumberFormat("en", { maximumSignificantDigits: 3 }).format(value);
}

/** A probability as a share of a hundred. */
export function percent(value: number): string {
  const share = 100 * value;
  if (share > 0 && share < 0.1) return "< .1 %";
  if (share > 99.9 && share < 100) return "> 99.9 %";
  return `${short(share)} %`;
}

/** The words with what does not fit left out. */
export function clipped(words: string, longest = 24): string {
  const letters = [...words];
  return letters.length <= longest ? words : `${letters.slice(0, longest - 1).join("")}…`;
}

/** Put nodes in the place of whatever the element held; a chart is one picture with one name. */
export function replace(element: Element, ...nodes: Node[]): void {
  element.replaceChildren(...nodes);
  for (const chart of element.querySelectorAll("svg[aria-label]")) {
    chart.setAttribute("role", "img");
    for (const part of chart.querySelectorAll("[aria-label]")) part.removeAttribute("aria-label");
  }
}

/** The usable width of an element; a sensible one where nothing is laid out. */
export function widthOf(element: Element): number {
  return Math.max(280, Math.min(960, element.clientWidth || 640));
}

/** Whether the element is as narrow as a phone: names get less room, and fewer ticks. */
export function isNarrow(element: Element): boolean {
  return widthOf(element) < 480;
}

/** How many labels of times fit side by side. */
export function timeTicks(element: Element): number {
  return Math.max(2, Math.min(9, Math.floor((widthOf(element) - 180) / 70)));
}

const HOUR = 3_600_000;

/** The ends of a time axis that a person reads: at least an hour apart, so that no tick is a part of a second. */
export function moments(from: Date, to: Date): [Date, Date] {
  const spare = Math.max(0, HOUR - (to.getTime() - from.getTime())) / 2;
  return [new Date(from.getTime() - spare), new Date(to.getTime() + spare)];
}

/** A paragraph of text; names from data are text, never HTML. */
export function paragraph(words: string, name = "view-note"): HTMLParagraphElement {
  const made = document.createElement("p");
  made.className = name;
  made.textContent = words;
  return made;
}
