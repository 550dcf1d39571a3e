/**
 * The served policy, over the server's REST API.
 *
 * @typedef {object} Reply
 * @property {string} action what the policy would do
 * @property {number[]} qValues one for each of its actions
 * @property {Head[]} heads
 * @property {number[] | undefined} nextMemory of a policy that remembers
 *
 * @typedef {object} Head One head's attention in one round.
 * @property {string} name
 * @property {number[][]} scores `scores[n][s]`: how much cell n attends to cell s, x * 7 + y each
 */
import { ACTIONS, observe, VIEW_SIZE } from "./doorkey.js";

const CELLS = VIEW_SIZE ** 2;
const PREFIX = "attention_";

/** A failure that is told to the user as it is. */
export class Problem extends Error {}

/** @returns {Promise<object[]>} the served models: name, version, and its policy.json or null */
export async function servedModels() {
  return (await ask("config.json")).models;
}

/** @param {object} model of `servedModels` @returns {string | null} why it cannot play DoorKey */
export function whyNot({ name, policy }) {
  const shape = policy?.signatures?.act?.inputs?.observation?.shape ?? [];
  const seesDoorKey = [3, 4].some((channels) => `${shape}` === `,7,7,${channels}`);
  const names = policy?.action_names ?? [];
  const actsThere = names.length > 0 && names.every((action) => ACTIONS.includes(action));
  if (seesDoorKey && actsThere) return null;
  return `The model “${name}” is not a DoorKey policy, so it cannot play here; you can.`;
}

export class Policy {
  /** @param {object} model of `servedModels`, for which `whyNot` is null */
  constructor({ name, version, policy }) {
    this.actions = policy.action_names;
    /** Side of the grids that it was trained on, where its environment's name tells. */
    this.trainedSize = Number(policy.environment?.match(/^DoorKey-(\d+)x/)?.[1]) || null;
    // One version for a whole episode: the next one would not know this one's memory.
    this.address = `/v1/models/${encodeURIComponent(name)}/versions/${version}:predict`;
    const { signatures } = policy;
    this.signature = signatures.act_with_attention ? "act_with_attention" : "act";
    this.inputs = signatures[this.signature].inputs;
    this.channels = this.inputs.observation.shape[3];
  }

  /**
   * What the policy makes of a moment of an episode. What it remembers follows from the moments
   * before, which are asked for first where that was not done.
   * @param {import("./episode.js").Moment} moment @returns {Promise<Reply>}
   */
  reply(moment) {
    moment.reply ??= this.#reply(moment).catch((error) => {
      moment.reply = null; // the next time may go better
      throw error;
    });
    return moment.reply;
  }

  async #reply(moment) {
    const inputs = { observation: [observe(moment.state, this.channels)] };
    if (this.inputs.memory) inputs.memory = [await this.#memory(moment)];
    if (this.inputs.reward) inputs.reward = [moment.reward];
    const outputs = await this.#predict(this.signature, inputs);
    return {
      action: this.actions[outputs.action[0]],
      qValues: outputs.q_values[0],
      heads: headsOf(outputs),
      nextMemory: outputs.next_memory?.[0],
    };
  }

  async #memory(moment) {
    if (!moment.previous) {
      const memories = await this.#predict("initial_memory", { batch_size: 1 });
      return memories[0]; // the only output of a signature comes without its name
    }
    const memory = [...(await this.reply(moment.previous)).nextMemory];
    // Policies that are told the reward keep the last action in front of the memory's last number.
    // It is what the policy chose; what was done may be something else.
    const done = this.actions.indexOf(moment.previous.action);
    if (this.inputs.reward && done >= 0) memory[memory.length - 2] = done;
    return memory;
  }

  async #predict(signature, inputs) {
    const body = JSON.stringify({ signature_name: signature, inputs });
    return (await ask(this.address, { method: "POST", body })).outputs;
  }
}

/** @returns {Head[]} of all rounds whose attention goes from cells of the view to cells of it */
function headsOf(outputs) {
  const heads = [];
  for (const [output, [scores]] of Object.entries(outputs)) {
    if (!output.startsWith(PREFIX) || scores[0]?.length !== CELLS) continue;
    const round = output.slice(PREFIX.length).replaceAll("_", " ");
    scores.forEach((of, i) => {
      if (of[0].length === CELLS) heads.push({ name: `${round}, head ${i + 1}`, scores: of });
    });
  }
  return heads.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
}

async function ask(address, options) {
  let response, answer;
  try {
    response = await fetch(address, options);
    answer = await response.json();
  } catch {
    throw new Problem("The server does not answer; you can go on by yourself.");
  }
  if (response.status === 404)
    throw new Problem("The server no longer has this model: reload the page.");
  if (!response.ok) throw new Problem(`The server refuses: ${answer.error}.`);
  return answer;
}
