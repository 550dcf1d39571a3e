// Plays an episode with the page's network. For each step, writes the Q values after each of the
// given changes, then occlusion and rollout.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, queryFile, out] = process.argv.slice(2);
globalThis.fetch = async (name) => new Response(readFileSync(join(folder, decodeURIComponent(name))));
const files = ["episode.js", "policy.js", "server.js"];
const modules = await Promise.all(files.map((file) => import(pathToFileURL(join(folder, file)))));
const [{ Episode }, { Policy }, { servedModels }] = modules;
const { name, start, limit, changes } = JSON.parse(readFileSync(queryFile, "utf8"));
const policy = new Policy((await servedModels()).find((each) => each.name === name));
const episode = new Episode(start);
const numbers = [];
const actions = [];
while (!episode.now.end && actions.length < limit) {
  const { action, rollout } = await policy.reply(episode.now);
  for (const { off, hidden } of changes) {
    const change = { off: new Set(off), hidden: new Set(hidden) };
    numbers.push(...(await policy.changed(episode.now, change)).values);
  }
  numbers.push(...(await policy.occlusion(episode.now)), ...rollout);
  actions.push(action);
  episode.act(action);
}
writeFileSync(out, Float32Array.from(numbers));
const parts = policy.parts.flatMap(([part, heads]) => [...heads, part]);
console.log(JSON.stringify({ actions, parts }));
