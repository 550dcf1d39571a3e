/** Shows the actions of a policy as buttons with bars, and the legend. */
import { html } from "./heads.js";

export const ACTION_WORDS = {
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
      const [bar, newBar] = [html("span", "bar"), html("span", "new-bar")];
      const [value, newValue] = [html("span", "value"), html("span", "new-value")];
      const tracks = [html("span", "track", bar), html("span", "new-track", newBar)];
      const word = html("span", "word", ACTION_WORDS[action]);
      if (KEY_WORDS[action]) word.append(html("kbd", "", KEY_WORDS[action]));
      const bars = html("span", "tracks", ...tracks);
      const button = html("button", "action", word, bars, value, newValue);
      button.type = "button";
      button.addEventListener("click", (event) => this.act(action, event));
      return { action, button, bars: [bar, newBar], texts: [value, newValue] };
    });
    this.list.replaceChildren(...this.rows.map(({ button }) => html("li", "", button)));
  }

  /**
   * @param {import("./policy.js").Reply | null} reply the reply to show; null shows no values
   * @param {import("./policy.js").Reply | null} [changed] the reply of the changed network, which is
   *   shown beside it
   */
  show(reply, changed = null) {
    const values = reply?.values ?? [];
    const isProbability = this.valueName === "probability";
    const all = [...values, ...(changed?.values ?? [])];
    const [best, scale] = [Math.max(...values), scaleOf(all)];
    const length = (value) => (isProbability ? value : 1 - (Math.max(...all) - value) / scale);
    this.list.classList.toggle("compared", Boolean(changed));
    this.rows.forEach(({ action, button, bars, texts }, i) => {
      [reply, changed].forEach((each, side) => {
        bars[side].style.width = each ? `${100 * length(each.values[i])}%` : "0";
        texts[side].textContent = each ? each.values[i].toFixed(3) : "";
      });
      const isChosen = reply?.action === action;
      button.classList.toggle("chosen", isChosen);
      button.classList.toggle("newly-chosen", changed?.action === action);
      const label = [ACTION_WORDS[action]];
      if (reply) label.push(`${this.valueName} ${values[i].toFixed(3)}`);
      if (changed) label.push(`${changed.values[i].toFixed(3)} after the change`);
      if (reply && !isProbability) label.push(`${(best - values[i]).toFixed(3)} below the best`);
      if (isChosen) label.push("the policy's choice");
      if (changed?.action === action) label.push("the choice after the change");
      button.setAttribute("aria-label", label.join(", "));
    });
  }
}
