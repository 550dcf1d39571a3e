/**
 * Classifies images of 28 × 28 pixels, on the server or in the browser.
 *
 * @typedef {object} Answer
 * @property {number} label the class with the highest probability
 * @property {number[]} probabilities of all classes
 * @property {{name: string, scores: number[][]}[]} heads attention scores between image patches
 */
import { headsOf } from "./heads.js";
import { SIDE } from "./ink.js";
import { predictor } from "./server.js";

export class Classifier {
  /** @param {object} model a model from `servedModels` */
  constructor(model) {
    const { signatures, class_names: names } = model.policy;
    this.predict = predictor(model);
    this.signature = signatures.classify_with_attention ? "classify_with_attention" : "classify";
    const { outputs } = signatures[this.signature];
    const classes = outputs.probabilities.shape[1];
    /** The names of the classes. */
    this.names = names ?? Array.from({ length: classes }, (_, i) => `${i}`);
    const attention = Object.entries(outputs).find(([name]) => name.startsWith("attention_"));
    /** Number of patches along one side of the image; 1 if the classifier returns no attention. */
    this.patches = attention ? Math.sqrt(attention[1].shape[2]) : 1;
  }

  /** @param {ArrayLike<number>} image 28 × 28 values from 0 to 1 @returns {Promise<Answer>} */
  async reply(image) {
    const bytes = Array.from(image, (value) => Math.round(255 * value));
    const rows = Array.from({ length: SIDE }, (_, i) => bytes.slice(i * SIDE, (i + 1) * SIDE));
    const outputs = await this.predict(this.signature, { image: [rows] });
    return {
      label: outputs.class[0],
      probabilities: outputs.probabilities[0],
      heads: headsOf(outputs, (_, columns) => columns === this.patches ** 2),
    };
  }
}
