// SPDX-License-Identifier: Apache-2.0
"use strict";

const chartWidth = 300, chartHeight = 20;

let samples = []; // of the last minutes, the newest last
const nodes = new Map(); // by the part's name: what changes in its box

const svg = (tag, attributes) => {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  return e;
};

// A Row is a value of a part with its chart.
class Row {
  constructor(list, label, title) {
    this.row = element("div", undefined, { class: label.toLowerCase(), title });
    this.value = element("dd");
    this.chart = svg("svg", { viewBox: "0 0 " + chartWidth + " " + chartHeight, preserveAspectRatio: "none", role: "img" });
    this.line = svg("path", {});
    this.chart.append(this.line);
    const cell = element("dd");
    cell.append(this.chart);
    this.row.append(element("dt", label), this.value, cell);
    list.append(this.row);
  }

  // show shows a text, and a line through values, of which null ones are gaps. unit is for the text of the chart.
  show(text, values, unit, digits) {
    setText(this.value, text);
    const known = values.filter((v) => v !== null), top = Math.max(...known, 1e-9);
    let path = "", pen = "M";
    values.forEach((v, i) => {
      if (v === null) pen = "M";
      else {
        path += pen + (chartWidth - values.length + i) + " " + (chartHeight - 1 - v / top * (chartHeight - 3)).toFixed(1);
        pen = "L";
      }
    });
    this.line.setAttribute("d", path);
    this.row.classList.toggle("none", top < 1e-8);
    this.chart.setAttribute("aria-label", known.length ? "Last five minutes: " + Math.min(...known).toFixed(digits) + " to " + Math.max(...known).toFixed(digits) + unit : "No data yet");
  }
}

// newNode makes the box of a part.
function newNode(p) {
  const item = element("li"), box = element("div", undefined, { class: "part" }), name = element("h3", p.name + " "), head = element("div");
  name.append(element("small", p.kind || ""));
  const state = element("p", "", { class: "is" }), list = element("dl"), below = element("ul");
  const n = { item, box, state, below };
  head.append(name, state);
  box.append(head);
  item.append(box, below);
  if (p.kind) {
    box.append(list);
    n.rate = new Row(list, "Rate", "Frames per second, over the last three seconds");
    if (p.kind !== "source") n.delay = new Row(list, "Delay", "From the arrival of a frame's last byte until this step has finished with it: median / 99th percentile");
    n.lost = new Row(list, "Lost", "");
  }
  return n;
}

// showChain shows the parts as trees from the sources to the outputs.
function showChain(parts) {
  const names = new Set(parts.map((p) => p.name));
  const missing = [...new Set(parts.map((p) => p.from).filter((from) => from && !names.has(from)))]; // it is not open
  const all = [...missing.map((name) => ({ name, state: "not open" })), ...parts];
  refill(get("parts"), JSON.stringify(all.map((p) => [p.kind, p.name, p.from])), () => {
    nodes.clear();
    for (const p of all) nodes.set(p.name, newNode(p));
    for (const p of all) if (p.from) nodes.get(p.from).below.append(nodes.get(p.name).item);
    for (const n of nodes.values()) if (!n.below.children.length) n.below.remove();
    return all.filter((p) => !p.from).map((p) => nodes.get(p.name).item);
  });
  for (const p of all) showPart(nodes.get(p.name), p);
  const since = parts.map((p) => p.since).filter(Boolean).sort()[0];
  setText(get("counted"), since ? "Losses count since " + clock(since) + ", or since the step was last opened." : "");
}

function showPart(n, p) {
  n.box.className = "part " + p.state.replace(" ", "-");
  setText(n.state, p.state);
  if (!n.rate) return;
  const at = (i) => samples.map((s) => s.parts[p.name] && s.seconds ? i(s.parts[p.name], s) : null);
  n.rate.show(p.rate.toFixed(1) + "/s", at((c, s) => c[0] / s.seconds), " frames per second", 1);
  if (n.delay) n.delay.show(p.p50_ns ? ms(p.p50_ns) + " / " + ms(p.p99_ns) + " ms" : "–", at((c) => c[2] < 0 ? null : c[2] / 1000), " ms", 1);
  n.lost.show(amount(p.lost), at((c) => c[1]), " frames", 0);
  n.lost.row.title = "Frames lost in this step" + (p.since ? " since " + clock(p.since) : "");
  n.box.classList.toggle("losing", unseen(p) > 0);
}
