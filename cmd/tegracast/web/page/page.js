// SPDX-License-Identifier: Apache-2.0
"use strict";

const patience = 3000; // ms; then what is shown is not known to be so any more

const ms = (ns) => (ns / 1e6).toFixed(ns < 1e8 ? 1 : 0);

let answered = performance.now(); // when the last state came
let silent = false; // none comes
let why = ""; // what is known of that
let next = null; // the last state, while one is drawn
let focused = null; // what had the focus when none came

function tell(text, kind, title = text) {
  setText(get("state"), text);
  get("state").className = kind;
  document.title = (kind === "bad" ? title + " – " : "") + get("host").textContent;
}

// mute keeps what is shown from being taken for the present, and from being used. The focus comes back.
function mute(on) {
  silent = on;
  document.querySelector("main").inert = on;
  get("summary").classList.toggle("old", on);
  if (on) {
    focused = document.activeElement;
    if (next) {
      showTroubles(next);
      showOutputs(next.outputs);
    }
    for (const e of document.querySelectorAll(".is")) setText(e, "was " + e.textContent);
  } else if (focused !== document.body && document.activeElement === document.body) focused.focus({ preventScroll: true });
}

// age tells since when there is no state, at once if it is known that none comes.
function age(trouble) {
  const time = performance.now() - answered;
  if (document.hidden || !trouble && !silent && time < patience) return;
  if (trouble) why = ": " + trouble;
  tell("no answer from the appliance for " + (time < 1e5 ? Math.round(time / 1000) + " s" : Math.round(time / 6e4) + " min") + why, "bad", "no answer");
  if (!silent) mute(true);
}

// marks has the acknowledged losses of each part. They last as long as the page if the browser does not store them.
const marks = (() => {
  try {
    return JSON.parse(localStorage.getItem("seen")) || {};
  } catch {
    return {};
  }
})();
// markOf returns the mark of a part, which holds for counters that began at the same time.
const markOf = (p) => marks[p.name] && marks[p.name].since === p.since ? marks[p.name] : { lost: 0 };
const unseen = (p) => Math.max(0, p.lost - markOf(p).lost);
const sinceOf = (p) => markOf(p).at || p.since; // since when unseen counts

function markSeen(s) {
  for (const p of s.parts) marks[p.name] = { since: p.since, lost: p.lost, losses: p.losses, at: s.time };
  try {
    localStorage.setItem("seen", JSON.stringify(marks));
  } catch {} // they last as long as the page
}

// reasons says in words why frames were dropped.
const reasons = {
  missing: "did not arrive", queue: "could not keep up", pool: "out of memory", stage: "processing failed", fence: "GPU work failed", sink: "output failed",
  detached: "while not open", damaged: "damaged", late: "too late",
};

function lossText(p) {
  const mark = markOf(p), seen = mark.losses || {};
  const causes = Object.entries(p.losses || {}).map(([reason, n]) => [n - (seen[reason] || 0), reasons[reason] || reason]).filter(([n]) => n > 0);
  return "lost " + count(unseen(p), "frame") + (mark.at ? " since you acknowledged losses at " + clock(mark.at) : p.since ? " since " + clock(p.since) : "") +
    (p.lost_at ? ", last at " + clock(p.lost_at) : "") +
    (causes.length ? " (" + causes.map(([n, cause]) => (causes.length > 1 ? amount(n) + " " : "") + cause).join(", ") + ")" : "");
}

// retryText returns why an output is not running, and when the next attempt is, which nobody knows without an answer.
function retryText(o) {
  const now = new Date(next.time).getTime() + performance.now() - answered; // by the appliance's clock
  const wait = o.next && !silent ? ", next attempt in " + Math.max(0, Math.round((new Date(o.next) - now) / 1000)) + " s" : "";
  return "retrying" + (o.since ? " since " + clock(o.since) : "") + wait + (o.error ? ": " + o.error : "");
}

// unrecorded returns whether a stream is sent, but its recording has failed.
const unrecorded = (o) => o.recording && o.recording.error;

