/** The page: an episode, who acts in it, and what is shown of it. */
import { cellOfView, OPEN, LOCKED, randomStart, VIEW_SIZE, visible } from "./doorkey.js";
import { cellUnder, world } from "./drawing.js";
import { Editor, read, written } from "./editor.js";
import { Episode } from "./episode.js";
import { Actions, Heads, moved, TASK_ACTIONS } from "./panels.js";
import { Policy, Problem, servedModels, whyNot } from "./policy.js";

const ACTION_OF_KEY = {
  ArrowLeft: "left",
  ArrowRight: "right",
  ArrowUp: "forward",
  " ": "pickup",
  Enter: "toggle",
};
const SECONDS_A_STEP = [1.6, 0.8, 0.4, 0.2, 0.05]; // by the speed chosen
const EXPLORED = 0.05;
const LOOKS = ["right", "down", "left", "up"];

const $ = (id) => document.getElementById(id);
const isWithin =
  ({ size }) =>
  ([x, y]) =>
    x >= 0 && y >= 0 && x < size && y < size;
const viewCells = Array.from({ length: VIEW_SIZE ** 2 }, (_, i) => [
  Math.floor(i / VIEW_SIZE),
  i % VIEW_SIZE,
]);

class Playground {
  constructor() {
    this.policy = null;
    this.reply = null;
    this.run = 0; // counts up whenever playing begins or ends, so that an old loop notices
    this.isPlaying = false;
    this.actions = new Actions($("actions"), (action) => this.#byHand(action));
    this.heads = new Heads($("heads"), () => this.#draw());
    this.editor = new Editor(
      document,
      () => this.episode.start,
      (start) => this.begin(start),
    );
    this.#listen();
  }

  /** Asks the server what it serves, and begins. */
  async open() {
    const address = location.hash.slice(1);
    const given = read(address);
    this.actions.name(TASK_ACTIONS);
    this.begin(given ?? randomStart(5));
    try {
      this.models = await servedModels();
      if (!this.models.length)
        throw new Problem("The server has no model that is loaded; you can play.");
      $("model").replaceChildren(...this.models.map(({ name }) => new Option(name)));
      $("model-choice").hidden = this.models.length < 2;
      const asked = new URLSearchParams(address).get("model");
      this.#choose(
        Math.max(
          0,
          this.models.findIndex(({ name }) => name === asked),
        ),
        given,
      );
    } catch (error) {
      this.#tell(error);
    }
  }

  /** Lets the model of this number play, a level that is given or of the size it was trained on. */
  #choose(number, given) {
    const model = this.models[number];
    const problem = whyNot(model);
    $("model").selectedIndex = number;
    document.title = `${model.name} – Playground`;
    this.policy = problem ? null : new Policy(model);
    this.reply = null;
    this.actions.name(this.policy?.actions ?? TASK_ACTIONS);
    this.#tell(problem && new Problem(problem));
    const { start } = this.episode;
    const trained = this.policy?.trainedSize ?? start.size;
    this.begin(given ?? (trained === start.size ? start : randomStart(trained)));
  }

  /** @param {import("./doorkey.js").Start} start of a new episode */
  begin(start) {
    this.pause();
    this.episode = new Episode(start);
    const sizes = $("size");
    if (![...sizes.options].some(({ value }) => value === `${start.size}`)) {
      sizes.add(new Option(`${start.size} × ${start.size}`, start.size));
    }
    sizes.value = start.size;
    history.replaceState(null, "", `#${written({ model: $("model").value, ...start })}`);
    this.show();
  }

  /** Draws the moment of the episode, and once it has come what the policy makes of it. */
  async show() {
    const moment = this.episode.now;
    this.reply = null;
    this.#draw();
    if (!this.policy) return;
    try {
      const reply = await this.policy.reply(moment);
      if (moment !== this.episode.now) return; // a newer one is shown by now
      this.reply = reply;
      this.#tell(null);
      this.#draw();
    } catch (error) {
      this.#tell(error);
      this.pause();
    }
  }

  /** Lets the policy take a step. */
  async step() {
    const { policy, episode } = this;
    const moment = episode.now;
    if (!policy || moment.end) return;
    try {
      const { action } = await policy.reply(moment);
      if (episode !== this.episode || moment !== episode.now) return;
      const { actions } = policy;
      const explores = $("explore").checked && Math.random() < EXPLORED;
      episode.act(explores ? actions[Math.floor(Math.random() * actions.length)] : action);
    } catch (error) {
      this.#tell(error);
      this.pause();
      return;
    }
    await this.show();
  }

