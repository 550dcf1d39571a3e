/**
 * Loads the weights of a network and computes the layers that several networks have. A network
 * processes one input at a time. Entities and tokens are rows of numbers.
 *
 * The layers have the same names as in Keras. serving/playground/static_page.py writes the weights.
 *
 * @typedef {number[]} Row
 *
 * @typedef {object} Layer
 * @property {Tensor} [kernel] (..., units)
 * @property {Tensor} [bias]
 * @property {Tensor} [embeddings]
 * @property {Tensor} [gamma] scale of a layer normalisation
 * @property {Tensor} [beta] offset of a layer normalisation
 *
 * @typedef {object} Tensor
 * @property {number[]} shape
 * @property {Float32Array} values
 *
 * @typedef {object} Head Queries, keys and values of one attention head.
 * @property {Row[]} queries
 * @property {Row[]} keys
 * @property {Row[]} values
 */
const EPSILON = 1e-5; // added to the variance in layer normalisations

export class Layers {
  /**
   * @param {ArrayBuffer} file a safetensors file
   * @throws {Error} if the file is damaged or contains values that are not finite
   */
  constructor(file) {
    /** @type {Record<string, Layer>} */
    this.weights = weightsOf(file);
  }

  has(name) {
    return name in this.weights;
  }

  dense(name, row) {
    const { kernel, bias } = this.weights[name];
    const units = kernel.shape.at(-1);
    const outputs = []; // filled with `push`, which is faster than `Array.from`
    for (let j = 0; j < units; j++) outputs.push(bias ? bias.values[j] : 0);
    for (let i = 0; i < row.length; i++) {
      if (row[i] === 0) continue; // zeros are frequent in one-hots, after a ReLU and in images
      for (let j = 0; j < units; j++) outputs[j] += row[i] * kernel.values[i * units + j];
    }
    return outputs;
  }

  /** Applies a layer normalisation; returns the row unchanged if the network has no such layer. */
  norm(name, row) {
    if (!this.has(name)) return row;
    const { gamma, beta } = this.weights[name];
    const centre = mean(row);
    const centred = row.map((x) => x - centre);
    const scale = 1 / Math.sqrt(dot(centred, centred) / row.length + EPSILON);
    return centred.map((x, i) => x * scale * gamma.values[i] + beta.values[i]);
  }

  /** Returns row `index` of an embedding table. */
  embedding(name, index) {
    const { shape, values } = this.weights[name].embeddings;
    return Array.from(values.subarray(index * shape[1], (index + 1) * shape[1]));
  }

  /** Applies a convolution to cells `grid[y][x]`, with zero padding as TensorFlow's "same". */
  convolution(name, grid, stride) {
    const [height, width, channels] = this.weights[name].kernel.shape;
    const nothing = Array(channels).fill(0);
    const columns = windows(grid[0].length, width, stride);
    return windows(grid.length, height, stride).map((ys) =>
      columns.map((xs) => {
        const seen = [];
        for (const y of ys) for (const x of xs) seen.push(...(grid[y]?.[x] ?? nothing));
        return this.dense(name, seen);
      }),
    );
  }
}

/** Returns the input positions of each convolution output along one axis, padding included. */
function windows(length, size, stride) {
  const count = Math.ceil(length / stride);
  const padding = Math.max(0, (count - 1) * stride + size - length);
  const first = -Math.floor(padding / 2);
  return Array.from({ length: count }, (_, i) =>
    Array.from({ length: size }, (_, j) => first + i * stride + j),
  );
}

/**
 * Computes scaled dot-product attention for all heads.
 * @param {Head[]} heads
 * @param {(n: number, s: number) => boolean} isSeen whether row n may attend to row s
 * @param {(h: number) => boolean} [isOff] whether the attention of head h is zero
 * @returns {{gathered: Row[], scores: Row[][]}} `gathered[n]` has the concatenated results of the
 *   heads for row n; `scores[h][n][s]` are the attention scores
 */
