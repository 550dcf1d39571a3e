/** Attention maps: one small picture for each head, in which the user chooses the query. */

/** Makes an element of HTML. */
export function html(name, className = "", ...children) {
  const element = document.createElement(name);
  element.className = className;
  element.append(...children);
  return element;
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** The cell of a grid that an arrow key leads to, or null for another key. */
export function moved(cell, key, columns, rows = columns) {
  const by = ARROWS[key];
  const sizes = [columns, rows];
  return by ? cell.map((at, i) => Math.max(0, Math.min(sizes[i] - 1, at + by[i]))) : null;
}

/** The cell of a picture of a grid that a pointer is over. */
export function cellUnder(event, element, columns, rows = columns) {
  const { left, top, width, height } = element.getBoundingClientRect();
  const shares = [(event.clientX - left) / width, (event.clientY - top) / height];
  const sizes = [columns, rows];
  return shares.map((share, i) => Math.max(0, Math.min(sizes[i] - 1, Math.floor(share * sizes[i]))));
}

/** Where the entities of a network lie: entity i in a cell (x, y), column by column or by rows. */
export class Grid {
  /**
   * @param {number} columns
   * @param {number} rows
   * @param {object} of
   * @param {boolean} [of.byRows] whether entity 1 is to the right of entity 0, or below it
   * @param {[number, number]} of.home the query cell while the pointer is elsewhere
   * @param {(cell: [number, number]) => string} of.name of a cell, for screen readers
   */
  constructor(columns, rows, { byRows = false, home, name }) {
    Object.assign(this, { columns, rows, byRows, home, name });
  }

  /** The entity in a cell. */
  entity([x, y]) {
    return this.byRows ? y * this.columns + x : x * this.rows + y;
  }

  /** The cell of an entity. */
  cell(entity) {
    const length = this.byRows ? this.columns : this.rows;
    const [across, along] = [Math.floor(entity / length), entity % length];
    return this.byRows ? [along, across] : [across, along];
  }
}

/**
 * Reads a reply's outputs `attention_<round>`, each (1, H, N, S).
 * @param {object} outputs of a signature, by name
 * @param {(rows: number, columns: number, round: string) => boolean} [fits] which ones to take
 * @returns {{name: string, scores: number[][]}[]} of all heads, in the order of their rounds;
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

/** The maps of all heads; the selected one is also drawn over the grid. */
export class Heads {
  /**
   * @param {HTMLElement} place
   * @param {Grid} grid
   * @param {() => void} changed called when another query or head is chosen
   */
  constructor(place, grid, changed) {
    Object.assign(this, { place, grid, changed });
    this.from = grid.home;
    this.chosen = 0;
    this.buttons = [];
  }

  /** @param {[number, number] | null} the query cell; null is the home of the grid */
  setQuery(cell) {
    const from = cell ?? this.grid.home;
    if (`${from}` === `${this.from}`) return;
    this.from = from;
    this.changed();
  }

  /** @param {{scores: number[][]}} head @returns {number[]} the attention of the query cell */
  weights(head) {
    return head.scores[this.grid.entity(this.from)];
  }

  /**
   * @param {{name: string, scores: number[][]}[]} heads
   * @param {(weights: number[], from: [number, number], head: object) => Node} picture an
   *   element of the class `points` in it, or all of it, is the grid under the pointer
   */
  show(heads, picture) {
    while (this.buttons.length < heads.length) this.#add();
    while (this.buttons.length > heads.length) this.buttons.pop().button.remove();
    this.chosen = Math.min(this.chosen, Math.max(0, heads.length - 1));
    heads.forEach((head, i) => {
      const { button, canvas, caption } = this.buttons[i];
      const weights = this.weights(head);
      const most = Math.max(...weights);
      const share = `${Math.round(100 * most)} %`;
      const [from, to] = [this.from, this.grid.cell(weights.indexOf(most))].map(this.grid.name);
      canvas.replaceChildren(picture(weights, this.from, head));
      caption.textContent = `${head.name} · max ${share}`;
      button.setAttribute("aria-pressed", i === this.chosen);
      button.setAttribute("aria-label", `${head.name}: ${from} attends most, ${share}, to ${to}`);
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
    // Lifting a finger also leaves the element, but keeps the query.
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
