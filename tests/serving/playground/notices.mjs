// What the page says of models, and where nothing tells which there are.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, asked] = process.argv.slice(2);
globalThis.fetch = async () => new Response("", { status: 404 });
const files = ["policy.js", "server.js"].map((file) => pathToFileURL(join(folder, file)));
const [{ whyNot }, { servedModels }] = await Promise.all(files.map((file) => import(file)));
const models = JSON.parse(readFileSync(asked, "utf8"));
const missing = await servedModels().catch(({ message }) => message);
console.log(JSON.stringify({ reasons: models.map(whyNot), missing }));
