/**
 * Computes networks in the browser. Their outputs differ from those of a server by at most 1e-5.
 *
 * Plain JavaScript is fast enough, because a prediction takes a few million multiplications. ONNX
 * Runtime's WebAssembly would be many times as large as this page with all its weights.
 *
 * serving/playground/networks.py lists the supported networks and rejects all others.
 */
import { DecisionTransformer } from "./decision_transformer.js";
import { Layers } from "./layers.js";
import { QNetwork } from "./q_network.js";
import { RelationalClassifier } from "./relational_classifier.js";

/** Name of the Keras class -> JavaScript class. */
const NETWORKS = {
  RelationalQNetwork: QNetwork,
  RecurrentQNetwork: QNetwork,
  RelationalClassifier,
  DecisionTransformer,
};

/**
 * Returns a network whose `predict` takes and returns the same values as the REST API, for a batch
 * of one.
 * @param {object} network the description in `config.json`
 * @param {string} network.kind the name of its Keras class
 * @param {ArrayBuffer} weights a safetensors file
 * @returns {{predict: (signature: string, inputs: object) => any}}
  * @throws {Error} if the file is damaged
 */
export function networkOf({ kind, ...sizes }, weights) {
  return new NETWORKS[kind](sizes, new Layers(weights));
}
