// SPDX-License-Identifier: Apache-2.0
"use strict";

const boxes = new Map(); // by the output's name

// askOutput sends a request for an output and shows the result; a failure at the element wrong. It returns the answer, or null.
async function askOutput(o, path, method, done, wrong = "said") {
  const r = await fetch(path, { method }).catch((e) => e), failure = r.ok ? "" : r.text ? (await r.text()).trim() : String(r);
  sayOf(o, "said", r.ok && done ? done + " at " + clock(Date.now()) : "");
  if (failure || wrong !== "said") sayOf(o, wrong, failure);
  return r.ok ? r : null;
}

function sayOf(o, what, text) {
  const e = get(what + "-" + o.name);
  if (e) e.textContent = text;
}

// once does what a button is for, unless that is being done.
async function once(b, press) {
  if (b.getAttribute("aria-disabled")) return;
  b.setAttribute("aria-disabled", "true");
  await press();
  b.removeAttribute("aria-disabled");
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
  const name = /filename="([^"]*)"/.exec(r.headers.get("Content-Disposition") || ""), url = URL.createObjectURL(await r.blob());
  element("a", "", { href: url, download: name ? name[1] : path }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
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
function address(o, what, text, note, remove) {
  const item = element("li"), place = element("div");
  place.append(element("span", what), element("code", text), note || "");
  item.append(place, button(o, "copy-" + text, "Copy", "Copy " + text + " of", () => copy(text).then(() => sayOf(o, "said", "copied"), (e) => sayOf(o, "said", String(e)))), remove || "");
  return item;
}

const onlyOn = (host, url) => /\/\/(127\.|localhost|\[::1])/.test(url) && element("small", "only on " + host);

function addresses(o, path) {
  const rows = (o.to || []).map((to) => {
    const trouble = (o.troubles || {})[to];
    const remove = () => askOutput(o, path + "/destinations/" + encodeURIComponent(to), "DELETE", "removed");
    return address(o, to.includes("://") ? "Published to" : "Sent to", to, trouble && element("small", trouble, { class: "bad" }),
      (o.added || []).includes(to) && button(o, "remove-" + to, "Remove", "Remove the destination " + to + " of", remove));
  });
  if (o.rtsp) rows.push(address(o, "VLC, ffplay (RTSP)", o.rtsp, onlyOn(get("host").textContent, o.rtsp)));
  const whep = new URL(encodeURIComponent(o.name) + "/whep", location.href).href;
  if (o.whep) rows.push(address(o, "Browser (WebRTC/WHEP)", whep, onlyOn("this machine", whep)));
  return rows;
}

// adder returns the form that adds a destination.
function adder(o, path) {
  const form = element("form"), b = element("button", "Add", { "aria-label": "Add a destination of " + o.name });
  const hint = element("small", "An even port for RTP; RTCP uses the next one.", { id: "hint-" + o.name }), wrong = element("p", "", { id: "wrong-" + o.name, class: "bad", role: "alert" });
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
const othersOf = (o) => (o.readers || []).filter((r) => !isOwn(r));
const readerText = (r) => (isOwn(r) ? "this page" : r.address) + ", " + r.by + ": " + count(r.frames, "frame") + (r.lost ? ", " + amount(r.lost) + " lost" : "");

// sure asks a question and returns whether the answer is yes.
function sure(question) {
  const dialog = get("sure");
  setText(get("question"), question);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}

// switchOutput starts an output, or stops it, after a question if somebody would miss it.
async function switchOutput(o, path) {
  if (o.stopped) return askOutput(o, path + "/start", "POST", "started");
  const others = othersOf(o).length;
  const ends = (others ? " " + count(others, "reader") + " will be cut off." : "") + (o.record ? " Nothing is recorded until you start it again." : "");
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
  box.readers.append(element("summary"), element("ul"));
  const files = [
    ["JPEG", ".jpg", o.picture, "The picture that the page shows"], ["PNG", ".png", o.picture, "The picture at full size, without loss"],
    ["DNG", ".dng", o.samples, "The sensor's samples, for a raw converter"], ["SDP", ".sdp", o.sdp, "The description of the stream, which VLC and ffplay open"],
  ].filter((f) => f[2]);
  if (files.length) row.append(element("span", "Save"));
  for (const [kind, end, , title] of files) row.append(button(o, "save-" + kind, kind, "Save " + kind + " of", () => save(o, name + end), title));
  if (o.trigger) row.append(button(o, "trigger", "Trigger", "Trigger", () => askOutput(o, "record/" + name + "/trigger", "POST", "triggered"), "Save the frames around now"));
  box.switch = button(o, "switch", "", "", () => switchOutput(box.output, box.path));
  row.append(box.switch, box.said);
  return [title, box.is, box.addresses, box.readers, o.sdp ? adder(o, box.path) : "", row];
}

// isText says what an output does.
function isText(o) {
  const r = o.recording;
  if (o.state === "retrying") return retryText(o);
  if (!r || o.error) return o.state + (o.error ? ": " + o.error : "");
  return (r.waiting ? "waiting for a trigger" : r.file ? (o.trigger ? "saving " : "recording ") + r.file.split("/").pop() + ", " + size(r.bytes) : o.state) +
    "; " + size(r.free_bytes) + " free in " + r.folder;
}

function showOutput(box, o) {
  box.output = o;
  box.item.className = "output " + o.state;
  refill(box.item, JSON.stringify([o.sends, o.sdp, o.picture, o.samples, o.record, o.trigger]), () => newBox(box, o), "streams-title");
  setText(box.is, isText(o));
  refill(box.addresses, JSON.stringify([o.to, o.added, o.rtsp, o.whep, o.troubles]), () => addresses(o, box.path), "title-" + o.name);
  const others = othersOf(o).length, all = o.readers || [], texts = all.map(readerText), [summary, rows] = box.readers.children;
  box.readers.hidden = !all.length;
  setText(summary, [others && count(others, "reader"), others < all.length && "this page"].filter(Boolean).join(" and "));
  refill(rows, texts.join("\n"), () => texts.map((t) => element("li", t)));
  setText(box.switch, (o.stopped ? "Start" : "Stop") + (o.record ? " recording" : ""));
  box.switch.setAttribute("aria-label", box.switch.textContent + " " + o.name);
}

function showOutputs(outputs) {
  refill(get("outputs"), JSON.stringify(outputs.map((o) => o.name)), () => outputs.map(({ name }) => {
    if (!boxes.has(name)) boxes.set(name, { item: element("li"), said: element("span", "", { role: "status", id: "said-" + name }) });
    return boxes.get(name).item;
  }), "streams-title");
  for (const o of outputs) showOutput(boxes.get(o.name), o);
}
