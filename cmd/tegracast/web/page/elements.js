// SPDX-License-Identifier: Apache-2.0
"use strict";

const get = (id) => document.getElementById(id);

function element(tag, text, attributes) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  return e;
}

const ms = (ns) => (ns / 1e6).toFixed(ns < 1e8 ? 1 : 0);
const amount = (n) => n.toLocaleString();
const count = (n, one, many) => amount(n) + " " + (n === 1 ? one : many || one + "s");
const size = (n) => n < 1e9 ? (n / 1e6).toFixed(1) + " MB" : (n / 1e9).toFixed(1) + " GB";

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
