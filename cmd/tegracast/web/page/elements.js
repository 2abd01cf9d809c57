// SPDX-License-Identifier: Apache-2.0
"use strict";

const get = (id) => document.getElementById(id);

function element(tag, text, attributes) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  return e;
}

const ms = (ns) => (ns / 1e6).toFixed(ns < 1e8 ? 1 : 0) + " ms";
const clock = (time) => new Date(time).toLocaleTimeString();
const count = (n, one, many) => n + " " + (n === 1 ? one : many || one + "s");

// setText changes a text only if it differs, so that screen readers are not told again.
function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}
