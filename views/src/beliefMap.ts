// A belief over the cells of a map, with the policy, the released point and the estimate on it.
//
// Drawn on a canvas of our own: it needs no network, no WebGL, and keeps up with twenty steps a second.
import { replace, themeOf, widthOf, type Theme } from "./theme";
import type { BeliefMapProps } from "./types";

const RULER = 24; // pixels below the map, for its scale

/** From kilometres to pixels. */
export interface Frame {
  x: (km: number) => number;
  y: (km: number) => number;
  scale: number;
  width: number;
  height: number;
}

export function frameOf(props: BeliefMapProps, width: number): Frame {
  const xs = props.cells.map((cell) => cell.x);
  const ys = props.cells.map((cell) => cell.y);
  const half = props.width / 2;
  const left = Math.min(...xs) - half;
  const top = Math.max(...ys) + half;
  const wide = Math.max(...xs) + half - left;
  const high = top - (Math.min(...ys) - half);
  const scale = Math.min(width / wide, 560 / high);
  return {
    x: (km) => (km - left) * scale,
    y: (km) => (top - km) * scale,
    scale,
    width: wide * scale,
    height: high * scale,
  };
}

/** The cell under a point of the canvas, or null. */
export function cellAt(props: BeliefMapProps, frame: Frame, px: number, py: number): number | null {
  const half = (props.width * frame.scale) / 2;
  const found = props.cells.findIndex(
    (cell) => Math.abs(frame.x(cell.x) - px) <= half && Math.abs(frame.y(cell.y) - py) <= half,
  );
  return found < 0 ? null : found;
}

export function render(element: HTMLElement, props: BeliefMapProps): void {
  const frame = frameOf(props, widthOf(element));
  const canvas = canvasIn(element, frame);
  const pen = canvas.getContext("2d");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", words(props));
  if (pen === null) return;
  const ratio = canvas.width / frame.width;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  draw(pen, frame, props, themeOf(element));
}

/** One canvas an element, kept between steps. */
function canvasIn(element: HTMLElement, frame: Frame): HTMLCanvasElement {
  let canvas = element.querySelector("canvas");
  if (canvas === null) {
    canvas = document.createElement("canvas");
    replace(element, canvas);
  }
  const ratio = globalThis.devicePixelRatio || 1;
  canvas.width = Math.round(frame.width * ratio);
  canvas.height = Math.round((frame.height + RULER) * ratio);
  canvas.style.width = `${frame.width}px`;
  return canvas;
}

function draw(pen: CanvasRenderingContext2D, frame: Frame, props: BeliefMapProps, theme: Theme): void {
  pen.fillStyle = theme.ground;
  pen.fillRect(0, 0, frame.width, frame.height + RULER);
  lines(pen, frame, props, theme);
  heat(pen, frame, props, theme);
  edges(pen, frame, props, theme);
  degrees(pen, frame, props, theme);
  outline(pen, frame, props, theme);
  marks(pen, frame, props, theme);
  ruler(pen, frame, theme);
}

function lines(pen: CanvasRenderingContext2D, frame: Frame, props: BeliefMapProps, theme: Theme): void {
  if (!props.backdrop?.length) return;
  pen.save();
  pen.beginPath();
  pen.rect(0, 0, frame.width, frame.height);
  pen.clip();
  pen.strokeStyle = theme.faint;
  pen.lineWidth = 1.25;
  pen.beginPath();
  for (const line of props.backdrop) line.forEach(([x, y], at) => (at === 0 ? pen.moveTo(frame.x(x), frame.y(y)) : pen.lineTo(frame.x(x), frame.y(y))));
  pen.stroke();
  pen.restore();
}

function heat(pen: CanvasRenderingContext2D, frame: Frame, props: BeliefMapProps, theme: Theme): void {
  const side = props.width * frame.scale;
  const most = Math.max(1e-300, ...props.belief);
  const total = props.belief.reduce((sum, share) => sum + share, 0);
  // a belief that knows nothing is pale, one that is sure is dark
  const depth = Math.min(1, 0.2 + 0.16 * Math.log2((most / total) * props.cells.length));
  pen.strokeStyle = theme.faint;
  pen.lineWidth = 0.25;
  props.cells.forEach((cell, at) => {
    const [x, y] = [frame.x(cell.x) - side / 2, frame.y(cell.y) - side / 2];
    pen.globalAlpha = depth * Math.sqrt((props.belief[at] ?? 0) / most);
    pen.fillStyle = theme.accent;
    pen.fillRect(x, y, side, side);
    pen.globalAlpha = 1;
    pen.strokeRect(x, y, side, side);
  });
}

function edges(pen: CanvasRenderingContext2D, frame: Frame, props: BeliefMapProps, theme: Theme): void {
  pen.strokeStyle = theme.ink;
  pen.globalAlpha = 0.25;
  pen.lineWidth = 0.7;
  pen.beginPath();
  for (const [one, other] of props.edges ?? []) {
    const [a, b] = [props.cells[one], props.cells[other]];
    if (a === undefined || b === undefined) continue;
    pen.moveTo(frame.x(a.x), frame.y(a.y));
    pen.lineTo(frame.x(b.x), frame.y(b.y));
  }
  pen.stroke();
  pen.globalAlpha = 1;
}

