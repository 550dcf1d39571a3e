/** Runs the DoorKey page, on which a policy or the user plays episodes. */
import {
  cellOfView,
  LOCKED,
  OPEN,
  randomStart,
  TASK_ACTIONS,
  VIEW_SIZE,
  visible,
} from "./doorkey.js";
import { Changes, effectOf, OcclusionMap } from "./changes.js";
import { legendOfAttention, legendOfEffects, legendOfGrid, view, world } from "./drawing.js";
import { slotGrid, slotPicture, tokenPicture } from "./pictures.js";
import { Editor, levelFromAddress, levelToAddress, namesLevel } from "./editor.js";
import { Episode } from "./episode.js";
import { cellUnder, Heads, moved } from "./heads.js";
import { chooseModels } from "./models.js";
import { Actions, ACTION_WORDS, scaleOf, showLegend } from "./panels.js";
import { Policy, reasonNotToPlay, VIEW } from "./policy.js";
import { Problem } from "./server.js";
import { WindowPolicy } from "./window_policy.js";

const ACTION_OF_KEY = {
  ArrowLeft: "left",
  ArrowRight: "right",
  ArrowUp: "forward",
  " ": "pickup",
  Enter: "toggle",
};
const SECONDS_A_STEP = [1.6, 0.8, 0.4, 0.2, 0.05]; // one for each position of the speed slider
const RANDOM_ACTION_RATE = 0.05;
const PATIENCE = 40; // milliseconds; a moment is drawn without its reply if that takes longer
const NO_LEVEL = "The address names an invalid level; another one is shown.";
const DIRECTIONS = ["right", "down", "left", "up"];

const $ = (id) => document.getElementById(id);
const isWithin =
  ({ size }) =>
  ([x, y]) =>
    x >= 0 && y >= 0 && x < size && y < size;
const viewCells = Array.from({ length: VIEW_SIZE ** 2 }, (_, i) => VIEW.cell(i));

const NO_SLOTS = { slots: 0, inputRows: 0 };
const TITLES = { "Q value": "Q values", probability: "Probabilities" };

/** Formats a number with two decimals; "-0.00" becomes "0.00". */
const withTwoDecimals = (x) => x.toFixed(2).replace(/^-0\.00$/, "0.00");

/** Returns the policy of a model: a Decision Transformer or a Q network. */
const policyOf = (model) =>
  new (model.policy.signatures.act.inputs.states ? WindowPolicy : Policy)(model);

