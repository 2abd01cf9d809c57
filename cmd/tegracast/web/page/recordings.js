// SPDX-License-Identifier: Apache-2.0
"use strict";

const every = 5000; // ms between two looks at the list

let newest = { files: [], folders: [], more: false }; // the last list
let older = []; // files that were asked for beyond it
let more = false; // there are older ones than those
let player = null;
let first = null, last = null; // numbers of the frames to be downloaded
const rows = new Map(); // by file

const instant = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 };

const pathOf = (f) => "api/v1/recordings/" + encodeURIComponent(f.file);
const seconds = (s) => s < 60 ? s.toFixed(2) + " s" : Math.floor(s / 3600) + ":" + new Date(s * 1000).toISOString().slice(14, 19);
// A recording of a stream can be played, unless it is known to be of JPEG pictures.
const playable = (f) => f.file.endsWith(".mp4") && f.encoding !== "jpeg";

function tell(text, bad) {
  setText(get("state"), text);
  get("state").className = bad ? "bad" : "good";
}

const chosen = () => get("filter").value;
const shownFiles = () => [...newest.files, ...older].filter((f) => !chosen() || f.output === chosen());

// look asks for the newest files.
async function look() {
  try {
    const list = await (await ask("api/v1/recordings")).json();
    const names = new Set(list.files.map((f) => f.file)), end = list.files.at(-1);
    older = end && older.length ? [...newest.files, ...older].filter((f) => !names.has(f.file) && new Date(f.begin) < new Date(end.begin)) : [];
    if (!older.length) more = list.more;
    newest = list;
    tell(count(list.files.length + older.length, "file") + (more ? " and older ones" : ""));
    document.title = "Recordings";
    get("scroll").classList.remove("old");
    show();
  } catch (e) {
    tell(e.message, true);
    document.title = "No answer – Recordings";
    get("scroll").classList.add("old");
  }
}

function show() {
  refill(get("folders"), JSON.stringify(newest.folders), () => newest.folders.map((d) => element("li",
    d.folder + ": " + (d.error || size(d.free_bytes) + " free of " + size(d.total_bytes)), d.error ? { class: "bad" } : {})));
  const outputs = [...new Set([...newest.files, ...older].map((f) => f.output).concat(chosen() || []))].sort();
  const now = chosen();
  refill(get("filter"), JSON.stringify(outputs), () => [element("option", "All", { value: "" }), ...outputs.map((o) => element("option", o, { value: o }))]);
  get("filter").value = now;
  const files = shownFiles(), hanging = newest.folders.some((d) => d.error);
  for (const file of rows.keys()) if (!files.some((f) => f.file === file)) rows.delete(file);
  refill(get("files"), JSON.stringify(files.map((f) => f.file)), () => files.map((f) => rowOf(f).row), "files-title");
  for (const f of files) showFile(rowOf(f), f);
  get("scroll").hidden = !files.length;
  get("none").hidden = files.length > 0;
  setText(get("none"), hanging ? "Files of a disk that does not answer cannot be listed." :
    newest.folders.length ? "Nothing has been recorded" + (now ? " by " + now : "") + "." : "No output is recorded.");
  get("more").hidden = !more;
}

function action(f, what, label, press) {
  const b = element("button", what, { type: "button", id: what + "-" + f.file, "aria-label": label + " " + f.file });
  b.addEventListener("click", () => once(b, press));
  return b;
}

// rowOf returns the row of a file, whose cells showFile fills.
function rowOf(f) {
  if (rows.has(f.file)) return rows.get(f.file);
  const row = element("tr"), cells = Array.from({ length: 7 }, () => element("td")), actions = element("td");
  const play = action(f, "Play", "Play", () => open(f)), remove = action(f, "Delete", "Delete", () => removeFile(f));
  remove.className = "bad";
  actions.append(play, " ", action(f, "Download", "Download", () => download(pathOf(f))), " ", remove);
  row.append(element("th", f.file, { scope: "row" }), actions, ...cells);
  const x = { row, cells, play };
  rows.set(f.file, x);
  return x;
}

function showFile(x, f) {
  const known = Boolean(f.encoding), unknown = f.error || "–";
  const texts = [
    f.output, new Date(f.begin).toLocaleString(), known ? seconds(f.seconds) : "–",
    known ? amount(f.frames) + (f.frames ? " (" + f.first_frame + "–" + f.last_frame + ")" : "") : "–", size(f.bytes),
    known ? f.width + "×" + f.height + " " + f.encoding : "–", f.error ? [f.state, f.error].filter(Boolean).join(": ") : f.state || unknown,
  ];
  texts.forEach((text, i) => setText(x.cells[i], text));
  x.cells[6].className = f.error || f.state === "not finished" ? "bad" : "";
  x.play.hidden = !playable(f);
}

