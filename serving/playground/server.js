/** The server: which models it has, and what they answer over its REST API. */

/** A failure that is told to the user as it is. */
export class Problem extends Error {}

/** @returns {Promise<object[]>} the served models: name, version, and its policy.json or null */
export async function servedModels() {
  return (await ask("config.json")).models;
}

/**
 * @param {object} model of `servedModels`
 * @returns {(signature: string, inputs: object) => Promise<any>} what asks that version of it
 */
export function predictor({ name, version }) {
  // One version all the time: the next one would not know this one's memory.
  const address = `/v1/models/${encodeURIComponent(name)}/versions/${version}:predict`;
  return async (signature, inputs) => {
    const body = JSON.stringify({ signature_name: signature, inputs });
    return (await ask(address, { method: "POST", body })).outputs;
  };
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
