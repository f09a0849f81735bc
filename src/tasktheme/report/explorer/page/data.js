// What Python packed: base64 of little-endian arrays (payload.py), names as text.
const page = JSON.parse(document.getElementById("payload").textContent);

function unpack(packed, Kind) {
  const text = atob(packed);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new Kind(bytes.buffer);
}

const T = page.tasks;
const K = page.themes;
const A = page.aspects; // parts of the themes, of each of which a task is a distribution of its own
const each = K / A;
const concentration = unpack(page.concentration, Float32Array); // (T, K)
const low = unpack(page.low, Uint16Array); // (T, K), in parts of 65,535
const high = unpack(page.high, Uint16Array);
const entropy = unpack(page.entropy, Float32Array);
const place = unpack(page.place, Float32Array); // (T, 2)
const sizes = unpack(page.sizes, Uint32Array);
const converged = unpack(page.converged, Uint8Array);
const groupOf = unpack(page.group, Int32Array); // -1 without groups

const rows = d3.range(T);
const totals = Float64Array.from(d3.range(T * A), (part) => d3.sum(concentration.subarray(part * each, (part + 1) * each))); // (T, A)
const aspectOf = (k) => Math.floor(k / each);
const total = (i, k) => totals[i * A + aspectOf(k)];
const share = (i, k) => concentration[i * K + k] / total(i, k); // among the themes of its aspect
const strongest = Int32Array.from(rows, (i) => d3.maxIndex(d3.range(K), (k) => share(i, k)));
const entropyOrder = Float64Array.from(entropy).sort();
const meanShare = Float64Array.from(d3.range(K), (k) => d3.mean(rows, (i) => share(i, k)));
const hasGroups = page.groups.length > 1;
const MOST_GROUPS = 60; // more than this are not named on the map or in the legend

const taskName = (i) => page.columns.name?.[i] || `Task ${i}`;
const groupName = (i) => (hasGroups ? page.groups[groupOf[i]] : ""); // one group for all says nothing
const haystack = rows.map((i) => // a space at each end, so that " 12 " finds a number
  ` ${[taskName(i), `task ${i}`, groupName(i), ...Object.values(page.columns).map((column) => column[i])].join(" ").toLowerCase()} `);
