// Plays episodes with the page's network; writes the values of actions, then attention.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, queryFile, out] = process.argv.slice(2);
globalThis.fetch = async (name) => new Response(readFileSync(join(folder, decodeURIComponent(name))));
const files = ["episode.js", "policy.js", "server.js", "window_policy.js"];
const modules = await Promise.all(files.map((file) => import(pathToFileURL(join(folder, file)))));
const [{ Episode }, { Policy }, { servedModels }, { WindowPolicy }] = modules;
const { name, starts, limit, target } = JSON.parse(readFileSync(queryFile, "utf8"));
const model = (await servedModels()).find((each) => each.name === name);
const policy = new (model.policy.signatures.act.inputs.states ? WindowPolicy : Policy)(model);
await policy.open();
if (target !== null) policy.target = target;
const numbers = [];
const played = [];
for (const start of starts) {
  const episode = new Episode(start);
  const actions = [];
  while (!episode.now.end && actions.length < limit) {
    const { action, values, heads } = await policy.reply(episode.now);
    numbers.push(...values, ...heads.flatMap(({ scores }) => scores.flat()));
    actions.push(action);
    episode.act(action);
  }
  played.push({ actions, end: episode.now.end });
}
writeFileSync(out, Float32Array.from(numbers));
console.log(JSON.stringify(played));
