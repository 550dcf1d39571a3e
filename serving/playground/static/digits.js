/**
 * Runs the page for digits, with a drawing area, the network input, and the prediction with its
 * attention.
 */
import { Classifier } from "./classifier.js";
import { legendOfAttention, svg } from "./drawing.js";
import { EXAMPLES } from "./examples.js";
import { cellUnder, Grid, Heads, html, moved } from "./heads.js";
import { draw, likeMnist, SIDE, turnedAndMoved } from "./ink.js";
import { chooseModels } from "./models.js";
import { showLegend } from "./panels.js";
import { Problem } from "./server.js";

const $ = (id) => document.getElementById(id);
const SLIDERS = { turn: "°", right: " px", down: " px" };
const FIRST = 3; // the example shown at the start
const SMALLEST_SHOWN = 0.0005; // a smaller probability would be shown as 0.0 %
const percent = (fraction) => `${(100 * fraction).toFixed(1)} %`;

class Digits {
  constructor() {
    this.classifier = null;
    this.answer = null;
    this.notice = ""; // shown if the address names an unknown model
    this.rows = []; // one for each class
    this.strokes = EXAMPLES[FIRST].map((stroke) => [...stroke]);
    this.pen = null; // the stroke that is being drawn
    this.isRequestPending = this.isStale = false;
    this.context = $("paper").getContext("2d", { willReadFrequently: true });
    showLegend($("legend"), legendOfAttention("query patch"));
    this.#makeExamples();
    this.#listen();
  }

  /** Loads the list of models and starts. */
  async open() {
    this.#useGrid(1);
    this.change();
    try {
      const address = location.hash.slice(1);
      await chooseModels("digits.html", address, (...chosen) => this.#choose(...chosen));
    } catch (error) {
      this.#showProblem(error);
    }
  }

  #choose(model, notice = "") {
    this.notice = notice;
    document.title = `${model.name} – Playground`;
    history.replaceState(null, "", `#model=${encodeURIComponent(model.name)}`);
    this.classifier = new Classifier(model);
    this.answer = null;
    this.rows = this.classifier.names.map((name) => {
      const [bar, value] = [html("span", "bar"), html("span", "value")];
      const [word, track] = [html("span", "word", name), html("span", "track", bar)];
      const row = html("li", "class", word, track, value);
      return { row, bar, value };
    });
    $("classes").replaceChildren(...this.rows.map(({ row }) => row));
    this.#useGrid(this.classifier.patches);
    this.change();
  }

  /** Creates the attention maps for an image of `side` × `side` patches. */
  #useGrid(side) {
    $("heads").replaceChildren();
    const middle = Math.floor(side / 2);
    this.grid = new Grid(side, side, {
      byRows: true,
      home: [middle, middle],
      name: ([x, y]) => `patch ${x + 1},${y + 1}`,
    });
    this.heads = new Heads($("heads"), this.grid, () => this.#show());
  }

  /** Redraws the strokes and classifies them. */
  async change() {
    draw(this.context, this.strokes);
    const { width } = $("paper");
    const { data } = this.context.getImageData(0, 0, width, width);
    const ink = Float64Array.from({ length: width * width }, (_, i) => data[4 * i + 3] / 255);
    const [turn, right, down] = Object.keys(SLIDERS).map((id) => Number($(id).value));
    this.image = turnedAndMoved(likeMnist(ink, width), turn, right, down);
    this.isStale = this.strokes.length > 0; // an empty drawing is not classified
    if (!this.isStale) this.answer = null;
    this.#show();
    if (this.isRequestPending) return; // the loop below sends the next request
    this.isRequestPending = true;
    try {
      while (this.isStale && this.classifier) await this.#ask();
    } catch (error) {
      document.body.classList.add("stale"); // the values are those of an earlier drawing
      this.#showProblem(error);
    } finally {
      this.isRequestPending = false;
    }
  }

