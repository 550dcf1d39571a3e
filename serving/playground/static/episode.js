/**
 * An episode: a list of moments, with a current one.
 *
 * @typedef {object} Moment
 * @property {import("./doorkey.js").State} state
 * @property {Moment | null} previous
 * @property {number} reward of the step that led here
 * @property {number} sum of the rewards up to here
 * @property {"" | "goal" | "time"} end why the episode ended here, if it did
 * @property {string | null} action taken from here
 * @property {Promise<import("./policy.js").Reply> | null} reply of the policy
 */
import { begin, step } from "./doorkey.js";

export class Episode {
  /** @param {import("./doorkey.js").Start} start */
  constructor(start) {
    this.start = start;
    this.index = 0;
    this.moments = [moment(begin(start), null)];
  }

  /** @returns {Moment} the current one */
  get now() {
    return this.moments[this.index];
  }

  /** Takes an action at the current moment; later moments are dropped. */
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

  /** @param {number} index of the moment to show */
  goTo(index) {
    this.index = Math.max(0, Math.min(index, this.moments.length - 1));
  }

  /** Drops all replies, so that the policy is queried again. */
  forgetReplies() {
    for (const each of this.moments) each.reply = null;
  }
}

function moment(state, previous, reward = 0, end = "") {
  const earned = (previous?.earned ?? 0) + reward;
  return { state, previous, reward, earned, end, action: null, reply: null };
}
