// Centers drawings and rotates images as the digits page does.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [code, queryFile] = process.argv.slice(2);
const { likeMnist, turnedAndMoved } = await import(pathToFileURL(code));
const { side, drawings, images, ways } = JSON.parse(readFileSync(queryFile, "utf8"));
const laid = drawings.map((ink) => Array.from(likeMnist(ink, side)));
const turned = images.map((image, i) => Array.from(turnedAndMoved(image, ...ways[i])));
console.log(JSON.stringify({ laid, turned }));
