/**
 * Implements MiniGrid's DoorKey: the level generator, the step function and the observation. All
 * values equal those of MiniGrid; tests/serving/playground/test_playground.py checks this with
 * recorded episodes.
 *
 * @typedef {[number, number]} Cell (x, y), with (0, 0) at the top left.
 *
 * @typedef {object} Start The level and the agent at the start of an episode.
 * @property {number} size cells on a side of the square grid, including the outer walls
 * @property {number} wall x of the wall that splits the grid
 * @property {number} door y of the locked door in that wall
 * @property {Cell} key
 * @property {Cell} agent
 * @property {number} direction 0 right, 1 down, 2 left, 3 up
 *
 * @typedef {object} State The state between two steps. It is immutable: a step returns a new one.
 * @property {number} size
 * @property {number} wall
 * @property {number} door
 * @property {number} lock 0 open, 1 closed, 2 locked
 * @property {Cell | null} key null while the agent carries the key
 * @property {Cell} agent
 * @property {number} direction
 * @property {number} steps number of steps taken in this episode
 */

export const VIEW_SIZE = 7;
/** The cell of the agent in its view. The agent faces towards y = 0. */
export const AGENT_CELL = [3, 6];
/** MiniGrid's actions; a policy may have fewer. */
export const ACTIONS = ["left", "right", "forward", "pickup", "drop", "toggle", "done"];
/** The actions that DoorKey needs. */
export const TASK_ACTIONS = ["left", "right", "forward", "pickup", "toggle"];
/** The unit vector of each direction. */
export const VECTORS = [
  [1, 0],
  [0, 1],
  [-1, 0],
  [0, -1],
];
export const OPEN = 0;
export const CLOSED = 1;
export const LOCKED = 2;
const SMALLEST = 5;

// MiniGrid's codes (object, colour, state) for the possible contents of a cell.
const UNSEEN = [0, 0, 0];
const CODES = {
  empty: [1, 0, 0],
  wall: [2, 5, 0],
  door: [4, 4, 0],
  key: [5, 4, 0],
  goal: [8, 1, 0],
};

const same = (a, b) => a !== null && b !== null && a[0] === b[0] && a[1] === b[1];

/** @param {Start} start @returns {State} the first state of an episode */
export function begin(start) {
  const { size, wall, door, key, agent, direction } = start;
  return { size, wall, door, lock: LOCKED, key, agent, direction, steps: 0 };
}

/**
 * Returns what is in a cell, apart from the agent.
 * @param {State} state @param {Cell} cell @returns {keyof CODES}
 */
export function thingAt(state, [x, y]) {
  const last = state.size - 1;
  if (x <= 0 || y <= 0 || x >= last || y >= last) return "wall";
  if (x === state.wall) return y === state.door ? "door" : "wall";
  if (x === last - 1 && y === last - 1) return "goal";
  return same(state.key, [x, y]) ? "key" : "empty";
}

/** @param {State} state @returns {Cell} the cell in front of the agent */
export function ahead(state) {
  const [dx, dy] = VECTORS[state.direction];
  return [state.agent[0] + dx, state.agent[1] + dy];
}

/**
 * Takes a step in the environment.
 * @param {State} state
 * @param {string} action one of ACTIONS
 * @param {number} [limit] maximum number of steps in an episode; by default MiniGrid's
 * @returns {{state: State, reward: number, terminated: boolean, truncated: boolean}}
 */
export function step(state, action, limit = 10 * state.size ** 2) {
  const next = { ...state, ...change(state, action), steps: state.steps + 1 };
  const terminated = action === "forward" && thingAt(next, next.agent) === "goal";
  const reward = terminated ? 1 - 0.9 * (next.steps / limit) : 0;
  return { state: next, reward, terminated, truncated: next.steps >= limit };
}

/** Returns the properties of a state that an action changes. */
function change(state, action) {
  const front = ahead(state);
  const thing = thingAt(state, front);
  switch (action) {
    case "left":
      return { direction: (state.direction + 3) % 4 };
    case "right":
      return { direction: (state.direction + 1) % 4 };
    case "forward":
      return canEnter(state, thing) ? { agent: front } : {};
    case "pickup":
      return thing === "key" ? { key: null } : {};
    case "drop":
      return state.key === null && thing === "empty" ? { key: front } : {};
    case "toggle":
      return thing === "door" ? { lock: toggled(state) } : {};
    default:
      return {};
  }
}

const canEnter = (state, thing) =>
  thing === "empty" || thing === "goal" || (thing === "door" && state.lock === OPEN);

function toggled(state) {
  if (state.lock === LOCKED && state.key !== null) return LOCKED;
  return state.lock === OPEN ? CLOSED : OPEN;
}

