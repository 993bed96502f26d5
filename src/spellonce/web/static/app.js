// The page: four parts, each a few functions. It asks /api/v1 and nobody else.
// Text from outside reaches the page as text nodes only.

const $ = (id) => document.getElementById(id);

function make(tag, { text, className, title, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  if (title) element.title = title;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const bits = (value) => `${value.toFixed(value < 10 ? 2 : 1)} bits`;
const shade = (element, value) => element.style.setProperty("--x", Math.min(Math.max(value, 0) / 20, 1));
const number = (id) => $(id).valueAsNumber;
const named = (text) => (text === "\n" ? "line end" : text.trim() || "white space");

// --- asking ----------------------------------------------------------------------------------

function problem(message) {
  $("problem").textContent = message || "";
  $("problem").hidden = !message;
}

// Waits, unless nobody wants the answer any longer.
const pause = (milliseconds, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, milliseconds);
  signal?.addEventListener("abort", () => {
    clearTimeout(timer);
    reject(new DOMException("no longer wanted", "AbortError"));
  });
});

async function ask(path, body, signal) {
  const options = body === undefined
    ? { signal }
    : { signal, method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let response;
  for (let tries = 0; ; tries++) {
    try {
      response = await fetch(`/api/v1/${path}`, options);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error("The server does not answer.");
    }
    if (response.status !== 429 || tries === 3) break;
    await pause(1000 * Number(response.headers.get("Retry-After") || 1), signal);
  }
  if (!response.ok) {
    const told = await response.json().catch(() => ({}));
    throw new Error(told.detail || `The server answered ${response.status}.`);
  }
  return response;
}

// Only the latest of several questions is waited for; where its answer will stand is marked.
function latest(place, work) {
  let controller = null;
  return async (...given) => {
    controller?.abort();
    const mine = (controller = new AbortController());
    $(place).setAttribute("aria-busy", "true");
    try {
      await work(mine.signal, ...given);
      problem("");
    } catch (error) {
      if (error.name !== "AbortError") problem(error.message);
    } finally {
      if (controller === mine) $(place).removeAttribute("aria-busy");
    }
  };
}

// --- tabs ------------------------------------------------------------------------------------

// Such keys are the browser's: Alt+← goes back, Ctrl++ zooms.
const hasModifier = (event) => event.ctrlKey || event.metaKey || event.altKey;

const tabs = [...document.querySelectorAll('[role="tab"]')];
const opened = {};

function open(tab, focus = false) {
  for (const other of tabs) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", chosen);
    other.tabIndex = chosen ? 0 : -1;
    $(other.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (focus) tab.focus();
  const name = tab.getAttribute("aria-controls");
  history.replaceState(null, "", `#${name}`);
  problem("");
  opened[name]?.();
}

for (const [i, tab] of tabs.entries()) {
  tab.addEventListener("click", () => open(tab));
  tab.addEventListener("keydown", (event) => {
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined || hasModifier(event)) return;
    event.preventDefault();
    open(tabs[(to + tabs.length) % tabs.length], true);
  });
}

// --- read ------------------------------------------------------------------------------------

let readRows = [];

const readNow = latest("read-out", async (signal) => {
  const text = $("read-text").value;
  const cache = $("read-cache").checked;
  const found = await (await ask("score", { text, cache }, signal)).json();
  readRows = found.tokens;
  showRead(text, cache);
  const sums = [`${found.bpc.toFixed(3)} bits per character`];
  if (found.cached) sums.push(`${found.cached.bpc.toFixed(3)} with the cache`);
  $("read-sums").textContent = found.n_chars ? sums.join(" · ") : "";
});

function showRead(text, cache) {
  // Offsets count code points, and so do we.
  const points = [...text];
  const out = $("read-out");
  out.replaceChildren();
  let place = 0;
  readRows.forEach((row, i) => {
    out.append(points.slice(place, row.start).join(""));
    const surface = points.slice(row.start, row.end).join("");
    const own = cache ? row.bits_cached : row.bits;
    const token = make("span", {
      text: surface === "\n" ? "⏎\n" : surface,
      className: `token${row.novel ? " novel" : ""}`,
      role: "listitem", tabindex: i ? "-1" : "0",
      "aria-label": `${named(surface)}: ${bits(own)}${row.novel ? ", novel" : ""}`,
    });
    shade(token, own);
    token.dataset.index = i;
    out.append(token);
    place = row.end;
  });
  out.append(points.slice(place).join(""));
}

function showDetail(index) {
  const row = readRows[index];
  const tokens = $("read-out").querySelectorAll(".token");
  tokens.forEach((token) => token.classList.remove("source"));
  const name = row.token === "\n" ? "The end of the line" : `“${row.token}”`;
  const parts = [make("p", {}, make("strong", { text: name }), ` ${bits(row.bits)}`)];
  if (row.novel) {
    const bar = make("div", { className: "bar", role: "img", "aria-label": `${bits(row.bits_lexeme)} to announce a new word, ${bits(row.bits_spelling)} to spell it` });
    for (const [kind, value, told] of [["lexeme", row.bits_lexeme, "a new word"], ["spelling", row.bits_spelling, "its spelling"]]) {
      const part = make("span", { className: kind, text: `${told} ${value.toFixed(1)}` });
      part.style.setProperty("width", `${(100 * value) / row.bits}%`);
      bar.append(part);
    }
    parts.push(bar);
  } else {
    parts.push(make("p", { text: "The model knows this word: all of its bits go into choosing it here." }));
  }
  if (row.characters) {
    const letters = make("ul", { className: "letters", "aria-label": "Bits of each character" });
    for (const [char, value] of row.characters) {
      const item = make("li", { text: char || "end" }, make("small", { text: value.toFixed(1) }));
      shade(item, value * 2.5);
      letters.append(item);
    }
    parts.push(letters);
  }
  if (row.bits_cached !== undefined) {
    parts.push(make("p", { text: `With the cache ${bits(row.bits_cached)}; ${(100 * row.from_cache).toFixed(0)} % of its probability is memory.` }));
    if (row.summoned !== null) {
      tokens[row.summoned]?.classList.add("source");
      parts.push(make("p", { text: "Summoned from the place that is outlined." }));
    }
  }
  $("read-detail").replaceChildren(...parts);
}

let timer = 0;
$("read-text").addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(readNow, 250);
});
$("read-cache").addEventListener("change", readNow);
for (const kind of ["mouseover", "focusin", "click"]) {
  $("read-out").addEventListener(kind, (event) => {
    const index = event.target.dataset?.index;
    if (index !== undefined) showDetail(Number(index));
  });
}