  async #ask() {
    const { classifier, image } = this;
    this.isStale = false;
    const answer = await classifier.reply(image);
    // Ignore the answer if another model was chosen or the drawing was cleared in the meantime.
    if (classifier !== this.classifier || !this.strokes.length) return;
    this.answer = answer;
    document.body.classList.remove("stale");
    this.#showProblem(null);
    this.#show();
  }

  #show() {
    for (const [id, unit] of Object.entries(SLIDERS))
      $(`${id}-value`).textContent = `${$(id).value}${unit}`;
    for (const id of ["undo", "clear"]) $(id).disabled = !this.strokes.length;
    const heads = this.answer?.heads ?? [];
    const head = heads[this.heads.chosen];
    const weights = head ? this.heads.weights(head) : [];
    $("seen").replaceChildren(this.#picture(weights, head && this.heads.from));
    this.heads.show(heads, (its, from) => this.#picture(its, from));
    this.#showProbabilities(this.answer?.probabilities);
    $("status").textContent = this.#describePrediction();
    $("attention-hint").textContent =
      this.answer && !heads.length
        ? "This network returns no attention."
        : "Attention of the framed query patch. Point at a patch or use the arrow keys to move " +
          "the query patch; click a map to overlay it on the image.";
  }

  #showProbabilities(probabilities) {
    this.rows.forEach(({ row, bar, value }, i) => {
      bar.style.width = probabilities ? `${100 * probabilities[i]}%` : "0";
      value.textContent = probabilities ? percent(probabilities[i]) : "";
      row.classList.toggle("chosen", i === this.answer?.label);
    });
  }

  /** Describes the two most probable classes; the second is omitted if it is below 0.05 %. */
  #describePrediction() {
    if (!this.strokes.length) return "Draw a digit or choose an example.";
    if (!this.answer) return "";
    const { names } = this.classifier;
    const { probabilities } = this.answer;
    const order = [...probabilities.keys()].sort((a, b) => probabilities[b] - probabilities[a]);
    const likely = order
      .slice(0, 2)
      .filter((i, rank) => !rank || probabilities[i] >= SMALLEST_SHOWN);
    const words = likely.map((i) => `${names[i]}, ${percent(probabilities[i])}`);
    return `Prediction: ${words.join("; second ")}.`;
  }

  /** Draws the image with attention below the ink and a frame around the query patch. */
  #picture(weights, from) {
    const { columns } = this.grid;
    // The width of a patch is a whole number of pixels, and the patches are centred in the image.
    const wide = Math.floor(SIDE / columns);
    const margin = (SIDE - columns * wide) / 2;
    const at = ([x, y]) => ({ x: margin + x * wide, y: margin + y * wide });
    const size = { width: wide, height: wide };
    const most = Math.max(...weights) || 1;
    const patches = weights.map((weight, i) => {
      const strength = (0.75 * weight) / most;
      const attributes = { ...at(this.grid.cell(i)), ...size, "fill-opacity": strength };
      return svg("rect", { class: "attention", ...attributes });
    });
    const ground = svg("rect", { class: "floor", width: SIDE, height: SIDE });
    const frame = from ? [svg("rect", { class: "patch", ...at(from), ...size })] : [];
    return html("span", "digit", layer(ground, ...patches), this.#pixels(), layer(...frame));
  }

  #pixels() {
    const canvas = html("canvas", "ink");
    canvas.width = canvas.height = SIDE;
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(SIDE, SIDE);
    this.image.forEach((value, i) => (pixels.data[4 * i + 3] = 255 * value));
    context.putImageData(pixels, 0, 0);
    return canvas;
  }

  /** Shows a problem, or the notice about the address if there is none. */
  #showProblem(problem) {
    if (problem && !(problem instanceof Problem)) throw problem; // a bug in these files
    const text = problem?.message ?? this.notice;
    $("problem").hidden = !text;
    $("problem").textContent = text;
  }

  #makeExamples() {
    const buttons = EXAMPLES.map((strokes, digit) => {
      const button = html("button", "", `${digit}`);
      button.type = "button";
      button.setAttribute("aria-label", `Example of a ${digit}`);
      button.addEventListener("click", () => this.#write(strokes.map((stroke) => [...stroke])));
      return button;
    });
    $("examples").replaceChildren(...buttons);
  }

  #write(strokes) {
    this.notice = "";
    this.#showProblem(null);
    this.strokes = strokes;
    this.change();
  }

  #listen() {
    $("undo").addEventListener("click", () => this.#write(this.strokes.slice(0, -1)));
    $("clear").addEventListener("click", () => this.#write([]));
    $("reset").addEventListener("click", () => {
      for (const id of Object.keys(SLIDERS)) $(id).value = 0;
      this.change();
    });
    for (const id of Object.keys(SLIDERS)) $(id).addEventListener("input", () => this.change());
    this.#listenToPen();
    const seen = $("seen");
    const cell = (event) => cellUnder(event, seen, this.grid.columns);
    seen.addEventListener("pointermove", (event) => this.heads.setQuery(cell(event)));
    seen.addEventListener("pointerdown", (event) => this.heads.setQuery(cell(event)));
    seen.addEventListener(
      "pointerleave",
      ({ pointerType }) => pointerType === "mouse" && this.heads.setQuery(null),
    );
    seen.addEventListener("keydown", (event) => {
      const next = moved(this.heads.from, event.key, this.grid.columns);
      if (!next) return;
      event.preventDefault();
      this.heads.setQuery(next);
    });
  }

  #listenToPen() {
    const paper = $("paper");
    const point = ({ clientX, clientY }) => {
      const { left, top, width, height } = paper.getBoundingClientRect();
      return [(clientX - left) / width, (clientY - top) / height];
    };
    paper.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      paper.setPointerCapture(event.pointerId);
      this.pen = [point(event)];
      this.#write([...this.strokes, this.pen]);
    });
    paper.addEventListener("pointermove", (event) => {
      if (!this.pen) return;
      this.pen.push(...(event.getCoalescedEvents?.() ?? [event]).map(point));
      this.change();
    });
    for (const name of ["pointerup", "pointercancel"])
      paper.addEventListener(name, () => (this.pen = null));
  }
}

const layer = (...children) =>
  svg("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, "aria-hidden": "true" }, ...children);

$("not-started").remove(); // remains visible if the browser cannot load modules, as from file://
new Digits().open();
