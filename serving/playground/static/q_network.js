/** Computes a `RelationalQNetwork`, or a `RecurrentQNetwork` with an LSTM, for a DoorKey view. */
import { AGENT_CELL, VIEW_SIZE } from "./doorkey.js";
import { argmax, largest, mean, relate, relu, sigmoid, sum } from "./layers.js";
import { oneHot } from "./one_hot.js";

const UNSEEN = 0; // object code of a cell that is not visible
const AGENT = AGENT_CELL[0] * VIEW_SIZE + AGENT_CELL[1];

/**
 * @typedef {object} Changes Changes of a network, as in rrl_tf.interpret.
 * @property {Set<string>} off "round 1": the entities stay as they were before the round;
 *   "round 1, head 2": the attention of the head is zero; "memory": the memory is zero
 * @property {Set<number>} hidden entities to which no entity attends
 */
const NO_CHANGES = { off: new Set(), hidden: new Set() };

export class QNetwork {
  /**
   * @param {{num_heads: number, num_rounds: number, readout: string}} sizes `readout` is "cell" for
   *   the entity of the agent's cell, or "max" for the maximum of each feature over all entities
   * @param {import("./layers.js").Layers} layers
   */
  constructor(sizes, layers) {
    Object.assign(this, { sizes, layers });
    const { head, "core/recurrent_projection": recurrent } = layers.weights;
    this.numActions = head.bias.shape[0] - 1; // the first output of the head is the state value
    /** Number of LSTM units; 0 without an LSTM. */
    this.units = recurrent?.kernel.shape[0] ?? 0;
  }

  /**
   * @param {string} signature
   * @param {object} inputs
   * @param {Changes} [changes]
   */
  predict(signature, { observation, memory, reward }, { off, hidden } = NO_CHANGES) {
    if (signature === "initial_memory") return [[...Array(2 * this.units).fill(0), -1, 0]];
    const { vector, attention } = this.#encode(observation[0].flat(), off, hidden);
    const state = memory && this.#recur(vector, memory[0], reward[0], off.has("memory"));
    const x = this.#stack("hidden", state ? [...vector, ...state.hidden] : vector);
    const [value, ...advantages] = this.layers.dense("head", x);
    const centre = mean(advantages);
    const q = advantages.map((advantage) => value + advantage - centre);
    const action = argmax(q);
    const answer = { action: [action], q_values: [q], ...attention };
    // As in an exported policy, the memory ends with the action and the policy's fingerprint.
    if (state) answer.next_memory = [[...state.hidden, ...state.cell, action, 0]];
    return answer;
  }

  /** Returns the readout vector of a view (N, channels) and the attention between its cells. */
  #encode(view, off, hidden) {
    const isSeen = view.map(([object], n) => object !== UNSEEN && !hidden.has(n));
    const cells = view.map((codes, n) =>
      sum(this.#stack("convolution", oneHot(codes)), this.layers.embedding("positions", n)),
    );
    const maySee = (_, s) => isSeen[s];
    const { entities, attention } = relate(this.layers, cells, this.sizes, maySee, off);
    const vector = this.sizes.readout === "max" ? largest(entities) : entities[AGENT];
    return { vector, attention };
  }

  /** Runs one LSTM step, whose input is the vector, the previous action and the last reward. */
  #recur(vector, memory, reward, isOff) {
    const { units, layers } = this;
    const slots = [memory.slice(0, units), memory.slice(units, 2 * units)];
    const [hidden, cell] = isOff ? slots.map((slot) => slot.map(() => 0)) : slots;
    const before = memory[2 * units]; // the previous action; -1 in the first step of an episode
    const action = Array.from({ length: this.numActions }, (_, i) => Number(i === before));
    const coreInput = [...vector, ...action, before < 0 ? 0 : reward];
    const gates = sum(
      layers.dense("core/input_projection", coreInput),
      layers.dense("core/recurrent_projection", hidden),
    );
    const [input, forget, candidate, output] = [sigmoid, sigmoid, Math.tanh, sigmoid].map(
      (squash, part) => gates.slice(part * units, (part + 1) * units).map(squash),
    );
    const next = cell.map((x, i) => forget[i] * x + input[i] * candidate[i]);
    return { hidden: output.map((gate, i) => gate * Math.tanh(next[i])), cell: next };
  }

  /** Applies all layers `<name>_1`, `<name>_2` and so on, each followed by a ReLU. */
  #stack(name, x) {
    for (let i = 1; this.layers.has(`${name}_${i}`); i++)
      x = this.layers.dense(`${name}_${i}`, x).map(relu);
    return x;
  }
}