// Of the tokens in there one can be reached with Tab, the others from it with arrows.
function rove(place) {
  place.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 }[event.key];
    const tokens = [...place.querySelectorAll(".token")];
    const index = tokens.indexOf(event.target);
    if (step === undefined || index < 0 || hasModifier(event)) return;
    event.preventDefault();
    const to = tokens[Math.min(Math.max(index + step, 0), tokens.length - 1)];
    event.target.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  });
}

rove($("read-out"));
rove($("write-out"));
$("read-form").addEventListener("submit", (event) => { event.preventDefault(); readNow(); });
opened.read = () => { if (!readRows.length) readNow(); };

// --- write -----------------------------------------------------------------------------------

let writing = null;

async function write() {
  writing?.abort();
  const mine = (writing = new AbortController());
  const prompt = $("write-prompt").value.replace(/ +$/, "");
  const cache = $("write-cache").checked;
  const out = $("write-out");
  out.replaceChildren(make("span", { className: "given", text: prompt }));
  $("write-stop").hidden = false;
  const written = [];
  try {
    const response = await ask("sample", {
      prompt, n: number("write-n"), temperature: number("write-temperature"),
      seed: number("write-seed"), cache,
    }, mine.signal);
    problem("");
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        const { text, token, novel, error } = JSON.parse(line);
        if (error) throw new Error(error);
        const place = { prompt, tokens: [...written], cache };
        written.push(token);
        out.append(...writtenToken(text, novel, place));
      }
    }
  } catch (error) {
    if (error.name !== "AbortError") problem(error.message);
  } finally {
    if (writing === mine) {
      if (document.activeElement === $("write-stop")) $("write-form").querySelector(".main").focus();
      $("write-stop").hidden = true;
    }
  }
}

// What a token that was written looks like: white space before it, a word to choose, a line break.
function writtenToken(text, novel, place) {
  const bare = text.replace(/^ /, "");
  const element = make("span", {
    text: bare === "\n" ? "⏎" : bare, className: `token${novel ? " novel" : ""}`,
    role: "button", tabindex: place.tokens.length ? "-1" : "0", "aria-label": `${named(bare)}${novel ? ", made up" : ""}`,
  });
  const choose = () => alternatives(place, element);
  element.addEventListener("click", choose);
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose();
  });
  return [text.slice(0, text.length - bare.length), element, bare === "\n" ? "\n" : ""];
}

