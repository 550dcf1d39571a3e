/** Computes a `DecisionTransformer` for a window of DoorKey steps: returns, views and actions. */
import { argmax, attend, slices, softmax, sum } from "./layers.js";
import { oneHot } from "./one_hot.js";

export class DecisionTransformer {
  /**
   * @param {object} sizes
   * @param {number} sizes.num_heads
   * @param {number} sizes.num_blocks
   * @param {"episode" | "window"} sizes.positions whether the position of a step is its number in
   *   the episode, or its distance from the newest step of the window
   * @param {number} sizes.return_scale returns are divided by this number
   * @param {object} [sizes.default_target] the outputs of the signature `default_target`
   * @param {import("./layers.js").Layers} layers
   */
  constructor(sizes, layers) {
    Object.assign(this, { sizes, layers });
    this.lastPosition = layers.weights["embedding/timestep"].embeddings.shape[0] - 1;
  }

  predict(signature, inputs) {
    if (signature === "default_target") return this.sizes.default_target;
    const isReal = inputs.mask[0].flatMap((real) => [real, real, real]);
    const isSeen = (n, s) => s === n || (s < n && isReal[s]);
    const attention = {};
    let tokens = this.#tokens(inputs);
    for (let i = 1; i <= this.sizes.num_blocks; i++) {
      const { gathered, scores } = attend(this.#heads(`block_${i}`, tokens), isSeen);
      attention[`attention_block_${i}`] = [scores];
      // Only the output of the last block for the newest view is used.
      const rows = i < this.sizes.num_blocks ? [...tokens.keys()] : [tokens.length - 2];
      tokens = rows.map((n) => this.#updated(`block_${i}`, tokens[n], gathered[n]));
    }
    const view = this.layers.norm("final_norm", tokens[0]);
    const probabilities = softmax(this.layers.dense("predict_action", view));
    return { action: [argmax(probabilities)], probabilities: [probabilities], ...attention };
  }

  /** Returns three tokens for each step, to which the embedding of its position is added. */
  #tokens({ states: [states], actions: [actions], returns_to_go: [returns], timesteps: [times] }) {
    return states.flatMap((state, i) => {
      const when = this.sizes.positions === "window" ? states.length - 1 - i : times[i];
      const number = Math.min(when, this.lastPosition);
      const position = this.layers.embedding("embedding/timestep", number);
      const values = {
        return_to_go: returns[i].map((each) => each / this.sizes.return_scale),
        state: state.flat().flatMap(oneHot),
        action: actions[i],
      };
      return Object.entries(values).map(([name, value]) => {
        const token = sum(this.layers.dense(`embedding/${name}`, value), position);
        return this.layers.norm("embedding/norm", token);
      });
    });
  }

  /** Returns the output of a block for a token and the values that it has gathered by attention. */
  #updated(name, token, gathered) {
    const { layers } = this;
    const x = sum(token, layers.dense(`${name}/projection`, gathered));
    const hidden = layers.dense(`${name}/hidden`, layers.norm(`${name}/output_norm`, x));
    return sum(x, layers.dense(`${name}/output`, hidden.map(gelu)));
  }

  #heads(name, tokens) {
    const x = tokens.map((token) => this.layers.norm(`${name}/attention_norm`, token));
    const queries = x.map((row) => this.layers.dense(`${name}/query`, row));
    const both = x.map((row) => this.layers.dense(`${name}/key_value`, row));
    const width = queries[0].length;
    const size = width / this.sizes.num_heads;
    return Array.from({ length: this.sizes.num_heads }, (_, head) => ({
      queries: slices(queries, head * size, size),
      keys: slices(both, head * size, size),
      values: slices(both, width + head * size, size),
    }));
  }
}

/** The error function, by formula 7.1.26 of Abramowitz and Stegun; the error is below 1.5e-7. */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const factors = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];
  const tail = t * factors.reduce((all, factor) => all * t + factor, 0) * Math.exp(-x * x);
  return Math.sign(x) * (1 - tail);
}

const gelu = (x) => (x / 2) * (1 + erf(x / Math.SQRT2));
