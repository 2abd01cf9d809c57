// SPDX-License-Identifier: Apache-2.0
"use strict";

const patience = 3000; // ms; then what is shown is not known to be so any more

let answered = performance.now(); // when the last state came
let silent = false; // none comes
let why = ""; // what is known of that
let next = null; // the last state, while one is drawn

function tell(text, kind) {
  setText(get("state"), text);
  get("state").className = kind;
}

// mute keeps what is shown from being taken for the present, and its buttons from being pressed.
function mute(on) {
  silent = on;
  document.querySelector("main").inert = on;
  get("summary").classList.toggle("old", on);
  for (const b of document.querySelectorAll("main :is(button, input, textarea)")) {
    if (on && !b.disabled) b.disabled = b.dataset.muted = true;
    else if (!on && b.dataset.muted) {
      b.disabled = false;
      delete b.dataset.muted;
    }
  }
}

// age tells since when there is no state, at once if it is known that none comes.
function age(trouble) {
  const time = performance.now() - answered;
  if (document.hidden || !trouble && !silent && time < patience) return;
  if (trouble) why = ": " + trouble;
  tell("no answer for " + Math.round(time / 1000) + " s" + why, "bad");
  if (!silent) mute(true);
}

// unseen returns the losses of a part that nobody has marked as seen. A mark holds for counters that began at the same time.
// A browser may refuse to store them: then they last as long as the page.
const marks = (() => {
  try {
    return JSON.parse(localStorage.getItem("seen")) || {};
  } catch {
    return {};
  }
})();
function unseen(p) {
  const mark = marks[p.name];
  return Math.max(0, p.lost - (mark && mark.since === p.since ? mark.lost : 0));
}

function markSeen(parts) {
  for (const p of parts) marks[p.name] = { since: p.since, lost: p.lost };
  try {
    localStorage.setItem("seen", JSON.stringify(marks));
  } catch {} // they last as long as the page
}

// reasons says in words why frames were dropped.
const reasons = {
  missing: "they did not arrive", queue: "slower than the frames come", pool: "no memory was free", stage: "the stage failed", fence: "work on the GPU failed", sink: "the output failed",
  detached: "it was being opened or closed", damaged: "the frame was damaged", late: "it was too far behind",
};

function lossText(p) {
  const causes = Object.entries(p.losses || {}).map(([reason, n]) => n + ": " + (reasons[reason] || reason));
  return p.name + " lost " + count(p.lost, "frame") + (p.since ? " since " + clock(p.since) : "") + (p.lost_at ? ", the last at " + clock(p.lost_at) : "") +
    (causes.length ? " (" + causes.join("; ") + ")" : "");
}

// retryText says why an output is not running, and when it is opened again.
function retryText(o) {
  const wait = o.next ? Math.max(0, Math.round((new Date(o.next) - Date.now()) / 1000)) : 0;
  return "retrying" + (o.since ? " since " + clock(o.since) : "") + ", again in " + wait + " s" + (o.error ? ": " + o.error : "");
}

// troubles lists what an operator has to know, beside what is merely so.
function troubles(s) {
  const list = [];
  if (s.stalled) list.push(s.stalled);
  for (const o of s.outputs || []) {
    if (o.state === "retrying") list.push(o.name + " is " + retryText(o));
    else if (o.error) list.push(o.name + " has ended: " + o.error);
  }
  for (const p of s.parts || []) if (p.kind === "source" && p.state === "ended") list.push(p.name + " has ended: it was played to its end");
  if (s.bus && !s.bus.connected) list.push("The message bus " + s.bus.server + " is not connected" + (s.bus.trouble ? ": " + s.bus.trouble : ""));
  for (const r of s.board || []) if (r.alarm) list.push(r.name + " is above its limit: the board slows down");
  return list;
}

function showTroubles(s) {
  const list = troubles(s), lost = (s.parts || []).filter((p) => unseen(p) > 0);
  const texts = [...list, ...lost.map(lossText)];
  get("trouble").hidden = !texts.length;
  get("seen").hidden = !lost.length;
  if (get("troubles").dataset.key !== texts.join("\n")) {
    get("troubles").dataset.key = texts.join("\n");
    get("troubles").replaceChildren(...texts.map((t) => element("li", t)));
  }
  return list.length;
}