const askAlternatives = latest("write-detail", async (signal, place) => {
  const found = await (await ask("alternatives", place, signal)).json();
  const words = make("ul", { className: "chips", "aria-label": "Likeliest words" });
  for (const { word, p } of found.lexemes) {
    words.append(make("li", { text: `${word} ` }, make("small", { text: `${(100 * p).toFixed(1)} %` })));
  }
  const made = make("ul", { className: "chips", "aria-label": "Spellings" });
  for (const word of found.spellings) made.append(make("li", { text: word }));
  $("write-detail").replaceChildren(
    make("p", { text: "Likeliest in its place:" }), words,
    make("p", { text: `A new word has ${(100 * found.p_novel).toFixed(1)} % here, and might be spelled:` }), made,
  );
});

function alternatives(place, element) {
  $("write-out").querySelectorAll(".chosen").forEach((other) => other.classList.remove("chosen"));
  element.classList.add("chosen");
  askAlternatives(place);
}

$("write-form").addEventListener("submit", (event) => { event.preventDefault(); write(); });
$("write-stop").addEventListener("click", () => writing?.abort());

// --- spell -----------------------------------------------------------------------------------

let spelled = [];

const spell = latest("spell-out", async (signal) => {
  const like = $("spell-like").value.split(/[\s,]+/).filter(Boolean);
  const context = $("spell-context").value.trim();
  if (!like.length === !context) throw new Error("Give words to resemble, or a sentence: one of the two.");
  const found = await (await ask("spell", {
    like, context: context || null, n: number("spell-n"),
    temperature: number("spell-temperature"), seed: number("spell-seed"),
    novel_only: $("spell-novel").checked, min_length: number("spell-min"),
    max_length: number("spell-max"), prefix: $("spell-prefix").value,
    suffix: $("spell-suffix").value, letters: $("spell-letters").value,
    min_distance: number("spell-distance"),
  }, signal)).json();
  spelled = found.words;
  $("spell-out").replaceChildren(...spelled.map(({ word, bits: own }) =>
    make("li", { text: word }, make("small", { text: own === null ? "" : `${own.toFixed(1)} bits` }))));
  $("spell-why").textContent = found.why ? `No more were found: ${found.why}.` : "";
  $("spell-take").hidden = !spelled.length;
});

