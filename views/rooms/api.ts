// Questions to the studio on this computer: begin an act, hear its progress, take its answer.

/** A refusal in one sentence, to be shown as it is. */
export class Refusal extends Error {}

export interface Progress {
  words: string;
  share: number;
}

export interface Running<Answer> {
  answer: Promise<Answer>;
  cancel: () => void;
}

/** What is on a room's table: a spec and its files. */
export interface Bench {
  spec: string;
  files: Record<string, string>;
  plan?: string;
  /** Command lines about the file that was opened. */
  commands?: string[];
}

/** A file of one's own and the columns that were chosen. */
export interface Source {
  file?: string;
  /** A stored map, on which the file is a track. */
  model?: string;
  columns?: Record<string, string | null>;
}

const GONE = "The studio does not answer; start it again with `shoal studio`, open its new address, and this page will go on.";

async function ask(path: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch {
    throw new Refusal(GONE);
  }
  if (response.ok) return response;
  const told = (await response.json().catch(() => ({}))) as { sentence?: string };
  throw new Refusal(told.sentence ?? `The studio answered ${response.status}.`);
}

/** Hand a file to the studio; it stays on this computer. One that is too large is not even read. */
export async function upload(file: File): Promise<string> {
  const { most } = await start();
  if (file.size > most)
    throw new Refusal(`The file is larger than ${Math.round(most / 2 ** 20)} MB; use \`shoal job\` for such data.`);
  const headers = { "x-file-name": encodeURIComponent(file.name) };
  const response = await ask("api/uploads", { method: "POST", body: file, headers });
  return ((await response.json()) as { file: string }).file;
}

export interface Start {
  data: string | null;
  room: string | null;
  most: number;
}

/** The file named on the command line and the room it is for, if there is one; the most bytes that are taken. */
export async function start(): Promise<Start> {
  const response = await ask("api/start", { method: "GET" });
  return (await response.json()) as Start;
}

/** Begin `act` in `room`; `hear` is told how far it is. */
export function run<Answer>(
  room: string,
  act: string,
  params: object,
  hear: (progress: Progress) => void = () => undefined,
): Running<Answer> {
  let name: string | null = null;
  let stopped = false;
  const cancel = () => {
    stopped = true;
    if (name !== null) void fetch(`api/work/${name}`, { method: "DELETE" }).catch(() => undefined);
  };
  const begin = async (): Promise<Answer> => {
    const body = JSON.stringify(params);
    const headers = { "content-type": "application/json" };
    const response = await ask(`api/${room}/${act}`, { method: "POST", body, headers });
    name = ((await response.json()) as { work: string }).work;
    if (stopped) cancel();
    return heard<Answer>(name, hear);
  };
  return { answer: begin(), cancel };
}

function heard<Answer>(name: string, hear: (progress: Progress) => void): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const events = new EventSource(`api/work/${name}`);
    const end = (finish: () => void) => {
      events.close();
      finish();
    };
    events.onmessage = (event) => {
      const said = JSON.parse(event.data as string) as {
        kind: string;
        words: string;
        share: number;
        result: Answer;
        sentence: string;
      };
      if (said.kind === "progress") hear(said);
      else if (said.kind === "done") end(() => resolve(said.result));
      else if (said.kind === "failed") end(() => reject(new Refusal(said.sentence)));
      else end(() => reject(new Refusal("Cancelled.")));
    };
    events.onerror = () => end(() => reject(new Refusal(GONE)));
  });
}

/** Let the browser save text as a file. */
export function save(name: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
