// SPDX-License-Identifier: Apache-2.0
"use strict";

const said = new Map(); // what an output answered to its buttons
const typed = new Map(); // destinations that are being written

function answerOf(name, text) {
  said.set(name, text);
  const answer = get("said-" + name);
  if (answer) answer.textContent = text;
}

// askOutput sends a request for an output and shows the result. It returns the answer, or null if the request failed.
async function askOutput(o, b, path, method, done) {
  b.setAttribute("aria-disabled", "true");
  const r = await fetch(path, { method }).catch((e) => e);
  b.removeAttribute("aria-disabled");
  answerOf(o.name, r.ok ? done && done + " at " + new Date().toLocaleTimeString() : r.text ? (await r.text()).trim() : String(r));
  return r.ok ? r : null;
}

function button(o, what, text, label, press) {
  const b = element("button", text, { type: "button", id: what + "-" + o.name, "aria-label": label });
  b.addEventListener("click", () => press(b));
  return b;
}

// actor returns a button that asks for something by POST.
function actor(o, what, text, path, done) {
  return button(o, what, text, text + " " + o.name, (b) => askOutput(o, b, path, "POST", done));
}

// saver returns a button that saves a file of an output. The answer is shown if there is none.
function saver(o, what, text, label, path) {
  return button(o, what, text, label, async (b) => {
    const r = await askOutput(o, b, path, "GET", "");
    if (!r) return;
    const name = /filename="([^"]*)"/.exec(r.headers.get("Content-Disposition") || ""), url = URL.createObjectURL(await r.blob());
    element("a", "", { href: url, download: name ? name[1] : path }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
  });
}

// copy puts a text on the clipboard, which browsers allow by its own interface only over TLS and on the machine itself.
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = element("textarea", text);
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

// address returns an address with a button that copies it, and one that removes it if remove is given.
function address(o, text, what, remove) {
  const item = element("li"), b = element("button", "Copy", { type: "button", "aria-label": "Copy " + text });
  b.addEventListener("click", () => copy(text).then(() => answerOf(o.name, "copied"), (e) => answerOf(o.name, String(e))));
  item.append(element("span", what), element("code", text), b);
  if (remove) item.append(remove);
  return item;
}

// adder returns the form that adds a destination.
function adder(o, name) {
  const form = element("form"), id = "to-" + o.name, b = element("button", "Add", { "aria-label": "Add a destination of " + o.name });
  const field = element("input", undefined, { id, placeholder: "192.168.1.20:5004", autocomplete: "off", spellcheck: "false", required: "" });
  field.value = typed.get(o.name) || "";
  field.addEventListener("input", () => typed.set(o.name, field.value));
  form.append(element("label", "Send also to", { for: id }), field, b);
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    if (!await askOutput(o, b, "api/v1/outputs/" + name + "/destinations/" + encodeURIComponent(field.value.trim()), "PUT", "added")) return;
    typed.delete(o.name);
    field.value = "";
  });
  return form;
}

function addresses(o, name) {
  const list = element("ul", undefined, { class: "addresses" });
  for (const to of o.to || []) {
    const path = "api/v1/outputs/" + name + "/destinations/" + encodeURIComponent(to);
    const remove = (o.added || []).includes(to) && button(o, "remove-" + to, "Remove", "Remove the destination " + to + " of " + o.name, (b) => askOutput(o, b, path, "DELETE", "removed"));
    list.append(address(o, to, "sent to", remove));
  }
  if (o.rtsp) list.append(address(o, o.rtsp, "RTSP"));
  if (o.whep) list.append(address(o, new URL(name + "/whep", location.href).href, "WebRTC (WHEP)"));
  return list;
}

const readerText = (r) => r.address + " by " + r.by + ": " + count(r.frames, "frame") + (r.lost ? ", lost " + r.lost : "");

// readers returns the list of the clients that receive an output.
function readers(o) {
  const list = o.readers || [], details = element("details", undefined, { id: "readers-" + o.name });
  const rows = element("ul");
  rows.append(...list.map((r) => element("li", readerText(r))));
  details.append(element("summary", count(list.length, "reader")), rows);
  return details;
}

function outputItem(o) {
  const item = element("li", undefined, { class: "output " + o.state }), name = encodeURIComponent(o.name), row = element("p", undefined, { class: "row" });
  const title = element("h3", o.name + " ");
  title.append(element("small", o.sends));
  item.append(title, element("p", "", { class: "is", id: "is-" + o.name }), addresses(o, name));
  if ((o.readers || []).length) item.append(readers(o));
  if (o.sdp) item.append(adder(o, name));
  const kinds = { JPEG: o.picture && ".jpg", PNG: o.picture && ".png", DNG: o.samples && ".dng" };
  for (const [kind, end] of Object.entries(kinds))
    if (end) row.append(saver(o, "snapshot-" + kind, "Save " + kind, "Save " + kind + " of " + o.name, name + end));
  if (o.sdp) row.append(saver(o, "sdp", "Save SDP", "Save SDP of " + o.name, name + ".sdp"));
  if (o.trigger) row.append(actor(o, "trigger", "Trigger", "record/" + name + "/trigger", "triggered"));
  const recording = o.record ? " recording" : "";
  if (o.stopped) row.append(actor(o, "switch", "Start" + recording, "api/v1/outputs/" + name + "/start", "started"));
  else row.append(actor(o, "switch", "Stop" + recording, "api/v1/outputs/" + name + "/stop", "stopped"));
  row.append(element("span", said.get(o.name) || "", { role: "status", id: "said-" + o.name }));
  item.append(row);
  return item;
}

// showOutputs shows the outputs. An output's box is made again only if it changes in more than numbers and times.
function showOutputs(outputs) {
  const list = get("outputs");
  const key = JSON.stringify(outputs, (name, v) => ["frames", "lost", "next", "since", "error"].includes(name) ? undefined : v);
  if (list.dataset.key !== key) {
    list.dataset.key = key;
    const focused = document.activeElement && document.activeElement.id;
    const open = [...list.querySelectorAll("details[open]")].map((d) => d.id);
    list.replaceChildren(...outputs.map(outputItem));
    for (const id of open) if (get(id)) get(id).open = true;
    if (focused && document.activeElement.id !== focused && get(focused)) get(focused).focus(); // it was one of these
  }
  for (const o of outputs) {
    setText(get("is-" + o.name), o.state === "retrying" ? retryText(o) : o.state + (o.error ? ": " + o.error : ""));
    (o.readers || []).forEach((r, i) => {
      const row = get("readers-" + o.name).querySelectorAll("li")[i];
      if (row) setText(row, readerText(r));
    });
  }
}
