/** Shows attention maps, one for each head, in which the user chooses the query entity. */

/** Creates an HTML element. */
export function html(name, className = "", ...children) {
  const element = document.createElement(name);
  element.className = className;
  element.append(...children);
  return element;
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** Returns the cell to which an arrow key leads, or null for another key. */
export function moved(cell, key, columns, rows = columns) {
  const by = ARROWS[key];
  const sizes = [columns, rows];
  return by ? cell.map((at, i) => Math.max(0, Math.min(sizes[i] - 1, at + by[i]))) : null;
}

/** Returns the cell under the pointer in an element that shows a grid. */
export function cellUnder(event, element, columns, rows = columns) {
  const { left, top, width, height } = element.getBoundingClientRect();
  const fractions = [(event.clientX - left) / width, (event.clientY - top) / height];
  const sizes = [columns, rows];
  return fractions.map((at, i) => Math.max(0, Math.min(sizes[i] - 1, Math.floor(at * sizes[i]))));
}

/** The layout of a network's entities in a grid, either column by column or row by row. */
export class Grid {
  /**
   * @param {number} columns
   * @param {number} rows
   * @param {object} options
   * @param {boolean} [options.byRows] whether entity 1 is to the right of entity 0; by default it
   *   is below
   * @param {[number, number]} options.home the query cell while the pointer is elsewhere
   * @param {(cell: [number, number]) => string} options.name returns the name of a cell for screen
   *   readers
   */
  constructor(columns, rows, { byRows = false, home, name }) {
    Object.assign(this, { columns, rows, byRows, home, name });
  }

  /** Returns the index of the entity in a cell. */
  entity([x, y]) {
    return this.byRows ? y * this.columns + x : x * this.rows + y;
  }

  /** Returns the cell (x, y) of an entity. */
  cell(entity) {
    const length = this.byRows ? this.columns : this.rows;
    const [across, along] = [Math.floor(entity / length), entity % length];
    return this.byRows ? [along, across] : [across, along];
  }
}

/**
 * Returns the heads in the outputs `attention_<round>` of a reply, each of shape (1, H, N, S).
 * @param {object} outputs the outputs of a signature, by name
 * @param {(rows: number, columns: number, round: string) => boolean} [fits] selects heads by N, S
 *   and the name of the round; by default all are selected
 * @returns {{name: string, scores: number[][]}[]} the heads, in the order of their rounds;
 *   `scores[n][s]` is how much entity n attends to entity s
 */
export function headsOf(outputs, fits = () => true) {
  const heads = [];
  for (const [output, [scores]] of Object.entries(outputs)) {
    if (!output.startsWith("attention_")) continue;
    const round = output.slice("attention_".length).replaceAll("_", " ");
    scores.forEach((of, i) => {
      if (fits(of.length, of[0].length, round))
        heads.push({ name: `${round}, head ${i + 1}`, scores: of });
    });
  }
  return heads.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
}

/** The maps of all heads. The page also draws the selected one over its main picture. */
export class Heads {
  /**
   * @param {HTMLElement} place the parent element of the maps
   * @param {Grid} grid the layout of the entities
   * @param {() => void} changed called when another query or head is chosen
   */
  constructor(place, grid, changed) {
    Object.assign(this, { place, grid, changed });
    this.from = grid.home;
    this.chosen = 0;
    this.buttons = [];
  }

  /** @param {[number, number] | null} cell the query cell; null for the home of the grid */
  setQuery(cell) {
    const from = cell ?? this.grid.home;
    if (`${from}` === `${this.from}`) return;
    this.from = from;
    this.changed();
  }

  /** @param {{scores: number[][]}} head @returns {number[]} how the query attends to each entity */
  weights(head) {
    return head.scores[this.grid.entity(this.from)];
  }

  /**
   * Shows the maps of heads.
   * @param {{name: string, scores: number[][]}[]} heads
   * @param {(weights: number[], from: [number, number], head: object) => Node} picture draws a
   *   map. The pointer chooses the query in its element of class `points`, or else in the whole map.
   */
  show(heads, picture) {
    while (this.buttons.length < heads.length) this.#add();
    while (this.buttons.length > heads.length) this.buttons.pop().button.remove();
    this.chosen = Math.min(this.chosen, Math.max(0, heads.length - 1));
    heads.forEach((head, i) => {
      const { button, canvas, caption } = this.buttons[i];
      const weights = this.weights(head);
      const most = Math.max(...weights);
      const percent = `${Math.round(100 * most)} %`;
      const [from, to] = [this.from, this.grid.cell(weights.indexOf(most))].map(this.grid.name);
      canvas.replaceChildren(picture(weights, this.from, head));
      caption.textContent = `${head.name} · max ${percent}`;
      button.setAttribute("aria-pressed", i === this.chosen);
      button.setAttribute("aria-label", `${head.name}: ${from} attends most, ${percent}, to ${to}`);
    });
  }

  #add() {
    const canvas = html("span", "view");
    const caption = html("span", "caption");
    const button = html("button", "head", canvas, caption);
    const i = this.buttons.length;
    button.type = "button";
    button.addEventListener("click", () => {
      this.chosen = i;
      this.changed();
    });
    const { columns, rows } = this.grid;
    canvas.addEventListener("pointermove", (event) =>
      this.setQuery(
        cellUnder(event, canvas.querySelector(".points") ?? canvas, columns, rows),
      ),
    );
    // Touch screens send this event when the finger is lifted. In that case the query is kept.
    canvas.addEventListener(
      "pointerleave",
      ({ pointerType }) => pointerType === "mouse" && this.setQuery(null),
    );
    button.addEventListener("blur", () => this.setQuery(null));
    button.addEventListener("keydown", (event) => {
      const cell = moved(this.from, event.key, columns, rows);
      if (!cell) return;
      event.preventDefault();
      event.stopPropagation();
      this.setQuery(cell);
    });
    this.buttons.push({ button, canvas, caption });
    this.place.append(button);
  }
}
