// SPDX-License-Identifier: Apache-2.0
"use strict";

// Functions of both pages.

const get = (id) => document.getElementById(id);

function element(tag, text, attributes) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  return e;
}

const amount = (n) => n.toLocaleString();
const count = (n, one, many) => amount(n) + " " + (n === 1 ? one : many || one + "s");
const size = (n) => n < 1e9 ? (n / 1e6).toFixed(1) + "\u00a0MB" : (n / 1e9).toFixed(1) + "\u00a0GB";

// clock returns the time of day, with the date unless that is today.
function clock(time) {
  const t = new Date(time);
  return t.toDateString() === new Date().toDateString() ? t.toLocaleTimeString() : t.toLocaleString();
}

// setText changes a text only if it differs, so that screen readers are not told again.
function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// refill replaces the content of an element if its key has changed. If that removes the element that has the focus, the one that has the
// same id then gets it, or else the one with the id other.
function refill(e, key, items, other) {
  if (e.dataset.key === key) return;
  e.dataset.key = key;
  const had = document.activeElement;
  e.replaceChildren(...items());
  const next = had !== document.body && document.activeElement === document.body && (had.id && get(had.id) || get(other));
  if (next) next.focus({ preventScroll: true });
}

// sure asks a question and returns whether the answer is yes.
function sure(question) {
  const dialog = get("sure");
  setText(get("question"), question);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}

// once does what a button is for, unless that is being done.
async function once(b, press) {
  if (b.getAttribute("aria-disabled")) return;
  b.setAttribute("aria-disabled", "true");
  try {
    await press();
  } finally {
    b.removeAttribute("aria-disabled");
  }
}

const longestLabel = 40; // characters of a region's label that are drawn

// regionText returns what is drawn at a region: its label, of which the end may be left out, and its score.
function regionText(r) {
  const label = [...(r.label || "").slice(0, 4 * longestLabel).replace(/[\p{Cc}\p{Bidi_C}]/gu, "\ufffd")];
  const text = label.length > longestLabel ? label.slice(0, longestLabel - 1).join("") + "…" : label.join("");
  return [text, r.score && r.score.toFixed(2)].filter(Boolean).join(" ");
}

// drawReport draws what was found in a frame over its picture: the frame's number, and regions. Their pixels are those of the canvas, or of
// a frame whose width and height are in the report.
function drawReport(canvas, report) {
  const g = canvas.getContext("2d"), size = Math.max(12, Math.round(canvas.height / 40));
  const sx = report.width ? canvas.width / report.width : 1, sy = report.height ? canvas.height / report.height : 1;
  const label = (text, left, y) => {
    const width = g.measureText(text).width + size / 2, x = Math.max(0, Math.min(left, canvas.width - width));
    g.fillStyle = "rgba(0, 0, 0, 0.6)";
    g.fillRect(x, y, width, size * 1.3);
    g.fillStyle = "#fff";
    g.fillText(text, x + size / 4, y + size);
  };
  g.font = size + "px system-ui, sans-serif";
  g.lineWidth = Math.max(2, size / 8);
  g.strokeStyle = "#8fd14f";
  for (const found of report.results || [])
    for (const r of found.regions || []) {
      g.strokeRect(r.x * sx, r.y * sy, r.width * sx, r.height * sy);
      const text = regionText(r);
      if (text) label(text, r.x * sx, Math.max(0, r.y * sy - size * 1.3));
    }
  label("frame " + report.frame, 0, 0);
  canvas.dataset.frame = report.frame;
}
