// SPDX-License-Identifier: Apache-2.0
"use strict";

let loaded = null; // the version of the text that was loaded
let loadedText = ""; // that text

// edited reports whether the text has changes that would be lost.
const edited = () => loaded !== null && get("text").value !== loadedText;

// number shows the numbers of the text's lines.
function number() {
  const n = get("text").value.split("\n").length;
  setText(get("numbers"), Array.from({ length: n }, (_, i) => i + 1).join("\n"));
}

// showOrigin says where the configuration is from, and what becomes of a change.
function showOrigin(c) {
  const installed = c.installed || "the default configuration";
  get("origin").textContent = c.kept
    ? "This was changed on the page and replaces " + installed + ", also after a restart. On the appliance, tegracast config diff shows the difference."
    : "This is " + installed + ". " + (c.keeps ? "A change is saved in the service's state folder and replaces it, also after a restart."
      : "A change lasts until the next restart or reload: there is no state folder.");
  if (c.ignored) get("origin").textContent += " A saved configuration exists but is not used; the log says why. Revert to installed file deletes it.";
  get("reset").hidden = !c.kept && c.keeps && !c.ignored;
}

async function load() {
  const r = await fetch("api/v1/config");
  if (!r.ok) throw new Error((await r.text()).trim());
  loaded = r.headers.get("ETag");
  const c = await r.json();
  get("text").value = c.text;
  loadedText = get("text").value; // as the browser writes line ends
  number();
  showOrigin(c);
}

// goTo selects a line of the text, and shows it.
function goTo(line) {
  const text = get("text"), lines = text.value.split("\n");
  const from = lines.slice(0, line - 1).reduce((n, l) => n + l.length + 1, 0);
  text.focus();
  text.setSelectionRange(from, from + (lines[line - 1] || "").length);
  text.scrollTop = Math.max(0, line - 5) * text.scrollHeight / lines.length;
}

function showMistakes(list) {
  get("mistakes").replaceChildren(...(list || []).map((m) => {
    const item = element("li"), b = element("button", m.message, { type: "button" });
    b.addEventListener("click", () => goTo(m.line));
    item.append(b);
    return item;
  }));
}

// wait keeps the buttons from being pressed, and the text as it is, while a request is on its way. The one that was pressed gets the focus again.
function wait(on) {
  const buttons = ["check", "apply", "again", "reset"].map(get);
  if (on) wait.pressed = document.activeElement;
  for (const b of buttons) b.disabled = on;
  get("apply").disabled = on || loaded === null;
  get("text").readOnly = on;
  if (!on && document.activeElement === document.body && buttons.includes(wait.pressed)) wait.pressed.focus();
}

// ask sends a request of the editor and shows the result: done for a text without mistakes, refused for another one.
async function ask(method, path, headers, refused, done, follow) {
  const verdict = get("verdict");
  verdict.textContent = "Checking…";
  showMistakes([]);
  wait(true);
  try {
    const body = method === "DELETE" ? undefined : get("text").value;
    const r = await fetch(path, { method, headers, body });
    const answer = (r.headers.get("Content-Type") || "").startsWith("application/json") ? await r.json() : null;
    if (!answer) throw new Error((await r.text()).trim());
    showMistakes(answer.mistakes);
    verdict.textContent = answer.good ? done(answer) : refused + count(answer.mistakes.length, "mistake") + ".";
    if (answer.good && follow) await follow();
  } catch (e) {
    verdict.textContent = "Failed: " + e.message;
  } finally {
    wait(false);
  }
}

const changed = (a) => "Applied" + (a.warning ? ", but " + a.warning : "") + ". Changed: " + ((a.changed || []).join(", ") || "nothing");

// become has the appliance work by another text, and loads what is used then. Nothing can be pressed until it is there.
function become(method, headers) {
  return ask(method, "api/v1/config", headers, "Refused; nothing changed: ", changed,
    () => load().catch((e) => { get("verdict").textContent += ". The text cannot be reloaded: " + e.message; }));
}

// again loads the text once more.
async function again() {
  wait(true);
  try {
    await load();
    get("verdict").textContent = "Loaded.";
    showMistakes([]);
  } catch (e) {
    get("verdict").textContent = e.message;
  } finally {
    wait(false);
  }
}

get("editor").addEventListener("toggle", () => {
  if (get("editor").open && loaded === null) again();
});
get("check").addEventListener("click", () => ask("POST", "api/v1/config/check", {}, "The text has ", () => "No mistakes found."));
get("apply").addEventListener("click", () => become("PUT", { "If-Match": loaded || "*" }));
const lose = () => !edited() || confirm("Discard the changes that were not applied?");
get("again").addEventListener("click", () => lose() && again());
get("reset").addEventListener("click", () => lose() && become("DELETE", {}));
get("text").addEventListener("input", number);
get("text").addEventListener("scroll", () => { get("numbers").scrollTop = get("text").scrollTop; });
addEventListener("beforeunload", (e) => edited() && e.preventDefault());