// troubles lists what an operator has to know, beside losses. Destinations with one trouble share a line.
function troubles(s) {
  const list = s.stalled ? [s.stalled] : [], places = new Map();
  for (const o of s.outputs) {
    const part = s.parts.find((p) => p.name === o.name);
    if (o.state === "retrying") list.push(o.name + ": " + retryText(o) + (part && unseen(part) ? "; " + lossText(part) : ""));
    else if (o.error) list.push(o.name + " ended: " + o.error);
    if (unrecorded(o)) list.push(o.name + " is not recorded: " + o.recording.error);
    for (const [to, text] of Object.entries(o.troubles)) places.set(text, [...places.get(text) || [], to + " (" + o.name + ")"]);
  }
  for (const [text, at] of places) list.push(at.join(", ") + ": " + text);
  for (const p of s.parts) if (p.kind === "source" && p.state === "ended") list.push(p.name + " has finished playing");
  if (s.bus && !s.bus.connected) list.push("Message bus " + s.bus.server + " is not connected" + (s.bus.trouble ? ": " + s.bus.trouble : ""));
  for (const r of s.board) if (r.alarm) list.push(r.name + " is over its limit; the board is throttling");
  return list;
}

function showTroubles(s) {
  const list = troubles(s), lost = s.parts.filter((p) => unseen(p) > 0);
  const texts = [...list, ...lost.filter((p) => p.state !== "retrying").map((p) => p.name + " " + lossText(p))];
  get("trouble").hidden = !texts.length;
  get("seen").hidden = !lost.length;
  refill(get("troubles"), texts.join("\n"), () => texts.map((t) => element("li", t)));
  return list.length;
}

function showSummary(s) {
  const { outputs, parts } = s;
  const addresses = outputs.filter((o) => o.state === "running").reduce((n, o) => n + receivingOf(o).length, 0);
  const readers = outputs.reduce((n, o) => n + othersOf(o).length, 0);
  get("summary").hidden = false;
  setText(get("receivers"), [addresses && count(addresses, "address", "addresses"), readers && count(readers, "client")].filter(Boolean).join(", ") || "nobody");
  const last = samples.at(-1), network = outputs.filter((o) => o.to.length || o.rtsp || o.whep);
  const slowest = Math.max(-1, ...network.map((o) => last && last.parts[o.name] ? last.parts[o.name][2] : -1));
  const worst = Math.max(0, ...parts.filter((p) => network.some((o) => o.name === p.name)).map((p) => p.p99_ns));
  setText(get("delay"), slowest < 0 ? "–" : ms(slowest * 1000) + " ms" + (worst ? " (99 %: " + ms(worst) + " ms)" : ""));
  const records = outputs.filter((o) => o.record || o.files), recording = records.filter((o) => o.state === "running" && !unrecorded(o)).length;
  get("records").hidden = !records.length;
  setText(get("recording"), recording + " of " + records.length);
  get("recording").className = records.some((o) => o.state === "retrying" || unrecorded(o)) ? "bad" : "";
  const fresh = parts.reduce((n, p) => n + unseen(p), 0), since = parts.map(sinceOf).filter(Boolean).sort()[0];
  setText(get("lost"), fresh ? amount(fresh) : "none");
  setText(get("since"), (fresh ? fresh === 1 ? " frame" : " frames" : "") + (since ? " since " + clock(since) : ""));
  get("lost").className = fresh ? "bad" : "";
}

