// SPDX-License-Identifier: Apache-2.0
"use strict";

// A Setter is the sliders of a camera or of an isp. values are by the keys of the request: label, limits, step, and how a value is written.
// together: a request has them all.
class Setter {
  constructor(id, { title, path, state, together }, values) {
    this.path = path;
    this.values = values;
    this.together = together;
    this.state = state;
    this.moving = new Set(); // keys of the sliders that are held
    this.inputs = {};
    this.field = element("fieldset");
    this.field.append(element("legend", title));
    if (state.has_auto) {
      const label = element("label");
      this.auto = element("input", undefined, { type: "checkbox", id: id + "-auto" });
      this.auto.addEventListener("change", () => this.send(this.auto.checked ? { auto: true } : this.all()));
      label.append(this.auto, "automatic");
      this.field.append(label);
    }
    for (const [key, v] of Object.entries(values)) {
      const label = element("label"), input = element("input", undefined, { type: "range", min: v.min, max: v.max, step: v.step, id: id + "-" + key });
      const shown = element("output", "", { for: input.id });
      input.addEventListener("input", () => { this.moving.add(key); this.say(key); });
      for (const end of ["change", "pointerup", "pointercancel", "blur"]) input.addEventListener(end, () => this.moving.delete(key));
      input.addEventListener("change", () => this.moved(key, Number(input.value)));
      label.append(element("span", v.label), input, shown);
      this.field.append(label);
      this.inputs[key] = { input, shown };
    }
    this.sending = 0;
  }

  // all is what is set now. A slider may not reach as far.
  all() {
    return Object.fromEntries(Object.keys(this.inputs).map((key) => [key, this.state[key]]));
  }

  // moved sets what one slider says, and leaves the others as they are.
  moved(key, value) {
    this.state = { ...this.state, [key]: value };
    this.send(this.together ? this.all() : { [key]: value });
  }

  say(key) {
    const i = this.inputs[key], text = this.values[key].text(Number(i.input.value));
    i.shown.textContent = text;
    i.input.setAttribute("aria-valuetext", text);
  }

  async send(setting) {
    this.sending++;
    const r = await fetch(this.path, { method: "PUT", headers: { "Content-Type": "application/json" }, body: JSON.stringify(setting) }).catch((e) => e);
    this.sending--;
    get("set").textContent = r.ok ? "set at " + clock(Date.now()) : r.text ? (await r.text()).trim() : String(r);
  }

  // show takes what is set now, unless somebody moves a slider, or a setting is on its way.
  show(state) {
    if (this.sending) return;
    this.state = state;
    if (this.auto) this.auto.checked = state.auto;
    for (const [key, i] of Object.entries(this.inputs)) {
      if (this.moving.has(key) || document.activeElement === i.input && !state.auto) continue;
      i.input.value = state[key];
      this.say(key);
    }
  }
}

const setters = new Map();

const gain = (label, max) => ({ label, min: 1, max, step: "any", text: (v) => "×" + v.toFixed(2) });

function exposureValues(e) {
  const values = {};
  if (e.has_exposure)
    values.exposure_us = { label: "exposure", min: Math.min(100, e.max_exposure_us / 100), max: e.max_exposure_us, step: "any", text: (v) => (v / 1000).toFixed(2) + " ms" };
  if (e.has_gain) values.gain = gain("gain", Math.max(16, Math.ceil(e.gain)));
  return values;
}

// showSettings shows what can be set, folded by camera if there are many. The sliders are made again when that changes.
function showSettings({ exposure, white_balance, parts }) {
  const all = [
    ...exposure.map((e) => ({ camera: e.source, id: "exposure-" + e.source, title: "Exposure", state: e, values: () => exposureValues(e), path: "api/v1/sources/" + encodeURIComponent(e.source) + "/exposure" })),
    ...white_balance.map((b) => ({ camera: sourceOf(b.isp, parts), id: "balance-" + b.isp, title: "White balance (" + b.isp + ")", state: b, together: true, path: "api/v1/isp/" + encodeURIComponent(b.isp) + "/white_balance",
      values: () => ({ red: { ...gain("red", 8), min: 0.25 }, blue: { ...gain("blue", 8), min: 0.25 } }) })),
  ];
  get("camera").hidden = !all.length;
  refill(get("settings"), JSON.stringify(all.map((x) => [x.id, x.camera, x.state.has_auto, x.state.max_exposure_us, x.state.has_exposure, x.state.has_gain])), () => {
    const cameras = new Map();
    setters.clear();
    for (const x of all) {
      setters.set(x.id, new Setter(x.id, x, x.values()));
      if (!cameras.has(x.camera)) {
        cameras.set(x.camera, element("details"));
        cameras.get(x.camera).append(element("summary", x.camera));
      }
      cameras.get(x.camera).append(setters.get(x.id).field);
    }
    for (const d of cameras.values()) d.open = cameras.size < 3;
    return [...cameras.values()];
  });
  for (const x of all) setters.get(x.id).show(x.state);
}

