/** Draws attention maps of a Decision Transformer's tokens and of a memory's slots. */
import { squares, view } from "./drawing.js";
import { Grid, html } from "./heads.js";
import { CELLS, VIEW } from "./policy.js";

/** Returns a map with names for its rows, in the font size of the page. */
function named(names, picture) {
  const words = names.map((name) => html("span", "", name));
  return html("span", "named", html("span", "names", ...words), picture);
}

/**
 * Draws the attention to the tokens of the last steps, with a column for each step. Columns before
 * the start of the episode are empty.
 */
export function tokenPicture({ grid, rowNames }, weights, from, { steps }) {
  const rows = rowNames.map((_, y) =>
    Array.from({ length: grid.columns }, (_, x) =>
      x < grid.columns - steps ? null : weights[grid.entity([x, y])],
    ),
  );
  return named(rowNames, squares(rows, [from[0] + 0.04, from[1], 0.92]));
}

/**
 * Returns the layout of memory slots, from top to bottom. The slots attend to the slots and then to
 * the input rows, whose indices follow.
 * @param {{slots: number, inputRows: number}} policy the number of slots and of input rows per step
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
 * Draws the attention of each slot. If the inputs are the cells of the view, the attention of the
 * framed slot is also drawn over the view.
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
