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
  edges?: [number, number][];
  zone?: number[];
  exposed?: number[];
  truth?: number | null;
  released?: [number, number] | null;
  estimate?: [number, number] | null;
  body?: [number, number][];
}

export interface PolicyEditorProps {
  map: BeliefMapProps;
  /** Called with the cells chosen, after every click. */
  onChange: (chosen: number[]) => void;
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
}

export interface StepLineProps {
  values: number[];
  at: number;
  what: string;
}

export interface TieGraphProps {
  nodes: { name: string; x: number; y: number; component: number; value: number }[];
  edges: [number, number][];
  /** What the value of a node stands for. */
  what: string;
}

export interface BudgetLineProps {
  /** Charges in order: when, and the total after each. */
  points: { at: string; spent: number }[];
  limit: number | null;
  until: string | null;
}

export interface AuditDensitiesProps {
  promised: number | null;
  lower: number | null;
  upper: number | null;
  notion: string;
  /** Log-ratio against the output, where the worst case is one number. */
  curve: [number, number, number][];
  belief: { name: string; before: number; after: number }[];
  unit: string;
}

export interface ViewProps {
  leakBars: LeakBarsProps;
  noisePreview: NoisePreviewProps;
  chainHeat: ChainHeatProps;
  beliefMap: BeliefMapProps;
  policyEditor: PolicyEditorProps;
  dayCalendar: DayCalendarProps;
  beliefCurves: BeliefCurvesProps;
  stepLine: StepLineProps;
  tieGraph: TieGraphProps;
  budgetLine: BudgetLineProps;
  auditDensities: AuditDensitiesProps;
}