function showState(s) {
  const back = silent;
  for (const list of ["outputs", "parts", "board", "lines", "clocks", "groups", "exposure", "white_balance"]) s[list] = s[list] || [];
  s.outputs = s.outputs.map((o) => ({ to: [], added: [], readers: [], troubles: {}, ...o }));
  next = s;
  answered = performance.now();
  why = "";
  if (back) mute(false);
  setText(get("host"), s.host || "tegracast");
  setText(get("version"), "tegracast " + s.version);
  const problems = showTroubles(s);
  if (s.stalled) tell("not streaming", "bad");
  else if (!s.ready) tell(problems ? "not ready" : "starting", "bad");
  else tell("streaming" + (problems ? ", " + count(problems, "problem") : ""), problems ? "bad" : "good");
  showSummary(s);
  showOutputs(s.outputs);
  showChain(s.parts);
  showChoice(s.outputs, s.parts);
  showBoard(s);
  showLines(s.lines);
  showClocks(s.clocks);
  showGroups(s.groups);
  showSettings(s);
  get("configuration").hidden = !s.configurable;
  if (back) showAgain();
}

function showBoard(s) {
  get("board").hidden = !s.board.length && !s.model;
  setText(get("model"), s.model || "");
  get("readings").replaceChildren(...s.board.map((r) =>
    element("li", r.name + " " + r.value.toFixed(1) + " " + r.unit + (r.alarm ? ": over its limit" : ""), r.alarm ? { class: "bad" } : {})));
}

// lineText describes a GPIO line.
function lineText(l) {
  const parts = [l.output ? (l.on ? "on" : "off") : "input"];
  const add = (n, one, many, always) => { if (n || always) parts.push(count(n, one, many)); };
  add(l.pulses, "pulse");
  add(l.missed_pulses, "missed pulse");
  add(l.edges, "edge", "edges", !l.output);
  add(l.lost_edges, "lost edge");
  add(l.matched_frames, "matched frame");
  add(l.errors, "error");
  if (l.pps_offset_ns) parts.push("clock offset " + (l.pps_offset_ns / 1000).toFixed(1) + " µs");
  return l.name + " (" + l.where + "): " + parts.join(", ");
}

function showLines(lines) {
  get("gpio").hidden = !lines.length;
  get("lines").replaceChildren(...lines.map((l) =>
    element("li", lineText(l), l.errors || l.lost_edges || l.missed_pulses ? { class: "bad" } : {})));
}

function showClocks(clocks) {
  get("cards").hidden = !clocks.length;
  get("clocks").replaceChildren(...clocks.map((c) => {
    const text = c.card + " follows " + c.source + ": " + c.state + (c.offset_ns === undefined ? "" : ", offset " + amount(c.offset_ns) + " ns");
    return element("li", text + ", rate " + c.rate_ppb + " ppb", c.offset_ns ** 2 < 1e14 ? {} : { class: "bad" });
  }));
}

// showGroups shows how many groups are complete, and what the latest other one lacks.
function showGroups(groups) {
  get("grouped").hidden = !groups.length;
  get("groups").replaceChildren(...groups.map((g) => {
    const gap = (g.recent || []).at(-1);
    const text = g.name + ": " + amount(g.complete) + " complete, " + amount(g.incomplete) + " incomplete" + (gap ? " (" + clock(gap.at) + ": " + gap.missing.join(", ") + ")" : "");
    return element("li", text, gap && Date.parse(next.time) - Date.parse(gap.at) < 60e3 ? { class: "bad" } : {});
  }));
}

// showRecord puts a record of the log before those that are shown. One like the last takes its place. The status that is logged each minute
// is left out.
function showRecord({ time, level, msg, ...rest }) {
  if (/^\d\d:\d\d:\d\d  /.test(msg)) return;
  const fields = Object.entries(rest).map(([k, v]) => k + "=" + (typeof v === "object" ? JSON.stringify(v) : v)).join(" ");
  const text = msg + (fields ? ": " + fields : ""), list = get("events"), last = list.firstChild;
  const times = last && last.dataset.text === text ? Number(last.dataset.times) + 1 : 1;
  if (times > 1) last.remove();
  const item = element("li", clock(time) + " " + text + (times > 1 ? " (" + times + " times)" : ""), { class: level, "data-text": text, "data-times": times });
  if (level !== "INFO") item.prepend(element("strong", level === "ERROR" ? "Error: " : level === "WARN" ? "Warning: " : ""));
  list.prepend(item);
  while (list.children.length > 200) list.lastChild.remove();
}

