/** Draws the whole grid and the agent's view as SVG. style.css has the colours. */
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

const FAINTEST = 0.005; // weights below this fraction of the maximum are not drawn
const EFFECT = { name: "effect", least: 0.01 }; // as for the bars of Q values
const THING_OF_CODE = { 0: "unseen", 1: "empty", 2: "wall", 4: "door", 5: "key", 8: "goal" };

/** Creates an SVG element. */
export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/**
 * Returns a square picture with `size` cells on a side. It is hidden from screen readers, which
 * read the labels instead.
 */
function picture(size, ...children) {
  const frame = 0.04; // half the width of the lines, for those at the border
  const box = `${-frame} ${-frame} ${size + 2 * frame} ${size + 2 * frame}`;
  return svg("svg", { viewBox: box, "aria-hidden": "true" }, ...children);
}

/** Draws the floors of cells; one path for each kind is faster than one square for each cell. */
function grounds(cells, names) {
  const squares = {};
  cells.forEach(([x, y], i) => {
    squares[names[i]] = `${squares[names[i]] ?? ""}M${x} ${y}h1v1h-1z`;
  });
  return Object.entries(squares).map(([name, d]) => svg("path", { class: name, d }));
}

const groundOf = (thing) => (["wall", "unseen", "goal"].includes(thing) ? thing : "empty");

/** Returns the cells of a square grid, column by column. */
const square = (size) =>
  Array.from({ length: size ** 2 }, (_, i) => [Math.floor(i / size), i % size]);

/** Draws the object in a cell, if there is one. */
function standing([x, y], thing, lock) {
  const parts = thing === "key" ? [key()] : thing === "door" ? door(lock) : [];
  return parts.length ? [svg("g", { transform: `translate(${x} ${y})` }, ...parts)] : [];
}

