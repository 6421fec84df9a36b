// Every view draws its props, names as text, and says so when there is nothing to draw.
import { beforeEach, describe, expect, it, vi } from "vitest";
import { cellAt, frameOf } from "../src/beliefMap";
import { VIEWS } from "../src/index";
import { neighbour } from "../src/policyEditor";
import { clipped, moments, percent, short } from "../src/theme";
import type { BeliefMapProps } from "../src/types";
import { draw, mount } from "../src/widget";

const HOSTILE = "<img src=x onerror=alert(1)>";
let box: HTMLElement;

beforeEach(() => {
  box = document.createElement("div");
  document.body.replaceChildren(box);
});

const map: BeliefMapProps = {
  cells: [0, 1, 2, 3].map((at) => ({ name: `c${at}`, x: at % 2, y: Math.floor(at / 2) })),
  width: 1,
  belief: [0.1, 0.2, 0.3, 0.4],
};

describe("words", () => {
  it("are short and honest", () => {
    expect(short(1234.5)).toBe("1,230");
    expect(short(0.00001)).toBe("1.0e-5");
    expect(short(4_123_456)).toBe("4.12 million");
    expect(short(3e45)).toBe("10^45");
    expect(short(Infinity)).toBe("∞");
    expect(percent(0.0001)).toBe("< .1 %");
    expect(percent(0.99999)).toBe("> 99.9 %");
    expect(percent(1)).toBe("100 %");
    expect(clipped("abcdef", 4)).toBe("abc…");
  });
});

describe("views", () => {
  it("draws bars, the chosen one among them, and tells refusals", () => {
    VIEWS.leakBars(box, {
      unit: "minutes",
      mechanisms: [
        { name: "lift", error: 25, standing: "proved", chosen: true, refusal: null },
        { name: HOSTILE, error: 2880, standing: "proved", chosen: false, refusal: null },
        { name: "exact", error: null, standing: "", chosen: false, refusal: "too many states" },
      ],
    });
    expect(box.querySelectorAll("rect").length).toBe(2);
    expect(box.querySelector("img")).toBeNull();
    expect(box.textContent).toContain("exact: too many states");
    expect(box.textContent).toContain("1 others do not apply");
  });

  it("says when no mechanism applies", () => {
    VIEWS.leakBars(box, { unit: "", mechanisms: [] });
    expect(box.textContent).toContain("No mechanism applies");
  });

  it("draws a cloud and leaves the truth out where it is not given", () => {
    const props = { labels: ["a", "b"], unit: "minutes", simulated: [[1, 2], [3, 4]] };
    VIEWS.noisePreview(box, { ...props, truth: [2, 3] });
    expect(box.textContent).toContain("true 2");
    VIEWS.noisePreview(box, { ...props, truth: null });
    expect(box.textContent).not.toContain("true");
  });

  it("draws a matrix with its numbers", () => {
    VIEWS.chainHeat(box, { states: ["sit", HOSTILE], transition: [[0.9, 0.1], [0.5, 0.5]] });
    expect(box.textContent).toContain("90");
    expect(box.querySelector("img")).toBeNull();
  });

  it("draws a day, the sensitive lanes marked", () => {
    VIEWS.dayCalendar(box, {
      contexts: ["home", "clinic"],
      sensitive: ["clinic"],
      slots: ["08:00", "09:00"],
      prior: [[0.9, 0.1], [0.8, 0.2]],
      shown: [[0.5, 0], [1, null]],
      played: ["home", null],
      truth: ["home", "clinic"],
    });
    expect(box.textContent).toContain("◆ clinic");
    expect(box.querySelectorAll("circle").length).toBe(2);
  });

  it("draws beliefs and the promise", () => {
    VIEWS.beliefCurves(box, {
      slots: ["1", "2"],
      what: "at the clinic",
      bound: [0.3, 0.3],
      curves: [{ name: "naive", kind: "naive", values: [0.2, 1] }, { name: "chosen", kind: "promised", values: [0.2, 0.3] }],
    });
    expect(box.textContent).toContain("naive");
    expect(box.textContent).toContain("promise");
  });

  it("draws ties, a budget and an audit", () => {
    VIEWS.tieGraph(box, { nodes: [{ name: "a", x: 0, y: 0, component: 0, value: 1 }, { name: "b", x: 1, y: 1, component: 0, value: 2 }], edges: [[0, 1]], what: "bits" });
    expect(box.querySelectorAll("circle").length).toBe(2);
    VIEWS.budgetLine(box, { points: [], limit: 1, until: null });
    expect(box.textContent).toContain("Nothing has been charged");
    VIEWS.budgetLine(box, { points: [{ at: "2026-01-01", spent: 0.5 }], limit: 1, until: "2026-02-01" });
    expect(box.textContent).toContain("limit 1");
    VIEWS.auditDensities(box, {
      title: "Loss",
      losses: [{ name: "promised", value: 1, low: 1, measured: false }, { name: "measured", value: null, low: 2, measured: true }],
      promised: 1,
      broken: true,
      curve: [[0, -1, -2], [1, -2, -1]],
      subject: "entry 1",
      belief: [{ name: "x", before: 0.1, after: 0.9 }],
      adversaries: [{ name: "the chain", rise: 0.2 }],
      event: "it is above 3",
      shares: [{ name: "x", share: 0.25 }],
      unit: "",
    });
    for (const words of ["promised", "2 to ∞", "90 %", "by what an adversary knows", "25 %", "change of the log-odds"]) expect(box.textContent).toContain(words);
  });
});

