// Tiles cut from the sheets; a sheet is decoded when its first tile is shown.
const tiles = page.images && {
  typical: page.images.typical && unpack(page.images.typical, Int32Array),
  samples: page.images.samples && unpack(page.images.samples, Int32Array),
  label: unpack(page.images.label, Int32Array),
};
const sheets = [];

function sheet(number) {
  sheets[number] ??= new Promise((done) => {
    const image = new Image();
    image.onload = () => done(image);
    image.src = page.images.sheets[number];
  });
  return sheets[number];
}

function tile(number, { kind = "", label = tileLabel(number) } = {}) {
  const { tile: side, columns } = page.images;
  const canvas = el("canvas", { class: `tile ${kind}`, width: side, height: side, role: "img", "aria-label": label, title: label });
  const local = number % (columns * columns);
  sheet(Math.floor(number / (columns * columns))).then((image) => {
    const x = (local % columns) * side;
    const y = Math.floor(local / columns) * side;
    canvas.getContext("2d").drawImage(image, x, y, side, side, 0, 0, side, side);
  });
  return canvas;
}
const tileLabel = (number) => page.images.labels[tiles.label[number - page.images.means]] ?? "";
const meanTile = (k, kind) => tile(k, { kind, label: `decoded mean of theme ${k}` });

const part = (packed, i, width) => (packed ? [...packed.subarray(i * width, (i + 1) * width)].filter((t) => t >= 0) : []);
const taskTiles = (i) => (tiles ? part(tiles.samples, i, page.images.of_task) : []);
const themeTiles = (k) => (tiles ? part(tiles.typical, k, page.images.of_theme) : []);
const hasMeans = Boolean(page.images?.means);

function taskImages(i) {
  const own = taskTiles(i);
  if (own.length) return el("div", { class: "tiles" }, own.map((number) => tile(number)));
  if (!tiles?.samples) return null;
  return el("p", { class: "empty" }, "No image of this task is on the page: there was room for images of other tasks only.");
}
