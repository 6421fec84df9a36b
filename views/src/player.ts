// Steps of a stream played one by one: every pane shows the same step, and one bar moves them all.
import { render as beliefCurves } from "./beliefCurves";
import { render as beliefMap } from "./beliefMap";
import { render as dayCalendar } from "./dayCalendar";
import { render as stepLine } from "./stepLine";
import { paragraph, replace } from "./theme";
import type { Pane, PlayerProps } from "./types";

const PANES = { beliefCurves, beliefMap, dayCalendar, stepLine } as Record<Pane["view"], (element: HTMLElement, props: never) => void>;

interface Playing {
  props: PlayerProps;
  at: number;
  /** Number of the frame that is asked for; 0 when it stands still. */
  frame: number;
  show: () => void;
}
const KNOWN = new WeakMap<HTMLElement, Playing>();

export function render(element: HTMLElement, props: PlayerProps): void {
  const before = KNOWN.get(element);
  if (before?.props === props) {
    before.show(); // another width or another theme: the same step again
    return;
  }
  if (before) cancelAnimationFrame(before.frame);
  const state: Playing = { props, at: props.start ?? 0, frame: 0, show: () => undefined };
  KNOWN.set(element, state);
  const bar = controls(element, state);
  const columns = props.columns.map((column) => columnOf(column.title, column.panes));
  const row = document.createElement("div");
  row.className = "player-columns";
  row.style.cssText = `display:grid;gap:1rem 2rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,${columns.length > 1 ? 20 : 40}rem),1fr))`;
  row.append(...columns.map((column) => column.element));
  replace(element, bar.element, row);
  state.show = () => {
    for (const column of columns) column.show(state.at);
    bar.show();
    element.dispatchEvent(new CustomEvent("step", { detail: state.at, bubbles: true }));
  };
  state.show();
  if (props.autoplay && !still()) bar.toggle();
}

/** Whether the reader asked for no motion. */
function still(): boolean {
  return typeof matchMedia !== "function" || matchMedia("(prefers-reduced-motion: reduce)").matches;
}

function columnOf(title: string, panes: Pane[]): { element: HTMLElement; show: (at: number) => void } {
  const element = document.createElement("div");
  element.style.minWidth = "0";
  if (title) element.append(paragraph(title, "view-title"));
  const places = panes.map((pane) => {
    const place = document.createElement("div");
    place.dataset.name = pane.view;
    element.append(place);
    if (pane.caption) element.append(paragraph(pane.caption));
    return place;
  });
  const show = (at: number) =>
    panes.forEach((pane, number) => {
      const place = places[number];
      if (place) PANES[pane.view](place, { ...pane.props, ...pane.frames?.[at], at } as never);
    });
  return { element, show };
}

function controls(element: HTMLElement, state: Playing): { element: HTMLElement; show: () => void; toggle: () => void } {
  const last = state.props.count - 1;
  const bar = document.createElement("div");
  bar.className = "player-bar";
  bar.style.cssText = "display:flex;flex-wrap:wrap;gap:.5rem 1rem;align-items:center;margin:.5rem 0";
  const button = document.createElement("button");
  button.type = "button";
  const slider = document.createElement("input");
  Object.assign(slider, { type: "range", min: "0", max: String(last), step: "1" });
  slider.style.cssText = "flex:1 1 12rem;min-width:8rem";
  slider.setAttribute("aria-label", `${state.props.per} that is shown`);
  const told = document.createElement("output");
  told.style.cssText = "font-variant-numeric:tabular-nums;min-width:9rem";
  bar.append(button, slider, told);

  const show = () => {
    slider.value = String(state.at);
    const name = state.props.slots?.[state.at];
    told.textContent = `${state.props.per} ${state.at + 1} of ${state.props.count}${name ? `, ${name}` : ""}`;
    slider.setAttribute("aria-valuetext", told.textContent);
    button.textContent = state.frame ? "Pause" : state.at >= last ? "Play again" : "Play";
  };
  const stop = () => {
    cancelAnimationFrame(state.frame);
    state.frame = 0;
    show();
  };
  const go = () => {
    if (state.at >= last) state.at = 0;
    let due = performance.now();
    const tick = (now: number) => {
      if (!element.isConnected || KNOWN.get(element) !== state) return;
      state.frame = requestAnimationFrame(tick);
      if (now < due) return;
      if (state.at >= last) return stop();
      due = Math.max(due + 1000 / state.props.rate, now - 250); // late steps are caught up, none is left out
      state.at += 1;
      state.show();
    };
    state.frame = requestAnimationFrame(tick);
    show();
  };
  const toggle = () => (state.frame ? stop() : go());
  button.onclick = toggle;
  slider.oninput = () => {
    if (state.frame) stop();
    state.at = Number(slider.value);
    state.show();
  };
  return { element: bar, show, toggle };
}
