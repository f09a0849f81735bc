// One task: its images, what it is made of, how certain that is, and the tasks nearest to it in both directions.
const NEIGHBOURS = 8;

function chooseNear(i) {
  [state.from, state.to] = [lossOf(i), lossTo(i)];
  state.near = nearest(state.from, i, NEIGHBOURS);
  state.nearTo = nearest(state.to, i, NEIGHBOURS);
}

function neighbours(i, found, distances) {
  const colour = colourOfTask();
  return el("ol", { class: "list" }, found.map((j) => taskItem(j, colour, `${nats(distances[j])}`, compareLink(i, j))));
}

function taskFacts(i) {
  const others = Object.entries(page.columns).filter(([name]) => name !== "name").map(([name, column]) => [name, column[i]]);
  const facts = [["group", groupName(i)], ...others, ["data points", comma(sizes[i]) + (sizes[i] === (page.resized ?? sizes[i]) ? "" : `, compared as ${comma(page.resized)}`)], ["number", String(i)]].filter(([, value]) => value);
  return el("dl", { class: "facts" }, facts.flatMap(([name, value]) => [el("dt", {}, named(name)), el("dd", {}, named(value))]));
}

function taskView(i) {
  const one = T === 1;
  return [
    heading(taskName(i), one ? null : el("a", { class: "button", href: `#compare-${i}` }, "Compare with…")),
    taskImages(i),
    taskFacts(i),
    el("h3", {}, "How certain"), entropyPlace(i),
    converged[i] ? null : el("p", { class: "small faint" }, "Its inference stopped before it met its tolerance."),
    el("h3", {}, "What it is made of"), mixture([i]),
    one ? empty("There is no other task to compare it with.") : [
      el("h3", {}, "Tasks that describe it best"),
      el("p", { class: "small faint" }, "Smallest KL[this ‖ other] in nats: what is lost when this task is read as the other. Solid lines on the map."),
      neighbours(i, state.near, state.from),
      el("h3", {}, "Tasks that it describes best"),
      el("p", { class: "small faint" }, "Smallest KL[other ‖ this]: what is lost when the other is read as this one. Dashed lines."),
      neighbours(i, state.nearTo, state.to)],
  ];
}
