// SPDX-License-Identifier: Apache-2.0
"use strict";

const wallRate = 1000; // ms between two pictures of the wall
const everyView = "\n"; // shown instead of an output: the wall

let chosen = null; // the output that is to be shown, or everyView
let shown = null; // what is shown: another one while the chosen one does not exist; null: nothing can be
let watch = null; // by WebRTC, if it is
let streams = new Set(); // outputs that can be watched by WebRTC
let pictured = new Set(); // outputs that have JPEG pictures
let wall = []; // outputs on the wall: the first that can be shown of each source
let still = null; // when the shown picture came, in ms; null: none has come

// wantedPictures returns what this tab wants of the feed: the least time between two pictures in ms, by output.
function wantedPictures() {
  if (shown === everyView) return { pictures: new Map(wall.map((name) => [name, wallRate])) };
  return { pictures: new Map(shown && !watch && pictured.has(shown) ? [[shown, 0]] : []) };
}

// An Easel shows pictures in an image. While one loads, only the newest of those that come is kept. One that does not come within patience
// is given up. The appliance may send a newer picture than the one that is asked for: seen is called with the tag of the picture shown.
class Easel {
  constructor(image) {
    this.image = image;
  }

  show(url, seen) {
    this.next = { url, seen };
    if (!this.loading) this.load();
  }

  async load() {
    const { url, seen } = this.loading = this.next, mine = this.loading;
    this.next = null;
    let picture;
    try {
      const r = await fetch(url, { signal: AbortSignal.timeout(patience) });
      if (!r.ok) throw new Error(r.statusText);
      picture = URL.createObjectURL(await r.blob());
      if (mine === this.loading) {
        this.image.src = picture;
        await this.image.decode();
        if (mine === this.loading) seen(tagOf(r.headers.get("ETag")));
      }
    } catch {} // the next one may come
    if (picture) URL.revokeObjectURL(picture);
    if (mine !== this.loading) return;
    this.loading = null;
    if (this.next) this.load();
  }

  clear() {
    this.next = this.loading = null;
    this.image.removeAttribute("src");
  }
}

