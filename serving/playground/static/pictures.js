/** Pictures of what is not only cells: tokens of a window of steps, slots of a memory. */
import { squares, view } from "./drawing.js";
import { Grid, html } from "./heads.js";
import { CELLS, VIEW } from "./policy.js";

/** A picture whose rows have names, in letters of the page's size however large it is drawn. */
function named(names, picture) {
  const words = names.map((name) => html("span", "", name));
  return html("span", "named", html("span", "names", ...words), picture);
}

/** What the tokens of the last steps get: a column a step, those before the first are empty. */
export function tokenPicture({ grid, rowNames }, weights, from, { steps }) {
  const rows = rowNames.map((_, y) =>
    Array.from({ length: grid.columns }, (_, x) =>
      x < grid.columns - steps ? null : weights[grid.entity([x, y])],
    ),
  );
  return named(rowNames, squares(rows, [from[0] + 0.04, from[1], 0.92]));
}

/**
 * The slots of a memory, one below the other; what comes in is numbered after them.
 * @param {{slots: number, fed: number}} policy how many slots, and rows that come in at a step
 */
export function slotGrid({ slots, fed }) {
  const name = ([, i]) => {
    if (i < slots) return `slot ${i + 1}`;
    if (fed < CELLS) return "what comes in";
    return i - slots < CELLS ? VIEW.name(VIEW.cell(i - slots)) : "its last action";
  };
  return new Grid(1, slots, { byRows: true, home: [0, 0], name });
}

/** What each slot attends to, and the framed one in the view where its cells come in one by one. */
export function slotPicture(state, { slots, fed }, weights, [, slot], head) {
  const seesCells = fed >= CELLS;
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
