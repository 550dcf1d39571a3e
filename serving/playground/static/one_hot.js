/** One-hot encoding of DoorKey views. */

/** How many codes each channel of a view has: objects, colours, states, directions. */
const CODES = [11, 6, 3, 4];

/** @param {number[]} codes of a cell @returns {number[]} a one-hot of each, one after the other */
export const oneHot = (codes) =>
  codes.flatMap((code, i) => Array.from({ length: CODES[i] }, (_, each) => Number(each === code)));
