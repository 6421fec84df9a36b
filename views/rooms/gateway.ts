// The gateway as a person sees it: their own streams, with their own key, which stays in memory only.

export interface Stream {
  stream: string;
  kind: "places" | "contexts";
  paused: [number, number | null][];
  forgotten: boolean;
  next: number;
  refused: Record<string, number>;
  seen: { application: string; outputs: number; at: number }[];
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

export interface Output {
  id: number;
  status: string;
  context?: string | null;
}

/** One person's calls; a refusal is an Error with the gateway's own sentence. */
export class Gateway {
  constructor(
    readonly person: string,
    readonly key: string,
  ) {}

  async call<Answer>(path: string, method = "GET", body?: object): Promise<Answer> {
    const headers: Record<string, string> = { authorization: `Bearer ${this.key}` };
    if (body) headers["content-type"] = "application/json";
    let response: Response;
    try {
      response = await fetch(`/v1/people/${encodeURIComponent(this.person)}${path}`, {
        method,
        headers,
        ...(body ? { body: JSON.stringify(body) } : {}),
      });
    } catch {
      throw new Error("The gateway does not answer; try again in a moment.");
    }
    if (response.status === 204) return undefined as Answer;
    const told = (await response.json().catch(() => ({}))) as Answer & { detail?: string; title?: string };
    if (!response.ok) throw new Error(told.detail ?? told.title ?? `The gateway answered ${response.status}.`);
    return told;
  }
}

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
