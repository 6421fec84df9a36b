// The gateway as people and operators see it, with their own key, which stays in memory only.

export interface Stream {
  stream: string;
  kind: "places" | "contexts";
  paused: [number, number | null][];
  forgotten: boolean;
  next: number;
  refused: Record<string, number>;
  seen: { application: string; outputs: number; at: number }[] | null;
}

export interface Spending {
  stream: string;
  spent?: number | null;
  limit?: number;
  remaining?: number;
  until?: number | null;
  alert?: boolean;
  each_day?: string;
  rule?: string;
}

export interface Grant {
  application: string;
  streams: string[] | null;
  every: number;
}

export type Beliefs =
  | { kind: "places"; places: { state: string; belief: number; lat?: number; lon?: number }[] }
  | { kind: "contexts"; contexts: string[]; closed: number; before: number[][]; after: number[][] };

/** One call: a path under the gateway, such as /v1/people. */
export interface Question {
  path: string;
  method?: string;
  body?: object;
}

/** Ask all, in order of their answers; the first refusal is thrown with the gateway's own sentence. */
export type Ask = (questions: Question[]) => Promise<unknown[]>;

/** Straight to the gateway that serves this page, with a key that stays in memory. */
export function direct(key: string): Ask {
  return (questions) => Promise.all(questions.map((one) => called(key, one)));
}

async function called(key: string, { path, method = "GET", body }: Question): Promise<unknown> {
  const headers: Record<string, string> = { authorization: `Bearer ${key}` };
  if (body) headers["content-type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(path, { method, headers, ...(body ? { body: JSON.stringify(body) } : {}) });
  } catch {
    throw new Error("The gateway does not answer; try again in a moment.");
  }
  if (response.status === 204) return null;
  const told = (await response.json().catch(() => ({}))) as { detail?: string; title?: string };
  if (!response.ok) throw new Error(told.detail ?? told.title ?? `The gateway answered ${response.status}.`);
  return told;
}

export const pathOf = (person: string, rest = "") => `/v1/people/${encodeURIComponent(person)}${rest}`;

export const isPaused = (one: Stream) => one.paused.some(([, end]) => end === null);

export const refusals = (one: Stream) => Object.values(one.refused).reduce((sum, count) => sum + count, 0);

const KM = 111.195; // of a degree of latitude

/** The places of a belief as cells in kilometres, for the map. */
export function cellsOf(places: { state: string; belief: number; lat?: number; lon?: number }[]): {
  cells: { name: string; x: number; y: number }[];
  width: number;
  belief: number[];
} | null {
  const known = places.filter((one) => one.lat !== undefined && one.lon !== undefined);
  if (known.length === 0) return null;
  const shrink = Math.cos(((known[0]?.lat ?? 0) * Math.PI) / 180);
  const cells = known.map((one) => ({ name: one.state, x: (one.lon ?? 0) * KM * shrink, y: (one.lat ?? 0) * KM }));
  const rows = [...new Set(cells.map((cell) => cell.y.toFixed(4)))].map(Number).sort((a, b) => a - b);
  const gaps = rows.slice(1).map((row, at) => row - (rows[at] ?? 0)).filter((gap) => gap > 1e-3);
  return { cells, width: gaps.length ? Math.min(...gaps) : 0.5, belief: known.map((one) => one.belief) };
}
