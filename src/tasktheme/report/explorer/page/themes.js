// The themes: what each looks like, how much of the training data it holds, and which tasks are made of it.
const TASKS_OF_THEME = 5;
const IN_ROW = 9; // typical images of a theme that is not chosen

function themeCard(k, chosen) {
  const typical = themeTiles(k).slice(0, chosen ? undefined : IN_ROW);
  const images = el("div", { class: "tiles" }, hasMeans ? meanTile(k, "mean") : null, typical.map((number) => tile(number)));
  const note = tiles?.typical && !typical.length ? el("p", { class: "small faint" }, "The most probable theme of no image here.") : null;
  return el("section", { class: chosen ? "theme chosen" : "theme", id: `card-${k}` },
    el("div", { class: "row spread" }, el("h3", {}, el("a", { href: `#theme-${k}` }, `Theme ${k}`), " ", aspectNote(k)),
      el("span", { class: "small faint number" }, `${percent(page.share[k])} of the training data · ${percent(meanShare[k])} of these tasks`)),
    hasMeans || typical.length ? images : null, note,
    chosen ? [el("h3", {}, "Tasks with most of it"), el("ol", { class: "list" }, tasksOf(k))] : null);
}

function tasksOf(k) {
  const colour = colourOfTask();
  return d3.sort(rows, (i) => -share(i, k)).slice(0, TASKS_OF_THEME).map((i) => taskItem(i, colour, percent(share(i, k))));
}

function themesView(k) {
  const order = d3.sort(d3.range(K), aspectOf, (theme) => -page.share[theme]);
  return [
    heading(count(K, "theme")),
    el("p", { class: "lead small faint" }, "A theme is a kind of data point that tasks share, found without labels. ",
      hasMeans ? `The framed image is its mean, decoded${tiles.typical ? "; beside it are the images most typical of it" : ""}. ` : "",
      !hasMeans && tiles?.typical ? "Its images are those most typical of it. " : "",
      A > 1 ? `There are ${each} of each of ${A} aspects, and their shares add up to 100 % in each. ` : "",
      "Choose one to colour the map by its share."),
    hasMeans || tiles?.typical ? null : empty("This page has no images: the data are vectors, or were not given when it was made."),
    order.map((theme) => themeCard(theme, theme === k)),
  ];
}