let loaded = null; // the version of the text that was loaded
let loadedText = ""; // that text

// edited reports whether the text has changes that would be lost.
const edited = () => loaded !== null && get("text").value !== loadedText;

// number shows the numbers of the text's lines.
function number() {
  const n = get("text").value.split("\n").length;
  setText(get("numbers"), Array.from({ length: n }, (_, i) => i + 1).join("\n"));
}

// showOrigin says where the configuration is from, and what becomes of a change.
function showOrigin(c) {
  const installed = c.installed || "the default configuration";
  get("origin").textContent = c.kept
    ? "This configuration was changed on this page. It replaces " + installed + ", even after a restart. To see the difference, run tegracast config diff on the appliance."
    : "This is " + installed + ". " + (c.keeps ? "Changes are saved in the service's state folder and replace it, even after a restart."
      : "Changes last only until the next restart or reload, because there is no state folder.");
  if (c.ignored) get("origin").textContent += " A saved configuration exists but is not used; the log says why. Revert to installed file sets it aside as tegracast.yaml.old.";
  get("reset").hidden = !c.kept && c.keeps && !c.ignored;
}

async function load() {
  const r = await fetch("api/v1/config");
  if (!r.ok) throw new Error((await r.text()).trim());
  const c = await r.json();
  loaded = r.headers.get("ETag");
  get("text").value = c.text;
  loadedText = get("text").value; // as the browser writes line ends
  number();
  showOrigin(c);
}

// goTo selects a line of the text, and shows it.
function goTo(line) {
  const text = get("text"), lines = text.value.split("\n");
  const from = lines.slice(0, line - 1).reduce((n, l) => n + l.length + 1, 0);
  text.focus();
  text.setSelectionRange(from, from + (lines[line - 1] || "").length);
  text.scrollTop = Math.max(0, line - 5) * text.scrollHeight / lines.length;
}

function showMistakes(list) {
  get("mistakes").replaceChildren(...(list || []).map((m) => {
    const item = element("li"), b = element("button", m.message, { type: "button" });
    b.addEventListener("click", () => goTo(m.line));
    item.append(b);
    return item;
  }));
}

// wait keeps the buttons from being pressed, and the text as it is, while a request is on its way. The one that was pressed gets the focus again.
function wait(on) {
  const buttons = ["check", "apply", "again", "reset"].map(get);
  if (on) wait.pressed = document.activeElement;
  for (const b of buttons) b.disabled = on;
  get("apply").disabled = on || loaded === null;
  get("text").readOnly = on;
  if (!on && document.activeElement === document.body && buttons.includes(wait.pressed)) wait.pressed.focus();
}

// ask sends a request of the editor and shows the result: done for a text without mistakes, refused for another one.
async function ask(method, path, headers, refused, done, follow) {
  const verdict = get("verdict");
  verdict.textContent = "Checking…";
  showMistakes([]);
  wait(true);
  try {
    const body = method === "DELETE" ? undefined : get("text").value;
    const r = await fetch(path, { method, headers, body });
    const answer = (r.headers.get("Content-Type") || "").startsWith("application/json") ? await r.json() : null;
    if (!answer) throw new Error((await r.text()).trim());
    showMistakes(answer.mistakes);
    verdict.textContent = answer.good ? done(answer) : refused + count(answer.mistakes.length, "mistake") + ".";
    if (answer.good && follow) await follow();
  } catch (e) {
    verdict.textContent = "Failed: " + e.message;
  } finally {
    wait(false);
  }
}

const changed = (a) => "Applied" + (a.warning ? ", but " + a.warning : "") + ". Changed: " + ((a.changed || []).join(", ") || "nothing");

// become has the appliance work by another text, and loads what is used then. Nothing can be pressed until it is there.
function become(method, headers) {
  return ask(method, "api/v1/config", headers, "Not applied: ", changed,
    () => load().catch((e) => { get("verdict").textContent += ". The text could not be reloaded: " + e.message; }));
}

// again loads the text once more.
async function again() {
  wait(true);
  try {
    await load();
    get("verdict").textContent = "Loaded.";
    showMistakes([]);
  } catch (e) {
    get("verdict").textContent = e.message;
  } finally {
    wait(false);
  }
}

get("editor").addEventListener("toggle", () => {
  if (get("editor").open && loaded === null) again();
});
get("check").addEventListener("click", () => ask("POST", "api/v1/config/check", {}, "The text has ", () => "No mistakes found."));
get("apply").addEventListener("click", () => become("PUT", { "If-Match": loaded || "*" }));
const lose = () => !edited() || confirm("Discard unapplied changes?");
get("again").addEventListener("click", () => lose() && again());
get("reset").addEventListener("click", () => lose() && become("DELETE", {}));
get("text").addEventListener("input", number);
get("text").addEventListener("scroll", () => { get("numbers").scrollTop = get("text").scrollTop; });
addEventListener("beforeunload", (e) => edited() && e.preventDefault());
