// SPDX-License-Identifier: Apache-2.0
"use strict";

const get = (id) => document.getElementById(id);
let before = new Map(); // frames of each part, at the last look
let at = 0;
let shown = null; // the output whose pictures are shown
let watch = null; // how, if it is by WebRTC
let turn = 0; // rises when something else is shown
let streams = new Set(); // outputs that can be watched by WebRTC
let pictured = new Set(); // outputs that have JPEG pictures
let answered = performance.now(); // when the appliance did so last
let silent = false; // it does not answer
let why = ""; // what is known of that
let looks = 0; // rises with each look at the state
let known = 0; // the last event that is shown
let said = new Map(); // what an output answered to its buttons

function element(tag, text, attributes) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  return e;
}

const ms = (ns) => (ns ? (ns / 1e6).toFixed(1) + " ms" : "");

// sum adds the losses, but for those that the output asked for by its rate.
function sum(dropped, own) {
  let n = 0;
  for (const [why, count] of Object.entries(dropped || {})) if (why !== own) n += count;
  return n;
}

// parts is a list of all parts of the graph, in the order of the frames.
function parts(books) {
  const list = [];
  for (const s of books.sources || []) list.push({ name: s.name, reads: "", frames: s.captured, lost: s.lost, latency: {} });
  for (const s of books.stages || []) list.push({ name: s.name, reads: "", frames: s.delivered, lost: sum(s.dropped), latency: s.latency || {} });
  for (const o of books.outputs || [])
    list.push({ name: o.name, reads: o.from, frames: o.delivered, lost: sum(o.dropped, o.name + "/rate"), dropped: o.dropped, latency: o.latency || {}, error: o.error });
  return list;
}

function showParts(list, seconds) {
  const rows = [], losses = [];
  const now = new Map();
  for (const p of list) {
    now.set(p.name, p.frames);
    const rate = before.has(p.name) && seconds > 0 ? Math.max(0, (p.frames - before.get(p.name)) / seconds).toFixed(1) : "";
    const row = element("tr");
    row.append(element("th", p.name, { scope: "row" }), element("td", p.reads), element("td", p.ended ? "ended" : (p.state || "running") === "running" ? rate : p.state),
      element("td", String(p.lost), p.lost ? { class: "bad" } : {}), element("td", ms(p.latency.p50_ns)), element("td", ms(p.latency.p99_ns)));
    rows.push(row);
    if (p.error) losses.push(p.name + ": " + p.error);
    for (const [why, n] of Object.entries(p.dropped || {})) if (n && why !== p.name + "/rate") losses.push(p.name + " lost " + n + " at " + why);
  }
  before = now;
  get("parts").replaceChildren(...rows);
  get("losses").textContent = losses.join("; ");
}

// show shows an output by WebRTC if that can be, or as one JPEG picture after the other. Without an isp there are no pictures.
function show(name, pictures) {
  shown = name;
  if (watch) watch.end();
  watch = null;
  const picture = get("picture"), canvas = get("canvas");
  const only = !pictured.has(name), stream = streams.has(name) && (only || !pictures) && Watch.possible(), mine = ++turn;
  picture.hidden = stream;
  canvas.hidden = !stream;
  picture.alt = "Live picture of output " + name;
  canvas.setAttribute("aria-label", picture.alt);
  if (document.hidden) return; // it is shown again when the page is
  if (stream) {
    picture.removeAttribute("src");
    watch = new Watch(name, canvas, (played) => played || only ? setTimeout(() => shown === name && show(name), 2000) : show(name, true));
  } else showPictures(name, picture, mine);
  get("caption").textContent = name + (stream ? " by WebRTC" : streams.has(name) ? ": JPEG pictures, since WebRTC does not get through" : "");
  for (const b of get("choice").children) b.setAttribute("aria-pressed", String(b.textContent === name));
}

const later = (time) => new Promise((done) => setTimeout(done, time));

// request fetches something that comes within the time that the appliance may be silent.
const request = (path, headers) => fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(patience) });

// showPictures asks for one picture after the other. A stream of them would hold one of the six connections that a browser has to a host,
// for all its tabs.
async function showPictures(name, picture, mine) {
  const have = {};
  while (mine === turn && !document.hidden) {
    try {
      const r = await request(encodeURIComponent(name) + ".jpg", have);
      if (r.status !== 200 && r.status !== 304) throw new Error(await r.text());
      if (r.status === 304) continue; // the appliance has waited for another one
      const url = URL.createObjectURL(await r.blob());
      if (mine === turn) picture.src = url;
      await picture.decode().catch(() => {});
      URL.revokeObjectURL(url);
      have["If-None-Match"] = r.headers.get("ETag");
    } catch {
      await later(1000); // the output may be opened again
    }
  }
}