const chartWidth = 300, chartHeight = 20; // as in chart
const chart = '<svg viewBox="0 0 300 20" preserveAspectRatio="none" role="img"><path/></svg>';

let samples = []; // of the last minutes, the newest last
const nodes = new Map(); // by the part's name: what changes in its box

// A Row is a value of a part with its chart.
class Row {
  constructor(list, label, title) {
    this.row = element("div", undefined, { class: label.toLowerCase(), title });
    this.value = element("dd");
    const cell = element("dd");
    cell.innerHTML = chart;
    this.chart = cell.firstChild;
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
    this.chart.firstChild.setAttribute("d", path);
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
  setText(get("counted"), since ? "Losses are counted from " + clock(since) + ", or from when the step was last opened." : "");
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

const boxes = new Map(); // by the output's name

// askOutput sends a request for an output and shows the result; a failure at the element wrong. It returns the answer, or null.
async function askOutput(o, path, method, done, wrong = "said") {
  const r = await fetch(path, { method }).catch((e) => e), failure = r.ok ? "" : r.text ? (await r.text().catch(String)).trim() : String(r);
  sayOf(o, "said", r.ok && done ? done + " at " + clock(Date.now()) : "");
  if (failure || wrong !== "said") sayOf(o, wrong, failure);
  return r.ok ? r : null;
}

function sayOf(o, what, text) {
  const e = get(what + "-" + o.name);
  if (e) e.textContent = text;
}

function button(o, what, text, label, press, title) {
  const b = element("button", text, { type: "button", id: what + "-" + o.name, "aria-label": label + " " + o.name, title: title || "" });
  b.addEventListener("click", () => once(b, press));
  return b;
}

// save saves a file of an output. The answer is shown if there is none.
async function save(o, path) {
  const r = await askOutput(o, path, "GET", "");
  if (!r) return;
  const file = await r.blob().catch(String); // the connection may end within it
  if (typeof file === "string") return sayOf(o, "said", file);
  const name = /filename="([^"]*)"/.exec(r.headers.get("Content-Disposition") || ""), url = URL.createObjectURL(file);
  element("a", "", { href: url, download: name ? name[1] : path }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

// address returns an address with a button that copies it, if the browser can, and one that removes it if remove is given.
function address(o, what, text, note, remove) {
  const item = element("li"), place = element("div");
  const copy = () => navigator.clipboard.writeText(text).then(() => sayOf(o, "said", "copied"), (e) => sayOf(o, "said", String(e)));
  place.append(element("span", what), element("code", text), note || "");
  item.append(place, navigator.clipboard ? button(o, "copy-" + text, "Copy", "Copy " + text + " of", copy) : "", remove || "");
  return item;
}

const onlyOn = (host, url) => /\/\/(127\.|localhost|\[::1])/.test(url) && element("small", "only on " + host);

function addresses(o, path) {
  const rows = o.to.map((to) => {
    const trouble = o.troubles[to];
    const remove = () => askOutput(o, path + "/destinations/" + encodeURIComponent(to), "DELETE", "removed");
    return address(o, to.includes("://") ? "Published to" : "Sent to", to, trouble && element("small", trouble, { class: "bad" }),
      o.added.includes(to) && button(o, "remove-" + to, "Remove", "Remove the destination " + to + " of", remove));
  });
  if (o.rtsp) rows.push(address(o, "VLC, ffplay (RTSP)", o.rtsp, onlyOn(get("host").textContent, o.rtsp)));
  const whep = new URL(encodeURIComponent(o.name) + "/whep", location.href).href;
  if (o.whep) rows.push(address(o, "Browser (WebRTC/WHEP)", whep, onlyOn("this machine", whep)));
  return rows;
}

// adder returns the form that adds a destination.
function adder(o, path) {
  const form = element("form"), b = element("button", "Add", { id: "add-" + o.name, "aria-label": "Add a destination of " + o.name });
  const hint = element("small", "Use an even port; RTCP uses the one above it.", { id: "hint-" + o.name }), wrong = element("p", "", { id: "wrong-" + o.name, class: "bad", role: "alert" });
  const field = element("input", undefined, { id: "to-" + o.name, placeholder: "192.168.1.20:5004", autocomplete: "off", spellcheck: "false", required: "", "aria-describedby": hint.id + " " + wrong.id });
  form.append(element("label", "Also send to", { for: field.id }), field, b, hint, wrong);
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    once(b, async () => {
      const r = await askOutput(o, path + "/destinations/" + encodeURIComponent(field.value.trim()), "PUT", "added", "wrong");
      field.setAttribute("aria-invalid", !r);
      if (r) field.value = "";
      else field.focus();
    });
  });
  return form;
}

