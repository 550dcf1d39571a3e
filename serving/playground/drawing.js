/** Grids as SVG: the world from above, and what the agent sees. style.css has the colours. */
import {
  AGENT_CELL,
  CLOSED,
  LOCKED,
  observe,
  OPEN,
  thingAt,
  VECTORS,
  VIEW_SIZE,
} from "./doorkey.js";

const THING_OF_CODE = { 0: "unseen", 1: "empty", 2: "wall", 4: "door", 5: "key", 8: "goal" };

/** Makes an SVG element. */
export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** A square picture of `size` cells on a side, hidden from who hears the page: labels say it. */
function picture(size, ...children) {
  const frame = 0.04; // half of the lines at the border
  const box = `${-frame} ${-frame} ${size + 2 * frame} ${size + 2 * frame}`;
  return svg("svg", { viewBox: box, "aria-hidden": "true" }, ...children);
}

/** A cell's ground, and what stands on it: between the two there is room for attention. */
function tile([x, y], thing, lock) {
  const name = ["wall", "unseen", "goal"].includes(thing) ? thing : "empty";
  const standing = thing === "key" ? [key()] : thing === "door" ? door(lock) : [];
  return {
    ground: svg("rect", { class: name, x, y, width: 1, height: 1 }),
    standing: svg("g", { transform: `translate(${x} ${y})` }, ...standing),
  };
}

function key() {
  const shaft = "M.5 .5V.84M.5 .83H.64M.5 .7H.6";
  return svg(
    "g",
    { class: "key" },
    svg("circle", { cx: 0.5, cy: 0.33, r: 0.15 }),
    svg("path", { d: shaft }),
  );
}

function door(lock) {
  if (lock === OPEN)
    return [svg("rect", { class: "door", x: 0.14, y: 0.08, width: 0.72, height: 0.12, rx: 0.04 })];
  const parts = [
    svg("rect", { class: "door", x: 0.2, y: 0.12, width: 0.6, height: 0.76, rx: 0.06 }),
  ];
  if (lock === CLOSED) parts.push(svg("circle", { class: "lock", cx: 0.68, cy: 0.5, r: 0.06 }));
  if (lock === LOCKED)
    parts.push(
      svg("path", {
        class: "lock",
        d: "M.5 .34a.1 .1 0 0 1 .06 .18l.05 .2h-.22l.05-.2a.1 .1 0 0 1 .06-.18z",
      }),
    );
  return parts;
}

function agent([x, y], direction, carries) {
  const turn = `translate(${x} ${y}) rotate(${90 * direction} .5 .5)`;
  const parts = [
    svg("path", { class: "agent", transform: turn, d: "M.2 .2 .84 .5 .2 .8 .32 .5z" }),
  ];
  // A carried key hangs in the cell's corner.
  if (carries)
    parts.push(svg("g", { transform: `translate(${x + 0.56} ${y + 0.54}) scale(.44)` }, key()));
  return parts;
}

/** Attention over cells, as fills: the strongest of `weights` is drawn full. */
function overlay(cells, weights) {
  const most = Math.max(...weights) || 1; // who attends to nothing attends to nothing most
  return cells.map(([x, y], i) =>
    svg("rect", {
      class: "attention",
      x,
      y,
      width: 1,
      height: 1,
      "fill-opacity": (0.75 * weights[i]) / most,
    }),
  );
}

const frame = ([x, y], name) =>
  svg("rect", { class: name, x: x + 0.04, y: y + 0.04, width: 0.92, height: 0.92, rx: 0.06 });

/**
 * The world from above.
 * @param {import("./doorkey.js").State} state
 * @param {object} look
 * @param {[number, number][]} look.seen cells of the grid that the agent sees; others are veiled
 * @param {[number, number][]} [look.cells] of the grid, and
 * @param {number[]} [look.weights] how much attention each gets
 * @param {[number, number]} [look.from] the cell that attends
 * @param {[number, number]} [look.cursor] of the editor
 */
export function world(state, { seen, cells = [], weights = [], from, cursor }) {
  const grounds = [];
  const standing = [];
  const veils = [];
  const isSeen = new Set(seen.map(String));
  for (let x = 0; x < state.size; x++) {
    for (let y = 0; y < state.size; y++) {
      const drawn = tile([x, y], thingAt(state, [x, y]), state.lock);
      grounds.push(drawn.ground);
      standing.push(drawn.standing);
      if (!isSeen.has(`${x},${y}`))
        veils.push(svg("rect", { class: "veil", x, y, width: 1, height: 1 }));
    }
  }
  const marks = agent(state.agent, state.direction, state.key === null);
  if (from) marks.push(frame(from, "from"));
  if (cursor) marks.push(frame(cursor, "cursor"));
  return picture(
    state.size,
    ...grounds,
    ...overlay(cells, weights),
    ...standing,
    ...veils,
    ...marks,
  );
}

/**
 * What the agent sees, with attention on it.
 * @param {import("./doorkey.js").State} state
 * @param {number[]} weights of the cells, x * 7 + y
 * @param {[number, number]} [from] the cell that attends
 */
export function view(state, weights, from) {
  const cells = [];
  const grounds = [];
  const standing = [];
  const codes = observe(state);
  for (let x = 0; x < VIEW_SIZE; x++) {
    for (let y = 0; y < VIEW_SIZE; y++) {
      const [code, , lock] = codes[x][y];
      const isAgent = x === AGENT_CELL[0] && y === AGENT_CELL[1]; // whose code is what it carries
      const drawn = tile([x, y], isAgent ? "empty" : THING_OF_CODE[code], lock);
      cells.push([x, y]);
      grounds.push(drawn.ground);
      standing.push(drawn.standing);
    }
  }
  const marks = agent(AGENT_CELL, UP, state.key === null);
  if (from) marks.push(frame(from, "from"));
  return picture(VIEW_SIZE, ...grounds, ...overlay(cells, weights), ...standing, ...marks);
}

/**
 * Attention as squares, in rows that have names.
 * @param {(number | null)[][]} rows of weights; null is where there is nothing to attend to
 * @param {string[]} names of the rows
 * @param {[number, number, number]} marked x, y and width of what the frame goes around
 */
export function squares(rows, names, [x, y, width]) {
  const margin = 0.15 + 0.32 * Math.max(...names.map((name) => name.length));
  const columns = rows[0].length;
  const grounds = [];
  const [cells, weights] = [[], []];
  rows.forEach((row, j) =>
    row.forEach((weight, i) => {
      const name = weight === null ? "unseen" : "empty";
      grounds.push(svg("rect", { class: name, x: i, y: j, width: 1, height: 1 }));
      cells.push([i, j]);
      weights.push(weight ?? 0);
    }),
  );
  const texts = names.map((name, j) =>
    svg("text", { class: "name", x: -0.15, y: j + 0.68 }, name),
  );
  const box = `${-margin} -0.04 ${margin + columns + 0.04} ${rows.length + 0.08}`;
  return svg(
    "svg",
    { viewBox: box, "aria-hidden": "true" },
    ...texts,
    svg("g", { class: "points" }, ...grounds, ...overlay(cells, weights)),
    svg("rect", { class: "attends", x, y: y + 0.04, width, height: 0.92, rx: 0.06 }),
  );
}

const UP = VECTORS.findIndex(([, dy]) => dy < 0);
