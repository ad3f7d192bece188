// Measures the page's layout and writes what is wrong with it into the document, as JSON, for tests/layout.rs.
// A box may exceed the window, and text its box, only inside a container that scrolls.
const wrong = [];
const slack = 1;
for (const details of document.querySelectorAll("details")) details.open = true;
const describe = (node) => {
  const element = node.nodeType === Node.TEXT_NODE ? node.parentElement : node;
  const text = (node.textContent || "").trim().replace(/\s+/g, " ").slice(0, 40);
  return `${element.tagName.toLowerCase()}.${element.getAttribute("class") || ""} "${text}"`;
};
const overflow = (element) => getComputedStyle(element).overflowX;
const scrolls = (element) => ["auto", "scroll"].includes(overflow(element));
const inScroller = (element) => {
  for (let e = element.parentElement; e; e = e.parentElement) if (scrolls(e)) return true;
  return false;
};
const isShown = (element) => element.getClientRects().length > 0 && getComputedStyle(element).visibility !== "hidden";
const root = document.documentElement;
if (root.scrollWidth > innerWidth) wrong.push(`the page is ${root.scrollWidth} px wide in a window of ${innerWidth} px`);

for (const element of document.body.querySelectorAll("*")) {
  if (!isShown(element) || element.closest("svg")?.parentElement.closest("svg")) continue;
  // What lies inside a drawing is the drawing's affair, except for its text.
  if (element.ownerSVGElement || inScroller(element)) continue;
  const box = element.getBoundingClientRect();
  if (box.left < -slack || box.right > innerWidth + slack) {
    wrong.push(`${describe(element)} reaches from ${box.left.toFixed(0)} to ${box.right.toFixed(0)} px`);
  }
}

// The lines of every text, in reading order.
const lines = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const parent = node.parentElement;
  if (!node.textContent.trim() || ["SCRIPT", "STYLE", "OPTION", "title"].includes(parent.tagName) || !isShown(parent)) continue;
  const range = document.createRange();
  range.selectNodeContents(node);
  for (const box of range.getClientRects()) if (box.width > 0) lines.push({ box, node });
  // Text wider than the block that holds it.
  const block = parent.closest("p, li, th, td, dt, dd, summary, h1, h2, h3, pre, div, span.chip, a, label");
  const style = block && getComputedStyle(block);
  if (block && style.display !== "inline" && !scrolls(block) && block.clientWidth > 0 && block.scrollWidth > block.clientWidth + slack) {
    wrong.push(`${describe(node)} needs ${block.scrollWidth} px and has ${block.clientWidth}`);
  }
}
// Text that a box cuts off.
for (const { box, node } of lines) {
  for (let e = node.parentElement; e && !scrolls(e); e = e.parentElement) {
    if (e.ownerSVGElement || !["hidden", "clip"].includes(overflow(e))) continue;
    const by = e.getBoundingClientRect();
    if (box.left < by.left - slack || box.right > by.right + slack) wrong.push(`${describe(node)} is cut off by ${describe(e)}`);
  }
}
// Text over text. Fonts' boxes are higher than their letters, hence the tolerance below each other.
lines.sort((a, b) => a.box.top - b.box.top);
lines.forEach(({ box, node }, i) => {
  for (let j = i + 1; j < lines.length && lines[j].box.top < box.bottom - 4; j++) {
    const other = lines[j];
    if (other.node === node) continue;
    const across = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left);
    if (across > slack) wrong.push(`${describe(node)} overlaps ${describe(other.node)} by ${across.toFixed(0)} px`);
  }
});

const measured = document.createElement("pre");
measured.id = "measured";
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
measured.textContent = JSON.stringify({ width: innerWidth, dark, lines: lines.length, wrong: wrong.slice(0, 20) });
document.body.append(measured);