  /** Lets the policy play until the episode ends, or something else is asked for. */
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
    this.isPlaying = false;
    if (this.episode) this.#draw();
  }

  #byHand(action) {
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
    $("play").textContent = this.isPlaying ? "Pause" : "Play";
    for (const id of ["play", "step"]) $(id).disabled = !this.policy;
    $("step").disabled ||= Boolean(now.end);
    $("back").disabled = $("restart").disabled = index === 0;
    $("time").max = moments.length - 1;
    $("time").value = index;
    $("moment").textContent = `Step ${index} of ${moments.length - 1}`;
    $("status").setAttribute("aria-live", this.isPlaying && !now.end ? "off" : "polite");
    $("status").textContent = described(now);
    if (reply || !this.policy) {
      this.actions.show(now.end ? null : reply);
      this.heads.show(now.state, reply?.heads ?? []);
    }
    $("attention-hint").textContent = this.#attentionHint();
    this.#drawWorld(now.state);
  }

  #drawWorld(state) {
    const inside = isWithin(state);
    const sees = visible(state);
    const seen = viewCells
      .filter(([x, y]) => sees[x][y])
      .map((cell) => cellOfView(state, cell))
      .filter(inside);
    const head = this.reply?.heads[this.heads.chosen];
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
      }),
    );
  }

  #attentionHint() {
    if (!this.policy) return "No policy plays.";
    if (this.reply && !this.reply.heads.length) return "This policy has none to show.";
    return (
      "What the framed cell attends to: the agent's own, or the one that you point at. In a " +
      "picture the arrows move the frame; a pressed picture lies over the grid as well."
    );
  }

  /** Shows a problem to the user, or hides the last one. */
  #tell(problem) {
    if (problem && !(problem instanceof Problem)) throw problem; // a mistake in these files
    $("problem").hidden = !problem;
    $("problem").textContent = problem?.message ?? "";
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
      "new-level": () => this.begin(randomStart(Number($("size").value))),
    };
    for (const [id, act] of Object.entries(clicked)) $(id).addEventListener("click", act);
    $("size").addEventListener("change", clicked["new-level"]);
    $("model").addEventListener("change", () => this.#choose($("model").selectedIndex));
    $("time").addEventListener("input", () => this.#goTo(Number($("time").value)));
    $("editor").addEventListener("toggle", () => this.#draw());
    // After a click with a pointer the keys play on, in place of pressing that button again.
    document.addEventListener("click", ({ detail, target }) => {
      if (detail && target.closest("button:not(.head)")) $("board").focus({ preventScroll: true });
    });
    this.#listenToBoard();
  }

  #listenToBoard() {
    const board = $("board");
    const size = () => this.episode.start.size;
    board.addEventListener("click", (event) => {
      if (this.editor.isOpen) this.#edit(cellUnder(event, board, size()));
    });
    board.addEventListener("pointermove", (event) => {
      const cell = cellUnder(event, board, size());
      const { state } = this.episode.now;
      this.heads.lookFrom(
        viewCells.find((each) => `${cellOfView(state, each)}` === `${cell}`) ?? null,
      );
    });
    board.addEventListener("pointerleave", () => this.heads.lookFrom(null));
    document.addEventListener("keydown", (event) => this.#key(event));
  }

  #edit(cell) {
    this.editor.place(cell);
    this.#draw();
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("button, input, select, summary")) return; // they have keys
    const action = ACTION_OF_KEY[event.key];
    if (this.editor.isOpen && event.target === $("board")) {
      const cell = moved(this.editor.cursor, event.key, this.episode.start.size);
      if (cell) this.editor.cursor = cell;
      else if (action) this.editor.place(this.editor.cursor);
      else return;
      this.#draw();
    } else if (action) {
      this.#byHand(action);
    } else return;
    event.preventDefault();
  }
}

/** A moment of an episode as a sentence. */
function described({ state, reward, end }) {
  if (end === "goal")
    return `Goal reached after ${state.steps} steps: reward ${reward.toFixed(3)}.`;
  if (end === "time") return `Time is up after ${state.steps} steps.`;
  const lock = state.lock === OPEN ? "open" : state.lock === LOCKED ? "locked" : "closed";
  const key = state.key ? `in column ${state.key[0]}, row ${state.key[1]}` : "carried";
  const [x, y] = state.agent;
  const looks = LOOKS[state.direction];
  return `Agent in column ${x}, row ${y}, looks ${looks}; key ${key}; door ${lock}.`;
}

new Playground().open();