function outline(pen: CanvasRenderingContext2D, frame: Frame, props: BeliefMapProps, theme: Theme): void {
  const side = props.width * frame.scale;
  const box = (cells: number[], colour: string, dash: number[]) => {
    pen.strokeStyle = colour;
    pen.lineWidth = 2;
    pen.setLineDash(dash);
    for (const at of cells) {
      const cell = props.cells[at];
      if (cell !== undefined)
        pen.strokeRect(frame.x(cell.x) - side / 2 + 1, frame.y(cell.y) - side / 2 + 1, side - 2, side - 2);
    }
    pen.setLineDash([]);
  };
  (props.zones ?? []).forEach((zone, number) => {
    box(zone, theme.accent, []);
    const first = props.cells[zone[0] ?? -1];
    if (first === undefined) return;
    label(pen, Math.max(8, frame.x(first.x) - side / 2), Math.min(frame.height - 8, frame.y(first.y) + side / 2), String.fromCharCode(65 + number), theme);
  });
  box(props.exposed ?? [], theme.warning, [3, 3]);
  box(props.cursor == null ? [] : [props.cursor], theme.ink, []);
}

/** A letter on a small disc, readable on any ground. */
function label(pen: CanvasRenderingContext2D, x: number, y: number, words: string, theme: Theme): void {
  pen.fillStyle = theme.accent;
  pen.beginPath();
  pen.arc(x, y, 8, 0, 2 * Math.PI);
  pen.fill();
  pen.fillStyle = theme.ground;
  write(pen, words, x, y, 11);
}

function write(pen: CanvasRenderingContext2D, words: string, x: number, y: number, size: number): void {
  pen.font = `${size}px system-ui, sans-serif`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillText(words, x, y);
}

function degrees(pen: CanvasRenderingContext2D, frame: Frame, props: BeliefMapProps, theme: Theme): void {
  const side = props.width * frame.scale;
  if (side < 18) return; // no room for a number
  props.cells.forEach((cell, at) => {
    const count = props.degree?.[at];
    if (count === undefined) return;
    pen.fillStyle = theme.ground;
    pen.globalAlpha = 0.7;
    pen.beginPath();
    pen.arc(frame.x(cell.x), frame.y(cell.y), Math.min(9, side / 2.6), 0, 2 * Math.PI);
    pen.fill();
    pen.globalAlpha = 1;
    pen.fillStyle = count === 0 ? theme.warning : theme.ink;
    write(pen, String(count), frame.x(cell.x), frame.y(cell.y), Math.min(12, side / 2));
  });
}

/** A length one can measure by: 1, 2 or 5 times a power of ten, about a fifth of the map. */
function ruler(pen: CanvasRenderingContext2D, frame: Frame, theme: Theme): void {
  const wanted = frame.width / frame.scale / 5;
  const power = 10 ** Math.floor(Math.log10(wanted));
  const km = power * (wanted / power >= 5 ? 5 : wanted / power >= 2 ? 2 : 1);
  const [x, y, long] = [2, frame.height + 16, km * frame.scale];
  pen.strokeStyle = theme.ink;
  pen.lineWidth = 2;
  pen.beginPath();
  pen.moveTo(x, y - 4);
  pen.lineTo(x, y);
  pen.lineTo(x + long, y);
  pen.lineTo(x + long, y - 4);
  pen.stroke();
  pen.fillStyle = theme.ink;
  write(pen, km < 1 ? `${Math.round(1000 * km)} m` : `${km} km`, x + long + 28, y - 2, 12);
}

function marks(pen: CanvasRenderingContext2D, frame: Frame, props: BeliefMapProps, theme: Theme): void {
  if (props.body && props.body.length > 2) {
    pen.strokeStyle = theme.warning;
    pen.lineWidth = 1.5;
    pen.beginPath();
    for (const [x, y] of props.body) pen.lineTo(frame.x(x), frame.y(y));
    pen.closePath();
    pen.globalAlpha = 0.12;
    pen.fillStyle = theme.warning;
    pen.fill();
    pen.globalAlpha = 1;
    pen.stroke();
  }
  const home = props.truth == null ? undefined : props.cells[props.truth];
  if (props.estimate) dot(pen, frame.x(props.estimate[0]), frame.y(props.estimate[1]), 8, theme.accent, false, theme.ground);
  if (home !== undefined) dot(pen, frame.x(home.x), frame.y(home.y), 5, theme.ink, true, theme.ground);
  if (props.released) cross(pen, frame.x(props.released[0]), frame.y(props.released[1]), theme.warning, theme.ground);
}

function dot(pen: CanvasRenderingContext2D, x: number, y: number, size: number, ink: string, full: boolean, ground: string): void {
  pen.beginPath();
  pen.arc(x, y, size, 0, 2 * Math.PI);
  pen.fillStyle = full ? ink : ground;
  pen.fill();
  // a rim of the ground's colour, so that it is seen on dark cells too
  for (const [colour, width] of full ? [[ground, 2.5] as const] : [[ground, 5.5] as const, [ink, 2.5] as const]) {
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.stroke();
  }
}

function cross(pen: CanvasRenderingContext2D, x: number, y: number, ink: string, ground: string): void {
  pen.beginPath();
  pen.moveTo(x - 6, y - 6);
  pen.lineTo(x + 6, y + 6);
  pen.moveTo(x + 6, y - 6);
  pen.lineTo(x - 6, y + 6);
  for (const [colour, width] of [[ground, 6], [ink, 3]] as const) {
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.stroke();
  }
}

function words(props: BeliefMapProps): string {
  const best = props.belief.reduce((found, share, at) => (share > (props.belief[found] ?? 0) ? at : found), 0);
  const cell = props.cells[best];
  const total = props.belief.reduce((sum, share) => sum + share, 0);
  const share = Math.round((100 * (props.belief[best] ?? 0)) / total);
  return `map of ${props.cells.length} cells; the likeliest is ${cell?.name ?? "none"} with ${share} percent`;
}