// tagOf returns the tag of a picture, which begins with the frame's number, from its ETag or its URL.
const tagOf = (text) => (/\d+-[0-9a-f]+(?="?$)/.exec(text) || [""])[0];

const keptNotices = 64;
const notices = new Map(); // of the output that is shown, by the tag of their picture
let stillTag = ""; // of the picture that is shown

// markStill shows the picture on a canvas with the regions that were found in its frame, if there are any and the notice has come.
function markStill() {
  const picture = get("picture"), canvas = get("canvas"), notice = notices.get(stillTag), found = Boolean(notice && notice.results);
  picture.dataset.frame = stillTag.split("-")[0];
  picture.hidden = found;
  canvas.hidden = !found;
  if (!found) return;
  [canvas.width, canvas.height] = [picture.naturalWidth, picture.naturalHeight];
  canvas.getContext("2d").drawImage(picture, 0, 0);
  drawReport(canvas, { frame: notice.sequence, ...notice });
}

const easel = new Easel(get("picture"));
const easels = new Map(); // of the wall, by output

// showPicture shows a picture of which the feed tells.
function showPicture(p) {
  if (shown === everyView) {
    const e = easels.get(p.output);
    if (e) e.easel.show(p.url, () => { e.at = performance.now(); });
  } else if (p.output === shown && !watch) {
    const tag = tagOf(p.url);
    notices.set(tag, p);
    if (notices.size > keptNotices) notices.delete(notices.keys().next().value);
    if (tag === stillTag) markStill();
    easel.show(p.url, (shownTag) => {
      still = performance.now();
      stillTag = shownTag;
      markStill();
    });
  }
}

// playable reports whether this browser can show an output by WebRTC.
const playable = (name) => streams.has(name) && Watch.possible();

// showable reports whether an output can be shown now.
const showable = (name) => pictured.has(name) || playable(name);

// hiddenText returns why an output cannot be shown now.
function hiddenText(o) {
  if (o.stopped) return o.name + " is stopped";
  if (o.state === "retrying") return o.name + ": " + retryText(o);
  if (o.state === "ended") return o.name + " has ended" + (o.error ? ": " + o.error : "");
  return o.name + " cannot be shown" + (o.whep ? ": this browser cannot play WebRTC" : ": only outputs fed by an isp can be");
}

// show shows an output, by WebRTC if that is possible, or as JPEG pictures. pictures forbids WebRTC.
function show(name, pictures) {
  hideLive();
  const other = name !== shown;
  shown = name;
  still = null;
  const all = name === everyView, picture = get("picture"), canvas = get("canvas");
  get("single").hidden = all;
  get("wall").hidden = !all;
  if (all) showWall();
  else {
    const only = !pictured.has(name), stream = playable(name) && (only || !pictures);
    easel.clear();
    notices.clear();
    stillTag = "";
    if (other) {
      canvas.width = 300; // empties it
      delete canvas.dataset.frame;
    }
    picture.hidden = true;
    canvas.hidden = !stream;
    picture.alt = "Live picture of output " + name;
    canvas.setAttribute("aria-label", picture.alt);
    get("full").hidden = !showable(name);
    if (stream && !document.hidden) {
      const mine = watch = new Watch(name, canvas, (played) => played || only ? setTimeout(() => watch === mine && show(name), 2000) : show(name, true));
    }
  }
  for (const b of get("choice").children) b.setAttribute("aria-pressed", String(b.dataset.name === name));
  sayWanted();
}

// showAgain shows what was shown before the page was hidden, or had no answer.
function showAgain() {
  if (shown !== null) show(shown);
}

function hideLive() {
  if (watch) watch.end();
  watch = null;
}

function showWall() {
  refill(get("wall"), wall.join("\n"), () => {
    easels.clear();
    return wall.map(wallItem);
  }, "live-title");
}

// wallItem returns the element of the wall that shows an output.
function wallItem(name) {
  const image = element("img", undefined, { alt: "" }), b = element("button", undefined, { type: "button", id: "wall-" + name }), age = element("small", "");
  b.append(image, element("span", name), age);
  b.addEventListener("click", () => {
    choose(name);
    get("choice").querySelector("[aria-pressed=true]").focus();
  });
  easels.set(name, { easel: new Easel(image), image, age, at: null });
  const item = element("li");
  item.append(b);
  return item;
}

// sourceOf returns the source of an output's frames.
function sourceOf(name, parts) {
  const from = new Map(parts.map((p) => [p.name, p.from]));
  for (let i = 0; from.get(name) && i < parts.length; i++) name = from.get(name);
  return name;
}

function choose(name) {
  chosen = name;
  show(name);
}

// showChoice offers the outputs that can be shown, and the wall if they show several sources. The chosen one keeps its place while it cannot
// be shown, and is shown again when it can.
function showChoice(outputs, parts) {
  const could = showable(shown);
  pictured = new Set(outputs.filter((o) => o.picture).map((o) => o.name));
  streams = new Set(outputs.filter((o) => o.whep).map((o) => o.name));
  const names = outputs.map((o) => o.name).filter((name) => showable(name) || name === chosen);
  const bySource = new Map();
  for (const name of names) if (pictured.has(name) && !bySource.has(sourceOf(name, parts))) bySource.set(sourceOf(name, parts), name);
  wall = [...bySource.values()].slice(0, 16);
  const all = wall.length > 1 ? [everyView, ...names] : names;
  refill(get("choice"), JSON.stringify(all), () => all.map((name) => {
    const b = element("button", name === everyView ? "All cameras" : name, { type: "button", id: "show-" + name.trim(), "aria-pressed": String(name === shown), "data-name": name });
    b.addEventListener("click", () => choose(name));
    return b;
  }), "live-title");
  if (chosen === null && all.length) chosen = all[0];
  const best = all.includes(chosen) ? chosen : all.length ? all[0] : null;
  if (best !== shown || could !== showable(best)) show(best);
  else if (shown === everyView) showWall();
}

// showAge shows how old the pictures are, and dims old ones.
function showAge() {
  const now = performance.now();
  const text = (at) => at === null ? "waiting for a picture" : now - at > patience ? "no new picture for " + Math.round((now - at) / 1000) + " s" : "";
  for (const e of easels.values()) {
    setText(e.age, text(e.at));
    e.image.classList.toggle("old", text(e.at) !== "");
  }
  if (shown === everyView) return;
  if (shown === null || !showable(shown)) {
    const reasons = (next ? next.outputs : []).filter((o) => shown === null ? o.state !== "running" : o.name === shown).map(hiddenText);
    return setText(get("caption"), reasons.join("; ") || "No live picture: only outputs fed by an isp have one.");
  }
  const at = watch ? watch.drawnAt : still, old = text(at), frame = (watch ? get("canvas") : get("picture")).dataset.frame;
  get("single").classList.toggle("old", old !== "");
  setText(get("caption"), shown + (watch ? " over WebRTC" : playable(shown) ? " as JPEG pictures because WebRTC could not connect" : "") +
    (old ? ": " + old : frame ? ", frame " + frame : ""));
}

get("full").addEventListener("click", () => get("single").requestFullscreen().catch((e) => setText(get("caption"), String(e))));
setInterval(showAge, 500);
