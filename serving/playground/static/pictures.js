/** Attention maps of the tokens of a Decision Transformer and of the slots of a memory. */
import { squares, view } from "./drawing.js";
import { Grid, html } from "./heads.js";
import { CELLS, VIEW } from "./policy.js";

/** A map with names for its rows, in the font size of the page. */
function named(names, picture) {
  const words = names.map((name) => html("span", "", name));
  return html("span", "named", html("span", "names", ...words), picture);
}

/** Attention to the tokens of the last steps: a column for each step, empty before the first. */
export function tokenPicture({ grid, rowNames }, weights, from, { steps }) {
  const rows = rowNames.map((_, y) =>
    Array.from({ length: grid.columns }, (_, x) =>
      x < grid.columns - steps ? null : weights[grid.entity([x, y])],
    ),
  );
  return named(rowNames, squares(rows, [from[0] + 0.04, from[1], 0.92]));
}

/**
 * The slots of a memory from top to bottom; the indices of the inputs follow those of the slots.
 * @param {{slots: number, inputRows: number}} policy number of slots, and of
 *   input rows at a step
 */
export function slotGrid({ slots, inputRows }) {
  const name = ([, i]) => {
    if (i < slots) return `slot ${i + 1}`;
    if (inputRows < CELLS) return "the input";
    return i - slots < CELLS ? VIEW.name(VIEW.cell(i - slots)) : "the last action";
  };
  return new Grid(1, slots, { byRows: true, home: [0, 0], name });
}

/**
 * Attention of each slot; if the inputs are the cells of the view, the framed slot over the view.
 */
export function slotPicture(state, { slots, inputRows }, weights, [, slot], head) {
  const seesCells = inputRows >= CELLS;
  const rows = head.scores.slice(0, slots).map((row) => {
    const [others, cells] = [row.slice(0, slots), row.slice(slots, slots + CELLS)];
    const view = cells.reduce((sum, weight) => sum + weight, 0);
    return seesCells ? [...others, view, ...row.slice(slots + CELLS)] : [...others, ...cells];
  });
  const names = rows.map((_, i) => `${i + 1}`);
  const matrix = named(names, squares(rows, [0.04, slot, rows[0].length - 0.08]));
  if (!seesCells) return matrix;
  return html("span", "", matrix, view(state, weights.slice(slots, slots + CELLS)));
}
