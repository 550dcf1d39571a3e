/**
 * Requests predictions. If `config.json` names a file of weights for a model, the browser computes
 * the network; otherwise the server does, over its REST API.
 */
import { networkOf } from "./network.js";

/** An error whose message is shown to the user. */
export class Problem extends Error {}

/** @returns {Promise<object[]>} the served models: name, version, and its policy.json or null */
export async function servedModels() {
  const remedy = "reload the page, or write it with serving.playground.static_page.write_page";
  const models = (await read("config.json", "json", remedy))?.models;
  if (!models?.length) throw new Problem("No model is loaded: config.json lists none.");
  return models;
}

/**
 * @param {object} model a model from `servedModels`
 * @returns {(signature: string, inputs: object, changes?: object) => Promise<any>} the predict
 *   function of the model; only a network in this page accepts changes
 */
export function predictor(model) {
  return model.network ? inThisPage(model) : overRest(model);
}

function overRest({ name, version }) {
  // All requests name one version, because another version may reject the memory of this one.
  const address = `/v1/models/${encodeURIComponent(name)}/versions/${version}:predict`;
  return async (signature, inputs) => {
    const body = JSON.stringify({ signature_name: signature, inputs });
    return (await ask(address, { method: "POST", body })).outputs;
  };
}

function inThisPage({ name, network: { weights, bytes, crc32, ...network } }) {
  let loading = null;
  const load = async () => {
    const file = await read(weights, "arrayBuffer");
    if (file.byteLength !== bytes || checksum(file) !== crc32)
      throw new Problem(`The weights of ${name} are damaged: reload the page.`);
    return networkOf(network, file);
  };
  return async (signature, ...inputs) => {
    loading ??= load().catch((error) => {
      loading = null; // the next call tries again
      throw error;
    });
    return (await loading).predict(signature, ...inputs);
  };
}

/** The CRC-32 of each byte value. */
const CRCS = Int32Array.from({ length: 256 }, (_, crc) => {
  for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  return crc;
});

/** Returns the CRC-32 of a file, as zlib does. Browsers offer SHA-256 only over HTTPS. */
function checksum(file) {
  let crc = -1;
  for (const byte of new Uint8Array(file)) crc = (crc >>> 8) ^ CRCS[(crc ^ byte) & 255];
  return ~crc >>> 0;
}

/** Loads a file of the page and returns it as `kind`, a method of `Response`. */
async function read(name, kind, remedy = "reload the page") {
  try {
    const response = await fetch(encodeURIComponent(name));
    if (response.ok) return await response[kind]();
  } catch {
    // the error is thrown below
  }
  throw new Problem(`The file ${name} is missing or unreadable: ${remedy}.`);
}

async function ask(address, options) {
  let response, answer;
  try {
    response = await fetch(address, options);
    answer = await response.json();
  } catch {
    throw new Problem("The server does not respond. Dimmed values are out of date.");
  }
  if (response.status === 404)
    throw new Problem("The server no longer has this model: reload the page.");
  if (!response.ok)
    throw new Problem(`The server returned an error: ${answer.error ?? response.status}.`);
  return answer;
}
