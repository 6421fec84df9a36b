// The props of every view. Python makes them (`shoal/studio/props.py`); no number is computed twice.

/** One mechanism: its error in the query's unit, or the sentence why it does not apply. */
export interface Mechanism {
  name: string;
  error: number | null;
  standing: string;
  chosen: boolean;
  refusal: string | null;
}

export interface LeakBarsProps {
  unit: string;
  mechanisms: Mechanism[];
}

export interface NoisePreviewProps {
  labels: string[];
  unit: string;
  /** The true answer: on this screen only, never in anything taken away. */
  truth: number[] | null;
  simulated: number[][];
}

export interface ChainHeatProps {
  states: string[];
  transition: number[][];
  /** What the rows and the columns are, where they are not now and next. */
  axes?: [string, string];
}

export interface Cell {
  name: string;
  x: number;
  y: number;
}

export interface BeliefMapProps {
  /** Centres of the cells in kilometres, and the width of a cell. */
  cells: Cell[];
  width: number;
  belief: number[];
  /** Lines below the cells, such as coasts: corners in kilometres. */
  backdrop?: [number, number][][];
  edges?: [number, number][];
  /** How many others each cell must look like, written into it. */
  degree?: number[];
  /** Cells drawn by hand, zone by zone. */
  zones?: number[][];
  /** Cells that look like no other. */
  exposed?: number[];
  /** The cell the keyboard is on. */
  cursor?: number | null;
  truth?: number | null;
  released?: [number, number] | null;
  estimate?: [number, number] | null;
  /** The body K of the noise, around the released point: corners in kilometres. */
  body?: [number, number][] | null;
}

export interface PolicyEditorProps {
  map: BeliefMapProps;
  /** What the mouse and the space bar do: paint cells of a zone, or join two cells. */
  tool: "zone" | "join";
  /** The zone that is painted. */
  current: number;
  onZones: (zones: number[][]) => void;
  onJoin: (pair: [number, number]) => void;
}

export interface DayCalendarProps {
  contexts: string[];
  sensitive: string[];
  /** Labels of the slots: clock times or numbers. */
  slots: string[];
  /** How likely each context is at each slot: slots x contexts. */
  prior: number[][];
  /** How often each context is shown where it is taken: slots x contexts; null: cannot occur. */
  shown: (number | null)[][];
  /** A day that was played: the context shown at each slot, null where nothing was. */
  played?: (string | null)[];
  /** The true contexts of that day: on this screen only. */
  truth?: string[];
  /** The slot that is shown while the day plays; later ones are not drawn yet. */
  at?: number;
}

export interface Curve {
  name: string;
  values: (number | null)[];
  kind: "prior" | "naive" | "promised";
}

export interface BeliefCurvesProps {
  slots: string[];
  curves: Curve[];
  /** Where the promise ends, slot by slot. */
  bound: (number | null)[] | null;
  what: string;
  at?: number;
}

export interface StepLineProps {
  values: number[];
  at: number;
  what: string;
  /** Where the axis ends, so that two lines can be compared. */
  top?: number;
}

/** A view inside a player: what stays, and what each step changes. */
export interface Pane {
  view: "beliefCurves" | "beliefMap" | "dayCalendar" | "stepLine";
  props: object;
  frames?: object[];
  caption?: string;
}

export interface PlayerProps {
  /** "step" or "slot", how many there are, and what each is called. */
  per: string;
  count: number;
  slots?: string[];
  /** Steps a second. */
  rate: number;
  autoplay: boolean;
  /** The step that is shown first: the last one where the whole is the answer. */
  start?: number;
  columns: { title: string; panes: Pane[] }[];
}

export interface TieGraphProps {
  nodes: { name: string; x: number; y: number; component: number; value: number }[];
  edges: [number, number][];
  /** What is so of a node that is darker. */
  what: string;
}

export interface BudgetLineProps {
  /** Charges in order: when, and the total after each. */
  points: { at: string; spent: number }[];
  limit: number | null;
  until: string | null;
}

/** One measured or promised loss; `low` is its lower end where only an interval is known, null is infinite. */
export interface Loss {
  name: string;
  value: number | null;
  low: number | null;
  measured: boolean;
}

export interface AuditDensitiesProps {
  /** What is measured, in words. */
  title: string;
  losses: Loss[];
  promised: number | null;
  broken: boolean;
  /** Output, and the log of its density given each of the two facts, where it is one number. */
  curve: [number, number, number][];
  subject: string;
  belief: { name: string; before: number; after: number }[];
  adversaries: { name: string; rise: number }[];
  /** What a black box was seen to do: how often `event`, given each fact. */
  event: string;
  shares: { name: string; share: number }[];
  unit: string;
}

export interface ViewProps {
  leakBars: LeakBarsProps;
  noisePreview: NoisePreviewProps;
  chainHeat: ChainHeatProps;
  beliefMap: BeliefMapProps;
  player: PlayerProps;
  policyEditor: PolicyEditorProps;
  dayCalendar: DayCalendarProps;
  beliefCurves: BeliefCurvesProps;
  stepLine: StepLineProps;
  tieGraph: TieGraphProps;
  budgetLine: BudgetLineProps;
  auditDensities: AuditDensitiesProps;
}