function showOutputs(outputs) {
  pictured = new Set(outputs.filter((o) => o.picture).map((o) => o.name));
  streams = new Set(outputs.filter((o) => o.whep).map((o) => o.name));
  const seen = outputs.map((o) => o.name).filter((name) => pictured.has(name) || streams.has(name) && Watch.possible());
  const choice = get("choice");
  if ([...choice.children].map((b) => b.textContent).join("\n") !== seen.join("\n")) {
    choice.replaceChildren(...seen.map((name) => {
      const b = element("button", name, { type: "button", "aria-pressed": String(name === shown) });
      b.addEventListener("click", () => show(name));
      return b;
    }));
    if (!seen.includes(shown)) {
      if (seen.length) show(seen[0]);
      else shown = null; // it is shown again when it comes back
    }
  }
  const list = get("outputs");
  const key = JSON.stringify(outputs, (name, v) => name === "readers" ? v.length : v);
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  const focused = document.activeElement && document.activeElement.id;
  list.replaceChildren(...outputs.map(outputItem));
  if (focused && document.activeElement.id !== focused && get(focused)) get(focused).focus(); // it was one of these
}

// actor is a button that asks for something by POST. What came of it is said behind the output's buttons.
function actor(o, what, text, path, done) {
  const b = element("button", text, { type: "button", id: what + "-" + o.name, "aria-label": text + " " + o.name });
  b.addEventListener("click", async () => {
    b.setAttribute("aria-disabled", "true");
    const r = await fetch(path, { method: "POST" }).catch((e) => e);
    b.removeAttribute("aria-disabled");
    said.set(o.name, r.ok ? done + " at " + new Date().toLocaleTimeString() : r.text ? (await r.text()).trim() : String(r));
    const answer = get("said-" + o.name);
    if (answer) answer.textContent = said.get(o.name);
  });
  return b;
}

// stateText is what an output does, unless it is running.
function stateText(o) {
  if (o.state === "running") return "";
  const next = o.next ? Math.max(0, Math.round((new Date(o.next) - Date.now()) / 1000)) : 0;
  return o.state + (o.since ? " since " + new Date(o.since).toLocaleTimeString() + ", again in " + next + " s" : "") + (o.error ? " (" + o.error + ")" : "") + ", ";
}

function outputItem(o) {
  const item = element("li", "", o.state === "retrying" ? { class: "bad" } : {});
  const name = encodeURIComponent(o.name);
  item.append(element("p", o.name + ": " + stateText(o) + o.sends + (o.to ? " to " + o.to.join(", ") : "") +
    (o.rtsp ? ", " + o.rtsp : "") + (o.rtsp || o.whep ? " (" + (o.readers || []).length + " readers)" : "")));
  if (o.picture || o.samples) item.append(element("span", "Snapshot "));
  const kinds = { JPEG: o.picture && ".jpg", PNG: o.picture && ".png", DNG: o.samples && ".dng" };
  for (const [kind, end] of Object.entries(kinds))
    if (end) item.append(element("a", kind, { class: "button", href: name + end, download: o.name + end, "aria-label": "Snapshot of " + o.name + ": " + kind, id: "snapshot-" + kind + "-" + o.name }));
  if (o.sdp) item.append(element("a", "SDP file", { class: "button", href: name + ".sdp" }));
  if (o.trigger) item.append(actor(o, "trigger", "Trigger", "record/" + name + "/trigger", "triggered"));
  const recording = o.record ? " recording" : "";
  if (o.stopped) item.append(actor(o, "switch", "Start" + recording, "api/v1/outputs/" + name + "/start", "started"));
  else item.append(actor(o, "switch", "Stop" + recording, "api/v1/outputs/" + name + "/stop", "stopped"));
  item.append(element("span", said.get(o.name) || "", { role: "status", id: "said-" + o.name }));
  return item;
}

function showBoard(readings) {
  get("board").hidden = !readings.length;
  get("readings").replaceChildren(...readings.map((r) =>
    element("li", r.name + " " + r.value.toFixed(1) + " " + r.unit + (r.alarm ? ": above its limit" : ""), r.alarm ? { class: "bad" } : {})));
}

