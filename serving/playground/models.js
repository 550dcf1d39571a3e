/** Which of the served models is shown, and on which of the two pages. */
import { Problem, servedModels } from "./server.js";

const DOORKEY = "./";
const DIGITS = "digits.html";

/** @param {object} model of `servedModels` @returns {string} the page that shows it */
function pageOf({ policy }) {
  const shape = policy?.signatures?.classify?.inputs?.image?.shape;
  return `${shape}` === ",28,28" ? DIGITS : DOORKEY;
}

/**
 * Lets the user choose among the served models; one that another page shows is gone to there.
 * @param {string} here this page, "./" or "digits.html"
 * @param {string} address what stood behind the page's #, which may name a model
 * @param {(model: object) => void} show called with a model for this page
 */
export async function chooseModels(here, address, show) {
  const list = document.getElementById("model");
  const models = await servedModels();
  if (!models.length) throw new Problem("The server has no model that is loaded.");
  const choose = (number) => {
    const model = models[number];
    const page = pageOf(model);
    list.selectedIndex = number;
    if (page === here) show(model);
    else location.replace(`${page}#model=${encodeURIComponent(model.name)}`);
  };
  list.replaceChildren(...models.map(({ name }) => new Option(name)));
  document.getElementById("model-choice").hidden = models.length < 2;
  list.addEventListener("change", () => choose(list.selectedIndex));
  const asked = new URLSearchParams(address).get("model");
  const found = models.findIndex(({ name }) => name === asked);
  choose(Math.max(0, found));
}
