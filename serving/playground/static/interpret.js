/** Follows attention over rounds, and names the parts of a network that can be switched off. */

/**
 * Returns how much each entity contributes to one entity over all rounds of attention, as
 * `rrl_tf.interpret.attention_rollout` does with half of the weight on the residual connections.
 * @param {number[][][][]} rounds `rounds[i][h][n][s]` is how much entity n attends to entity s
 * @param {number | null} entity the entity that receives the contributions; null for the mean over
 *   all entities
 */
export function rollout(rounds, entity) {
  const count = rounds[0][0].length;
  const start = (n) => (entity === null ? 1 / count : Number(n === entity));
  let row = Array.from({ length: count }, (_, n) => start(n));
  for (const heads of [...rounds].reverse()) {
    const next = row.map((weight) => weight / 2);
    for (const scores of heads)
      scores.forEach((of, n) =>
        of.forEach((score, s) => (next[s] += (row[n] * score) / (2 * heads.length))),
      );
    row = next;
  }
  return row;
}

/**
 * Returns the parts of a network that can be switched off.
 * @param {object} [network] the description in `config.json`, if the browser computes the network
 * @param {boolean} hasMemory
 * @returns {[string, string[]][]} the name of a round or "memory", and the names of its heads; empty
 *   if the network cannot be changed
 */
export function partsOf(network, hasMemory) {
  if (!network) return [];
  const numbers = (count) => Array.from({ length: count }, (_, i) => i + 1);
  const rounds = numbers(network.num_rounds).map((round) => [
    `round ${round}`,
    numbers(network.num_heads).map((head) => `round ${round}, head ${head}`),
  ]);
  return hasMemory ? [...rounds, ["memory", []]] : rounds;
}