// lineText is what a GPIO line does.
function lineText(l) {
  const parts = [l.output ? (l.on ? "on" : "off") : "input"];
  const count = (n, what, always) => { if (n || always) parts.push(n + " " + what); };
  count(l.pulses, "pulses");
  count(l.missed_pulses, "missed");
  count(l.edges, "edges", !l.output);
  count(l.lost_edges, "lost");
  count(l.matched_frames, "matched with frames");
  count(l.errors, "errors");
  if (l.pps_offset_ns) parts.push("clock " + (l.pps_offset_ns / 1000).toFixed(1) + " µs ahead");
  return l.name + " (" + l.where + "): " + parts.join(", ");
}

function showLines(lines) {
  get("gpio").hidden = !lines.length;
  get("lines").replaceChildren(...lines.map((l) =>
    element("li", lineText(l), l.errors || l.lost_edges || l.missed_pulses ? { class: "bad" } : {})));
}

function tell(text, good) {
  const state = get("state");
  if (state.textContent !== text) state.textContent = text;
  state.className = good ? "good" : "bad";
}

const patience = 3000; // ms; then what is shown is not known to be so any more

// mute keeps what is shown from being taken for the present, and its buttons from being pressed.
function mute(on) {
  silent = on;
  document.querySelector("main").inert = on;
  for (const b of document.querySelectorAll("main :is(button, input, textarea)")) {
    if (on && !b.disabled) b.disabled = b.dataset.muted = true;
    else if (!on && b.dataset.muted) {
      b.disabled = false;
      delete b.dataset.muted;
    }
  }
}

// age tells since when there is no answer, at once if it is known that none comes.
function age(trouble) {
  const time = performance.now() - answered;
  if (document.hidden || !trouble && !silent && time < patience) return;
  if (trouble) why = ": " + trouble;
  tell("no answer for " + Math.round(time / 1000) + " s" + why, false);
  if (!silent) mute(true);
}

async function look() {
  if (document.hidden) return;
  const mine = ++looks;
  try {
    const r = await request("api/v1/status");
    if (!r.ok) throw new Error(await r.text());
    const s = await r.json(), now = performance.now();
    answered = now;
    why = "";
    if (silent) {
      mute(false);
      if (shown) show(shown);
    }
    get("version").textContent = s.version;
    tell(s.stalled || (s.ready ? "streaming" : "starting"), s.ready && !s.stalled);
    showParts(parts(s.books), at ? (now - at) / 1000 : 0);
    showOutputs(s.outputs || []);
    showBoard(s.board || []);
    showLines(s.lines || []);
    showSettings(s.exposure || [], s.white_balance || []);
    get("configuration").hidden = !s.configurable;
    at = now;
    if (s.events !== known) await showEvents();
  } catch (e) {
    age(e.name === "TimeoutError" ? "" : e.message);
  }
  await later(1000);
  if (mine === looks) look();
}

async function showEvents() {
  const r = await request("api/v1/events?since=" + known);
  if (!r.ok) throw new Error(await r.text());
  const list = await r.json();
  for (const e of list.events) happened(e);
  known = list.last;
}

// happened puts an event before those that are shown.
function happened({ time, level, msg, ...rest }) {
  const fields = Object.entries(rest).map(([k, v]) => k + "=" + (typeof v === "object" ? JSON.stringify(v) : v)).join(" ");
  const item = element("li", new Date(time).toLocaleTimeString() + " " + msg + (fields ? ": " + fields : ""), { class: level });
  if (level !== "INFO") item.prepend(element("strong", level === "ERROR" ? "Error: " : level === "WARN" ? "Warning: " : ""));
  const list = get("events");
  list.prepend(item);
  while (list.children.length > 100) list.lastChild.remove();
}

// A tab that nobody sees asks for nothing. One that is seen again knows nothing until the appliance has answered.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    if (watch) watch.end();
    watch = null;
    return;
  }
  answered = performance.now();
  tell("asking", false);
  if (shown) show(shown);
  look();
});
addEventListener("pagehide", () => watch && watch.end());
addEventListener("pageshow", (e) => e.persisted && shown && show(shown));
// The address may have the key, which the browser keeps as a cookie from now on.
if (location.search) history.replaceState(null, "", location.pathname);
setInterval(() => age(""), 500);
look();