// isOwn reports whether a reader is this page, which watches by WebRTC.
const isOwn = (r) => watch && watch.session && r.session && watch.session.endsWith("/" + r.session);
// receivingOf returns the addresses that receive an output, with the servers to which it is published.
const receivingOf = (o) => o.to.filter((to) => !to.includes("://") && !o.troubles[to]);
const othersOf = (o) => o.readers.filter((r) => !isOwn(r));
const readerText = (r) => (isOwn(r) ? "this page" : r.address) + ", " + r.by + ": " + count(r.frames, "frame") + (r.lost ? ", " + amount(r.lost) + " lost" : "");

// switchOutput starts an output, or stops it, after a question if somebody would miss it.
async function switchOutput(o, path) {
  if (o.stopped) return askOutput(o, path + "/start", "POST", "started");
  const to = receivingOf(o).length, others = othersOf(o).length;
  const losers = [to && count(to, "address", "addresses"), others && count(others, "client")].filter(Boolean).join(" and ");
  const ends = (losers ? " " + losers + " will lose the stream." : "") + (o.record ? " Nothing will be recorded until you start it again." : "");
  if (!ends || await sure("Stop " + o.name + "?" + ends)) await askOutput(o, path + "/stop", "POST", "stopped");
}

// newBox makes the content of an output's box. Its parts are kept in box for what changes in them.
function newBox(box, o) {
  const name = encodeURIComponent(o.name), row = element("p", undefined, { class: "row" });
  const title = element("h3", o.name + " ", { id: "title-" + o.name, tabindex: -1 });
  title.append(element("small", o.sends));
  box.path = "api/v1/outputs/" + name;
  box.is = element("p", "", { class: "is", id: "is-" + o.name });
  box.addresses = element("ul", undefined, { class: "addresses" });
  box.readers = element("details");
  box.readers.append(element("summary", "", { id: "readers-" + o.name }), element("ul"));
  if (o.sdp && !box.form) box.form = adder(o, box.path); // what is typed stays
  const files = [
    ["JPEG", ".jpg", o.picture, "The picture that the page shows"], ["PNG", ".png", o.picture, "The picture at full size, without loss"],
    ["DNG", ".dng", o.samples, "The sensor's samples, for a raw converter"], ["SDP", ".sdp", o.sdp, "Stream description; open it in VLC or ffplay"],
  ].filter((f) => f[2]);
  if (files.length) row.append(element("span", "Save"));
  for (const [kind, end, , title] of files) row.append(button(o, "save-" + kind, kind, "Save " + kind + " of", () => save(o, name + end), title));
  if (o.trigger) row.append(button(o, "trigger", "Trigger", "Trigger", () => askOutput(o, "record/" + name + "/trigger", "POST", "triggered"), "Save the frames from just before and after this moment"));
  if (o.files) row.append(element("a", "Files", { class: "button", href: "recordings.html?output=" + name, "aria-label": "Files recorded by " + o.name }));
  box.switch = button(o, "switch", "", "", () => switchOutput(box.output, box.path));
  row.append(box.switch, box.said);
  return [title, box.is, box.addresses, box.readers, o.sdp ? box.form : "", row];
}