$("spell-form").addEventListener("submit", (event) => { event.preventDefault(); spell(); });
$("spell-form").addEventListener("invalid", (event) => {  // what is wrong is to be seen
  const details = event.target.closest("details");
  if (details) details.open = true;
}, true);
$("spell-copy").addEventListener("click", async () => {
  const text = spelled.map(({ word }) => word).join("\n");
  try {
    await navigator.clipboard.writeText(text);
    $("spell-why").textContent = `${spelled.length} words copied.`;
  } catch {
    problem("The browser does not let the page copy: download them instead.");
  }
});
$("spell-csv").addEventListener("click", () => {
  const field = (value) => `"${String(value).replaceAll('"', '""')}"`;
  const rows = ["word,bits", ...spelled.map(({ word, bits: own }) => `${field(word)},${own ?? ""}`)];
  const url = URL.createObjectURL(new Blob([rows.join("\r\n") + "\r\n"], { type: "text/csv" }));
  const link = make("a", { href: url, download: "wugs.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
});

// --- explore ---------------------------------------------------------------------------------

let map = null;
let view = { x: 0, y: 0, scale: 1 };
let marked = null;

let explored = false;
let fitted = false;  // a map that arrives while nobody looks has no size yet

opened.explore = async () => {
  if (explored) {
    if (!fitted) fitMap();
    return drawMap();
  }
  explored = true;
  const parts = [
    async () => { map = await (await ask("map")).json(); fitMap(); await find(); },
    async () => showCurve((await (await ask("training")).json()).rows),
    async () => showResults(await (await ask("results")).json()),
  ];
  for (const part of parts) {
    try {
      await part();
    } catch (error) {
      explored = false;  // to be tried again
      problem(error.message);
    }
  }
};

function fitMap() {
  if (!map) return;
  const spread = (values) => {
    const sorted = [...values].sort((a, b) => a - b);
    const at = (share) => sorted[Math.floor(share * (sorted.length - 1))];
    return [at(0.01), at(0.99)];
  };
  const [left, right] = spread(map.x), [low, high] = spread(map.y);
  const { clientWidth: width, clientHeight: height } = $("map");
  fitted = width > 0;
  if (!fitted) return;
  view = {
    x: (left + right) / 2, y: (low + high) / 2,
    scale: Math.min(width / (right - left || 1), height / (high - low || 1)) * 0.9,
  };
}

function drawMap() {
  if (!map) return;
  const canvas = $("map"), ratio = devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width) return;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const taken = [];
  const place = (x, y) => [width / 2 + (x - view.x) * view.scale, height / 2 - (y - view.y) * view.scale];
  const put = (word, x, y, size, ink, force = false) => {
    context.font = `${size}px ${color("--sans") || "sans-serif"}`;
    const half = context.measureText(word).width / 2;
    const box = [x - half - 2, y - size / 2 - 1, x + half + 2, y + size / 2 + 1];
    const free = force || !taken.some((o) => box[0] < o[2] && box[2] > o[0] && box[1] < o[3] && box[3] > o[1]);
    if (!free) return false;
    taken.push(box);
    context.fillStyle = ink;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(word, x, y);
    return true;
  };
  if (marked) {
    const [x, y] = place(marked.x, marked.y);
    context.fillStyle = color("--accent");
    context.beginPath();
    context.arc(x, y + 15, 4, 0, 7);
    context.fill();
    put(marked.word, x, y, 18, color("--accent"), true);
  }
  const near = new Set((marked?.neighbours || []).map((one) => one.word));
  const order = map.words.map((word, i) => i).sort((a, b) => near.has(map.words[b]) - near.has(map.words[a]) || a - b);
  for (const i of order) {
    const [x, y] = place(map.x[i], map.y[i]);
    if (x < 0 || y < 0 || x > width || y > height || map.words[i] === marked?.word) continue;
    const is_near = near.has(map.words[i]);
    if (!put(map.shown[i], x, y, is_near ? 15 : 12, is_near ? color("--novel") : color("--dim"))) {
      context.fillStyle = color("--line");
      context.fillRect(x - 1, y - 1, 2, 2);
    }
  }
}

const find = latest("near", async (signal, focus = false) => {
  const word = $("explore-word").value.trim();
  if (!word) return;
  marked = await (await ask(`neighbours?${new URLSearchParams({ word, n: 15 })}`, undefined, signal)).json();
  $("near-title").textContent = marked.known
    ? `Used like “${word}”` : `“${word}” is no known word; by its spelling it would be used like`;
  $("near").replaceChildren(...marked.neighbours.map((one) => {
    const button = make("button", { text: one.shown, type: "button" });
    button.addEventListener("click", () => { $("explore-word").value = one.word; find(true); });
    return make("li", {}, button, make("small", { text: ` ${one.cosine.toFixed(2)}` }));
  }));
  if (focus) $("near-title").focus();
  view.x = marked.x;
  view.y = marked.y;
  drawMap();
});

function zoom(factor) {
  view.scale *= factor;
  drawMap();
}

$("explore-form").addEventListener("submit", (event) => { event.preventDefault(); find(); });
$("map-in").addEventListener("click", () => zoom(1.4));
$("map-out").addEventListener("click", () => zoom(1 / 1.4));
$("map-all").addEventListener("click", () => { fitMap(); drawMap(); });
$("map").addEventListener("wheel", (event) => {
  if (!event.ctrlKey) return;  // the page scrolls; with Ctrl, or two fingers, the map zooms
  event.preventDefault();
  zoom(Math.exp(-event.deltaY / 300));
}, { passive: false });
$("map").addEventListener("keydown", (event) => {
  if (hasModifier(event)) return;
  const step = 60 / view.scale;
  const move = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] }[event.key];
  if (move) {
    view.x += move[0];
    view.y += move[1];
    drawMap();
  } else if ("+=-".includes(event.key)) zoom(event.key === "-" ? 1 / 1.4 : 1.4);
  else return;
  event.preventDefault();
});
const held = new Map();  // where each finger was last
$("map").addEventListener("pointerdown", (event) => {
  held.set(event.pointerId, event);
  $("map").setPointerCapture(event.pointerId);
});
$("map").addEventListener("pointermove", (event) => {
  const before = held.get(event.pointerId);
  if (!before) return;
  held.set(event.pointerId, event);
  const other = [...held.values()].find((one) => one !== event);
  if (other) {  // two fingers zoom
    const gap = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
    if (gap(before)) view.scale *= gap(event) / gap(before);
  } else {
    view.x -= (event.clientX - before.clientX) / view.scale;
    view.y += (event.clientY - before.clientY) / view.scale;
  }
  drawMap();
});
for (const kind of ["pointerup", "pointercancel"]) {
  $("map").addEventListener(kind, (event) => held.delete(event.pointerId));
}
addEventListener("resize", drawMap);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawMap);

