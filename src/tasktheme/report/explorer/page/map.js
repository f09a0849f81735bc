// The map: d3 zooms, finds the dot under the pointer, and draws names, rings and lines over the dots.
const mapBox = document.getElementById("map");
const canvas = document.getElementById("dots");
const marks = d3.select("#marks");
const tip = document.getElementById("tip");
const lines = marks.append("g");
const names = marks.append("g");
const rings = marks.append("g");
const MOST_NAMED = 40; // more tasks than this are not named on the map
const REACH = 14; // pixels within which a dot is hit
const map = { transform: d3.zoomIdentity, x: new Float64Array(T), y: new Float64Array(T), colours: new Uint32Array(T), order: rows, hits: null, frame: 0 };

function placeTasks() { // to the middle of the box, in pixels at zoom 1; names and controls keep some room
  const { width, height } = mapBox.getBoundingClientRect();
  const [x, y] = [d3.extent(rows, (i) => place[2 * i]), d3.extent(rows, (i) => place[2 * i + 1])];
  const left = width > 640 ? 180 : 0; // the legend's
  const scale = Math.min((width - left - 90) / (x[1] - x[0] || 1), (height - 110) / (y[1] - y[0] || 1));
  for (let i = 0; i < T; i++) {
    map.x[i] = (left + width) / 2 + (place[2 * i] - (x[0] + x[1]) / 2) * scale;
    map.y[i] = height / 2 - (place[2 * i + 1] - (y[0] + y[1]) / 2) * scale;
  }
  const ratio = Math.min(2, devicePixelRatio || 1);
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  map.ratio = ratio;
  zoom.extent([[0, 0], [width, height]]).translateExtent([[-width / 2, -height / 2], [1.5 * width, 1.5 * height]]);
  findable();
}

const radius = () => Math.min(9, Math.max(1.6, 7.5 - 1.25 * Math.log10(T)) * (canvas.clientWidth < 500 ? 0.75 : 1) * map.transform.k ** 0.35);

// Tasks that are not found lie beneath, as pale as the legend's ground; only the others can be hit.
function recolour() {
  const colour = colourOfTask();
  const pale = bytes(d3.interpolateRgb(css("--paper"), css("--ink"))(0.13));
  const cache = new Map();
  for (let i = 0; i < T; i++) {
    const name = colour(i);
    if (!cache.has(name)) cache.set(name, bytes(name));
    map.colours[i] = state.found[i] ? cache.get(name) : pale;
  }
  map.order = Int32Array.from(d3.sort(rows, (i) => state.found[i]));
  for (const dot of document.querySelectorAll("#panel [data-task]")) dot.style.background = colour(Number(dot.dataset.task));
  findable();
  drawMap();
}
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function findable() {
  map.hits = d3.quadtree(rows.filter((i) => state.found[i]), (i) => map.x[i], (i) => map.y[i]);
}

const at = (i) => map.transform.apply([map.x[i], map.y[i]]);
function hit(event) {
  const [x, y] = map.transform.invert(d3.pointer(event, mapBox));
  return map.hits.find(x, y, REACH / map.transform.k);
}

function drawMap() {
  map.frame ||= requestAnimationFrame(() => {
    map.frame = 0;
    const { k, x, y } = map.transform;
    const [px, py] = [new Float64Array(T), new Float64Array(T)];
    for (let i = 0; i < T; i++) {
      px[i] = (k * map.x[i] + x) * map.ratio;
      py[i] = (k * map.y[i] + y) * map.ratio;
    }
    const size = Math.round(4 * radius() * map.ratio) / 4;
    drawDots(canvas, map.order, px, py, map.colours, size, T < 3000 ? map.ratio : 0);
    drawMarks();
  });
}

function drawMarks() {
  const chosen = [state.task, state.other].filter((i) => i !== null);
  const near = state.view === "task" ? [...state.near.map((j) => ({ j, kind: "from" })), ...state.nearTo.map((j) => ({ j, kind: "to" }))] : [];
  const links = state.other !== null ? [{ j: state.other, kind: "from" }] : near;
  lines.selectAll("line").data(links).join("line").attr("class", (d) => `line ${d.kind}`)
    .attr("x1", () => at(state.task)[0]).attr("y1", () => at(state.task)[1])
    .attr("x2", (d) => at(d.j)[0]).attr("y2", (d) => at(d.j)[1]);
  const ringed = [...new Set(near.map((d) => d.j))].map((i) => ({ i, kind: "near" }))
    .concat(chosen.map((i, n) => ({ i, kind: n ? "second" : "first" })))
    .concat(state.hover !== null && !chosen.includes(state.hover) ? [{ i: state.hover, kind: "near" }] : []);
  rings.selectAll("circle").data(ringed).join("circle").attr("class", (d) => `ring ${d.kind}`)
    .attr("r", (d) => radius() + (d.kind === "near" ? 1.5 : 4)).attr("cx", (d) => at(d.i)[0]).attr("cy", (d) => at(d.i)[1]);
  const letters = state.other !== null ? chosen.map((i, n) => ({ text: "AB"[n], x: at(i)[0], y: at(i)[1] - radius() - 9 })) : [];
  drawNames([...letters, ...(T <= MOST_NAMED && page.columns.name ? taskNames() : groupNames())]);
}

