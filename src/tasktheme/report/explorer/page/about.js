// What the page is about, and the three words one needs to read it.
function aboutView() {
  const facts = [...page.facts, ["Tasks", comma(T)], ["Themes", comma(K)], ["Model", page.model], ["Made by", `tasktheme ${page.version}, with d3`]];
  return [
    heading(page.title),
    el("p", { class: "lead" }, el("strong", {}, "Themes"), " are kinds of data points that all tasks share. A task is described by how likely each mixture of themes is; two tasks are alike if that description is alike.",
      A > 1 ? ` Here they fall into ${A} aspects, ${each} themes each: an aspect sees a part of the embedding, a task has a mixture of each, and its distances add up.` : ""),
    el("p", {}, el("strong", {}, "Entropy"), `, in nats, is how uncertain a task's mixture is: the higher (the less negative), the less certain. It falls as a task gets more data points, `
      + (page.resized === null ? "so compare tasks of one size." : `so here every task counts as ${count(page.resized, "data point")} of its own kind, in its distances too: what tells tasks apart is what they hold, not how much.`)),
    el("p", {}, el("strong", {}, "Distance"), " KL[i ‖ j] is what is lost when task i is described as if it were task j. It is 0 from a task to itself, and it has a direction: a narrow task may be well described by a broad one, but not the reverse."),
    el("p", {}, el("strong", {}, "The map"), ` puts tasks so that their distances follow the square root of the symmetrised KL as well as a plane can; its stress is ${page.stress.toFixed(2)}, and 0 would be perfect. Trust the lists of nearest tasks more than the space between two dots.`),
    el("dl", { class: "facts" }, facts.flatMap(([name, value]) => [el("dt", {}, named(name)), el("dd", {}, named(value))])),
  ];
}