// isUnheard reports whether an output runs for addresses of which none receives it.
const isUnheard = (o) => o.state === "running" && o.to.length > 0 && o.to.every((to) => o.troubles[to]) && !o.readers.length;

// isText returns what an output is doing, in words.
function isText(o) {
  const r = o.recording;
  if (o.state === "retrying") return retryText(o);
  if (!r || o.error) return o.state + (o.error ? ": " + o.error : isUnheard(o) ? ", but nobody receives it" : "");
  return (r.error ? "not recorded: " + r.error : r.waiting ? "waiting for a trigger" : r.file ? (o.trigger ? "saving " : "recording ") + r.file.split("/").pop() + ", " + size(r.bytes) : o.state) +
    "; " + (r.free_bytes === undefined ? "in " : size(r.free_bytes) + " free in ") + r.folder;
}

function showOutput(box, o) {
  box.output = o;
  box.item.className = "output " + (isUnheard(o) ? "unheard" : o.state);
  refill(box.item, JSON.stringify([o.sends, o.sdp, o.picture, o.samples, o.record, o.trigger, o.files]), () => newBox(box, o), "streams-title");
  setText(box.is, isText(o));
  refill(box.addresses, JSON.stringify([o.to, o.added, o.rtsp, o.whep, o.troubles]), () => addresses(o, box.path), "title-" + o.name);
  const others = othersOf(o).length, all = o.readers, texts = all.map(readerText), [summary, rows] = box.readers.children;
  box.readers.hidden = !all.length;
  setText(summary, [others && count(others, "client"), others < all.length && "this page"].filter(Boolean).join(" and "));
  refill(rows, texts.join("\n"), () => texts.map((t) => element("li", t)));
  setText(box.switch, (o.stopped ? "Start" : "Stop") + (o.record ? " recording" : ""));
  box.switch.className = o.stopped ? "switch" : "switch bad";
  box.switch.setAttribute("aria-label", box.switch.textContent + " " + o.name);
}

function showOutputs(outputs) {
  refill(get("outputs"), JSON.stringify(outputs.map((o) => o.name)), () => outputs.map(({ name }) => {
    if (!boxes.has(name)) boxes.set(name, { item: element("li"), said: element("span", "", { role: "status", id: "said-" + name }) });
    return boxes.get(name).item;
  }), "streams-title");
  for (const o of outputs) showOutput(boxes.get(o.name), o);
}

// say tells the feed what this tab wants, which is nothing while nobody sees it.
const say = openFeed((m) => {
  if (m.kind === "status") showState(m.data);
  else if (m.kind === "sample") samples = withSample(samples, m.data);
  else if (m.kind === "log") showRecord(m.data);
  else if (m.kind === "picture") showPicture(m.data);
  else if (m.kind === "trouble") age(m.why);
  else if (m.kind === "history") {
    samples = m.samples;
    get("events").replaceChildren();
    m.records.forEach(showRecord);
  }
});

function sayWanted() {
  say(document.hidden ? { gone: true } : wantedPictures());
}

// A tab that is seen again knows nothing until the appliance has answered.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) hideLive();
  else {
    if (!silent) {
      answered = performance.now();
      tell("Checking…", "");
    }
    showAgain();
  }
  sayWanted();
});
addEventListener("pagehide", () => {
  hideLive();
  say({ gone: true });
});
addEventListener("pageshow", (e) => {
  if (!e.persisted) return;
  showAgain();
  sayWanted();
});
get("seen").addEventListener("click", () => {
  markSeen(next);
  showTroubles(next);
  showSummary(next);
  if (get("seen").hidden) get(get("trouble").hidden ? "live-title" : "trouble-title").focus();
});
// The address may have the key, which the browser keeps as a cookie from now on.
if (location.search) history.replaceState(null, "", location.pathname + location.hash);
addEventListener("DOMContentLoaded", () => { // all scripts are loaded
  answered = performance.now();
  setInterval(() => age(""), 500);
  setInterval(sayWanted, 2000);
  sayWanted();
});