const middles = d3.groups(page.groups.length > MOST_GROUPS ? [] : rows, (i) => groupOf[i]).map(([g, own]) => { // largest first
  const [x, y] = [d3.median(own, (i) => place[2 * i]), d3.median(own, (i) => place[2 * i + 1])];
  return { g, size: own.length, i: own[d3.minIndex(own, (i) => (place[2 * i] - x) ** 2 + (place[2 * i + 1] - y) ** 2)] };
}).sort((a, b) => b.size - a.size);
const shorter = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function groupNames() {
  if (!hasGroups || state.colour !== "group") return [];
  return middles.map(({ g, i }) => ({ text: shorter(page.groups[g], 26), fill: d3.interpolateRgb(groupColour(g), css("--ink"))(0.45), x: at(i)[0], y: at(i)[1] - radius() - 6 }));
}

// At each task's right, left, above and below, where no dot and no edge of the map is in the way.
function taskNames() {
  const dots = rows.map(at);
  const r = radius();
  const clear = ({ text, x, y }) => x > halfWidth(text) && x + halfWidth(text) < canvas.clientWidth
    && dots.every(([dx, dy]) => Math.abs(dx - x) > halfWidth(text) + r + 4 || Math.abs(dy - y + 4) > 9 + r);
  return rows.filter((i) => state.found[i]).flatMap((i) => {
    const text = shorter(taskName(i), 26);
    const aside = halfWidth(text) + r + 6; // rings have room
    return [[aside, 4], [-aside, 4], [0, -r - 8], [0, r + 16]].map(([x, y]) => ({ of: i, text, x: dots[i][0] + x, y: dots[i][1] + y })).filter(clear);
  });
}

const ruler = document.createElement("canvas").getContext("2d");
ruler.font = `600 12px ${getComputedStyle(document.body).fontFamily}`; // as page.css has it
const halfWidth = (text) => ruler.measureText(text).width / 2 + 2;

function drawNames(wanted) { // a name that would cover an earlier one, or has a place already, is left out
  const taken = [];
  const free = wanted.filter(({ of, text, x, y }) => {
    const [w, h] = [halfWidth(text), 9];
    const clear = taken.every((t) => (of === undefined || t.of !== of) && (Math.abs(t.x - x) > t.w + w || Math.abs(t.y - y) > t.h + h));
    if (clear) taken.push({ of, x, y, w, h });
    return clear;
  });
  names.selectAll("text").data(free).join("text").text((d) => d.text).style("fill", (d) => d.fill ?? null).attr("x", (d) => d.x).attr("y", (d) => d.y);
}

function showTip(i) {
  state.hover = i;
  marks.classed("pointing", i !== null);
  tip.hidden = i === null;
  drawMap();
  if (i === null) return;
  const images = taskTiles(i).slice(0, 5);
  tip.replaceChildren(el("strong", {}, named(taskName(i))),
    el("span", { class: "faint" }, [groupName(i), `entropy ${tenth(entropy[i])}`].filter(Boolean).join(" · ")),
    images.length ? el("div", { class: "tiles" }, images.map((number) => tile(number))) : "");
  const [x, y] = at(i);
  const { width, height } = mapBox.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, width - tip.offsetWidth - 4))}px`;
  tip.style.top = `${Math.max(4, y + 14 + tip.offsetHeight > height ? y - 14 - tip.offsetHeight : y + 14)}px`;
}

const zoom = d3.zoom().scaleExtent([0.7, 80]).on("zoom", ({ transform }) => {
  map.transform = transform;
  drawMap();
});
const zoomable = marks.call(zoom).on("dblclick.zoom", null);
const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
const moved = () => (still() ? zoomable : zoomable.transition().duration(250));
const zoomBy = (factor) => zoom.scaleBy(moved(), factor);
const showAll = () => zoom.transform(moved(), d3.zoomIdentity);
const pan = (dx, dy) => zoom.translateBy(zoomable, dx / map.transform.k, dy / map.transform.k);

function bringIntoView(i) { // and no further: a map that jumps at every click loses its reader
  const { width, height } = mapBox.getBoundingClientRect();
  const [x, y] = at(i);
  if (x < 20 || y < 20 || x > width - 20 || y > height - 20) zoom.translateTo(moved(), map.x[i], map.y[i]);
}

marks.on("pointermove", (event) => { if (!event.buttons) showTip(hit(event) ?? null); })
  .on("pointerleave", () => showTip(null))
  .on("click", (event) => { const i = hit(event); if (i !== undefined) pick(i, event.shiftKey); });
for (const button of document.querySelectorAll("#zooming button")) {
  button.addEventListener("click", () => ({ in: () => zoomBy(1.6), out: () => zoomBy(1 / 1.6), all: showAll })[button.dataset.zoom]());
}
new ResizeObserver(() => { placeTasks(); drawMap(); }).observe(mapBox);
