// Numbers as people read them, and elements whose text can never be markup.
const comma = d3.format(",");
const minus = (text) => text.replace("-", "\u2212");
const nats = (x) => minus(x === 0 ? "0" : Math.abs(x) < 0.001 ? "< 0.001" : x.toLocaleString("en", { maximumSignificantDigits: Math.abs(x) < 100 ? 3 : 4 }));
const tenth = (x) => minus(d3.format(",.1f")(x)); // of entropies, which are compared with each other
const percent = (x) => (x > 0 && x < 0.005 ? "< 1 %" : `${Math.round(100 * x)} %`);
const count = (n, noun) => `${comma(n)} ${noun}${n === 1 ? "" : "s"}`;
const ordinal = (n) => `${comma(n)}${["th", "st", "nd", "rd"][n % 100 > 10 && n % 100 < 14 ? 0 : n % 10] ?? "th"}`;

function el(tag, settings = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(settings)) {
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (name === "style") for (const [property, text] of Object.entries(value)) element.style.setProperty(property, text);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}
const named = (text) => el("bdi", {}, text); // a name of any script does not turn its surroundings around
