/**
 * Converts strokes to an image like those of MNIST, and rotates and shifts the image.
 *
 * The digits of MNIST were scaled to fit a box of 20 × 20 pixels, with anti-aliasing and without
 * distortion. Then they were placed in an image of 28 × 28 pixels, with their centre of mass in the
 * middle. `likeMnist` does the same. `turnedAndMoved` returns exactly the pixels of
 * `rrl_tf.data.perturb.rotate_and_shift`.
 *
 * @typedef {[number, number][]} Stroke points (x, y) from (0, 0) at the top left to (1, 1)
 */
export const SIDE = 28;
const BOX = 20;
/** Width of the pen, relative to the side of the drawing area. */
const PEN = 0.085;
const FAINT = 0.05;

/**
 * Draws strokes as smooth lines, in the context's colour.
 * @param {CanvasRenderingContext2D} context
 * @param {Stroke[]} strokes
 */
export function draw(context, strokes) {
  const { width } = context.canvas;
  context.clearRect(0, 0, width, width);
  context.lineWidth = PEN * width;
  context.lineCap = context.lineJoin = "round";
  for (const stroke of strokes) {
    const points = stroke.map((point) => point.map((at) => at * width));
    context.beginPath();
    context.moveTo(...points[0]);
    // A smooth curve through the midpoints between neighbouring points.
    for (let i = 1; i < points.length - 1; i++)
      context.quadraticCurveTo(...points[i], ...middle(points[i], points[i + 1]));
    context.lineTo(...points[points.length - 1]);
    context.stroke();
  }
}

const middle = ([x, y], [u, v]) => [(x + u) / 2, (y + v) / 2];

/**
 * Returns a drawing as an image like those of MNIST.
 * @param {ArrayLike<number>} ink `side * side` values from 0 to 1, row by row
 * @param {number} side
 * @returns {Float64Array} 28 × 28 values from 0 to 1
 */
export function likeMnist(ink, side) {
  const image = new Float64Array(SIDE * SIDE);
  const bounds = boundsOf(ink, side);
  if (!bounds) return image;
  const { left, top, width, height } = bounds;
  const scale = Math.max(width, height) / BOX; // pixels of the drawing per pixel of the box
  const columns = overlaps(left, width, scale);
  const rows = overlaps(top, height, scale);
  const small = rows.map((row) => columns.map((column) => mean(ink, side, row, column, scale)));
  const [x, y] = centreOfMass(small).map((at) => Math.round(SIDE / 2 - at));
  small.forEach((values, i) =>
    values.forEach((value, j) => {
      const [row, column] = [i + y, j + x];
      const isInside = row >= 0 && row < SIDE && column >= 0 && column < SIDE;
      if (isInside) image[row * SIDE + column] = value;
    }),
  );
  return image;
}

/** Returns the smallest rectangle that contains the drawing, or null for an empty drawing. */
function boundsOf(ink, side) {
  let [left, top, right, bottom] = [side, side, -1, -1];
  for (let i = 0; i < side * side; i++) {
    if (ink[i] <= FAINT) continue;
    const [x, y] = [i % side, Math.floor(i / side)];
    [left, right] = [Math.min(left, x), Math.max(right, x)];
    [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
  }
  if (right < 0) return null;
  return { left, top, width: right + 1 - left, height: bottom + 1 - top };
}

/** Returns, for each pixel of the box along one axis, the drawing's pixels and their overlaps. */
function overlaps(start, length, scale) {
  return Array.from({ length: Math.ceil(length / scale - 1e-9) }, (_, i) => {
    const [from, to] = [i * scale, Math.min((i + 1) * scale, length)];
    const covered = [];
    for (let at = Math.floor(from); at < to; at++)
      covered.push([start + at, Math.min(at + 1, to) - Math.max(at, from)]);
    return covered;
  });
}

function mean(ink, side, rows, columns, scale) {
  let sum = 0;
  for (const [y, high] of rows)
    for (const [x, wide] of columns) sum += high * wide * ink[y * side + x];
  return sum / scale ** 2;
}

/** Returns the centre of mass (x, y); the centre of the first pixel is (0.5, 0.5). */
function centreOfMass(rows) {
  let [x, y, mass] = [0, 0, 0];
  rows.forEach((values, i) =>
    values.forEach((value, j) => {
      mass += value;
      x += value * (j + 0.5);
      y += value * (i + 0.5);
    }),
  );
  return [x / mass, y / mass];
}

/**
 * Rotates an image about its centre, then shifts it. Each pixel gets the value of the nearest pixel
 * at its original position, or 0 if that is outside the image.
 * @param {ArrayLike<number>} image 28 × 28 values
 * @param {number} degrees clockwise
 * @param {number} right pixels
 * @param {number} down pixels
 * @returns {Float64Array}
 */
export function turnedAndMoved(image, degrees, right, down) {
  const turned = new Float64Array(SIDE * SIDE);
  const angle = (degrees * Math.PI) / 180;
  const [cos, sin, centre] = [Math.cos(angle), Math.sin(angle), (SIDE - 1) / 2];
  const nearest = (place) => Math.floor(place + 0.5 + 1e-4); // rounds ties up
  const isInside = (place) => place >= 0 && place < SIDE;
  for (let i = 0; i < SIDE * SIDE; i++) {
    const x = (i % SIDE) - centre - right;
    const y = Math.floor(i / SIDE) - centre - down;
    const fromX = nearest(cos * x + sin * y + centre);
    const fromY = nearest(cos * y - sin * x + centre);
    if (isInside(fromX) && isInside(fromY)) turned[i] = image[fromY * SIDE + fromX];
  }
  return turned;
}
