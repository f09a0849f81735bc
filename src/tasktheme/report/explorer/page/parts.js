// Pieces that several views share: links to tasks and themes, lists, mixtures, the place of an entropy.
const SHOWN_THEMES = 7;
const taskLink = (i, ...inside) => el("a", { href: `#task-${i}` }, inside.length ? inside : named(taskName(i)));
const aspectNote = (k) => (A > 1 ? el("span", { class: "aspect small faint" }, `aspect ${aspectOf(k)}`) : null);
const themeLink = (k) => el("a", { href: `#theme-${k}` }, `theme ${k}`);
const compareLink = (i, j) => el("a", { href: `#compare-${i}-${j}`, class: "small", "aria-label": `compare with ${taskName(j)}` }, "compare");
const swatch = (colour, task = null) => el("span", { class: "swatch", "data-task": task, style: { background: colour } });

function taskItem(i, colour, value, extra, href = `#task-${i}`) {
  return el("li", {},
    el("a", { href }, swatch(colour(i), i), named(taskName(i)), el("span", { class: "faint" }, " ", named(groupName(i))),
      el("span", { class: "second-line" }, named(page.columns.classes?.[i] ?? ""))),
    el("span", { class: "number small" }, value), extra ?? null);
}

// Rows of bars, one for each task, with the credible interval as a whisker.
function mixture(tasks) {
  const strength = (k) => d3.max(tasks, (i) => share(i, k));
  const order = d3.sort(d3.range(K), (k) => -strength(k));
  const longest = Math.max(...tasks.map((i) => high[i * K + order[0]] / 65535), strength(order[0]));
  const width = (x) => `${(100 * x) / longest}%`;
  const bar = (i, k, n) => {
    const [from, to] = [low[i * K + k] / 65535, high[i * K + k] / 65535];
    return el("div", { class: n ? "bar second" : "bar" },
      el("b", { style: { width: width(share(i, k)) } }), el("i", { style: { left: width(from), width: width(to - from) } }));
  };
  const value = (i, k) => el("div", {}, percent(share(i, k)), " ", el("span", { class: "faint" },
    `${Math.round((100 * low[i * K + k]) / 65535)}–${Math.round((100 * high[i * K + k]) / 65535)}`));
  const item = (k) => el("li", {}, el("div", { class: "name" }, themeLink(k), aspectNote(k)), hasMeans ? meanTile(k, "tiny") : null,
    el("div", { class: "bars", "aria-hidden": "true" }, tasks.map((i, n) => bar(i, k, n))),
    el("div", { class: "value number" }, tasks.map((i) => value(i, k))));
  const list = (themes) => el("ul", { class: hasMeans ? "mixture" : "mixture plain-names" }, themes.map(item));
  return [
    el("p", { class: "small faint" }, `Expected share of each theme; the whisker and the second numbers are its ${Math.round(100 * page.level)} % credible interval.`, A > 1 ? ` Shares add up to 100 % in each of ${A} aspects.` : ""),
    list(order.slice(0, SHOWN_THEMES)),
    order.length > SHOWN_THEMES ? el("details", {}, el("summary", {}, `${count(order.length - SHOWN_THEMES, "more theme")}`), list(order.slice(SHOWN_THEMES))) : null,
  ];
}

function entropyPlace(i) {
  const below = d3.bisectLeft(entropyOrder, entropy[i]) / Math.max(1, T - 1);
  return el("div", {},
    el("div", { class: "row spread" }, el("span", {}, "Entropy ", el("strong", { class: "number" }, `${tenth(entropy[i])} nats`)),
      T > 1 ? el("span", { class: "small faint" }, `less certain than ${percent(below)} of the tasks`) : null),
    el("div", { class: "gauge", style: { background: ramp() }, "aria-hidden": "true" }, el("i", { style: { left: `${100 * below}%` } })));
}

const heading = (text, ...more) => el("div", { class: "row spread" }, el("h2", {}, named(text)), more);
const empty = (...children) => el("p", { class: "empty" }, children);
