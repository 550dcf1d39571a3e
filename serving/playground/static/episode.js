/**
 * Defines `Episode`, a list of moments of which one is the current one.
 *
 * @typedef {object} Moment The environment between two steps.
 * @property {import("./doorkey.js").State} state
 * @property {Moment | null} previous null at the start of the episode
 * @property {number} reward the reward of the step that led to this moment
 * @property {number} earned the sum of all rewards up to this moment
 * @property {"" | "goal" | "time"} end why the episode ended at this moment; "" if it did not
 * @property {string | null} action the action taken at this moment
 * @property {Promise<import("./policy.js").Reply> | null} reply the policy's reply, if requested
 */
import { begin, step } from "./doorkey.js";

export class Episode {
  /** @param {import("./doorkey.js").Start} start */
  constructor(start) {
    this.start = start;
    this.index = 0;
    this.moments = [moment(begin(start), null)];
  }

  /** @returns {Moment} the current moment */
  get now() {
    return this.moments[this.index];
  }

  /** Takes an action at the current moment and drops all later moments. */
  act(action) {
    if (this.now.end) return;
    const { state, reward, terminated, truncated } = step(this.now.state, action);
    const end = terminated ? "goal" : truncated ? "time" : "";
    this.now.action = action;
    this.moments.splice(
      ++this.index,
      Infinity,
      moment(state, this.moments[this.index - 1], reward, end),
    );
  }

  /** @param {number} index the index of the new current moment; limited to the existing ones */
  goTo(index) {
    this.index = Math.max(0, Math.min(index, this.moments.length - 1));
  }

  /** Drops all replies, for example because the target return has changed. */
  forgetReplies() {
    for (const each of this.moments) each.reply = null;
  }
}

function moment(state, previous, reward = 0, end = "") {
  const earned = (previous?.earned ?? 0) + reward;
  return { state, previous, reward, earned, end, action: null, reply: null };
}
