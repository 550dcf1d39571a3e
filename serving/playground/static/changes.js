/** Shows the parts of a network that the user can switch off, and the map of occlusion effects. */
import { cellUnder, html, moved } from "./heads.js";

/** Begins a name such as "round 1" with a capital. */
const capital = (name) => name[0].toUpperCase() + name.slice(1);

/** Returns "head 2 of round 1" for "round 1, head 2". */
const spoken = (name) => name.split(", ").reverse().join(" of ");

/** Switches for the parts of a network, and the cells that the user has hidden. */
export class Changes {
  /**
   * @param {HTMLElement} place the parent element of the switches
   * @param {() => void} changed called when the user changes a part
   */
  constructor(place, changed) {
    Object.assign(this, { place, changed, off: new Set() });
    /** The hidden cells of the grid, as strings "x,y"; they stay hidden when the agent moves. */
    this.hidden = new Set();
  }

  get isEmpty() {
    return this.off.size + this.hidden.size === 0;
  }

  /** Creates the switches. @param {[string, string[]][]} parts as `partsOf` returns them */
  name(parts) {
    this.parts = parts;
    this.restore();
  }

  /** Switches all parts on and shows all cells. */
  restore() {
    this.off.clear();
    this.hidden.clear();
    this.place.replaceChildren(
      ...this.parts.map(([part, heads]) =>
        html("div", "parts", ...[part, ...heads].map((name) => this.#switch(name, part))),
      ),
    );
  }

  /** Hides a cell of the grid, or shows it again. */
  toggle(cell) {
    const name = `${cell}`;
    if (!this.hidden.delete(name)) this.hidden.add(name);
    this.changed();
  }

  /** Returns whether a head, or its round, is switched off. */
  isOff(head) {
    return this.off.has(head) || this.off.has(head.split(", ")[0]);
  }

  /** Returns what is switched off and hidden, as words for a sentence. */
  words() {
    const names = this.parts.flatMap(([part, heads]) =>
      this.off.has(part) ? [part] : heads.filter((head) => this.off.has(head)),
    );
    const words = names.map(spoken);
    const count = this.hidden.size;
    if (count) words.push(count === 1 ? "1 cell" : `${count} cells`);
    return new Intl.ListFormat("en").format(words);
  }

  #switch(name, part) {
    const box = html("input");
    box.type = "checkbox";
    box.checked = true;
    box.setAttribute("aria-label", spoken(name));
    box.addEventListener("change", () => {
      if (box.checked) this.off.delete(name);
      else this.off.add(name);
      if (name === part)
        for (const other of row(box)) if (other !== box) other.disabled = !box.checked;
      this.changed();
    });
    return html("label", "part", box, capital(name.split(", ").at(-1)));
  }
}

const row = (box) => box.closest(".parts").querySelectorAll("input");

/** The map of occlusion effects, in which the user chooses cells to hide. */
export class OcclusionMap {
  /**
   * @param {HTMLElement} place the parent element of the map
   * @param {import("./heads.js").Grid} grid the layout of the entities
   * @param {(cell: [number, number]) => void} toggle called with the cell that the user chooses
   */
  constructor(place, grid, toggle) {
    Object.assign(this, { grid, cursor: grid.home });
    this.canvas = html("span", "view");
    this.caption = html("span", "caption");
    this.button = html("button", "map", this.canvas, this.caption);
    this.button.type = "button";
    this.button.setAttribute("aria-label", "occlusion");
    const point = (event) => {
      if (event.detail || event.type === "pointermove") // not a click by the keyboard
        this.#move(cellUnder(event, this.canvas, grid.columns, grid.rows));
    };
    this.canvas.addEventListener("pointermove", point);
    this.canvas.addEventListener("pointerleave", () => this.#move(grid.home));
    this.button.addEventListener("click", (event) => {
      if (event.detail && !this.canvas.contains(event.target)) return; // a click on the caption
      point(event);
      toggle(this.cursor);
    });
    this.button.addEventListener("keydown", (event) => {
      const cell = moved(this.cursor, event.key, grid.columns, grid.rows);
      if (!cell) return;
      event.preventDefault();
      event.stopPropagation();
      this.#move(cell);
    });
    place.prepend(this.button);
  }

  /**
   * Shows the effects.
   * @param {number[] | null} drops how much the Q value falls if a cell is hidden; null if unknown
   * @param {Set<number>} hidden the hidden entities
   * @param {(drops: number[], cursor: [number, number]) => Node} picture draws the map
   */
  show(drops, hidden, picture) {
    Object.assign(this, { drops, hidden, picture });
    const { grid, cursor } = this;
    const entity = grid.entity(cursor);
    const isHidden = hidden.has(entity);
    const effect = drops ? effectOf(drops[entity]) : "is computed";
    this.canvas.replaceChildren(picture(drops ?? [], cursor));
    this.caption.textContent = `occlusion, framed cell · Q ${effect}`;
    this.button.setAttribute("aria-pressed", isHidden);
    this.button.setAttribute(
      "aria-label",
      `occlusion: if ${grid.name(cursor)} is hidden, the Q value ${effect}; ` +
        `press to ${isHidden ? "show" : "hide"} it`,
    );
  }

  #move(cell) {
    if (`${cell}` === `${this.cursor}`) return;
    this.cursor = cell;
    if (this.picture) this.show(this.drops, this.hidden, this.picture);
  }
}

/** Describes the effect of a change on a Q value. */
export function effectOf(drop) {
  const size = Math.abs(drop).toFixed(3);
  if (Number(size) === 0) return "stays the same";
  return drop > 0 ? `falls by ${size}` : `rises by ${size}`;
}
