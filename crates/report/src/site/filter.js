// Shows the entries that contain all words. Without scripts, all are shown and there is no field.
const filter = document.querySelector(".filter");
const words = filter.querySelector("input");
const shown = filter.querySelector("output");
const entries = Array.from(document.querySelectorAll(".entries li"));
const update = () => {
  const wanted = words.value.toLowerCase().split(" ").filter(String);
  for (const entry of entries) {
    const text = entry.textContent.toLowerCase();
    entry.hidden = wanted.some((word) => !text.includes(word));
  }
  shown.textContent = entries.filter((entry) => !entry.hidden).length + " of " + entries.length + " shown";
};
filter.hidden = false;
words.addEventListener("input", update);
update();
