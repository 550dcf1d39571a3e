/** Shows the actions of a policy as buttons with bars, and the legend. */
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
const SMALLEST_SCALE = 0.01; // Q values that differ by less have bars of almost equal length
const KEY_WORDS = { left: "←", right: "→", forward: "↑", pickup: "Space", toggle: "Enter" };

/**
 * Shows a legend.
 * @param {HTMLElement} list
 * @param {[string, Node][]} entries the name and the picture of each entry
 */
export function showLegend(list, entries) {
  list.replaceChildren(
    ...entries.map(([name, picture]) => html("li", "", html("span", "swatch", picture), name)),
  );
}

/**
 * Returns how far a Q value with an empty bar is below the best one, whose bar is full.
 * @param {number[]} values
 */
export const scaleOf = (values) =>
  Math.max(SMALLEST_SCALE, Math.max(...values) - Math.min(...values));

/** A list of buttons, one for each action, with bars that show the policy's values. */
export class Actions {
  /**
   * @param {HTMLElement} list
   * @param {(action: string) => void} act called with the action that the user clicks
   */
  constructor(list, act) {
    this.list = list;
    this.act = act;
    this.valueName = "Q value";
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
    const isProbability = this.valueName === "probability";
    const best = Math.max(...values);
    const lengths = values.map((value) =>
      isProbability ? value : 1 - (best - value) / scaleOf(values),
    );
    this.rows.forEach(({ action, button, bar, value }, i) => {
      const isChosen = reply?.action === action;
      bar.style.width = reply ? `${100 * lengths[i]}%` : "0";
      value.textContent = reply ? values[i].toFixed(3) : "";
      button.classList.toggle("chosen", isChosen);
      const label = [ACTION_WORDS[action]];
      if (reply) label.push(`${this.valueName} ${values[i].toFixed(3)}`);
      if (reply && !isProbability) label.push(`${(best - values[i]).toFixed(3)} below the best`);
      if (isChosen) label.push("the policy's choice");
      button.setAttribute("aria-label", label.join(", "));
    });
  }
}