function showSummary(s) {
  const outputs = s.outputs || [], parts = s.parts || [];
  const addresses = outputs.filter((o) => o.state === "running").reduce((n, o) => n + (o.to || []).length, 0);
  const readers = outputs.reduce((n, o) => n + (o.readers || []).length, 0);
  get("summary").hidden = false;
  setText(get("receivers"), [addresses && count(addresses, "address", "addresses"), readers && count(readers, "reader")].filter(Boolean).join(", ") || "nobody");
  const last = samples.at(-1);
  const slowest = Math.max(-1, ...parts.filter((p) => p.kind === "output").map((p) => last && last.parts[p.name] ? last.parts[p.name][2] : -1));
  setText(get("delay"), slowest < 0 ? "–" : (slowest / 1000).toFixed(1) + " ms");
  const fresh = parts.reduce((n, p) => n + unseen(p), 0), since = parts.map((p) => p.since).filter(Boolean).sort()[0];
  setText(get("lost"), (fresh ? count(fresh, "frame") : "none") + (since ? " since " + clock(since) : ""));
  get("lost").className = fresh ? "bad" : "";
}

function showState(s) {
  next = s;
  answered = performance.now();
  why = "";
  if (silent) {
    mute(false);
    showAgain();
  }
  setText(get("host"), s.host || "tegracast");
  document.title = (s.host ? s.host + " – " : "") + "tegracast";
  setText(get("version"), "tegracast " + s.version);
  const wrong = showTroubles(s);
  if (s.stalled) tell("not streaming", "bad");
  else if (!s.ready) tell(wrong ? "not ready" : "starting", "bad");
  else tell(wrong ? "streaming, with problems" : "streaming", wrong ? "bad" : "good");
  showSummary(s);
  showChain(s.parts || []);
  showOutputs(s.outputs || []);
  showChoice(s.outputs || [], s.parts || []);
  showBoard(s);
  showLines(s.lines || []);
  showSettings(s.exposure || [], s.white_balance || []);
  get("configuration").hidden = !s.configurable;
}

function showBoard(s) {
  const readings = s.board || [];
  get("board").hidden = !readings.length && !s.model;
  setText(get("model"), s.model || "");
  get("readings").replaceChildren(...readings.map((r) =>
    element("li", r.name + " " + r.value.toFixed(1) + " " + r.unit + (r.alarm ? ": above its limit" : ""), r.alarm ? { class: "bad" } : {})));
}

// lineText says what a GPIO line does.
function lineText(l) {
  const parts = [l.output ? (l.on ? "on" : "off") : "input"];
  const add = (n, what, always) => { if (n || always) parts.push(n + " " + what); };
  add(l.pulses, "pulses");
  add(l.missed_pulses, "missed");
  add(l.edges, "edges", !l.output);
  add(l.lost_edges, "lost");
  add(l.matched_frames, "matched with frames");
  add(l.errors, "errors");
  if (l.pps_offset_ns) parts.push("clock " + (l.pps_offset_ns / 1000).toFixed(1) + " µs ahead");
  return l.name + " (" + l.where + "): " + parts.join(", ");
}

function showLines(lines) {
  get("gpio").hidden = !lines.length;
  get("lines").replaceChildren(...lines.map((l) =>
    element("li", lineText(l), l.errors || l.lost_edges || l.missed_pulses ? { class: "bad" } : {})));
}

// showRecord puts a record of the log before those that are shown.
function showRecord({ time, level, msg, ...rest }) {
  const fields = Object.entries(rest).map(([k, v]) => k + "=" + (typeof v === "object" ? JSON.stringify(v) : v)).join(" ");
  const item = element("li", clock(time) + " " + msg + (fields ? ": " + fields : ""), { class: level });
  if (level !== "INFO") item.prepend(element("strong", level === "ERROR" ? "Error: " : level === "WARN" ? "Warning: " : ""));
  const list = get("events");
  list.prepend(item);
  while (list.children.length > 200) list.lastChild.remove();
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
    answered = performance.now();
    tell("asking", "");
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
  markSeen(next.parts || []);
  showTroubles(next);
  showSummary(next);
});
// The address may have the key, which the browser keeps as a cookie from now on.
if (location.search) history.replaceState(null, "", location.pathname + location.hash);
setInterval(() => age(""), 500);
setInterval(sayWanted, 2000);
sayWanted();
