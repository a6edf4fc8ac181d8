// Sliders, copying, cancelling, and a curve that can be read with the pointer. The page works without any of it.
"use strict";
document.documentElement.classList.add("scripted");

function place(slider, value) {
  const low = Number(slider.dataset.low), high = Number(slider.dataset.high);
  if (!isFinite(value)) return;
  const at = "log" in slider.dataset
    ? Math.log(Math.max(value, low) / low) / Math.log(high / low)
    : (value - low) / (high - low);
  slider.value = Math.round(1000 * Math.min(1, Math.max(0, at)));
}

function said(slider) {
  const low = Number(slider.dataset.low), high = Number(slider.dataset.high), at = slider.value / 1000;
  let value = "log" in slider.dataset ? low * Math.pow(high / low, at) : low + (high - low) * at;
  if ("whole" in slider.dataset) return String(Math.round(value));
  if (value < 0.001) return value.toExponential(0).replace("e-0", "e-");
  return String(Number(value.toPrecision(2)));
}

function wire(root) {
  for (const slider of root.querySelectorAll("input[type=range][data-for]")) {
    if (slider.wired) continue;
    slider.wired = true;
    const field = document.getElementById(slider.dataset.for);
    const back = document.querySelector(`button[data-clear="${slider.dataset.for}"]`);
    const show = () => { slider.setAttribute("aria-valuetext", field.value || "found"); if (back) back.hidden = !field.value; };
    place(slider, field.value === "" ? Number(slider.dataset.low) : Number(field.value));
    show();
    if (back) back.onclick = () => {  // what is found again is found from the other fields
      field.value = "";
      show();
      field.focus();
      htmx.trigger(slider.form, "slid");
    };
    let waiting = 0;
    slider.addEventListener("input", () => {
      field.value = said(slider);
      show();
      window.sliderMoved = performance.now();
      clearTimeout(waiting);
      waiting = setTimeout(() => htmx.trigger(slider.form, "slid"), 30);
    });
    slider.addEventListener("keydown", event => {  // an arrow goes on until the number changes
      const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
      if (!way) return;
      event.preventDefault();
      const before = field.value;
      let at = Number(slider.value);
      do slider.value = at += way; while (said(slider) === before && at > 0 && at < 1000);
      if (said(slider) !== before) slider.dispatchEvent(new Event("input", { bubbles: true }));
    });
    field.addEventListener("input", () => { if (field.value) place(slider, Number(field.value)); else rest(document); show(); });
  }
  for (const button of root.querySelectorAll("button.copy")) {
    button.onclick = async () => {
      const text = button.parentElement.querySelector("pre").textContent;
      try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; }
      catch { getSelection().selectAllChildren(button.parentElement.querySelector("pre")); button.textContent = "Selected"; }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    };
  }
  for (const button of root.querySelectorAll("button[data-cancel]")) {
    button.onclick = () => {
      clearTimeout(stepping);
      htmx.trigger(document.querySelector(button.dataset.cancel), "htmx:abort");
      const told = document.querySelector(button.dataset.tell);
      if (told) told.textContent = told.dataset.words;
    };
  }
  rest(root);
  for (const holder of root.querySelectorAll("[data-curve]")) draw(holder);
}

// A slider whose field is empty stands where the number was found: its first step is one that works.
function rest(root) {
  const found = document.getElementById("fact-D")?.dataset;
  for (const slider of found ? root.querySelectorAll("input[type=range][data-for]") : []) {
    const value = { D: found.foundD, eta: found.foundEta, n0: found.foundN0 }[slider.dataset.for];
    if (value && document.getElementById(slider.dataset.for).value === "") place(slider, Number(value));
  }
}

function decades(least) {
  const first = Math.ceil(Math.log10(least) - 1e-9), every = Math.max(1, Math.ceil(-first / 6)), marks = [];
  for (let power = 0; power >= first; power -= every) marks.unshift(Number("1e" + power));
  return marks;
}

const resized = new ResizeObserver(entries => {
  for (const { target } of entries) {
    if (!target.isConnected) { resized.unobserve(target); target.plot?.destroy(); target.plot = null; continue; }
    const size = sizes(target);
    if (target.plot && target.plot.width !== size.width) target.plot.setSize(size);
  }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const holder of document.querySelectorAll("[data-curve]")) {
    if (!holder.plot) continue;
    holder.plot.destroy();
    holder.drawn = false;
    draw(holder);
  }
});

