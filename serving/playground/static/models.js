/** Chooses the model to show and the page for it. */
import { servedModels } from "./server.js";

const DOORKEY = "./";
const DIGITS = "digits.html";

/** @param {object} model a model from `servedModels` @returns {string} the page that shows it */
function pageOf({ policy }) {
  const shape = policy?.signatures?.classify?.inputs?.image?.shape;
  return `${shape}` === ",28,28" ? DIGITS : DOORKEY;
}

/**
 * Fills the list of models, and shows the model that the address names or else the first one for
 * this page. The choice of a model for the other page opens that page.
 * @param {string} here the address of this page, "./" or "digits.html"
 * @param {string} address the part of the URL after #, which may name a model
 * @param {(model: object, notice?: string) => void} show called with the chosen model, and with a
 *   notice for the user if the address names an unknown model
 */
export async function chooseModels(here, address, show) {
  // The page restarts if the user changes the address.
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
  const requested = new URLSearchParams(address).get("model");
  const found = models.findIndex(({ name }) => name === requested);
  const first = models.findIndex((model) => pageOf(model) === here);
  const isThere = requested === null || found >= 0;
  const notice = isThere ? "" : "The address names an unknown model; another one is shown.";
  choose(Math.max(0, found < 0 ? first : found), notice);
}
