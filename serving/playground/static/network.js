/**
 * Networks that run in the browser, with the outputs of a server within 1e-5. They are plain
 * JavaScript, because one prediction takes a few million multiplications, and ONNX Runtime's
 * WebAssembly is many times as large as this page with all its weights.
 *
 * serving/playground/networks.py lists the supported networks and rejects all others.
 */
import { DecisionTransformer } from "./decision_transformer.js";
import { Layers } from "./layers.js";
import { QNetwork } from "./q_network.js";
import { RelationalClassifier } from "./relational_classifier.js";

/** By the names of their classes in Keras. */
const NETWORKS = {
  RelationalQNetwork: QNetwork,
  RecurrentQNetwork: QNetwork,
  RelationalClassifier,
  DecisionTransformer,
};

/**
 * @param {object} network as `config.json` describes it
 * @param {string} network.kind
 * @param {ArrayBuffer} weights a file of safetensors
 * @returns {{predict: (signature: string, inputs: object) => any}} which takes one of each input,
 *   as a batch, and gives outputs by their names, as the REST API does
  * @throws {Error} if the file is damaged
 */
export function networkOf({ kind, ...sizes }, weights) {
  return new NETWORKS[kind](sizes, new Layers(weights));
}
