// KL between Dirichlet distributions, as docs/model.md has it: exact for any two tasks, all of them at once.
function digamma(x) {
  let sum = 0;
  for (; x < 8; x++) sum -= 1 / x; // up to where the series holds
  const y = 1 / (x * x);
  return sum + Math.log(x) - 0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y / 132))));
}

function lgamma(x) {
  let product = 1;
  for (; x < 8; x++) product *= x;
  const y = 1 / (x * x);
  const series = (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y * (1 / 1680 - y / 1188)))) / x;
  return (x - 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI) + series - Math.log(product);
}

const logBeta = Float64Array.from(rows, (i) =>
  d3.sum(concentration.subarray(i * K, (i + 1) * K), lgamma) - d3.sum(totals.subarray(i * A, (i + 1) * A), lgamma)); // all aspects
const dot = (a, i, b, j) => {
  let sum = 0;
  for (let k = 0; k < K; k++) sum += a[i * K + k] * b[j * K + k];
  return sum;
};

let expected; // E[ln share] of every theme in every task, (T, K)
function expectedLog() {
  if (!expected) {
    expected = new Float64Array(T * K);
    const ofTotal = totals.map(digamma);
    for (let i = 0; i < T; i++) {
      for (let k = 0; k < K; k++) expected[i * K + k] = digamma(concentration[i * K + k]) - ofTotal[i * A + aspectOf(k)];
    }
  }
  return expected;
}

function kl(i, j) {
  if (i === j) return 0;
  const g = expectedLog();
  return Math.max(0, dot(concentration, i, g, i) - logBeta[i] + logBeta[j] - dot(concentration, j, g, i));
}
const lossOf = (i) => Float64Array.from(rows, (j) => kl(i, j)); // KL[i || each]
const lossTo = (i) => Float64Array.from(rows, (j) => kl(j, i)); // KL[each || i]

// The k smallest of ``distances``, task ``self`` left out.
function nearest(distances, self, k) {
  const best = [];
  for (let j = 0; j < T; j++) {
    if (j === self || (best.length === k && distances[j] >= distances[best[k - 1]])) continue;
    best.splice(d3.bisector((b) => distances[b]).right(best, distances[j]), 0, j);
    if (best.length > k) best.pop();
  }
  return best;
}
