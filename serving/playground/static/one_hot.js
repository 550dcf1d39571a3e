/** Encodes the cells of DoorKey views as one-hot. */

/** Number of codes in each channel of a view: objects, colours, states, directions. */
const CODES = [11, 6, 3, 4];

/** @param {number[]} codes the codes of a cell @returns {number[]} their concatenated one-hots */
export const oneHot = (codes) =>
  codes.flatMap((code, i) => Array.from({ length: CODES[i] }, (_, each) => Number(each === code)));
