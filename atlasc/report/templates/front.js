"use strict";
const all = (selector) => Array.from(document.querySelectorAll(selector));
const radios = all("#points input");

function choose(point) {
  for (const radio of radios) radio.checked = radio.value === point;
  for (const one of all("tr[data-point], .mark[data-point]"))
    one.classList.toggle("chosen", one.dataset.point === point);
  for (const one of all("section.point")) one.hidden = one.id !== "point-" + point;
}

// The arrow keys move between the radio buttons, and with them the choice.
for (const radio of radios) radio.addEventListener("change", () => choose(radio.value));
for (const row of all("tr[data-point]"))
  row.addEventListener("click", () => choose(row.dataset.point));
// Marks may cover each other, so a click takes the nearest.
for (const plot of all(".chart > div"))
  plot.addEventListener("click", (event) => {
    const away = (mark) => {
      const box = mark.lastElementChild.getBoundingClientRect();
      return Math.hypot((box.left + box.right) / 2 - event.clientX, (box.top + box.bottom) / 2 - event.clientY);
    };
    const marks = Array.from(plot.querySelectorAll("[data-point]"));
    const nearest = marks.reduce((one, other) => (away(one) <= away(other) ? one : other));
    if (away(nearest) <= 24) choose(nearest.dataset.point);
  });
for (const button of all("[data-choose]"))
  button.addEventListener("click", () => {
    choose(button.dataset.choose);
    document.getElementById("point-" + button.dataset.choose).scrollIntoView({ block: "nearest" });
  });

for (const button of all("[data-copy]"))
  button.addEventListener("click", async () => {
    const command = document.getElementById(button.dataset.copy);
    const said = button.nextElementSibling;
    try {
      await navigator.clipboard.writeText(command.textContent);
      said.textContent = "copied";
    } catch {
      // A browser may refuse; the command is then selected, to be copied by hand.
      getSelection().selectAllChildren(command);
      said.textContent = "selected: copy it with the keyboard";
    }
  });

function least(radios, figure) {
  const known = (radio) => Number(radio.dataset[figure]);
  return radios.reduce((one, other) => (one && known(one) <= known(other) ? one : other), null);
}

function within() {
  const limit = document.getElementById("limit").valueAsNumber;
  const fast = radios.filter((radio) => Number(radio.dataset.seconds) <= limit);
  const safe = radios.filter((radio) => radio.dataset.trusted === "1");
  const best = least(safe.filter((radio) => fast.includes(radio)), "error");
  const fastest = least(safe, "seconds");
  document.querySelector("#within strong").textContent = best
    ? `Point ${Number(best.value) + 1}`
    : "No point";
  document.getElementById("within-why").textContent = best
    ? `The most accurate point within the limit: ${best.dataset.time}.`
    : (fast.length
        ? `The points within the limit (${fast.length}) give other answers than the model.`
        : "Every point takes longer.") +
      (fastest ? ` The fastest point with the model's answers is ${Number(fastest.value) + 1}: ${fastest.dataset.time}.` : "");
  const show = document.getElementById("within-show");
  show.hidden = !best;
  if (best) show.dataset.choose = best.value;
}

function prices() {
  const price = document.getElementById("price").valueAsNumber;
  const known = Number.isFinite(price) && price >= 0;
  for (const cell of all(".euros")) {
    cell.hidden = !known;
    const place = cell.closest("[data-point]");
    if (!place || !known) continue;
    const seconds = Number(radios[Number(place.dataset.point)].dataset.seconds);
    const euros = (1000 * price * seconds) / 3600;
    cell.textContent = "€ " + (euros < 10 ? euros.toFixed(2) : Math.round(euros).toLocaleString("en"));
  }
}

if (document.getElementById("limit")) {
  document.getElementById("limit").addEventListener("input", within);
  document.getElementById("price").addEventListener("input", prices);
}

// The file of a running search is written again every few seconds.
const again = document.getElementById("again");
if (again) setInterval(() => again.checked && location.reload(), 1000 * again.dataset.seconds);
