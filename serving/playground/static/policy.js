/**
 * Plays DoorKey with a Q network, with or without a memory.
 *
 * @typedef {object} Reply A policy's answer for one moment.
 * @property {string} action the greedy action
 * @property {number[]} values the Q value or probability of each action
 * @property {Head[]} heads attention between the cells of the view, or between the tokens of a
 *   Decision Transformer
 * @property {Head[]} slots attention of memory slots to each other and to the inputs; empty for
 *   policies without memory slots
 * @property {number[] | undefined} nextMemory the memory after this step, for recurrent policies
 * @property {number[] | null} rollout attention rollout to the entity that the Q values are read
 *   from; null if the browser does not compute the network
 *
 * @typedef {object} Head The attention of one head in one round.
 * @property {string} name
 * @property {number[][]} scores `scores[n][s]` is how much entity n attends to entity s; cell
 *   (x, y) of the view is entity x * 7 + y
 */
import { ACTIONS, AGENT_CELL, observe, TASK_ACTIONS, VIEW_SIZE, visible } from "./doorkey.js";
import { Grid, headsOf } from "./heads.js";
import { partsOf, rollout } from "./interpret.js";
import { predictor } from "./server.js";

export const CELLS = VIEW_SIZE ** 2;
/** The layout of the entities of a network whose entities are the cells of the view. */
export const VIEW = new Grid(VIEW_SIZE, VIEW_SIZE, {
  home: AGENT_CELL,
  name: ([x, y]) => `cell ${x + 1},${y + 1} of the view`,
});

/**
 * Returns the reason why a model cannot play DoorKey, or null if it can.
 * @param {object} model a model from `servedModels`
 * @returns {string | null}
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

/** Returns the grid size in the name of a policy's environment, or null if it names none. */
export const trainedSize = ({ environment }) =>
  Number(environment?.match(/DoorKey-(\d+)x/)?.[1]) || null;

/** Returns the reply at a moment; calls `ask` only the first time, and again after an error. */
export function remembered(moment, ask) {
  moment.reply ??= ask().catch((error) => {
    moment.reply = null; // the next call tries again
    throw error;
  });
  return moment.reply;
}

export class Policy {
  /** @param {object} model a model from `servedModels` for which `reasonNotToPlay` is null */
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
    /** Number of memory slots; 0 for policies without such a memory. */
    this.slots = policy.memory_slots ?? 0;
    /** The parts that can be switched off; empty if a server computes the network. */
    this.parts = partsOf(model.network, Boolean(this.inputs.memory));
    this.readEntity = model.network?.readout === "cell" ? VIEW.entity(AGENT_CELL) : null;
    const block = signatures[this.signature].outputs.attention_block_1?.shape;
    /** Number of input rows to which the memory slots attend in a step. */
    this.inputRows = block ? block[2] - this.slots : 0;
  }

  /** Does nothing, because a Q network needs no preparation. */
  async open() {}

  /**
   * Returns the reply at a moment of an episode. A recurrent policy needs the memory from the
   * replies at all earlier moments, so these are requested first if they are missing.
   * @param {import("./episode.js").Moment} moment @returns {Promise<Reply>}
   */
  reply(moment) {
    return remembered(moment, () => this.#reply(moment));
  }

  /**
   * Returns the reply of a network with changes. Its memory before the moment is that of the
   * unchanged network.
   * @param {import("./episode.js").Moment} moment
   * @param {import("./q_network.js").Changes} changes
   * @returns {Promise<Reply>}
   */
  changed(moment, changes) {
    return this.#reply(moment, changes);
  }

  /**
   * Returns how much the Q value of the chosen action falls if a cell of the view is hidden, for
   * each cell, as `rrl_tf.interpret.occlusion` does.
   * @param {import("./episode.js").Moment} moment
   * @param {() => boolean} [isWanted] the result is null if this becomes false before the end
   * @returns {Promise<number[] | null>}
   */
  async occlusion(moment, isWanted = () => true) {
    const { action, values } = await this.reply(moment);
    const chosen = this.actions.indexOf(action);
    const drops = Array(CELLS).fill(0); // no cell attends to a cell that is not visible
    const cells = visible(moment.state).flat();
    for (let cell = 0; cell < CELLS; cell++) {
      if (!cells[cell]) continue;
      await new Promise((done) => setTimeout(done)); // the page remains responsive
      if (!isWanted()) return null;
      const changes = { off: new Set(), hidden: new Set([cell]) };
      drops[cell] = values[chosen] - (await this.changed(moment, changes)).values[chosen];
    }
    return drops;
  }

  async #reply(moment, changes) {
    const inputs = { observation: [observe(moment.state, this.channels)] };
    if (this.inputs.memory) inputs.memory = [await this.#memory(moment)];
    if (this.inputs.reward) inputs.reward = [moment.reward];
    const outputs = await this.predict(this.signature, inputs, changes);
    const rounds = this.parts.flatMap(
      ([part]) => outputs[`attention_${part.replace(" ", "_")}`] ?? [],
    );
    return {
      action: this.actions[outputs.action[0]],
      values: outputs.q_values[0],
      heads: headsOf(outputs, (rows, columns) => rows === CELLS && columns === CELLS),
      rollout: rounds.length ? rollout(rounds, this.readEntity) : null,
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
    // If the policy has a reward input, the second to last number of the memory is the last action.
    // It is replaced by the action that was taken, which may have been chosen by the user.
    const done = this.actions.indexOf(moment.previous.action);
    if (this.inputs.reward && done >= 0) memory[memory.length - 2] = done;
    return memory;
  }
}
