// What colours the map: group, entropy, theme, or the distance from the chosen task.
const dark = () => {
  const mode = document.documentElement.dataset.mode;
  return mode ? mode === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};
const palette = () => page.palette[dark() ? "dark" : "light"];
const groupColour = (g) => (g < 0 ? palette().groups[0] : palette().groups[g % palette().groups.length]);
const scaleColour = (t) => palette().scale[Math.round(Math.min(1, Math.max(0, t)) * (palette().scale.length - 1))];
const ramp = () => `linear-gradient(to right, ${palette().scale.join(",")})`;

// Themes that lead the most tasks have a colour of their own; where there are too few the last, a grey, is that of all others.
const tasksLedBy = d3.rollup(strongest, (own) => own.length, (k) => k);
const leading = d3.sort(tasksLedBy.keys(), (k) => -tasksLedBy.get(k), (k) => -meanShare[k]);
const OTHER = -1; // stands for the themes in grey
const distinct = palette().groups.length;
const themesShown = leading.length > distinct ? [...leading.slice(0, distinct - 1), OTHER] : leading;
const shownAs = (k) => (themesShown.includes(k) ? k : OTHER);
const themeColour = (k) => groupColour(themesShown.indexOf(shownAs(k)));
const themeName = (k) => (k === OTHER ? "other themes" : `theme ${k}`);

const colourings = {
  group: { name: "Group", colour: (i) => groupColour(groupOf[i]) },
  entropy: { name: "Entropy", scale: (i) => quantile(entropyOrder, entropy[i]), ends: ["more certain", "less certain"] },
  theme: { name: "Strongest theme", colour: (i) => themeColour(strongest[i]) },
  distance: { name: "Nearness to the task", ends: ["far", "near"] },
  share: { name: "Share of a theme", ends: ["none", "all"] },
};
const quantile = (sorted, value) => (sorted.length < 2 ? 0.5 : d3.bisectCenter(sorted, value) / (sorted.length - 1));

function colourOfTask() {
  if (state.colour === "distance" && state.task !== null) {
    const distances = lossOf(state.task);
    const order = Float64Array.from(distances).sort();
    return (i) => scaleColour(1 - quantile(order, distances[i]));
  }
  if (state.colour === "share") {
    const most = d3.max(rows, (i) => share(i, state.theme)) || 1;
    return (i) => scaleColour(share(i, state.theme) / most);
  }
  const chosen = colourings[state.colour === "distance" ? "entropy" : state.colour];
  return chosen.colour ?? ((i) => scaleColour(chosen.scale(i)));
}