/** Returns the floors and the objects of cells separately; attention is drawn between them. */
function tiles(cells, things, lock) {
  return {
    ground: grounds(cells, things.map(groundOf)),
    things: cells.flatMap((cell, i) => standing(cell, things[i], lock)),
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
  // A carried key is drawn in the corner of the cell.
  if (carries)
    parts.push(svg("g", { transform: `translate(${x + 0.56} ${y + 0.54}) scale(.44)` }, key()));
  return parts;
}

/**
 * Draws the weights of cells: positive ones as squares, negative ones as circles, whose opacity is
 * proportional to the weight.
 * @param {[number, number][]} cells
 * @param {number[]} weights
 * @param {object} [options]
 * @param {string} [options.name] the class of the shapes
 * @param {number} [options.least] the smallest weight that is drawn with the highest opacity
 */
function overlay(cells, weights, { name = "attention", least = 0 } = {}) {
  const most = Math.max(least, ...weights.map(Math.abs));
  return cells.flatMap(([x, y], i) => {
    const part = Math.abs(weights[i]) / most;
    if (!(part > FAINTEST)) return [];
    const style = { class: name, "fill-opacity": (0.75 * part).toFixed(3) };
    return weights[i] > 0
      ? [svg("rect", { ...style, x, y, width: 1, height: 1 })]
      : [svg("circle", { ...style, cx: x + 0.5, cy: y + 0.5, r: 0.25 })];
  });
}

/** Draws a cross over each hidden cell. */
const crosses = (cells) =>
  cells.map(([x, y]) =>
    svg("path", { class: "hidden-cell", d: `M${x + 0.12} ${y + 0.12}l.76 .76m0 -.76l-.76 .76` }),
  );

const frame = ([x, y], name) =>
  svg("rect", { class: name, x: x + 0.04, y: y + 0.04, width: 0.92, height: 0.92, rx: 0.06 });

/**
 * Draws the whole grid.
 * @param {import("./doorkey.js").State} state
 * @param {object} options
 * @param {[number, number][]} options.seen the cells that the agent sees; all others are veiled
 * @param {[number, number][]} [options.cells] the cells that receive attention
 * @param {number[]} [options.weights] how much attention each of these cells receives
 * @param {[number, number]} [options.from] the query cell, which gets a frame
 * @param {[number, number]} [options.cursor] the cell of the editor's cursor
 * @param {[number, number][]} [options.hidden] the cells that the user has hidden
 */
export function world(state, { seen, cells = [], weights = [], from, cursor, hidden = [] }) {
  const all = square(state.size);
  const isSeen = new Set(seen.map(String));
  const veiled = all.filter((cell) => !isSeen.has(`${cell}`));
  const { ground, things } = tiles(
    all,
    all.map((cell) => thingAt(state, cell)),
    state.lock,
  );
  const marks = agent(state.agent, state.direction, state.key === null);
  if (from) marks.push(frame(from, "from"));
  if (cursor) marks.push(frame(cursor, "cursor"));
  return picture(
    state.size,
    ...ground,
    ...overlay(cells, weights),
    ...things,
    ...grounds(
      veiled,
      veiled.map(() => "veil"),
    ),
    ...marks,
    ...crosses(hidden),
  );
}

/**
 * Draws the agent's view with attention.
 * @param {import("./doorkey.js").State} state
 * @param {number[]} weights how much attention each cell receives; cell (x, y) has the index
 *   x * 7 + y
 * @param {[number, number]} [from] the query cell, which gets a frame
 * @param {object} [options]
 * @param {[number, number][]} [options.hidden] the cells that the user has hidden
 * @param {boolean} [options.isEffect] whether the weights are effects of changes, not attention
 */
export function view(state, weights, from, { hidden = [], isEffect = false } = {}) {
  const cells = square(VIEW_SIZE);
  const codes = observe(state);
  const [ax, ay] = AGENT_CELL; // the code of this cell is what the agent carries
  const { ground, things } = tiles(
    cells,
    cells.map(([x, y]) => (x === ax && y === ay ? "empty" : THING_OF_CODE[codes[x][y][0]])),
    state.lock,
  );
  const marks = agent(AGENT_CELL, UP, state.key === null);
  if (from) marks.push(frame(from, isEffect ? "cursor" : "from"));
  const colours = overlay(cells, weights, isEffect ? EFFECT : {});
  return picture(VIEW_SIZE, ...ground, ...colours, ...things, ...marks, ...crosses(hidden));
}

/**
 * Draws attention weights as a table of squares.
 * @param {(number | null)[][]} rows the weights; null marks a cell without an entity
 * @param {[number, number, number]} marked x, y and width of the frame around the query
 */
export function squares(rows, [x, y, width]) {
  const columns = rows[0].length;
  const cells = rows.flatMap((row, y) => row.map((_, x) => [x, y]));
  const weights = rows.flat();
  const names = weights.map((weight) => (weight === null ? "unseen" : "empty"));
  const box = `-0.04 -0.04 ${columns + 0.08} ${rows.length + 0.08}`;
  return svg(
    "svg",
    { viewBox: box, "aria-hidden": "true" },
    svg(
      "g",
      { class: "points" },
      ...grounds(cells, names),
      ...overlay(
        cells,
        weights.map((weight) => weight ?? 0),
      ),
    ),
    svg("rect", { class: "from", x, y: y + 0.04, width, height: 0.92, rx: 0.06 }),
  );
}

/** Returns the name and the picture of each element of the grid. */
export const legendOfGrid = () => {
  const cell = [0, 0];
  const floor = grounds([cell], ["empty"]);
  const pictures = {
    agent: [...floor, ...agent(cell, 0, false)],
    key: [...floor, key()],
    "locked door": [...floor, ...door(LOCKED)],
    "open door": [...floor, ...door(OPEN)],
    goal: grounds([cell], ["goal"]),
    wall: grounds([cell], ["wall"]),
    "not visible to the agent": [...floor, ...grounds([cell], ["veil"])],
  };
  return Object.entries(pictures).map(([name, parts]) => [name, picture(1, ...parts)]);
};

/** Returns the name and the picture of each element of the map of occlusion effects. */
export const legendOfEffects = () => {
  const cell = [0, 0];
  const effect = (weight) =>
    picture(1, ...grounds([cell], ["empty"]), ...overlay([cell], [weight], EFFECT));
  return [
    ["Q value falls if the cell is hidden", effect(1)],
    ["rises", effect(-1)],
    ["hidden", picture(1, ...grounds([cell], ["empty"]), ...crosses([cell]))],
  ];
};

/**
 * Returns the name and the picture of each element of an attention map.
 * @param {string} query the name of the entity with the frame
 */
export function legendOfAttention(query) {
  const cells = [0, 1, 2].map((x) => [x, 0]);
  const box = "-0.04 -0.04 3.08 1.08";
  const scale = svg(
    "svg",
    { viewBox: box, "aria-hidden": "true" },
    ...grounds(
      cells,
      cells.map(() => "empty"),
    ),
    ...overlay(cells, [1, 2, 4]),
  );
  const framed = picture(1, ...grounds([[0, 0]], ["empty"]), frame([0, 0], "from"));
  return [
    ["attention, from low to high", scale],
    [query, framed],
  ];
}

const UP = VECTORS.findIndex(([, dy]) => dy < 0);