class Playground {
  constructor() {
    this.policy = null;
    this.reply = null;
    this.changedReply = null; // of the network with the user's changes; null without changes
    this.notice = ""; // shown if the address names an unknown model or level
    this.run = 0; // incremented when playing starts or stops, which ends the previous loop
    this.isPlaying = false;
    this.actions = new Actions($("actions"), (action) => this.#actAsUser(action));
    this.changes = new Changes($("parts"), () => this.show());
    this.occlusion = new OcclusionMap($("effects"), VIEW, (cell) => this.#hide(this.#shown(cell)));
    this.#createAttentionMaps();
    this.editor = new Editor(
      document,
      () => this.episode.start,
      (start) => this.begin(start),
    );
    this.#listen();
  }

  /** Loads the list of models and starts. */
  async open() {
    const address = location.hash.slice(1);
    const given = levelFromAddress(address);
    this.actions.name(TASK_ACTIONS);
    this.begin(given ?? randomStart(5));
    try {
      let level = given; // for the first model; a model chosen later starts with its own size
      let notice = given || !namesLevel(address) ? "" : NO_LEVEL;
      await chooseModels("./", address, (model, noModel = "") => {
        this.#choose(model, level, `${noModel} ${notice}`.trim());
        level = null;
        notice = "";
      });
    } catch (error) {
      this.#showProblem(error);
    }
  }

  /** Starts a model on the given level, or without one on a level of the model's training size. */
  async #choose(model, given, notice) {
    const problem = reasonNotToPlay(model);
    document.title = `${model.name} – Playground`;
    this.policy = problem ? null : policyOf(model);
    this.reply = null;
    this.actions.name(this.policy?.actions ?? TASK_ACTIONS, this.policy?.valueName);
    this.#createAttentionMaps();
    this.#showProblem(problem && new Problem(problem));
    await this.#loadDefaultTarget();
    const { start } = this.episode;
    const known = this.policy?.trainedSize;
    const trained = known ?? start.size;
    $("trained").textContent = known ? `trained for ${known} × ${known}` : "";
    this.begin(given ?? (trained === start.size ? start : randomStart(trained)), notice);
  }

  /** Creates the attention maps of cells, tokens or memory slots. */
  #createAttentionMaps() {
    for (const id of ["heads", "slots"]) $(id).replaceChildren();
    this.heads = new Heads($("heads"), this.policy?.grid ?? VIEW, () => this.#draw());
    this.slots = new Heads($("slots"), slotGrid(this.policy ?? NO_SLOTS), () => this.#draw());
    $("memory").hidden = !this.policy?.slots;
    this.changes.name(this.policy?.parts ?? []);
    const canChange = this.changes.parts.length > 0;
    $("changes").hidden = $("attribution").hidden = !canChange;
    $("heads").classList.toggle("wide", this.heads.grid !== VIEW);
    $("actions-title").textContent = TITLES[this.actions.valueName];
    const query = this.heads.grid === VIEW ? "query cell" : "query token";
    showLegend($("legend"), [
      ...legendOfGrid(),
      ...legendOfAttention(query),
      ...(canChange ? legendOfEffects() : []),
    ]);
  }

  /** Loads the default target return of a Decision Transformer. */
  async #loadDefaultTarget() {
    const { policy } = this;
    $("returns").hidden = policy?.target === undefined;
    try {
      await policy?.open();
    } catch (error) {
      this.#showProblem(error);
    }
    if (policy?.target !== undefined) $("target").value = policy.target;
  }

  #setTarget(target) {
    this.pause();
    this.policy.target = target;
    this.episode.forgetReplies();
    this.show();
  }

  /**
   * Begins a new episode.
   * @param {import("./doorkey.js").Start} start
   * @param {string} [notice] text for the user about the address
   */
  begin(start, notice = "") {
    this.pause();
    this.notice = notice;
    this.changes.hidden.clear();
    this.episode = new Episode(start);
    const sizes = $("size");
    if (![...sizes.options].some(({ value }) => value === `${start.size}`)) {
      sizes.add(new Option(`${start.size} × ${start.size}`, start.size));
    }
    sizes.value = start.size;
    history.replaceState(null, "", `#${levelToAddress({ model: $("model").value, ...start })}`);
    this.show();
  }

  /**
   * Draws the current moment with the reply of the policy. Without a policy, or if the reply is
   * late, draws the moment alone.
   */
  async show() {
    const moment = this.episode.now;
    this.reply = null;
    if (!this.policy) return this.#draw();
    const late = setTimeout(() => this.#draw(), PATIENCE);
    try {
      const reply = await this.policy.reply(moment);
      const changed = await this.#replyOfChanged(moment);
      if (moment !== this.episode.now) return; // the user moved to another one
      Object.assign(this, { reply, changedReply: changed });
      this.#showProblem(null);
      this.#draw();
      this.#computeOcclusion(moment);
    } catch (error) {
      this.#draw();
      this.#showProblem(error);
      this.pause();
    } finally {
      clearTimeout(late);
    }
  }

  /** Returns the reply of the network with the user's changes, or null if there are none. */
  async #replyOfChanged(moment) {
    if (this.changes.isEmpty) return null;
    return this.policy.changed(moment, { off: this.changes.off, hidden: this.#hiddenEntities() });
  }

  /** Computes the effects of hiding cells, while the moment remains the current one. */
  async #computeOcclusion(moment) {
    if (!this.changes.parts.length || moment.drops !== undefined) return;
    moment.drops = null;
    const drops = await this.policy.occlusion(moment, () => moment === this.episode.now);
    moment.drops = drops ?? undefined; // computed again if the user returns to the moment
    if (drops && moment === this.episode.now) this.#drawAttribution(moment);
  }

  /** Returns the cell of the grid that a cell of the view shows at the current moment. */
  #shown(cell) {
    return cellOfView(this.episode.now.state, cell);
  }

