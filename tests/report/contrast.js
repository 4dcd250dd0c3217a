// Texts whose colour is too near to what lies behind them: less than 4.5 to 1, as WCAG 2 measures it.
const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
function rgba(colour) {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
}
function behind(element) {
  const layers = [];
  for (let e = element; e; e = e.parentElement) layers.push(rgba(getComputedStyle(e).backgroundColor));
  let under = [255, 255, 255];
  for (const [r, g, b, a] of layers.reverse()) under = under.map((x, i) => x * (1 - a) + [r, g, b][i] * a);
  return under;
}
function luminance(rgb) {
  const [r, g, b] = rgb.map((x) => (x / 255 <= 0.04045 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
const found = new Set();
const texts = document.querySelectorAll("h1, h2, h3, p, li, dt, dd, small, label, output, button, td, tbody th, .diff span, .chip b, #matrix td, #matrix th, #matrix span, #matrix small");
for (const element of [...texts].slice(0, 400)) {
  if (!element.innerText || !element.offsetParent) continue;
  const [a, b] = [luminance(rgba(getComputedStyle(element).color)), luminance(behind(element))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) found.add(`${element.tagName}.${element.className} ${ratio.toFixed(2)} ${element.innerText.slice(0, 20)}`);
}
return [...found];