// download lets the browser save what a path gives, by the name in the answer, unless the appliance refuses it.
async function download(path) {
  setText(get("said"), "");
  try {
    await ask(path, { headers: { Range: "bytes=0-0" } });
    element("a", "", { href: path, download: "" }).click();
  } catch (e) {
    setText(get("said"), "It cannot be downloaded: " + e.message);
  }
}

async function removeFile(f) {
  if (!await sure("Delete " + f.file + "? It cannot be brought back.")) return;
  try {
    await ask(pathOf(f), { method: "DELETE" });
    setText(get("said"), f.file + " was deleted.");
    older = older.filter((x) => x.file !== f.file);
    if (player && player.file === f.file) close();
  } catch (e) {
    setText(get("said"), f.file + " was not deleted: " + e.message);
  }
  await look();
}

// open plays a file from its beginning.
async function open(f) {
  close();
  get("player").hidden = false;
  setText(get("playing"), f.file);
  get("playing").focus();
  if (!("requestVideoFrameCallback" in HTMLVideoElement.prototype)) return fail("this browser cannot play recordings; download the file instead");
  player = new Player(pathOf(f), get("video"), get("canvas"), showPosition, fail);
  player.file = f.file;
  await player.open();
}

function close() {
  if (player) player.end();
  player = first = last = null;
  get("canvas").width = 300; // empties it
  delete get("canvas").dataset.frame;
  get("player").hidden = true;
  fail("");
  showSpan();
  showPosition();
}

const fail = (text) => setText(get("trouble-played"), text);

// showPosition shows what is known of the picture that is shown.
function showPosition() {
  const video = get("video"), frame = player && player.frame, length = Number.isFinite(video.duration) ? video.duration : 0;
  setText(get("play"), player && !video.paused && !video.ended ? "Pause" : "Play");
  get("position").max = length;
  if (document.activeElement !== get("position") || !video.seeking) get("position").value = video.currentTime;
  get("position").setAttribute("aria-valuetext", seconds(video.currentTime) + (frame ? ", frame " + frame.frame : ""));
  setText(get("time"), seconds(video.currentTime) + " of " + seconds(length));
  const at = frame && (frame.exposure_start_us || frame.captured_us);
  setText(get("caption"), frame ? "Frame " + frame.frame + (at ? ", " + new Date(at / 1000).toLocaleString(undefined, instant) : "") : "");
  for (const id of ["from", "to"]) get(id).disabled = !frame;
}

function showSpan() {
  setText(get("span"), first === null && last === null ? "" : "Frames " + (first ?? "from the first") + " to " + (last ?? "the last"));
  get("cut").disabled = first === null && last === null;
}

// cut downloads the chosen frames as a video.
function cut() {
  const query = new URLSearchParams();
  if (first !== null) query.set("from", first);
  query.set("to", (last ?? player.last) + 1);
  return download(player.path + "/video.mp4?" + query);
}

get("play").addEventListener("click", () => {
  const video = get("video");
  if (video.paused || video.ended) video.play().catch((e) => e.name === "AbortError" || fail(e.message));
  else video.pause();
});
get("back").addEventListener("click", () => player && player.step(-1));
get("forth").addEventListener("click", () => player && player.step(1));
get("position").addEventListener("input", () => { get("video").currentTime = Number(get("position").value); });
get("from").addEventListener("click", () => {
  first = player.frame.frame;
  if (last !== null && last < first) last = null;
  showSpan();
});
get("to").addEventListener("click", () => {
  last = player.frame.frame;
  if (first !== null && last < first) first = null;
  showSpan();
});
get("cut").addEventListener("click", () => once(get("cut"), cut));
get("close").addEventListener("click", () => {
  const play = player && get("Play-" + player.file);
  close();
  (play || get("files-title")).focus();
});
get("filter").addEventListener("change", show);
get("more").addEventListener("click", () => once(get("more"), async () => {
  try {
    const list = await (await ask("api/v1/recordings?before=" + encodeURIComponent([...newest.files, ...older].at(-1).file))).json();
    older = [...older, ...list.files];
    more = list.more;
    show();
  } catch (e) {
    setText(get("said"), e.message);
  }
}));
const wanted = new URLSearchParams(location.search).get("output");
if (wanted) {
  get("filter").append(element("option", wanted, { value: wanted }));
  get("filter").value = wanted;
}
// The address may have the key, which the browser keeps as a cookie from now on.
if (location.search) history.replaceState(null, "", location.pathname);
showSpan();
look();
setInterval(() => document.hidden || look(), every);
document.addEventListener("visibilitychange", () => document.hidden || look());
