// Dots as pixels: d3 has no dots of its own, canvas paths are five times slower where no GPU draws them, and WebGL is not
// there at all then. This moves 20,000 tasks smoothly on any machine (benchmarks/explorer.py).
const STEPS = 4; // places within a pixel at which a dot may lie, each way

function discs(radius, edge) {
  const reach = Math.ceil(radius + edge) + 1;
  const cover = (distance, r) => Math.min(1, Math.max(0, r + 0.5 - distance));
  return d3.range(STEPS * STEPS).map((n) => {
    const [fx, fy] = [(n % STEPS) / STEPS, Math.floor(n / STEPS) / STEPS];
    const pixels = [];
    for (let y = -reach; y <= reach; y++) {
      for (let x = -reach; x <= reach; x++) {
        const distance = Math.hypot(x - fx, y - fy);
        const [inner, outer] = [cover(distance, radius), edge ? 0.75 * cover(distance, radius + edge) : 0];
        if (inner > 0.01 || outer > 0.01) pixels.push([x, y, inner, outer]);
      }
    }
    const column = (Kind, c) => Kind.from(pixels, (pixel) => pixel[c]);
    return { reach, x: column(Int32Array, 0), y: column(Int32Array, 1), inner: column(Float32Array, 2), outer: column(Float32Array, 3) };
  });
}

const bytes = (colour) => {
  const { r, g, b } = d3.rgb(colour);
  return (r | (g << 8) | (b << 16)) >>> 0;
};
const mix = (under, over, t) => {
  const r = under & 255;
  const g = (under >> 8) & 255;
  const b = (under >> 16) & 255;
  return 0xff000000 | (r + ((over & 255) - r) * t) | ((g + (((over >> 8) & 255) - g) * t) << 8) | ((b + (((over >> 16) & 255) - b) * t) << 16);
};

// Draws dots at ``x``, ``y`` in pixels of the canvas, in the given order, each with an edge of paper around it.
function drawDots(canvas, order, x, y, colours, radius, edge) {
  const context = canvas.getContext("2d", { willReadFrequently: true }); // kept in memory, where the pixels are written
  const { width, height } = canvas;
  if (drawDots.image?.width !== width || drawDots.image.height !== height) drawDots.image = context.createImageData(width, height);
  const pixels = new Uint32Array(drawDots.image.data.buffer);
  const paper = bytes(getComputedStyle(canvas).getPropertyValue("--paper")) | 0xff000000;
  pixels.fill(paper);
  const key = `${radius} ${edge}`;
  if (drawDots.key !== key) [drawDots.key, drawDots.discs] = [key, discs(radius, edge)];
  for (const i of order) {
    const left = Math.floor(x[i]);
    const top = Math.floor(y[i]);
    const disc = drawDots.discs[Math.floor((y[i] - top) * STEPS) * STEPS + Math.floor((x[i] - left) * STEPS)];
    if (left < -disc.reach || top < -disc.reach || left >= width + disc.reach || top >= height + disc.reach) continue;
    const colour = colours[i];
    for (let p = 0; p < disc.x.length; p++) {
      const px = left + disc.x[p];
      const py = top + disc.y[p];
      if (px < 0 || py < 0 || px >= width || py >= height) continue;
      const at = py * width + px;
      if (disc.inner[p] >= 1) pixels[at] = colour | 0xff000000;
      else pixels[at] = mix(mix(pixels[at], paper, disc.outer[p]), colour, disc.inner[p]);
    }
  }
  context.putImageData(drawDots.image, 0, 0);
}
