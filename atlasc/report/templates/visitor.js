"use strict";
const facts = JSON.parse(document.getElementById("facts").textContent);
const at = (id) => document.getElementById(id);
const STAGES = ["encrypt", "send", "compute", "decrypt"];
const earlier = []; // texts that were asked, with their vectors

// --- the drawing

const board = at("drawing");
const pen = { x: 0, y: 0, down: false, shown: false };
let dirty = false;
let paper; // the drawing without the mark of the pen

function ink() { return at("dark").checked ? "#000" : "#fff"; }
function ground() { return at("dark").checked ? "#fff" : "#000"; }

function clean() {
  const brush = paper.getContext("2d");
  brush.fillStyle = ground();
  brush.fillRect(0, 0, paper.width, paper.height);
  dirty = false;
  show();
}

// Who draws asks with the drawing, not with a picture that was chosen before.
function forget() {
  if (!at("file").value) return;
  at("file").value = "";
  at("dark").disabled = false;
  clean();
}

function show() {
  const brush = board.getContext("2d");
  brush.drawImage(paper, 0, 0);
  if (!pen.shown) return;
  brush.lineWidth = 3;
  for (const [colour, more] of [["#000", 3], ["#fff", 0]]) { // seen on ink and on the ground
    brush.strokeStyle = colour;
    brush.beginPath();
    brush.arc(pen.x, pen.y, paper.width / 20 + more, 0, 7);
    brush.stroke();
  }
  if (pen.down) {
    brush.fillStyle = "#888";
    brush.fill();
  }
}

function stroke(x, y) {
  const brush = paper.getContext("2d");
  brush.strokeStyle = ink();
  brush.lineWidth = 0.12 * Math.min(paper.width, paper.height);
  brush.lineCap = brush.lineJoin = "round";
  brush.beginPath();
  brush.moveTo(pen.x, pen.y);
  brush.lineTo(x, y);
  brush.stroke();
  dirty = true;
}

function place(event) {
  const box = board.getBoundingClientRect();
  return [((event.clientX - box.left) / box.width) * paper.width, ((event.clientY - box.top) / box.height) * paper.height];
}

function prepareBoard() {
  const [, height, width] = facts.shape;
  const cell = Math.max(1, Math.round(320 / Math.max(width, height)));
  paper = document.createElement("canvas");
  for (const one of [paper, board]) [one.width, one.height] = [width * cell, height * cell];
  [pen.x, pen.y] = [paper.width / 2, paper.height / 2];
  let drawing = false;
  board.addEventListener("pointerdown", (event) => {
    board.setPointerCapture(event.pointerId);
    drawing = true;
    forget();
    pen.shown = false;
    [pen.x, pen.y] = place(event);
    stroke(pen.x, pen.y);
    show();
  });
  board.addEventListener("pointermove", (event) => {
    if (!drawing) return;
    for (const one of event.getCoalescedEvents?.().concat(event) ?? [event]) {
      const [x, y] = place(one);
      stroke(x, y);
      [pen.x, pen.y] = [x, y];
    }
    show();
  });
  for (const end of ["pointerup", "pointercancel"]) board.addEventListener(end, () => { drawing = false; });
  board.addEventListener("keydown", (event) => {
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const way = ways[event.key];
    if (!way && event.key !== " ") return;
    event.preventDefault();
    pen.shown = true;
    const step = Math.max(cell / 2, paper.width / 40);
    const x = Math.min(paper.width, Math.max(0, pen.x + (way ? way[0] * step : 0)));
    const y = Math.min(paper.height, Math.max(0, pen.y + (way ? way[1] * step : 0)));
    if (!way) pen.down = !pen.down;
    if (pen.down) forget();
    if (pen.down) stroke(x, y);
    [pen.x, pen.y] = [x, y];
    show();
  });
  board.addEventListener("blur", () => {
    [pen.shown, pen.down] = [false, false];
    show();
  });
  at("dark").addEventListener("change", () => { // what is drawn keeps its form
    const brush = paper.getContext("2d");
    brush.globalCompositeOperation = "difference";
    brush.fillStyle = "#fff";
    brush.fillRect(0, 0, paper.width, paper.height);
    brush.globalCompositeOperation = "source-over";
    show();
  });
  at("file").addEventListener("change", () => {
    const file = at("file").files[0];
    at("dark").disabled = Boolean(file);
    clean();
    if (!file) return;
    const address = URL.createObjectURL(file);
    const picture = new Image();
    picture.onload = () => {
      paper.getContext("2d").drawImage(picture, 0, 0, paper.width, paper.height);
      show();
      URL.revokeObjectURL(address);
    };
    picture.onerror = () => fault("this file is no picture that the browser can show");
    picture.src = address;
  });
  clean();
}

