// Two tasks side by side, and both distances in words.
function side(i, letter) {
  return el("section", {}, el("h3", {}, `${letter} `, taskLink(i)), el("p", { class: "small faint" }, named(groupName(i))),
    taskImages(i), el("p", { class: "small" }, `Entropy ${tenth(entropy[i])} nats, ${count(sizes[i], "data point")}`));
}

function way(i, j, a, b) {
  const distances = lossOf(i);
  const rank = 1 + d3.sum(rows, (other) => other !== i && other !== j && distances[other] < distances[j]);
  return el("div", { class: "way" }, el("strong", {}, `KL[${a} ‖ ${b}] = ${nats(distances[j])} nats`),
    el("p", {}, `What is lost when ${a} is described as if it were ${b}. Of the ${comma(T - 1)} other tasks, ${b} is the `,
      rank === 1 ? "one that describes" : `${ordinal(rank)} best to describe`, ` ${a}${rank === 1 ? " best" : ""}.`));
}

// What the two numbers say together; "much" is a factor of one and a half.
function verdict(i, j) {
  const [there, back] = [kl(i, j), kl(j, i)];
  if (Math.max(there, back) < 0.01) return "The two are the same, as far as their mixtures of themes can tell.";
  const [good, poor, small, large] = there <= back ? ["B", "A", there, back] : ["A", "B", back, there];
  if (large < 1.5 * small) return "The loss is of one size both ways: neither is a broader description that takes in the other.";
  const broader = there <= back ? entropy[j] > entropy[i] : entropy[i] > entropy[j];
  return `${good} stands in for ${poor} better than ${poor} for ${good}: the loss is ${(large / Math.max(small, 1e-9)).toFixed(1)} times smaller. `
    + (broader ? `${good} is the less certain of the two: it leaves room for mixtures like ${poor}'s, while ${poor} all but rules out some of ${good}'s.`
      : `${poor} all but rules out some mixtures that ${good} holds likely, which costs more than the reverse.`);
}

function compareView(i, j) {
  if (T === 1) return [heading("Compare"), empty("There is only one task.")];
  if (i === null) return [heading("Compare two tasks"), empty("Choose the first task: on the map, from the list under Tasks, or by search.")];
  if (j === null) {
    const colour = colourOfTask();
    return [heading("Compare"), el("div", { class: "pair" }, side(i, "A"), el("section", {}, el("h3", {}, "B"), empty("Choose the second task: on the map, or by search."))),
      el("h3", {}, "Or one of the nearest"),
      el("ol", { class: "list" }, nearest(lossOf(i), i, NEIGHBOURS).map((n) => taskItem(n, colour, nats(kl(i, n)), null, `#compare-${i}-${n}`)))];
  }
  return [
    heading("Compare", el("a", { class: "button", href: `#compare-${j}-${i}` }, "Swap")),
    el("p", { class: "small faint lead" }, "Click another dot to replace the second task."),
    el("div", { class: "pair" }, side(i, "A"), side(j, "B")),
    way(i, j, "A", "B"), way(j, i, "B", "A"),
    el("p", { class: "lead" }, i === j ? "A task has distance 0 to itself." : verdict(i, j)),
    sizes[i] === sizes[j] ? null : el("p", { class: "small faint" },
      `A has ${count(sizes[i], "data point")}, B ${comma(sizes[j])}: `, page.resized === null
        ? "more data make a distribution narrower, and part of both distances is that."
        : `they are compared as if both had ${comma(page.resized)}.`),
    el("h3", {}, "What they are made of"), mixture([i, j]),
  ];
}