function sizes(holder) {
  const width = Math.max(220, Math.floor(holder.clientWidth));
  return { width, height: Math.round(width * 0.58) };
}

function draw(holder) {
  if (typeof uPlot === "undefined" || holder.drawn) return;
  const { rows, certified } = JSON.parse(holder.dataset.curve);
  if (rows.length < 2) return;
  holder.drawn = true;
  const style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue(name).trim();
  const low = Math.min(...rows.map(row => row.delta));
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--edge"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  const label = holder.querySelector("svg")?.getAttribute("aria-label") ?? holder.getAttribute("aria-label") ?? "";
  holder.replaceChildren();
  holder.setAttribute("role", "img");
  holder.setAttribute("aria-label", label);
  holder.plot = new uPlot({
    ...sizes(holder),
    cursor: { drag: { x: false, y: false } },
    scales: { x: { time: false }, y: { distr: 3, range: [Math.max(1e-15, low / 3), 1] } },
    axes: [axis, { ...axis, size: 58, splits: (_, __, least) => decades(least), filter: (_, marks) => marks, values: (_, marks) => marks.map(v => v == null ? "" : v === 1 ? "1" : v.toExponential(0)) }],
    series: [
      { label: "epsilon", value: (_, v) => v == null ? "–" : v.toPrecision(3) },
      { label: "delta", stroke: colour("--blue"), width: 2.5, points: { show: false }, value: (_, v) => v == null ? "–" : v.toExponential(2) },
    ],
    hooks: { draw: [plot => {
      const x = plot.valToPos(certified.epsilon, "x", true), y = plot.valToPos(certified.delta, "y", true);
      const pen = plot.ctx;
      pen.save(); pen.fillStyle = colour("--warm"); pen.beginPath(); pen.arc(x, y, 5 * devicePixelRatio, 0, 2 * Math.PI); pen.fill(); pen.restore();
    }] },
  }, [rows.map(row => row.epsilon), rows.map(row => row.delta)], holder);
  resized.observe(holder);
}

document.addEventListener("htmx:afterSettle", event => {
  wire(document);
  if (window.sliderMoved && event.target.id === "view") { window.sliderTook = performance.now() - window.sliderMoved; window.sliderMoved = 0; }
});
// Fields and SQL in step: after a change, unless a button was pressed in the meantime.
let stepping = 0, pressing = false, following = false;
document.addEventListener("pointerdown", event => { pressing = Boolean(event.target.closest?.("button:not([type=button])")); });
document.addEventListener("pointerup", () => { setTimeout(() => { pressing = false; }, 0); });
document.addEventListener("submit", () => clearTimeout(stepping), true);
document.addEventListener("change", event => {
  const form = event.target.closest?.("#ask-form, #controls");
  if (!form || pressing || event.target.type === "range") return;
  if (form.id === "controls") {  // Enter changes and submits: that is one request
    clearTimeout(stepping);
    stepping = setTimeout(() => htmx.trigger(form, "slid"), 30);
    return;
  }
  const button = form.querySelector(event.target.id === "sql" ? "button[value=sql]" : "button[value=fields]");
  clearTimeout(stepping);
  stepping = setTimeout(() => { following = true; form.requestSubmit(button); }, 150);
});
document.addEventListener("input", event => {  // what is being typed must not be replaced by what follows from before
  const form = event.target.closest?.("#ask-form");
  if (!form) return;
  clearTimeout(stepping);
  if (following) htmx.trigger(form, "htmx:abort");
});
document.addEventListener("htmx:beforeRequest", event => {
  const told = event.target.id === "controls" && document.getElementById("told");
  if (told) told.textContent = "";
});
document.addEventListener("htmx:afterRequest", () => { following = false; });
document.addEventListener("htmx:afterSwap", event => { if (event.target.id === "asking") clearTimeout(stepping); });
document.addEventListener("htmx:afterSettle", event => {  // the button that was pressed may be gone: go on at the answer
  if (event.target.id === "asking" && document.activeElement === document.body) document.getElementById("answer")?.focus();
});
wire(document);
