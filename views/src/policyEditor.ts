// A map on which cells are chosen: with the mouse, or with the arrow keys and the space bar.
import { cellAt, frameOf, render as renderMap } from "./beliefMap";
import { widthOf } from "./theme";
import type { PolicyEditorProps } from "./types";

export function render(element: HTMLElement, props: PolicyEditorProps): void {
  const chosen = new Set(props.map.zone ?? []);
  const frame = frameOf(props.map, widthOf(element));
  let at = props.map.cells.length > 0 ? 0 : -1;
  const show = () => renderMap(element, { ...props.map, zone: [...chosen], truth: at < 0 ? null : at });
  const toggle = (cell: number) => {
    if (!chosen.delete(cell)) chosen.add(cell);
    at = cell;
    show();
    props.onChange([...chosen].sort((one, other) => one - other));
  };
  element.tabIndex = 0;
  element.setAttribute("role", "application");
  element.setAttribute("aria-label", "choose cells: arrow keys move, the space bar chooses");
  element.onclick = (event) => {
    const box = (element.querySelector("canvas") ?? element).getBoundingClientRect();
    const found = cellAt(props.map, frame, event.clientX - box.left, event.clientY - box.top);
    if (found !== null) toggle(found);
  };
  element.onkeydown = (event) => {
    if (event.key === " ") toggle(at);
    else if (event.key in MOVES) at = neighbour(props, at, MOVES[event.key] ?? [0, 0]);
    else return;
    event.preventDefault();
    show();
  };
  show();
}

const MOVES: Record<string, [number, number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, 1],
  ArrowDown: [0, -1],
};

/** The nearest cell in a direction; the same one at the edge of the map. */
export function neighbour(props: PolicyEditorProps, at: number, [dx, dy]: [number, number]): number {
  const here = props.map.cells[at];
  if (here === undefined) return at;
  let [best, least] = [at, Infinity];
  props.map.cells.forEach((cell, other) => {
    const along = (cell.x - here.x) * dx + (cell.y - here.y) * dy;
    const across = Math.abs((cell.x - here.x) * dy) + Math.abs((cell.y - here.y) * dx);
    const away = along + 4 * across;
    if (along > props.map.width / 4 && away < least) [best, least] = [other, away];
  });
  return best;
}
