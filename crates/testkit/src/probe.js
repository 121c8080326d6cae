// Tells what a report looks like in the browser that has it open: put into a copy of the page,
// which stands in a frame of the width that is looked at.
const complaints = [];
addEventListener("error", (event) => complaints.push(`error: ${event.message || event.target.nodeName}`), true);
addEventListener("securitypolicyviolation", (event) => complaints.push(`refused: ${event.violatedDirective} ${event.blockedURI}`));

const channels = (colour) => (colour.match(/[\d.]+/g) || []).slice(0, 3).map(Number);
const luminance = (colour) => {
  const linear = channels(colour).map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
};
const contrast = (a, b) => {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
};
const within = (inner, outer) =>
  inner.left >= outer.left - 3 && inner.right <= outer.right + 3 && inner.top >= outer.top - 3 && inner.bottom <= outer.bottom + 3;
const overlap = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;

function chart(figure) {
  const card = getComputedStyle(figure).backgroundColor;
  const seen = [...figure.querySelectorAll("svg")].filter((svg) => svg.getClientRects().length > 0);
  const told = { title: figure.querySelector("figcaption strong").textContent, pictures: seen.length, words: figure.querySelectorAll(".nothing").length };
  told.rows = figure.querySelectorAll("tbody tr").length;
  Object.assign(told, { marks: 0, points: 0, outside: [], overlapping: [], faint: [], smallest: 99 });
  for (const svg of seen) {
    const frame = svg.getBoundingClientRect();
    told.named = [...svg.getAttribute("aria-labelledby").split(" ")].every((id) => document.getElementById(id)?.textContent);
    for (const mark of svg.querySelectorAll("rect, circle, polygon, polyline, line")) {
      const series = /^[fs]-\d$/.test(mark.getAttribute("class"));
      const box = mark.getBoundingClientRect();
      if (!within(box, frame)) told.outside.push(mark.outerHTML.slice(0, 120));
      if (!series || box.width + box.height < 1) continue;
      told.marks += 1;
      told.points += mark.points ? mark.points.length : 1;
      const style = getComputedStyle(mark);
      const colour = mark.getAttribute("class").startsWith("f") ? style.fill : style.stroke;
      if (contrast(colour, card) < 3) told.faint.push(`${colour} on ${card}`);
    }
    const texts = [...svg.querySelectorAll("text")].map((text) => [text, text.getBoundingClientRect()]);
    texts.forEach(([text, box], index) => {
      const style = getComputedStyle(text);
      told.smallest = Math.min(told.smallest, parseFloat(style.fontSize) * (frame.width / svg.viewBox.baseVal.width));
      if (!within(box, frame)) told.outside.push(text.textContent);
      if (contrast(style.fill, card) < 4.5) told.faint.push(`${text.textContent}: ${style.fill} on ${card}`);
      for (const [other, place] of texts.slice(index + 1)) {
        if (overlap(box, place)) told.overlapping.push(`${text.textContent} / ${other.textContent}`);
      }
    });
  }
  return told;
}

addEventListener("load", () => {
  const report = document.createElement("pre");
  report.className = "probe";
  report.textContent = JSON.stringify({
    frame: window.name,
    title: document.title,
    width: innerWidth,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    overflow: document.documentElement.scrollWidth - innerWidth,
    loaded: performance.getEntriesByType("resource").map((entry) => entry.name),
    images: document.querySelectorAll("main img, main script, main style").length,
    contrast: contrast(getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor),
    headings: document.querySelectorAll("h1").length,
    charts: [...document.querySelectorAll("figure")].map(chart),
    complaints,
  });
  parent.document.body.append(report);
});
