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
    ...(exposure || []).map((e) => ({ camera: e.source, id: "exposure-" + e.source, title: "Exposure", state: e, values: () => exposureValues(e), path: "api/v1/sources/" + encodeURIComponent(e.source) + "/exposure" })),
    ...(white_balance || []).map((b) => ({ camera: sourceOf(b.isp, parts), id: "balance-" + b.isp, title: "White balance (" + b.isp + ")", state: b, together: true, path: "api/v1/isp/" + encodeURIComponent(b.isp) + "/white_balance",
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