describe("time", () => {
  it("is never told in parts of a second, however close charges are", () => {
    const at = (ms: number) => new Date(Date.UTC(2026, 0, 1, 12) + ms).toISOString();
    VIEWS.budgetLine(box, { points: [{ at: at(0), spent: 1 }, { at: at(3), spent: 2 }], limit: null, until: null });
    expect(box.textContent).not.toMatch(/\.\d\d\d|:\d\d:\d\d/);
    const [from, to] = moments(new Date(at(0)), new Date(at(3)));
    expect(to.getTime() - from.getTime()).toBe(3_600_000);
    expect(moments(from, to)).toEqual([from, to]);
  });
});

describe("maps", () => {
  it("finds the cell under a point and its neighbours", () => {
    const frame = frameOf(map, 400);
    expect(cellAt(map, frame, frame.x(1), frame.y(1))).toBe(3);
    expect(cellAt(map, frame, -50, -50)).toBeNull();
    expect(neighbour(map, 0, [1, 0])).toBe(1);
    expect(neighbour(map, 0, [0, 1])).toBe(2);
    expect(neighbour(map, 0, [-1, 0])).toBe(0);
  });

  const press = (...keys: KeyboardEventInit[]) => {
    for (const key of keys) box.querySelector(".editor-map")?.dispatchEvent(new KeyboardEvent("keydown", key));
  };

  it("paints a zone by keyboard, and a cell leaves the zone it was in", () => {
    const onZones = vi.fn();
    const props = { map, tool: "zone" as const, current: 1, onZones, onJoin: vi.fn() };
    VIEWS.policyEditor(box, { ...props, map: { ...map, zones: [[1], []] } });
    press({ key: "ArrowRight" }, { key: " " });
    expect(onZones).toHaveBeenLastCalledWith([[], [1]]);
    press({ key: "ArrowUp", shiftKey: true });
    expect(onZones).toHaveBeenLastCalledWith([[], [1, 3]]);
    press({ key: " " });
    expect(onZones).toHaveBeenLastCalledWith([[], [1]]);
  });

  it("joins two cells by keyboard", () => {
    const onJoin = vi.fn();
    box = document.createElement("div");
    VIEWS.policyEditor(box, { map: { ...map, degree: [0, 1, 2, 3] }, tool: "join", current: 0, onZones: vi.fn(), onJoin });
    expect(box.textContent).toContain("looks like no other");
    press({ key: " " }, { key: "ArrowRight" });
    expect(box.textContent).toContain("looks like 1 other");
    expect(box.textContent).toContain("to which?");
    press({ key: " " });
    expect(onJoin).toHaveBeenLastCalledWith([0, 1]);
  });

  it("plays all panes in step, and none twice", () => {
    const seen: number[] = [];
    box = document.createElement("div");
    document.body.append(box);
    box.addEventListener("step", (event) => seen.push((event as CustomEvent<number>).detail));
    const pane = { view: "stepLine" as const, props: { values: [1, 2, 3], what: "error (km)" } };
    const props = { per: "step", count: 3, rate: 25, autoplay: false, columns: [{ title: "one", panes: [pane] }, { title: "other", panes: [pane] }] };
    VIEWS.player(box, props);
    const slider = box.querySelector("input");
    if (slider === null) throw new Error("there is no slider");
    slider.value = "2";
    slider.dispatchEvent(new Event("input"));
    expect(box.textContent).toContain("step 3 of 3");
    VIEWS.player(box, props);
    expect(seen).toEqual([0, 2, 2]);
    expect(box.querySelectorAll("svg").length).toBe(2);
  });

  it("draws lines below the cells from corner to corner", () => {
    const drawn: string[] = [];
    const pen = new Proxy({}, { get: (_, name) => (...args: number[]) => drawn.push(`${String(name)} ${args.map(Math.round).join(" ")}`), set: () => true });
    vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockReturnValue(pen as never);
    VIEWS.beliefMap(box, { ...map, backdrop: [[[0, 0], [1, 1]]] });
    const frame = frameOf(map, 640);
    const corners = drawn.filter((call) => /^(moveTo|lineTo)/.test(call)).slice(0, 2);
    expect(corners).toEqual([`moveTo ${Math.round(frame.x(0))} ${Math.round(frame.y(0))}`, `lineTo ${Math.round(frame.x(1))} ${Math.round(frame.y(1))}`]);
    vi.restoreAllMocks();
  });

  it("describes itself in words", () => {
    VIEWS.beliefMap(box, map);
    expect(box.querySelector("canvas")?.getAttribute("aria-label")).toContain("likeliest is c3 with 40 percent");
  });
});

describe("documents", () => {
  it("mounts what a report holds, and names a view that is not there", () => {
    box.innerHTML = `<div data-view="budgetLine"><script type="application/json">{"points":[],"limit":null,"until":null}</script></div>`;
    mount(document);
    expect(box.textContent).toContain("Nothing has been charged");
    draw(box, { view: "weather" as never, props: {} });
    expect(box.textContent).toBe("there is no view called weather");
  });
});
