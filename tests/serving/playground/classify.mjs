// Classifies images with the page's network; writes probabilities, then attention.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, queryFile, out] = process.argv.slice(2);
globalThis.fetch = async (name) => new Response(readFileSync(join(folder, decodeURIComponent(name))));
const files = ["classifier.js", "server.js"].map((file) => pathToFileURL(join(folder, file)));
const [{ Classifier }, { servedModels }] = await Promise.all(files.map((file) => import(file)));
const { name, images } = JSON.parse(readFileSync(queryFile, "utf8"));
const classifier = new Classifier((await servedModels()).find((model) => model.name === name));
const numbers = [];
const labels = [];
for (const image of images) {
  const { label, probabilities, heads } = await classifier.reply(image.map((byte) => byte / 255));
  numbers.push(...probabilities, ...heads.flatMap(({ scores }) => scores.flat()));
  labels.push(label);
}
writeFileSync(out, Float32Array.from(numbers));
console.log(JSON.stringify(labels));
