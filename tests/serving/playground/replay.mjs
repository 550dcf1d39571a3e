// Replays recorded episodes with the page's DoorKey, and prints where it differs.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [rules, recording] = process.argv.slice(2);
const doorkey = await import(pathToFileURL(rules));
const { episodes, starts } = JSON.parse(readFileSync(recording, "utf8"));
const differences = [];
let steps = 0;

function compare(where, ours, theirs) {
  if (JSON.stringify(ours) !== JSON.stringify(theirs)) differences.push([where, ours, theirs]);
}

episodes.forEach(({ start, limit, observations, actions, results }, number) => {
  let state = doorkey.begin(start);
  compare([number, "first"], doorkey.observe(state), observations[0]);
  actions.forEach((action, i) => {
    const { state: next, ...result } = doorkey.step(state, action, limit);
    state = next;
    compare([number, i, action], doorkey.observe(state), observations[i + 1]);
    compare([number, i, action], result, results[i]);
    steps++;
  });
});
const problems = starts.map((start) => doorkey.problemOf(start));
const drawn = [5, 6].map((size) => Array.from({ length: 12000 }, () => doorkey.randomStart(size)));
console.log(JSON.stringify({ steps, problems, drawn, differences: differences.slice(0, 5) }));
