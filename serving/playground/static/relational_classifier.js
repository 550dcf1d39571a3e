/** Computes a `RelationalClassifier` for one image, with the attention between its patches. */
import { argmax, largest, relate, relu, softmax } from "./layers.js";

export class RelationalClassifier {
  /**
   * @param {{num_heads: number, num_rounds: number, strides: number[]}} sizes `strides` has the
   *   stride of each convolution
   * @param {import("./layers.js").Layers} layers
   */
  constructor(sizes, layers) {
    Object.assign(this, { sizes, layers });
  }

  predict(_, { image }) {
    const patches = withCoordinates(this.#convolved(image[0]));
    const { entities, attention } = relate(this.layers, patches.flat(), this.sizes);
    const probabilities = softmax(this.layers.dense("head", largest(entities)));
    return { class: [argmax(probabilities)], probabilities: [probabilities], ...attention };
  }

  /** Returns the output `grid[y][x]` of the convolutions for an image `image[y][x]` of bytes. */
  #convolved(image) {
    const pixels = image.map((row) => row.map((byte) => [byte / 255]));
    return this.sizes.strides.reduce((grid, stride, i) => {
      const cells = this.layers.convolution(`convolution_${i + 1}`, grid, stride);
      const activated = (cell) => this.layers.norm(`convolution_norm_${i + 1}`, cell).map(relu);
      return cells.map((row) => row.map(activated));
    }, pixels);
  }
}

/** Appends the column and row of each cell to its features, scaled to the range from -1 to 1. */
function withCoordinates(grid) {
  const place = (index, count) => (2 * index) / Math.max(1, count - 1) - 1;
  return grid.map((row, y) =>
    row.map((cell, x) => [...cell, place(x, row.length), place(y, grid.length)]),
  );
}
