// Search and filter: which tasks are found, and the list of them.
const AT_ONCE = 100; // rows of the list before it is asked for more

function search() {
  const words = state.query.toLowerCase().split(/\s+/).filter(Boolean);
  for (let i = 0; i < T; i++) {
    state.found[i] = (state.group === null || groupOf[i] === state.group)
      && [null, strongest[i], shownAs(strongest[i])].includes(state.filterTheme)
      && words.every((word) => haystack[i].includes(word));
  }
  const orders = { number: (i) => i, certain: (i) => entropy[i], uncertain: (i) => -entropy[i] };
  state.list = d3.sort(rows.filter((i) => state.found[i]), orders[state.sort]);
  const trust = `stress ${page.stress.toFixed(2)}: ${page.stress > 0.2 ? "distances on the map are rough" : "the map keeps distances well"}`;
  document.getElementById("status").textContent = state.list.length < T
    ? `${comma(state.list.length)} of ${count(T, "task")} found`
    : `${count(T, "task")}${T > 2 ? ` · ${trust}` : ""} · press ? for keys`;
  recolour();
  drawLegend();
}

function choice(label, value, options, act) {
  const select = el("select", { on: { change: (event) => act(event.target.value) } },
    options.map(([key, text]) => el("option", { value: key, selected: key === value }, text)));
  return el("label", {}, label, select);
}

function findView() {
  const again = (change) => { Object.assign(state, change); search(); show(findView()); };
  const number = (text) => (text === "" ? null : Number(text));
  const filters = el("div", { class: "filters" },
    hasGroups && page.groups.length <= 10 * MOST_GROUPS ? choice("Group", String(state.group ?? ""), [["", "all"], ...page.groups.map((name, g) => [String(g), name])], (v) => again({ group: number(v) })) : null,
    choice("Strongest theme", String(state.filterTheme ?? ""), [["", "all"], ...d3.range(K).concat(themesShown.filter((k) => k === OTHER)).map((k) => [String(k), themeName(k)])], (v) => again({ filterTheme: number(v) })),
    choice("Order", state.sort, [["number", "number"], ["uncertain", "least certain first"], ["certain", "most certain first"]], (v) => again({ sort: v })));
  const list = el("ol", { class: "list", id: "results" });
  const more = el("button", { type: "button", on: { click: () => extend() } });
  const extend = () => {
    const colour = colourOfTask(); // another one by now, perhaps
    const from = list.children.length;
    list.append(...state.list.slice(from, from + AT_ONCE).map((i) => taskItem(i, colour, tenth(entropy[i]), null, pickHref(i))));
    const left = state.list.length - list.children.length;
    more.hidden = left === 0;
    more.textContent = `Show ${comma(Math.min(left, AT_ONCE))} more of ${comma(left)}`;
  };
  extend();
  const nothing = empty("No task is found. ", el("button", { type: "button", on: { click: clearSearch } }, "Clear search and filters"));
  return [
    heading(state.list.length === T ? count(T, "task") : `${comma(state.list.length)} of ${count(T, "task")}`, el("span", { class: "small faint" }, "entropy in nats")),
    filters, state.list.length ? [list, more] : nothing,
  ];
}

function clearSearch() {
  document.getElementById("search").value = "";
  Object.assign(state, { query: "", group: null, filterTheme: null });
  search();
  render();
}
