/** What the policy says: Q values as bars on the buttons that act, and a picture for each head. */
import { AGENT_CELL, VIEW_SIZE } from "./doorkey.js";
import { cellUnder, view } from "./drawing.js";

export const ACTION_WORDS = {
  left: "Turn left",
  right: "Turn right",
  forward: "Forward",
  pickup: "Pick up",
  drop: "Drop",
  toggle: "Toggle",
  done: "Done",
};
const KEY_WORDS = { left: "←", right: "→", forward: "↑", pickup: "Space", toggle: "Enter" };
/** Actions that DoorKey needs, for who plays without a policy. */
export const TASK_ACTIONS = ["left", "right", "forward", "pickup", "toggle"];
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** The cell that an arrow key leads to on a square of `size` cells, or null for another key. */
export function moved(cell, key, size) {
  const by = ARROWS[key];
  return by ? cell.map((at, i) => Math.max(0, Math.min(size - 1, at + by[i]))) : null;
}

/** The cell of the view that is entity number `i` of the network. */
const cellNumber = (i) => [Math.floor(i / VIEW_SIZE), i % VIEW_SIZE];
const spoken = (cell) => cell.map((at) => at + 1).join();

function html(name, className = "", ...children) {
  const element = document.createElement(name);
  element.className = className;
  element.append(...children);
  return element;
}

/** The actions, each a button with a bar as long as its Q value. */
export class Actions {
  /** @param {HTMLElement} list @param {(action: string) => void} act */
  constructor(list, act) {
    this.list = list;
    this.act = act;
  }

  /** @param {string[]} names of the actions, in the order of the Q values */
  name(names) {
    this.rows = names.map((action) => {
      const bar = html("span", "bar");
      const value = html("span", "value");
      const word = html("span", "word", ACTION_WORDS[action]);
      if (KEY_WORDS[action]) word.append(html("kbd", "", KEY_WORDS[action]));
      const button = html("button", "action", word, html("span", "track", bar), value);
      button.type = "button";
      button.addEventListener("click", (event) => this.act(action, event));
      return { action, button, bar, value };
    });
    this.list.replaceChildren(...this.rows.map(({ button }) => html("li", "", button)));
  }

  /** @param {import("./policy.js").Reply | null} reply */
  show(reply) {
    const values = reply ? reply.qValues : [];
    const low = Math.min(0, ...values);
    const span = Math.max(0, ...values) - low || 1;
    this.rows.forEach(({ action, button, bar, value }, i) => {
      const isChosen = reply?.action === action;
      bar.style.width = reply ? `${(100 * (values[i] - low)) / span}%` : "0";
      value.textContent = reply ? values[i].toFixed(3) : "";
      button.classList.toggle("chosen", isChosen);
      const said = reply
        ? `, Q value ${values[i].toFixed(3)}${isChosen ? ", the policy's choice" : ""}`
        : "";
      button.setAttribute("aria-label", ACTION_WORDS[action] + said);
    });
  }
}

/** One small picture of the view a head; the pressed one is drawn over the world as well. */
export class Heads {
  /**
   * @param {HTMLElement} place
   * @param {() => void} changed called when another cell or head is looked at
   */
  constructor(place, changed) {
    this.place = place;
    this.changed = changed;
    this.from = AGENT_CELL;
    this.chosen = 0;
    this.buttons = [];
  }

  /** @param {[number, number] | null} cell of the view that attends; null is the agent's */
  lookFrom(cell) {
    const from = cell ?? AGENT_CELL;
    if (`${from}` === `${this.from}`) return;
    this.from = from;
    this.changed();
  }

  /** @param {import("./policy.js").Head} head @returns {number[]} what the cell attends to */
  weights(head) {
    return head.scores[this.from[0] * VIEW_SIZE + this.from[1]];
  }

  /** @param {import("./doorkey.js").State} state @param {import("./policy.js").Head[]} heads */
  show(state, heads) {
    while (this.buttons.length < heads.length) this.#add();
    while (this.buttons.length > heads.length) this.buttons.pop().button.remove();
    this.chosen = Math.min(this.chosen, Math.max(0, heads.length - 1));
    heads.forEach((head, i) => {
      const { button, canvas, caption } = this.buttons[i];
      const weights = this.weights(head);
      const most = Math.max(...weights);
      const share = `${Math.round(100 * most)} %`;
      canvas.replaceChildren(view(state, weights, this.from));
      caption.textContent = `${head.name} · up to ${share}`;
      button.setAttribute("aria-pressed", i === this.chosen);
      const [from, to] = [this.from, cellNumber(weights.indexOf(most))].map(spoken);
      const label = `${head.name}: cell ${from} of the view attends most, ${share}, to cell ${to}`;
      button.setAttribute("aria-label", label);
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
    canvas.addEventListener("pointermove", (event) =>
      this.lookFrom(cellUnder(event, canvas, VIEW_SIZE)),
    );
    // A finger that is lifted leaves as well, but goes on being interested.
    canvas.addEventListener(
      "pointerleave",
      ({ pointerType }) => pointerType === "mouse" && this.lookFrom(null),
    );
    button.addEventListener("blur", () => this.lookFrom(null));
    button.addEventListener("keydown", (event) => {
      const cell = moved(this.from, event.key, VIEW_SIZE);
      if (!cell) return;
      event.preventDefault();
      event.stopPropagation();
      this.lookFrom(cell);
    });
    this.buttons.push({ button, canvas, caption });
    this.place.append(button);
  }
}
