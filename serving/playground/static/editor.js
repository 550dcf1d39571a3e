/** Defines the level editor, in which the user places the key, the door and the agent. */
import { problemOf } from "./doorkey.js";

export class Editor {
  /**
   * @param {Document} page
   * @param {() => import("./doorkey.js").Start} start returns the current level
   * @param {(start: import("./doorkey.js").Start) => void} changed called with a valid new level
   */
  constructor(page, start, changed) {
    this.start = start;
    this.changed = changed;
    this.panel = page.getElementById("editor");
    this.refusal = page.getElementById("refusal");
    this.cursor = [1, 1];
    page.getElementById("turn").addEventListener("click", () => {
      const level = this.start();
      this.#propose({ ...level, direction: (level.direction + 1) % 4 });
    });
  }

  get isOpen() {
    return this.panel.open;
  }

  /** Places the chosen piece in a cell, or shows why that is not possible. */
  place(cell) {
    this.cursor = cell;
    const piece = this.panel.querySelector("input[name=piece]:checked").value;
    const [x, y] = cell;
    const change = piece === "door" ? { wall: x, door: y } : { [piece]: cell };
    this.#propose({ ...this.start(), ...change });
  }

  #propose(start) {
    const problem = problemOf(start);
    this.refusal.textContent = problem ?? "";
    if (!problem) this.changed(start);
  }
}

/**
 * Returns the part of the URL after # for a level and the model that plays it.
 * @param {object} fields @returns {string}
 */
export function levelToAddress(fields) {
  const texts = Object.entries(fields).filter(([, value]) => value !== "");
  return texts
    .map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%2C", ",")}`)
    .join("&");
}

/** @param {string} text part of a URL after # @returns {boolean} whether it describes a level */
export const namesLevel = (text) =>
  [...new URLSearchParams(text).keys()].some((name) => name !== "model");

/**
 * Returns the level that the part of a URL after # describes, or null if it is not valid.
 * @param {string} text @returns {import("./doorkey.js").Start | null}
 */
export function levelFromAddress(text) {
  const fields = new URLSearchParams(text);
  const number = (part) => (/^\d+$/.test(part) ? Number(part) : NaN);
  const numbers = (name) => (fields.get(name) ?? "").split(",").map(number);
  const [[size], [wall], [door], [direction]] = ["size", "wall", "door", "direction"].map(numbers);
  const start = { size, wall, door, key: numbers("key"), agent: numbers("agent"), direction };
  return problemOf(start) ? null : start;
}