// --- a question

async function base64(blob) {
  const address = await new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.readAsDataURL(blob);
  });
  return address.slice(address.indexOf(",") + 1);
}

async function question() {
  if (facts.kind === "text") {
    const texts = [at("text").value, at("second")?.value ?? ""].filter((text) => text.trim());
    if (texts.length === 0) throw Error("type a text first");
    return { texts };
  }
  const file = at("file").files[0];
  if (file) return { image: await base64(file) };
  if (!dirty) throw Error("draw something first, or choose a picture");
  const blob = await new Promise((resolve) => paper.toBlob(resolve, "image/png"));
  return { image: await base64(blob), drawing: true };
}

let asking = null;

async function ask() {
  fault("");
  at("warnings").replaceChildren();
  for (const id of ["answer", "read", "seen-query", "seen-answer"]) at(id).hidden = true;
  let asked;
  try {
    asked = await question();
  } catch (error) {
    return fault(error.message);
  }
  asking = new AbortController();
  busy(true);
  const clock = { stage: "", since: performance.now() };
  const ticking = setInterval(() => tick(clock), 100);
  try {
    const answer = await fetch("ask", {
      method: "POST", body: JSON.stringify(asked), signal: asking.signal,
      headers: { "Content-Type": "application/json", [facts.header]: facts.token },
    });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) happened(JSON.parse(line), clock, asked);
    }
  } catch (error) {
    fault(error.name === "AbortError" ? "You stopped it; the server was told to." : "The program of this page does not answer. Is it still running in its terminal?");
  } finally {
    tick(clock);
    clearInterval(ticking);
    if (clock.stage !== "done") for (const one of document.querySelectorAll("#stages .now")) one.className = "";
    asking = null;
    busy(false);
  }
}

function busy(now) {
  at("ask").disabled = at("clear").disabled = now;
  at("stop").hidden = !now;
  at("progress").hidden = !now && at("answer").hidden;
  if (!now) return;
  at("bar").value = 0;
  at("state").textContent = "";
  for (const one of document.querySelectorAll("#stages li")) {
    one.className = "";
    one.lastElementChild.textContent = "";
  }
}

function tick(clock) {
  const one = document.querySelector(`#stages [data-stage="${clock.stage}"]`);
  if (one) one.lastElementChild.textContent = `${((performance.now() - clock.since) / 1000).toFixed(1)} s`;
}

function enter(clock, stage) {
  if (clock.stage === stage) return;
  tick(clock);
  [clock.stage, clock.since] = [stage, performance.now()];
  const now = STAGES.indexOf(stage);
  for (const one of document.querySelectorAll("#stages li")) {
    const place = STAGES.indexOf(one.dataset.stage);
    one.className = stage === "done" || place < now ? "done" : place === now ? "now" : "";
  }
  if (now > 2 || stage === "done") at("bar").value = 100;
}

function happened(event, clock, asked) {
  if (event.stage) enter(clock, event.stage);
  if (event.stage === "compute") {
    at("bar").value = event.done;
    at("state").textContent = event.state;
  }
  if (event.input) input(event.input);
  if (event.seen) seen(event);
  if (event.warning) {
    const box = document.createElement("p");
    box.className = "warn";
    box.textContent = [event.warning, event.details].filter(Boolean).join("\n");
    at("warnings").append(box);
  }
  if (event.fault) fault([event.fault, event.details].filter(Boolean).join("\n"));
  if (event.answer) {
    enter(clock, "done");
    at("state").textContent = "";
    result(event.answer, asked);
  }
}

function fault(text) {
  at("fault").hidden = !text;
  at("fault").textContent = text;
}

// --- what is shown

function bytes(text) { return Uint8Array.from(atob(text), (one) => one.charCodeAt(0)); }

