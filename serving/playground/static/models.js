/** Which of the served models is shown, and on which of the two pages. */
import { servedModels } from "./server.js";

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
 * @param {(model: object, notice?: string) => void} show called with a model for this page, and
 *   where the address names none that is here with what tells so
 */
export async function chooseModels(here, address, show) {
  // What another address names is begun with, as what the first one named was.
  addEventListener("hashchange", () => location.reload());
  const list = document.getElementById("model");
  const models = await servedModels();
  const choose = (number, notice) => {
    const model = models[number];
    const page = pageOf(model);
    list.selectedIndex = number;
    if (page === here) show(model, notice);
    else location.replace(`${page}#model=${encodeURIComponent(model.name)}`);
  };
  list.replaceChildren(...models.map(({ name }) => new Option(name)));
  document.getElementById("model-choice").hidden = models.length < 2;
  if (models.length === 1)
    document.getElementById("model-name").textContent = `Model ${models[0].name}`;
  list.addEventListener("change", () => choose(list.selectedIndex));
  const asked = new URLSearchParams(address).get("model");
  const found = models.findIndex(({ name }) => name === asked);
  const first = models.findIndex((model) => pageOf(model) === here);
  const isThere = asked === null || found >= 0;
  const notice = isThere ? "" : "The address names a model that is not here: another is shown.";
  choose(Math.max(0, found < 0 ? first : found), notice);
}
