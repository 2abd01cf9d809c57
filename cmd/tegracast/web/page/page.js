// SPDX-License-Identifier: Apache-2.0
"use strict";

const patience = 3000; // ms; then what is shown is not known to be so any more

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

// mute keeps what is shown from being taken for the present, and from being used. The element that had the focus gets it again.
function mute(on) {
  silent = on;
  document.querySelector("main").inert = on;
  get("summary").classList.toggle("old", on);
  if (on) {
    focused = document.activeElement;
    if (next) {
      showTroubles(next);
      showOutputs(next.outputs || []);
    }
    for (const e of document.querySelectorAll(".is")) setText(e, "was " + e.textContent);
  } else if (focused !== document.body && document.activeElement === document.body) focused.focus({ preventScroll: true });
}

// age tells since when there is no state, at once if it is known that none comes.
function age(trouble) {
  const time = performance.now() - answered;
  if (document.hidden || !trouble && !silent && time < patience) return;
  if (trouble) why = ": " + trouble;
  tell("no answer for " + Math.round(time / 1000) + " s" + why, "bad", "no answer");
  if (!silent) mute(true);
}

// marks has the losses of each part that were marked as seen. A browser may refuse to store them: then they last as long as the page.
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
  for (const p of s.parts || []) marks[p.name] = { since: p.since, lost: p.lost, losses: p.losses, at: s.time };
  try {
    localStorage.setItem("seen", JSON.stringify(marks));
  } catch {} // they last as long as the page
}

// reasons says in words why frames were dropped.
const reasons = {
  missing: "did not arrive", queue: "could not keep up", pool: "out of memory", stage: "processing failed", fence: "GPU work failed", sink: "output failed",
  detached: "while opening or closing", damaged: "damaged", late: "too late",
};

function lossText(p) {
  const mark = markOf(p), at = markOf(p).at, seen = mark.losses || {};
  const causes = Object.entries(p.losses || {}).map(([reason, n]) => [n - (seen[reason] || 0), reasons[reason] || reason]).filter(([n]) => n > 0);
  return "lost " + count(unseen(p), "frame") + (at ? " since you marked them at " + clock(at) : p.since ? " since " + clock(p.since) : "") +
    (p.lost_at ? ", last at " + clock(p.lost_at) : "") +
    (causes.length ? " (" + causes.map(([n, cause]) => (causes.length > 1 ? amount(n) + " " : "") + cause).join(", ") + ")" : "");
}

// retryText says why an output is not running, and when the next attempt is, which nobody knows without an answer.
function retryText(o) {
  const wait = o.next && !silent ? ", next attempt in " + Math.max(0, Math.round((new Date(o.next) - Date.now()) / 1000)) + " s" : "";
  return "retrying" + (o.since ? " since " + clock(o.since) : "") + wait + (o.error ? ": " + o.error : "");
}

// troubles lists what an operator has to know, beside losses. Destinations with the same trouble share a line.
function troubles(s) {
  const list = [], places = new Map();
  if (s.stalled) list.push(s.stalled);
  for (const o of s.outputs || []) {
    const part = (s.parts || []).find((p) => p.name === o.name);
    if (o.state === "retrying") list.push(o.name + ": " + retryText(o) + (part && unseen(part) ? "; " + lossText(part) : ""));
    else if (o.error) list.push(o.name + " ended: " + o.error);
    for (const [to, text] of Object.entries(o.troubles || {})) places.set(text, [...places.get(text) || [], to + " (" + o.name + ")"]);
  }
  for (const [text, at] of places) list.push(at.join(", ") + ": " + text);
  for (const p of s.parts || []) if (p.kind === "source" && p.state === "ended") list.push(p.name + " has played to its end");
  if (s.bus && !s.bus.connected) list.push("Message bus " + s.bus.server + " is not connected" + (s.bus.trouble ? ": " + s.bus.trouble : ""));
  for (const r of s.board || []) if (r.alarm) list.push(r.name + " is above its limit; the board is throttled");
  return list;
}

function showTroubles(s) {
  const list = troubles(s), lost = (s.parts || []).filter((p) => unseen(p) > 0);
  const texts = [...list, ...lost.filter((p) => p.state !== "retrying").map((p) => p.name + " " + lossText(p))];
  get("trouble").hidden = !texts.length;
  get("seen").hidden = !lost.length;
  refill(get("troubles"), texts.join("\n"), () => texts.map((t) => element("li", t)));
  return list.length;
}

function showSummary(s) {
  const outputs = s.outputs || [], parts = s.parts || [];
  const addresses = outputs.filter((o) => o.state === "running").reduce((n, o) => n + (o.to || []).filter((to) => !(o.troubles || {})[to]).length, 0);
  const readers = outputs.reduce((n, o) => n + othersOf(o).length, 0);
  get("summary").hidden = false;
  setText(get("receivers"), [addresses && count(addresses, "address", "addresses"), readers && count(readers, "reader")].filter(Boolean).join(", ") || "nobody");
  const last = samples.at(-1), network = outputs.filter((o) => o.to || o.rtsp || o.whep);
  const slowest = Math.max(-1, ...network.map((o) => last && last.parts[o.name] ? last.parts[o.name][2] : -1));
  setText(get("delay"), slowest < 0 ? "–" : ms(slowest * 1000) + " ms");
  const fresh = parts.reduce((n, p) => n + unseen(p), 0), since = parts.map(sinceOf).filter(Boolean).sort()[0];
  setText(get("lost"), fresh ? amount(fresh) : "none");
  setText(get("since"), (fresh ? fresh === 1 ? " frame" : " frames" : "") + (since ? " since " + clock(since) : ""));
  get("lost").className = fresh ? "bad" : "";
}

function showState(s) {
  const back = silent;
  next = s;
  answered = performance.now();
  why = "";
  silent = false;
  setText(get("host"), s.host || "tegracast");
  setText(get("version"), "tegracast " + s.version);
  const problems = showTroubles(s);
  if (s.stalled) tell("not streaming", "bad");
  else if (!s.ready) tell(problems ? "not ready" : "starting", "bad");
  else tell("streaming" + (problems ? ", " + count(problems, "problem") : ""), problems ? "bad" : "good");
  showSummary(s);
  showOutputs(s.outputs || []);
  showChain(s.parts || []);
  showChoice(s.outputs || [], s.parts || []);
  showBoard(s);
  showLines(s.lines || []);
  showSettings(s);
  get("configuration").hidden = !s.configurable;
  if (back) {
    mute(false);
    showAgain();
  }
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
    tell("Checking…", "");
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
setInterval(() => age(""), 500);
setInterval(sayWanted, 2000);
sayWanted();
