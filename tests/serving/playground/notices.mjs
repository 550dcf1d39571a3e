// Prints why the page cannot use a model, and its error without a config.json.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, queryFile] = process.argv.slice(2);
globalThis.fetch = async () => new Response("", { status: 404 });
const files = ["policy.js", "server.js"].map((file) => pathToFileURL(join(folder, file)));
const [{ reasonNotToPlay }, { servedModels }] = await Promise.all(files.map((file) => import(file)));
const models = JSON.parse(readFileSync(queryFile, "utf8"));
const missing = await servedModels().catch(({ message }) => message);
console.log(JSON.stringify({ reasons: models.map(reasonNotToPlay), missing }));
