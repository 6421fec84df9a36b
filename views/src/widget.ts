// The views as one module: for notebooks (anywidget calls `render`), and for reports (`mount`).
import { onTheme } from "./theme";
import { VIEWS, type ViewName } from "./index";

interface Model {
  get(name: string): unknown;
  on(event: string, call: () => void): void;
}

/** What a document holds: the name of a view and its props. */
export interface Shown {
  view: ViewName;
  props: unknown;
}

/** Draw one view; a view that is not there says so. */
export function draw(element: HTMLElement, shown: Shown): void {
  const view = VIEWS[shown.view] as ((element: HTMLElement, props: unknown) => void) | undefined;
  if (view === undefined) {
    element.textContent = `there is no view called ${String(shown.view)}`;
    return;
  }
  view(element, shown.props);
}

/** Draw every element of the document that carries props: `<div data-view="…">` and its script. */
export function mount(root: ParentNode): void {
  for (const element of root.querySelectorAll<HTMLElement>("[data-view]")) {
    const source = element.querySelector("script[type='application/json']")?.textContent;
    if (!source) continue;
    const shown = { view: element.dataset.view as ViewName, props: JSON.parse(source) as unknown };
    draw(element, shown);
    onTheme(() => draw(element, shown));
  }
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const show = () => draw(el, { view: model.get("view") as ViewName, props: model.get("props") });
  model.on("change:props", show);
  show();
  return onTheme(show);
}

// a report is one file: it carries this module inside itself and says so
if (typeof document !== "undefined" && document.documentElement.dataset.report !== undefined) mount(document);

export default { render };
