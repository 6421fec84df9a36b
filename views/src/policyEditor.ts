// A map on which zones are painted and places joined: with the mouse, or with the keyboard alone.
import { cellAt, frameOf, render as renderMap } from "./beliefMap";
import { paragraph, replace, widthOf } from "./theme";
import type { BeliefMapProps, PolicyEditorProps } from "./types";

interface Standing {
  cursor: number;
  /** The first of two cells that are to be joined. */
  from: number | null;
}
const KNOWN = new WeakMap<HTMLElement, Standing>();
const HELP = {
  zone: "Drag over cells to put them into the zone, or out of it. Keyboard: arrows move, the space bar paints, Shift with an arrow paints on.",
  join: "Click one cell, then another: they are joined, or set apart again. Keyboard: arrows move, the space bar takes a cell.",
};

export function render(element: HTMLElement, props: PolicyEditorProps): void {
  const standing = KNOWN.get(element) ?? { cursor: 0, from: null };
  KNOWN.set(element, standing);
  if (props.tool === "zone") standing.from = null;
  const [map, told] = parts(element, props.tool);
  const zones = (props.map.zones ?? []).map((zone) => new Set(zone));
  while (zones.length <= props.current) zones.push(new Set());
  let painting: boolean | null = null;

  const show = () => {
    renderMap(map, { ...props.map, zones: zones.map((zone) => [...zone]), cursor: document.activeElement === map ? standing.cursor : null, truth: standing.from });
    told.textContent = words(props.map, standing);
  };
  const paint = (cell: number) => {
    const zone = zones[props.current];
    painting ??= !zone?.has(cell);
    for (const one of zones) one.delete(cell); // a cell is in one zone at most
    if (painting) zone?.add(cell);
  };
  const finish = () => {
    painting = null;
    props.onZones(zones.map((zone) => [...zone].sort((one, other) => one - other)));
  };
  const take = (cell: number) => {
    standing.cursor = cell;
    if (props.tool === "zone") paint(cell);
    else if (standing.from === null) standing.from = cell;
    else {
      const pair: [number, number] = [standing.from, cell];
      standing.from = null;
      if (pair[0] !== pair[1]) props.onJoin(pair);
    }
    show();
  };
  const under = (event: PointerEvent) => {
    const box = map.querySelector("canvas")?.getBoundingClientRect();
    const frame = frameOf(props.map, widthOf(map));
    // a canvas may be shown smaller than it was drawn
    const shrunk = box && box.width > 0 ? frame.width / box.width : 1;
    return box ? cellAt(props.map, frame, (event.clientX - box.left) * shrunk, (event.clientY - box.top) * shrunk) : null;
  };
  map.onpointerdown = (event) => {
    const cell = under(event);
    if (cell === null) return;
    map.focus({ preventScroll: true });
    if (props.tool === "zone") map.setPointerCapture(event.pointerId);
    take(cell);
  };
  map.onpointermove = (event) => {
    const cell = under(event);
    if (painting === null || cell === null || cell === standing.cursor) return;
    standing.cursor = cell;
    paint(cell);
    show();
  };
  map.onpointerup = map.onpointercancel = () => (painting === null ? undefined : finish());
  map.onkeydown = (event) => {
    const move = MOVES[event.key];
    if (event.key !== " " && move === undefined) return;
    event.preventDefault();
    if (move) standing.cursor = neighbour(props.map, standing.cursor, move);
    if (event.key === " ") take(standing.cursor);
    else if (event.shiftKey && props.tool === "zone") {
      painting = true;
      paint(standing.cursor);
    }
    if (painting !== null) finish();
    show();
  };
  map.onfocus = map.onblur = show;
  show();
}

/** The map and the line that says what is under the cursor, made once an element. */
function parts(element: HTMLElement, tool: PolicyEditorProps["tool"]): [HTMLElement, HTMLElement] {
  let map = element.querySelector<HTMLElement>(".editor-map");
  if (map === null) {
    map = document.createElement("div");
    map.className = "editor-map";
    map.tabIndex = 0;
    map.style.cssText = "touch-action:none;cursor:crosshair";
    map.setAttribute("role", "application");
    const told = paragraph("", "view-note editor-told");
    told.setAttribute("aria-live", "polite");
    replace(element, map, told, paragraph("", "view-note editor-help"));
  }
  map.setAttribute("aria-label", `map to draw on. ${HELP[tool]}`);
  const help = element.querySelector(".editor-help");
  if (help) help.textContent = HELP[tool];
  return [map, element.querySelector<HTMLElement>(".editor-told") ?? map];
}

function words(map: BeliefMapProps, { cursor, from }: Standing): string {
  const count = map.degree?.[cursor];
  const alike = count === undefined ? "" : count === 0 ? ": looks like no other" : `: looks like ${count} other${count === 1 ? "" : "s"}`;
  const first = from === null ? "" : `join ${map.cells[from]?.name ?? ""} to which? `;
  return `${first}cell ${map.cells[cursor]?.name ?? ""}${alike}`;
}

const MOVES: Record<string, [number, number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, 1],
  ArrowDown: [0, -1],
};

/** The nearest cell in a direction; the same one at the edge of the map. */
export function neighbour(map: BeliefMapProps, at: number, [dx, dy]: [number, number]): number {
  const here = map.cells[at];
  if (here === undefined) return at;
  let [best, least] = [at, Infinity];
  map.cells.forEach((cell, other) => {
    const along = (cell.x - here.x) * dx + (cell.y - here.y) * dy;
    const across = Math.abs((cell.x - here.x) * dy) + Math.abs((cell.y - here.y) * dx);
    const away = along + 4 * across;
    if (along > map.width / 4 && away < least) [best, least] = [other, away];
  });
  return best;
}