function showCurve(rows) {
  const of = (name) => rows.filter((row) => row[name] !== null).map((row) => [row.step, row[name]]);
  const points = of("train_bpc"), checked = of("valid_bpc");
  if (points.length < 2) {
    $("curve").replaceChildren(make("p", { text: "This model came without the log of its training." }));
    return;
  }
  const [width, height, left, bottom] = [640, 260, 46, 30];
  const last = points.at(-1)[0];
  const values = points.map((point) => point[1]);
  const low = Math.min(...values, ...checked.map((point) => point[1])) * 0.98, high = Math.min(Math.max(...values), Math.min(...values) * 2);
  const x = (step) => left + ((width - left - 8) * step) / last;
  const y = (value) => 8 + ((height - bottom - 8) * (high - Math.min(value, high))) / (high - low);
  const space = "http://www.w3.org/2000/svg";
  const node = (tag, attributes, text) => {
    const element = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Bits per character in training, from ${values[0].toFixed(2)} to ${values.at(-1).toFixed(2)} after ${last} steps` });
  for (let i = 0; i <= 4; i++) {
    const value = low + ((high - low) * i) / 4;
    svg.append(node("line", { x1: left, x2: width - 8, y1: y(value), y2: y(value) }));
    svg.append(node("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, value.toFixed(2)));
  }
  svg.append(node("text", { x: width - 8, y: height - 8, "text-anchor": "end" }, `${last.toLocaleString("en")} steps`));
  const path = (some) => some.map(([step, value], i) => `${i ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  svg.append(node("path", { d: path(points) }));
  let told = "Bits per character on the training text, with dropout.";
  if (checked.length) {
    svg.append(node("path", { d: path(checked), class: "checked" }));
    for (const [step, value] of checked) svg.append(node("circle", { cx: x(step), cy: y(value), r: 4, class: "checked" }));
    told += ` Dots: on the validation text, ${checked.at(-1)[1].toFixed(3)} at the end.`;
  }
  $("curve").replaceChildren(make("p", { text: told }), svg);
}

function showResults({ figures, tables }) {
  $("figures").replaceChildren(...figures.map((name) => make("figure", {},
    make("img", { src: `/api/v1/results/figures/${encodeURIComponent(name)}`, alt: `Figure ${name}; its figures stand in the tables below`, loading: "lazy" }),
    make("figcaption", { text: name }))));
  if (!figures.length) $("figures").append(make("p", { text: "Nothing here." }));
  $("tables").replaceChildren(...tables.map((name) => {
    const box = make("div", { className: "table-box", tabindex: "0", role: "region", "aria-label": `Table ${name}` });
    const details = make("details", {}, make("summary", { text: name }), box);
    details.addEventListener("toggle", async () => {
      if (!details.open || box.firstChild) return;
      try {
        showTable(box, await (await ask(`results/tables/${encodeURIComponent(name)}`)).json());
      } catch (error) {
        problem(error.message);
      }
    });
    return details;
  }));
}

function showTable(box, { columns, rows }) {
  const line = (tag, cells, scope) => make("tr", {}, ...cells.map((text) => make(tag, scope ? { text, scope } : { text })));
  const short = (text) => (/^-?\d+\.\d{4,}$/.test(text) ? Number(text).toFixed(3) : text);
  box.replaceChildren(make("table", {},
    make("thead", {}, line("th", columns, "col")),
    make("tbody", {}, ...rows.map((row) => line("td", row.map(short))))));
}

// --- begin -----------------------------------------------------------------------------------

document.querySelectorAll(".shade").forEach((element) => shade(element, Number(element.dataset.bits)));
open(tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash) || tabs[0]);
try {
  const about = await (await ask("model")).json();
  const told = [`${about.recipe} on ${about.data}`, `${about.lexemes.toLocaleString("en")} lexemes`];
  if (about.valid_bpc) told.push(`${about.valid_bpc.toFixed(3)} bits per character`);
  $("about").textContent = told.join(" · ");
  for (const id of ["read-cache", "write-cache"]) {
    $(id).disabled = !about.tuned;
    if (!about.tuned) $(id).parentElement.title = "This model has not been tuned for it: spellonce tune RUN";
  }
} catch (error) {
  problem(error.message);
}
