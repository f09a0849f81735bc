// State, address, keys. The part of the address after # says what is shown, so that links, bookmarks and "back" work.
const panel = document.getElementById("panel");
const field = document.getElementById("search");

function show(content) {
  panel.replaceChildren(...content.flat(Infinity).filter((child) => child !== null && child !== undefined));
}

function readAddress() {
  const [, view = "find", first, second] = /^#(task|themes?|compare|find|about)(?:-(\d+))?(?:-(\d+))?$/.exec(location.hash) ?? [];
  const valid = (text, end) => (text !== undefined && Number(text) < end ? Number(text) : null);
  if (view === "task" && valid(first, T) === null) return { view: "find", task: null, other: null };
  if (view === "task" || view === "compare") return { view, task: valid(first, T), other: view === "compare" ? valid(second, T) : null };
  if (view === "theme" && valid(first, K) !== null) return { view, theme: valid(first, K), task: null, other: null };
  return { view: view === "theme" ? "themes" : view, task: null, other: null };
}

function render() {
  const { view, task, other } = state;
  const views = { find: findView, about: aboutView, themes: () => themesView(null), theme: () => themesView(state.theme), task: () => taskView(task), compare: () => compareView(task, other) };
  show(views[view]());
  const current = { task: "find", theme: "themes" }[view] ?? view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${current}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

let routed = "find"; // the view of the last route
function route() {
  const before = routed;
  Object.assign(state, readAddress());
  routed = state.view;
  if (state.view === "task") chooseNear(state.task);
  if (state.view === "theme") setColour("share");
  else if (state.colour === "share" && before === "theme") setColour(state.usual);
  else if (state.colour === "distance") recolour();
  const inside = panel.contains(document.activeElement);
  render();
  if (inside) panel.focus({ preventScroll: true }); // what had the focus is gone
  drawLegend();
  drawMap();
  if (state.view === "theme") document.getElementById(`card-${state.theme}`).scrollIntoView({ block: "nearest" });
  else panel.scrollTop = 0;
  const last = state.other ?? state.task;
  if (last !== null) bringIntoView(last);
}

// Where choosing a task leads: while comparing it is the second one.
const comparing = () => state.view === "compare" && state.task !== null;
const pickHref = (i) => (state.view === "compare" && state.task === null ? `#compare-${i}` : comparing() && i !== state.task ? `#compare-${state.task}-${i}` : `#task-${i}`);
function pick(i, compare = false) {
  location.hash = compare && state.task !== null && i !== state.task ? `#compare-${state.task}-${i}` : pickHref(i);
}

function step(by) {
  if (!state.list.length) return;
  const now = state.list.indexOf(state.other ?? state.task);
  pick(state.list[now < 0 ? (by > 0 ? 0 : state.list.length - 1) : (now + by + state.list.length) % state.list.length]);
}

function setColour(kind) {
  if (kind !== "share") state.usual = kind;
  state.colour = kind;
  const select = document.getElementById("colour");
  const kinds = Object.keys(colourings).filter((name) => (name !== "group" || hasGroups) && (name !== "share" || kind === "share"));
  select.replaceChildren(...kinds.map((name) => el("option", { value: name, selected: name === kind }, name === "share" ? `Share of theme ${state.theme}` : colourings[name].name)));
  recolour();
  drawLegend();
}

function drawLegend() {
  const legend = document.getElementById("legend");
  const entry = (colour, text, pressed, act) => el("button", { type: "button", "aria-pressed": String(pressed), title: text, on: { click: act } }, swatch(colour), el("span", {}, named(text)));
  const filter = (name, value) => () => { state[name] = state[name] === value ? null : value; search(); if (state.view === "find") render(); };
  if (state.colour === "group") {
    const left = page.groups.length - MOST_GROUPS;
    legend.replaceChildren(...page.groups.slice(0, MOST_GROUPS).map((name, g) => entry(groupColour(g), name, state.group === g, filter("group", g))),
      left > 0 ? el("span", { class: "faint" }, `and ${count(left, "more group")}: search for them`) : "");
  } else if (state.colour === "theme") {
    legend.replaceChildren(...themesShown.map((k) => entry(themeColour(k), themeName(k), state.filterTheme === k, filter("filterTheme", k))));
  } else if (state.colour === "distance" && state.task === null) {
    legend.replaceChildren(el("span", { class: "faint" }, "Choose a task first."));
  } else {
    const ends = state.colour === "share" ? ["0 %", percent(d3.max(rows, (i) => share(i, state.theme)))] : colourings[state.colour].ends;
    legend.replaceChildren(el("span", { class: "ramp", style: { background: ramp() } }), el("span", { class: "ends faint" }, ends.map((text) => el("span", {}, text))));
  }
}

function switchMode() {
  document.documentElement.dataset.mode = dark() ? "light" : "dark";
  repaint();
}
function repaint() {
  recolour();
  drawLegend();
  render();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("keys").open) return;
  Object.assign(state, readAddress()); // a key that is held down may come before the address of the last one was routed
  const typing = event.target === field;
  if (event.key === "Escape") {
    if (state.query || state.group !== null || state.filterTheme !== null) clearSearch();
    else if (state.task !== null && state.view === "compare") location.hash = `#task-${state.task}`;
    else if (state.view !== "find") location.hash = "#find";
    field.blur();
    return;
  }
  if (typing && event.key === "ArrowDown") {
    panel.querySelector("#results a")?.focus();
    event.preventDefault();
  }
  if (typing || event.target.matches("select, input")) return;
  const inList = event.target.closest?.("#panel .list");
  const arrows = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
  const acts = {
    "/": () => field.focus(), n: () => step(1), p: () => step(-1), t: () => { location.hash = "#themes"; },
    c: () => { location.hash = state.task === null ? "#compare" : `#compare-${state.task}`; },
    x: () => { if (state.other !== null) location.hash = `#compare-${state.other}-${state.task}`; },
    "+": () => zoomBy(1.6), "=": () => zoomBy(1.6), "-": () => zoomBy(1 / 1.6), 0: showAll, d: switchMode, "?": () => document.getElementById("keys").showModal(),
  };
  if (event.key in arrows && event.target === mapBox) pan(...arrows[event.key]);
  else if (inList && ["ArrowDown", "ArrowUp"].includes(event.key)) {
    const links = [...inList.querySelectorAll("li > a:first-child")];
    const next = links.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1);
    (links[next] ?? (next < 0 ? field : event.target)).focus();
  } else if (event.key in acts) acts[event.key]();
  else return;
  event.preventDefault();
}

const state = {
  view: "find", task: null, other: null, hover: null, theme: 0, near: [], nearTo: [], query: "", group: null, filterTheme: null,
  sort: "number", colour: hasGroups ? "group" : "entropy", usual: hasGroups ? "group" : "entropy", found: new Uint8Array(T).fill(1), list: rows,
};
field.addEventListener("input", () => {
  state.query = field.value;
  search();
  if (state.view === "find") render();
  else if (!comparing()) location.hash = "#find";
  else show(findView());
});
document.addEventListener("keydown", onKey);
document.getElementById("mode").addEventListener("click", switchMode);
document.getElementById("help").addEventListener("click", () => document.getElementById("keys").showModal());
document.getElementById("colour").addEventListener("change", (event) => setColour(event.target.value));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
addEventListener("hashchange", route);
setColour(state.colour);
search();
placeTasks();
route();
setTimeout(expectedLog); // ready before the first click
