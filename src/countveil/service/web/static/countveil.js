// Sliders, copying and cancelling. The page works without any of it.
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
}

// A slider whose field is empty stands where the number was found: its first step is one that works.
function rest(root) {
  const found = document.getElementById("fact-D")?.dataset;
  for (const slider of found ? root.querySelectorAll("input[type=range][data-for]") : []) {
    const value = { D: found.foundD, eta: found.foundEta, n0: found.foundN0 }[slider.dataset.for];
    if (value && document.getElementById(slider.dataset.for).value === "") place(slider, Number(value));
  }
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