/**
 * Returns the cell of the grid that a cell of the view shows. It may lie outside the grid.
 * @param {State} state @param {Cell} cell @returns {Cell}
 */
export function cellOfView(state, [x, y]) {
  const [dx, dy] = VECTORS[state.direction];
  const aside = x - AGENT_CELL[0];
  const forward = AGENT_CELL[1] - y;
  const [agentX, agentY] = state.agent;
  return [agentX + dx * forward - dy * aside, agentY + dy * forward + dx * aside];
}

/**
 * Returns the observation, in which `view[x][y]` is (object, colour, state, direction).
 * @param {State} state
 * @param {number} [channels] 4, or 3 to omit the direction
 * @returns {number[][][]}
 */
export function observe(state, channels = 4) {
  const seen = visible(state);
  return seen.map((column, x) =>
    column.map((isSeen, y) => {
      const code = isSeen ? codeOf(state, [x, y]) : UNSEEN;
      return channels === 4 ? [...code, state.direction] : [...code];
    }),
  );
}

function codeOf(state, cell) {
  // In the cell of the agent, the view shows what the agent carries.
  if (same(cell, AGENT_CELL)) return state.key === null ? CODES.key : CODES.empty;
  const thing = thingAt(state, cellOfView(state, cell));
  return thing === "door" ? [...CODES.door.slice(0, 2), state.lock] : CODES[thing];
}

/**
 * Returns which cells of the view are visible, as MiniGrid's `Grid.process_vis` does.
 *
 * Visibility spreads from the agent, row by row. From a visible, transparent cell it spreads to the
 * left and right neighbours, to the cell ahead, and to the neighbours of the cell ahead. Each row
 * is swept first to the right and then to the left. As in MiniGrid, the sweep to the right skips
 * the last cell of the row, and the sweep to the left skips the first one.
 * @param {State} state @returns {boolean[][]} `[x][y]`
 */
export function visible(state) {
  const seen = Array.from({ length: VIEW_SIZE }, () => Array(VIEW_SIZE).fill(false));
  seen[AGENT_CELL[0]][AGENT_CELL[1]] = true;
  const spread = (x, y, aside) => {
    if (!seen[x][y] || !isClear(state, cellOfView(state, [x, y]))) return;
    seen[x + aside][y] = true;
    if (y > 0) seen[x][y - 1] = seen[x + aside][y - 1] = true;
  };
  for (let y = VIEW_SIZE - 1; y >= 0; y--) {
    for (let x = 0; x < VIEW_SIZE - 1; x++) spread(x, y, 1);
    for (let x = VIEW_SIZE - 1; x > 0; x--) spread(x, y, -1);
  }
  return seen;
}

function isClear(state, cell) {
  const thing = thingAt(state, cell);
  return thing !== "wall" && (thing !== "door" || state.lock === OPEN);
}

/**
 * Returns a random start with the distribution of MiniGrid's generator.
 * @param {number} size cells on a side, at least 5
 * @param {() => number} [random] returns a random number from 0 to 1, as Math.random does
 * @returns {Start}
 */
export function randomStart(size, random = Math.random) {
  const below = (limit) => Math.floor(random() * limit);
  const wall = 2 + below(size - 4);
  const door = 1 + below(size - 3);
  const cell = () => [1 + below(wall - 1), 1 + below(size - 2)];
  const agent = cell();
  let key = cell();
  while (same(key, agent)) key = cell();
  return { size, wall, door, key, agent, direction: below(4) };
}

/**
 * Returns the reason why a start is not valid in DoorKey, as a sentence, or null if it is valid.
 * @param {Start} start @returns {string | null}
 */
export function problemOf({ size, wall, door, key, agent, direction }) {
  const isWithin = (value, low, high) => Number.isInteger(value) && value >= low && value <= high;
  const isLeft = ([x, y]) => isWithin(x, 1, wall - 1) && isWithin(y, 1, size - 2);
  if (!isWithin(size, SMALLEST, 255)) return `The size must be ${SMALLEST} to 255.`;
  if (!isWithin(wall, 2, size - 3))
    return `The column of the door must be 2 to ${size - 3}.`;
  if (!isWithin(door, 1, size - 3)) return `The row of the door must be 1 to ${size - 3}.`;
  if (!isLeft(key)) return "The key must be to the left of the wall.";
  if (!isLeft(agent)) return "The agent must be to the left of the wall.";
  if (same(key, agent)) return "The key and the agent must be in different cells.";
  return isWithin(direction, 0, 3) ? null : "The direction must be 0, 1, 2 or 3.";
}