  /** Returns the entities of the hidden cells at the current moment. */
  #hiddenEntities() {
    const hidden = viewCells.filter((cell) => this.changes.hidden.has(`${this.#shown(cell)}`));
    return new Set(hidden.map((cell) => VIEW.entity(cell)));
  }

  /** Hides a cell that the agent sees, or shows it again. */
  #hide(cell) {
    const isSeen = visible(this.episode.now.state);
    const [x, y] = viewCells.find((each) => `${this.#shown(each)}` === `${cell}`) ?? [];
    const isHidden = this.changes.hidden.has(`${cell}`);
    if (this.changes.parts.length && (isHidden || isSeen[x]?.[y])) this.changes.toggle(cell);
  }

  /** Lets the policy take a step. */
  async step() {
    const { policy, episode } = this;
    const moment = episode.now;
    if (!policy || moment.end) return;
    try {
      const { action } = (await this.#replyOfChanged(moment)) ?? (await policy.reply(moment));
      if (episode !== this.episode || moment !== episode.now) return;
      const { actions } = policy;
      const explores = $("explore").checked && Math.random() < RANDOM_ACTION_RATE;
      episode.act(explores ? actions[Math.floor(Math.random() * actions.length)] : action);
    } catch (error) {
      this.#showProblem(error);
      this.pause();
      return;
    }
    await this.show();
  }

  /** Lets the policy play until the episode ends or the user intervenes. */
  async play() {
    if (this.episode.now.end) this.episode.goTo(0);
    const run = ++this.run;
    this.isPlaying = true;
    while (run === this.run && !this.episode.now.end) {
      await this.step();
      await new Promise((done) => setTimeout(done, 1000 * SECONDS_A_STEP[$("speed").value]));
    }
    if (run === this.run) this.pause();
  }

  pause() {
    this.run++;
    if (!this.isPlaying) return;
    this.isPlaying = false;
    this.#draw();
  }

  #actAsUser(action) {
    this.pause();
    this.episode.act(action);
    this.show();
  }

  #goTo(index) {
    this.pause();
    this.episode.goTo(index);
    this.show();
  }

  #draw() {
    const { now, index, moments } = this.episode;
    const { reply } = this;
    $("play").textContent = this.isPlaying ? "Pause" : now.end ? "Replay" : "Play";
    for (const id of ["play", "step"]) $(id).disabled = !this.policy;
    $("step").disabled ||= Boolean(now.end);
    $("back").disabled = $("restart").disabled = index === 0;
    $("time").max = moments.length - 1;
    $("time").value = index;
    $("moment").textContent = `Step ${index} of ${moments.length - 1}`;
    $("status").setAttribute("aria-live", this.isPlaying && !now.end ? "off" : "polite");
    $("status").textContent = describeMoment(now);
    if (reply || !this.policy) {
      this.actions.show(now.end ? null : reply, now.end ? null : this.changedReply);
      this.#drawHeads(now.state, reply);
      this.#drawAttribution(now);
      $("difference").textContent = this.#difference(now);
      $("restore").disabled = this.changes.isEmpty;
    }
    // Without a reply to this moment, the values of an earlier one remain visible, but dimmed.
    document.body.classList.toggle("stale", Boolean(this.policy) && !reply);
    $("actions-hint").textContent = this.#actionsHint();
    $("attention-hint").textContent = this.#attentionHint();
    this.#drawReturns(now);
    this.#drawWorld(now.state);
  }

  #drawHeads(state, reply) {
    const { policy } = this;
    const hidden = [...this.#hiddenEntities()].map((entity) => VIEW.cell(entity));
    const overView = (weights, from) => view(state, weights, from, { hidden });
    const overTokens = (weights, from, head) => tokenPicture(policy, weights, from, head);
    this.heads.show(reply?.heads ?? [], this.heads.grid === VIEW ? overView : overTokens);
    reply?.heads.forEach(({ name }, i) =>
      this.heads.buttons[i].button.classList.toggle("off", this.changes.isOff(name)),
    );
    this.slots.show(reply?.slots ?? [], (weights, from, head) =>
      slotPicture(state, policy, weights, from, head),
    );
  }

  #drawAttribution({ state, drops }) {
    const rollout = this.reply?.rollout;
    if (!rollout) return; // the page waits for a reply, or shows another kind of policy
    const entities = this.#hiddenEntities();
    const hidden = [...entities].map((entity) => VIEW.cell(entity));
    this.occlusion.show(drops ?? null, entities, (weights, cursor) =>
      view(state, weights, cursor, { hidden, isEffect: true }),
    );
    $("rollout").replaceChildren(view(state, rollout, undefined, { hidden }));
    const percent = Math.round(100 * Math.max(...rollout));
    $("rollout-caption").textContent = `rollout · max ${percent} %`;
  }

  /** Describes what the changes do, in one or two sentences. */
  #difference(moment) {
    const { reply, changedReply: changed } = this;
    if (!reply || moment.end) return "";
    if (!changed) return "Nothing is changed.";
    const [before, after] = [reply.action, changed.action].map((name) => ACTION_WORDS[name]);
    const chosen = this.policy.actions.indexOf(reply.action);
    const effect = effectOf(reply.values[chosen] - changed.values[chosen]);
    const action =
      before === after ? `the choice is still ${after}` : `the choice is ${after}, not ${before}`;
    return `Without ${this.changes.words()}, ${action}. The Q value of ${before} ${effect}.`;
  }

  #drawReturns(moment) {
    if (this.policy?.target === undefined) return;
    $("target-value").textContent = this.policy.target.toFixed(2);
    const rest = withTwoDecimals(this.policy.returnToGo(moment));
    const earned = moment.earned.toFixed(2);
    $("earned").textContent = `Return so far ${earned}, remaining target ${rest}.`;
  }

  #drawWorld(state) {
    const inside = isWithin(state);
    const sees = visible(state);
    const seen = viewCells
      .filter(([x, y]) => sees[x][y])
      .map((cell) => cellOfView(state, cell))
      .filter(inside);
    const head = this.heads.grid === VIEW ? this.reply?.heads[this.heads.chosen] : null;
    const shown = viewCells.map((cell) => cellOfView(state, cell));
    const weights = head ? this.heads.weights(head).filter((_, i) => inside(shown[i])) : [];
    const from = cellOfView(state, this.heads.from);
    $("board").replaceChildren(
      world(state, {
        seen,
        weights,
        cells: head ? shown.filter(inside) : [],
        from: head && inside(from) ? from : undefined,
        cursor: this.editor.isOpen ? this.editor.cursor : undefined,
        hidden: [...this.changes.hidden].map((cell) => cell.split(",").map(Number)),
      }),
    );
  }

  #actionsHint() {
    const click = "Click an action to take it.";
    if (this.actions.valueName === "probability")
      return `The policy's probability of each action for the target return. ${click}`;
    const values = this.episode.now.end ? null : this.reply?.values;
    const changed = this.changedReply?.values ?? [];
    const below = values && scaleOf([...values, ...changed]).toFixed(3);
    const scale = values ? `A full bar is the best action; an empty bar is ${below} below it. ` : "";
    const sides = "Above and left: the trained network. Below and right: the changed network.";
    if (values && changed.length) return `${sides} ${scale}`;
    return `The return that the policy expects of each action. ${scale}${click}`;
  }

  #attentionHint() {
    if (!this.policy) return "No policy is loaded.";
    if (this.reply && !this.reply.heads.length) return "This policy returns no attention.";
    if (this.heads.grid !== VIEW)
      return (
        "Attention of the framed query token: the newest view, which decides the action, or the " +
        "token under the pointer. Each column is one of the last steps, the newest on the right."
      );
    return (
      "Attention of the framed query cell. Point at a cell or use the arrow keys to move the " +
      "query cell; click a map to overlay it on the grid."
    );
  }

  /** Shows a problem, or the notice about the address if there is none. */
  #showProblem(problem) {
    if (problem && !(problem instanceof Problem)) throw problem; // a bug in these files
    const text = problem?.message ?? this.notice;
    $("problem").hidden = !text;
    $("problem").textContent = text;
  }

  #listen() {
    const clicked = {
      restart: () => this.#goTo(0),
      back: () => this.#goTo(this.episode.index - 1),
      play: () => (this.isPlaying ? this.pause() : this.play()),
      step: () => {
        this.pause();
        this.step();
      },
      restore: () => {
        this.changes.restore();
        this.show();
      },
      "new-level": () => this.begin(randomStart(Number($("size").value))),
    };
    for (const [id, act] of Object.entries(clicked)) $(id).addEventListener("click", act);
    $("size").addEventListener("change", clicked["new-level"]);
    $("time").addEventListener("input", () => this.#goTo(Number($("time").value)));
    $("target").addEventListener("input", () => this.#setTarget(Number($("target").value)));
    $("editor").addEventListener("toggle", () => this.#draw());
    // A click on a button moves the focus to the board, so that keys act there and Enter does not
    // press the button again.
    document.addEventListener("click", ({ detail, target }) => {
      if (detail && target.closest("button:not(.head, .map)")) $("board").focus({ preventScroll: true });
    });
    this.#listenToBoard();
  }

  #listenToBoard() {
    const board = $("board");
    const size = () => this.episode.start.size;
    board.addEventListener("click", (event) => {
      const cell = cellUnder(event, board, size());
      if (this.editor.isOpen) this.#edit(cell);
      else this.#hide(cell);
    });
    board.addEventListener("pointermove", (event) => {
      const cell = cellUnder(event, board, size());
      const { state } = this.episode.now;
      if (this.heads.grid !== VIEW) return;
      this.heads.setQuery(
        viewCells.find((each) => `${cellOfView(state, each)}` === `${cell}`) ?? null,
      );
    });
    board.addEventListener("pointerleave", () => this.heads.setQuery(null));
    document.addEventListener("keydown", (event) => this.#key(event));
  }

  #edit(cell) {
    this.editor.place(cell);
    this.#draw();
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("button, input, select, summary")) return; // these elements use the keys
    const action = ACTION_OF_KEY[event.key];
    if (this.editor.isOpen && event.target === $("board")) {
      const cell = moved(this.editor.cursor, event.key, this.episode.start.size);
      if (cell) this.editor.cursor = cell;
      else if (action) this.editor.place(this.editor.cursor);
      else return;
      this.#draw();
    } else if (action) {
      this.#actAsUser(action);
    } else return;
    event.preventDefault();
  }
}

/** Describes a moment in one sentence, which screen readers also read. */
function describeMoment({ state, reward, end }) {
  if (end === "goal")
    return `Solved: goal reached after ${state.steps} steps, reward ${reward.toFixed(3)}.`;
  if (end === "time") return `Not solved: time limit reached after ${state.steps} steps.`;
  const lock = state.lock === OPEN ? "open" : state.lock === LOCKED ? "locked" : "closed";
  const key = state.key ? `in column ${state.key[0]}, row ${state.key[1]}` : "carried";
  const [x, y] = state.agent;
  const facing = DIRECTIONS[state.direction];
  return `Agent in column ${x}, row ${y}, facing ${facing}; key ${key}; door ${lock}.`;
}

$("not-started").remove(); // remains visible if the browser cannot load modules, as from file://
new Playground().open();
