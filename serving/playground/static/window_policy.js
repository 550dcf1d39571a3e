/**
 * Plays DoorKey with a Decision Transformer. It is conditioned on a target return, and its input is
 * a window of the last steps.
 */
import { observe } from "./doorkey.js";
import { Grid, headsOf } from "./heads.js";
import { remembered, trainedSize } from "./policy.js";
import { predictor } from "./server.js";

const TOKENS = ["return", "view", "action"];

export class WindowPolicy {
  /** @param {object} model a model from `servedModels` for which `reasonNotToPlay` is null */
  constructor(model) {
    const { policy } = model;
    const { signatures } = policy;
    this.actions = policy.action_names;
    this.valueName = "probability";
    this.trainedSize = trainedSize(policy);
    this.predict = predictor(model);
    this.signature = signatures.act_with_attention ? "act_with_attention" : "act";
    [, this.length, , , this.channels] = signatures.act.inputs.states.shape;
    const name = ([x, y]) => `${TOKENS[y]} ${ago(this.length - 1 - x)}`;
    /**
     * The layout of the tokens, with a column for each of the last steps. The query starts at the
     * newest view, from which the action is predicted.
     */
    this.grid = new Grid(this.length, TOKENS.length, { home: [this.length - 1, 1], name });
    this.rowNames = TOKENS;
    /** The target return. */
    this.target = 1;
    this.hasDefault = "default_target" in signatures;
    this.subtracts = true;
    this.slots = this.inputRows = 0; // a Decision Transformer has no memory slots
    this.parts = []; // the page changes only Q networks
  }

  /** Loads the default target return. */
  async open() {
    if (!this.hasDefault) return;
    const found = await this.predict("default_target", { batch_size: 1 });
    this.target = found.target_return[0];
    this.subtracts = Boolean(found.subtracts_rewards[0]);
  }

  /** Returns the return-to-go at a moment of an episode. */
  returnToGo(moment) {
    return this.target - (this.subtracts ? moment.earned : 0);
  }

  /**
   * Returns the reply at a moment of an episode, as `Policy.reply` does.
   * @param {import("./episode.js").Moment} moment @returns {Promise<object>}
   */
  reply(moment) {
    return remembered(moment, async () => {
      const outputs = await this.predict(this.signature, this.#window(moment));
      const steps = Math.min(this.length, moment.state.steps + 1);
      return {
        action: this.actions[outputs.action[0]],
        values: outputs.probabilities[0],
        heads: headsOf(outputs).map((head) => ({ ...head, steps })),
        slots: [],
      };
    });
  }

  /** Returns the window of the last steps, the newest last, padded with zeros at the front. */
  #window(moment) {
    const moments = [];
    for (let at = moment; at && moments.length < this.length; at = at.previous) moments.unshift(at);
    const nothing = Array(this.length - moments.length).fill(null);
    const of = (make, empty) => [[...nothing.map(() => empty), ...moments.map(make)]];
    const zeros = observe(moment.state, this.channels).map((column) =>
      column.map((codes) => codes.map(() => 0)),
    );
    return {
      states: of((each) => observe(each.state, this.channels), zeros),
      actions: of((each) => this.#oneHot(each === moment ? null : each.action), this.#oneHot(null)),
      returns_to_go: of((each) => [this.returnToGo(each)], [0]),
      timesteps: of((each) => each.state.steps, 0),
      mask: of(() => 1, 0),
    };
  }

  #oneHot(action) {
    return this.actions.map((name) => (name === action ? 1 : 0));
  }
}

const ago = (steps) => (steps === 0 ? "now" : steps === 1 ? "1 step ago" : `${steps} steps ago`);