function paint(canvas, width, height, colour) {
  [canvas.width, canvas.height] = [width, height];
  const image = new ImageData(width, height);
  for (let place = 0; place < width * height; place++) image.data.set([...colour(place), 255], 4 * place);
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function input(told) {
  at("read").hidden = false;
  if (told.pixels) {
    const pixels = bytes(told.pixels);
    at("seen-input").hidden = false;
    paint(at("seen-input"), told.width, told.height, (place) => pixels.subarray(3 * place, 3 * place + 3));
    at("read-words").textContent = `What the model reads: ${told.width} × ${told.height} pixels, values from ${round(told.low)} to ${round(told.high)}`;
  } else {
    at("read-words").textContent = `The model reads ${told.tokens} tokens of at most ${told.length}`;
  }
}

function seen(told) {
  const box = at(`seen-${told.seen}`);
  const pixels = bytes(told.pixels);
  at("nothing").hidden = true;
  box.hidden = false;
  if (told.height) paint(box.querySelector("canvas"), told.width, told.height, (place) => [pixels[place], pixels[place], pixels[place]]);
  const left = told.left_out ? `; of the 8 bytes of a number, the upper ${told.left_out} hold next to nothing and are left out` : "";
  box.querySelector(".note").textContent = `${size(told.bytes)}. The picture has ${pixels.length.toLocaleString("en")} bytes from its middle, one a pixel${left}.`;
  box.querySelector("pre").textContent = Object.entries(told.readable).map(([name, value]) => `${name}: ${value}`).join("\n");
}

function size(count) { return count < 1048576 ? `${(count / 1024).toFixed(1)} KiB` : `${(count / 1048576).toFixed(1)} MiB`; }

function round(number) { return number === null ? "no number" : String(Number(number.toPrecision(4))); }

function result(answer, asked) {
  at("answer").hidden = false;
  at("numbers").replaceChildren();
  if (answer.refused !== null) {
    at("said").textContent = "No answer: the numbers cannot be right.";
    return add("p", `${(100 * answer.refused).toFixed(1)}% of its numbers are far outside those of calibration. Do not tell the server.`);
  }
  const output = answer.outputs[0];
  if (output.classes.length) return output.probabilities.length ? labels(output) : classes(output);
  at("said").textContent = output.values.length === 1 ? round(output.values[0]) : "";
  for (const one of answer.outputs) {
    const more = one.values.length > 12 ? ", …" : "";
    add("p", `${one.name}, shape [${one.shape.join(", ")}]: ${one.values.slice(0, 12).map(round).join(", ")}${more}`);
  }
  if (asked.texts && output.values.length > 12) similar(asked.texts.join(" / "), output.values);
}

function add(kind, text, parent = at("numbers")) {
  const one = document.createElement(kind);
  one.textContent = text;
  parent.append(one);
  return one;
}

function bars(rows, caption) {
  add("p", caption).className = "note";
  const box = document.createElement("div");
  box.className = "bars";
  for (const [name, share, text, best] of rows) {
    add("span", name, box).className = best ? "name best" : "name";
    const bar = document.createElement("span");
    bar.className = "bar";
    add("i", "", bar).style.width = `${100 * Math.max(0, Math.min(1, share))}%`;
    box.append(bar);
    add("span", text, box);
  }
  at("numbers").append(box);
}

function labels(output) {
  const rows = output.values.map((value, place) => {
    const share = output.probabilities[place];
    return [output.classes[place], share, `${(100 * share).toFixed(1)}% (${round(value)})`, share >= 0.5];
  });
  const given = rows.filter((row) => row[3]).map((row) => row[0]);
  at("said").textContent = given.join(", ") || "none of the labels";
  const shown = rows.length > 12 ? rows.sort((one, other) => other[1] - one[1]).slice(0, 10) : rows;
  bars(shown, "Probability of each label, which counts by itself; the decrypted numbers are in brackets.");
}

function classes(output) {
  const most = Math.max(...output.values);
  const powers = output.values.map((value) => Math.exp(value - most));
  const whole = powers.reduce((one, other) => one + other, 0);
  let rows = output.values.map((value, place) => [output.classes[place], powers[place] / whole, `${((100 * powers[place]) / whole).toFixed(1)}% (${round(value)})`, value === most]);
  if (rows.length > 12) rows = rows.sort((one, other) => other[1] - one[1]).slice(0, 10);
  at("said").textContent = output.classes[output.values.indexOf(most)];
  bars(rows, "Softmax of the decrypted numbers, which are in brackets.");
}

// The answer of an encoder says something beside another one.
function similar(text, vector) {
  const cosine = (one, other) => {
    const dot = (a, b) => a.reduce((sum, value, place) => sum + value * b[place], 0);
    return dot(one, other) / Math.sqrt(dot(one, one) * dot(other, other));
  };
  const rows = earlier.filter((one) => one.vector.length === vector.length).map((one) => [one.text.slice(0, 60), cosine(one.vector, vector), cosine(one.vector, vector).toFixed(3), false]);
  if (rows.length) bars(rows, "Cosine similarity to the texts before, computed here:");
  else add("p", "Ask with a second text: the page then shows how similar both are.").className = "note";
  earlier.push({ text, vector });
}

// --- the buttons

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!asking) ask();
});
at("stop").addEventListener("click", () => asking?.abort());
at("clear").addEventListener("click", () => {
  if (facts.kind === "image") {
    forget();
    clean();
  } else for (const id of ["text", "second"]) if (at(id)) at(id).value = "";
  fault("");
});
if (facts.kind === "image") prepareBoard();