export function attend(heads, isSeen, isOff = () => false) {
  const gathered = heads[0].queries.map(() => []);
  const scores = heads.map(({ queries, keys, values }, h) => {
    const features = transposed(values);
    return queries.map((query, n) => {
      const scale = 1 / Math.sqrt(query.length);
      const weights = softmax(
        keys.map((key, s) => (isSeen(n, s) && !isOff(h) ? scale * dot(query, key) : -Infinity)),
      );
      gathered[n].push(...features.map((feature) => dot(weights, feature)));
      return weights;
    });
  });
  return { gathered, scores };
}

/**
 * Computes a `RelationalModule`, which has several rounds of attention between entities.
 * @param {Layers} layers
 * @param {Row[]} entities
 * @param {{num_heads: number, num_rounds: number}} sizes
 * @param {(n: number, s: number) => boolean} [isSeen] whether entity n may attend to entity s
 * @param {Set<string>} [off] names of the rounds and heads that are switched off
 * @returns {{entities: Row[], attention: object}} `attention` has the outputs
 *   `attention_round_<i>`, each for a batch of one
 */
export function relate(layers, entities, sizes, isSeen = () => true, off = new Set()) {
  const { num_heads, num_rounds } = sizes;
  const attention = {};
  for (let round = 1; round <= num_rounds; round++) {
    const block = `relations/block${round > 1 ? `_${round}` : ""}`;
    const heads = headsOf(layers, `${block}/attention`, entities, num_heads);
    const isOff = (head) => off.has(`round ${round}, head ${head + 1}`);
    const { gathered, scores } = attend(heads, isSeen, isOff);
    attention[`attention_round_${round}`] = [scores];
    if (off.has(`round ${round}`)) continue;
    entities = entities.map((entity, n) =>
      layers.norm(`${block}/output_norm`, sum(entity, layers.dense(`${block}/dense_1`, gathered[n]))),
    );
  }
  return { entities, attention };
}

function headsOf(layers, name, entities, count) {
  const fused = entities.map((entity) => layers.dense(`${name}/query_key_value`, entity));
  const size = fused[0].length / count / 3;
  return Array.from({ length: count }, (_, head) => {
    const [queries, keys, values] = ["query", "key", "value"].map((part, i) =>
      slices(fused, (3 * head + i) * size, size).map((row) =>
        layers.norm(`${name}/${part}_norm`, row),
      ),
    );
    return { queries, keys, values };
  });
}

/** Returns `size` numbers of every row, starting at index `begin`. */
export const slices = (rows, begin, size) => rows.map((row) => row.slice(begin, begin + size));

export const sum = (a, b) => a.map((x, i) => x + b[i]);

/** Returns the maximum of each feature over all rows. */
export const largest = (rows) => rows[0].map((_, i) => Math.max(...rows.map((row) => row[i])));

export const mean = (row) => row.reduce((all, x) => all + x, 0) / row.length;

export const relu = (x) => Math.max(0, x);

export const sigmoid = (x) => 1 / (1 + Math.exp(-x));

/** Returns the index of the largest number, or of the first one if several are equal. */
export const argmax = (row) => row.indexOf(Math.max(...row));

/** Returns the softmax of scores, or zeros if all of them are -Infinity. */
export function softmax(scores) {
  const most = Math.max(...scores);
  if (most === -Infinity) return scores.map(() => 0);
  const powers = scores.map((score) => Math.exp(score - most));
  const all = powers.reduce((before, power) => before + power, 0);
  return powers.map((power) => power / all);
}

const transposed = (rows) => rows[0].map((_, i) => rows.map((row) => row[i]));

function dot(a, b) {
  let all = 0;
  for (let i = 0; i < a.length; i++) all += a[i] * b[i];
  return all;
}

function weightsOf(file) {
  const length = Number(new DataView(file).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 8, length)));
  const weights = {};
  for (const [path, { shape, data_offsets: [begin, end] }] of Object.entries(header)) {
    const [, layer, weight] = path.match(/(.*)\/(.*)/);
    const values = new Float32Array(file, 8 + length + begin, (end - begin) / 4);
    if (!values.every(Number.isFinite)) throw new RangeError(`${path} must be finite`);
    (weights[layer] ??= {})[weight] = { shape, values };
  }
  return weights;
}
