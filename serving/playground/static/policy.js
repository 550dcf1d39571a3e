/**
 * A Q network that plays DoorKey, with or without a memory.
 *
 * @typedef {object} Reply
 * @property {string} action the greedy action
 * @property {number[]} values one for each of its actions: Q values, or probabilities
 * @property {Head[]} heads between cells of the view, or of a Decision Transformer its tokens
 * @property {Head[]} slots of a memory with slots: between slots, and from slots to the inputs
 * @property {number[] | undefined} nextMemory of a recurrent policy
 *
 * @typedef {object} Head One head's attention in one round.
 * @property {string} name
 * @property {number[][]} scores `scores[n][s]`: how much cell n attends to cell s, x * 7 + y each
 */
import { ACTIONS, AGENT_CELL, observe, TASK_ACTIONS, VIEW_SIZE } from "./doorkey.js";
import { Grid, headsOf } from "./heads.js";
import { predictor } from "./server.js";

export const CELLS = VIEW_SIZE ** 2;
/** The entities of a network that relates the cells of the view. */
export const VIEW = new Grid(VIEW_SIZE, VIEW_SIZE, {
  home: AGENT_CELL,
  name: ([x, y]) => `cell ${x + 1},${y + 1} of the view`,
});

/**
 * @param {object} model of `servedModels` @returns {string | null} the reason why it cannot play
 * DoorKey
 */
export function reasonNotToPlay({ name, policy }) {
  const { observation, states } = policy?.signatures?.act?.inputs ?? {};
  const shape = (observation ?? states)?.shape.slice(observation ? 1 : 2) ?? [];
  const seesDoorKey = [3, 4].some((channels) => `${shape}` === `7,7,${channels}`);
  const names = policy?.action_names ?? [];
  const actsThere =
    TASK_ACTIONS.every((action) => names.includes(action)) &&
    names.every((action) => ACTIONS.includes(action));
  if (seesDoorKey && actsThere) return null;
  return `The model “${name}” is not a DoorKey policy and cannot play here. You can still play.`;
}

/** Size of the grids that a policy was trained on, from the name of its environment. */
export const trainedSize = ({ environment }) =>
  Number(environment?.match(/DoorKey-(\d+)x/)?.[1]) || null;

/** The reply of a policy at a moment; requested once, and again after a failure. */
export function remembered(moment, ask) {
  moment.reply ??= ask().catch((error) => {
    moment.reply = null; // the next call tries again
    throw error;
  });
  return moment.reply;
}

export class Policy {
  /** @param {object} model of `servedModels`, for which `reasonNotToPlay` is null */
  constructor(model) {
    const { policy } = model;
    this.actions = policy.action_names;
    this.valueName = "Q value";
    this.trainedSize = trainedSize(policy);
    this.grid = VIEW;
    this.predict = predictor(model);
    const { signatures } = policy;
    this.signature = signatures.act_with_attention ? "act_with_attention" : "act";
    this.inputs = signatures[this.signature].inputs;
    this.channels = this.inputs.observation.shape[3];
    /** Number of memory slots that attend. */
    this.slots = policy.memory_slots ?? 0;
    const block = signatures[this.signature].outputs.attention_block_1?.shape;
    /** Number of input rows of the memory at a step. */
    this.inputRows = block ? block[2] - this.slots : 0;
  }

  /** A Q network needs nothing before the first step. */
  async open() {}

  /**
   * Returns the reply at a moment of an episode. The memory follows from the earlier moments, whose
   * replies are requested first if they are missing.
   * @param {import("./episode.js").Moment} moment @returns {Promise<Reply>}
   */
  reply(moment) {
    return remembered(moment, () => this.#reply(moment));
  }

  async #reply(moment) {
    const inputs = { observation: [observe(moment.state, this.channels)] };
    if (this.inputs.memory) inputs.memory = [await this.#memory(moment)];
    if (this.inputs.reward) inputs.reward = [moment.reward];
    const outputs = await this.predict(this.signature, inputs);
    return {
      action: this.actions[outputs.action[0]],
      values: outputs.q_values[0],
      heads: headsOf(outputs, (rows, columns) => rows === CELLS && columns === CELLS),
      slots: headsOf(outputs, (rows, _, name) => this.slots && name.startsWith("block")),
      nextMemory: outputs.next_memory?.[0],
    };
  }

  async #memory(moment) {
    if (!moment.previous) {
      const memories = await this.predict("initial_memory", { batch_size: 1 });
      return memories[0]; // the REST API omits the name of a single output
    }
    const memory = [...(await this.reply(moment.previous)).nextMemory];
    // With a reward input, the last but one number of the memory is the last action. Replace the
    // policy's choice, because the user may have taken another action.
    const done = this.actions.indexOf(moment.previous.action);
    if (this.inputs.reward && done >= 0) memory[memory.length - 2] = done;
    return memory;
  }
}
