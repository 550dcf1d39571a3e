/** Shows the actions of a policy as buttons with bars. */
import { html } from "./heads.js";

const ACTION_WORDS = {
  left: "Turn left",
  right: "Turn right",
  forward: "Forward",
  pickup: "Pick up",
  drop: "Drop",
  toggle: "Toggle",
  done: "Done",
};
const KEY_WORDS = { left: "←", right: "→", forward: "↑", pickup: "Space", toggle: "Enter" };

/** A list of buttons, one for each action, with bars that show the policy's values. */
export class Actions {
  /**
   * @param {HTMLElement} list
   * @param {(action: string) => void} act called with the action that the user clicks
   */
  constructor(list, act) {
    this.list = list;
    this.act = act;
  }

  /**
   * Creates the buttons.
   * @param {string[]} names the names of the actions, in the order of the policy's values
   * @param {string} [valueName] what a value is: "Q value" or "probability"
   */
  name(names, valueName = "Q value") {
    this.valueName = valueName;
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

  /** @param {import("./policy.js").Reply | null} reply the reply to show; null shows no values */
  show(reply) {
    const values = reply?.values ?? [];
    const low = Math.min(0, ...values);
    const high = this.valueName === "probability" ? 1 : Math.max(0, ...values);
    const span = high - low || 1;
    this.rows.forEach(({ action, button, bar, value }, i) => {
      const isChosen = reply?.action === action;
      bar.style.width = reply ? `${(100 * (values[i] - low)) / span}%` : "0";
      value.textContent = reply ? values[i].toFixed(3) : "";
      button.classList.toggle("chosen", isChosen);
      const said = reply
        ? `, ${this.valueName} ${values[i].toFixed(3)}${isChosen ? ", the policy's choice" : ""}`
        : "";
      button.setAttribute("aria-label", ACTION_WORDS[action] + said);
    });
  }
}
