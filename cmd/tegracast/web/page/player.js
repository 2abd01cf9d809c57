// SPDX-License-Identifier: Apache-2.0
"use strict";

const ahead = 3; // seconds of frames that are asked for before they are shown
const keptSpans = 4; // of frames
const patience = 10000; // ms for an answer
// Whether it can be known which picture a video shows while it plays. Firefox gives VideoFrame other times.
const exact = "VideoFrame" in window && !navigator.userAgent.includes("Firefox");

// ask sends a request, and returns the answer, which comes within patience. It throws an Error with the appliance's words if there is none, or
// a refusal; again is then the time in seconds after which to ask again, if that helps.
async function ask(path, options) {
  let r;
  try {
    r = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(patience), ...options });
  } catch (e) {
    throw new Error("no answer from the appliance: " + e.message);
  }
  if (!r.ok) throw Object.assign(new Error((await r.text().catch(String)).trim()), { again: r.status === 503 && Number(r.headers.get("Retry-After")) });
  return r;
}

// A Player plays a recording: it draws each picture on a canvas, with what was found in that very frame. changed is called when what is shown
// changes, and failed with words when it cannot go on.
class Player {
  constructor(path, video, canvas, changed, failed) {
    Object.assign(this, { path, video, canvas, changed, failed });
    this.spans = []; // of frames that were loaded: { begin, end, frames }, by their times in seconds
    this.at = null; // time of the picture on the canvas, or after a search within it; null: not known
    this.within = false; // which of the two
    this.frame = null; // the frame that it shows; null: not known
    this.loading = false;
    this.ended = false;
    this.on = new AbortController();
    const listen = (kind, take) => video.addEventListener(kind, take, { signal: this.on.signal });
    for (const kind of ["play", "pause", "ended", "timeupdate", "loadedmetadata"]) listen(kind, changed);
    listen("error", () => this.explain());
    if (exact) return;
    listen("pause", () => { video.currentTime = video.currentTime; }); // shows which picture it is
    listen("seeked", () => video.paused && this.show(video, video.currentTime, true));
  }

  // open shows the first picture. The video ends with the frame that is the last one now, also if the recording goes on.
  async open() {
    const span = await this.load(0);
    if (!span || this.ended) return;
    this.last = span.last;
    const next = (now, meta) => {
      if (this.ended) return;
      this.video.requestVideoFrameCallback(next);
      this.draw(meta);
    };
    this.video.requestVideoFrameCallback(next);
    this.video.src = this.path + "/video.mp4?to=" + (this.last + 1);
  }

  // load loads the frames from a time on.
  async load(seconds) {
    if (this.loading) return null;
    this.loading = true;
    try {
      const query = new URLSearchParams({ from: Math.max(0, seconds).toFixed(6) + "s" });
      if (this.last !== undefined) query.set("to", this.last + 1);
      const span = await (await this.askPatiently(this.path + "/frames?" + query)).json();
      const frames = span.frames.map((f) => ({ at: span.begin + f.seconds, ...f.note }));
      this.spans = [...this.spans, { begin: span.begin, end: span.more ? frames.at(-1).at : Infinity, frames }].slice(-keptSpans);
      this.mark();
      return span;
    } catch (e) {
      if (!this.ended) this.failed(e.message);
    } finally {
      this.loading = false;
    }
    return null;
  }

  // askPatiently is ask, again and again while the appliance reads the recording, and says so.
  async askPatiently(path) {
    for (let told = false; ; told = true) {
      try {
        const answer = await ask(path);
        if (told) this.failed("");
        return answer;
      } catch (e) {
        if (this.ended || !e.again) throw e;
        this.failed(e.message);
        await new Promise((done) => setTimeout(done, e.again * 1000));
      }
    }
  }

  // find returns the span with a time, and the index of the frame that is nearest to it, or null if that is not loaded.
  find(seconds) {
    const span = this.spans.findLast((s) => seconds > s.begin - 0.001 && seconds < s.end - 0.0001);
    if (!span) return null;
    let low = 0, high = span.frames.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (span.frames[middle].at <= seconds + 0.00002) low = middle;
      else high = middle - 1;
    }
    const next = !this.within && span.frames[low + 1];
    return { span, index: next && next.at - seconds < seconds - span.frames[low].at ? low + 1 : low };
  }

  // draw draws the picture that the video has now. That may be another one than the one that it is called for: its timestamp says which.
  // Without timestamps that is only known while the video stands still, and until then nothing is drawn over the picture.
  draw(meta) {
    if (!exact) return this.show(this.video, this.video.paused && !this.video.seeking ? meta.mediaTime : null, false);
    let picture;
    try {
      picture = new VideoFrame(this.video);
    } catch {
      return; // a video that has just begun may have none (InvalidStateError)
    }
    this.show(picture, picture.timestamp / 1e6, false);
    picture.close();
  }

  // show draws a picture of a time.
  show(picture, at, within) {
    const canvas = this.canvas, { videoWidth: width, videoHeight: height } = this.video;
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    canvas.getContext("2d").drawImage(picture, 0, 0, width, height);
    Object.assign(this, { at, within, frame: null });
    delete canvas.dataset.frame;
    this.changed();
    this.mark();
  }

  // mark draws what was found in the frame of the picture, if that is known and not drawn. Otherwise it loads it.
  mark() {
    if (this.at === null || this.ended) return;
    const found = this.find(this.at);
    if (found && !this.frame) {
      this.frame = found.span.frames[found.index];
      drawReport(this.canvas, this.frame);
    }
    if (!found) this.load(this.at);
    else if (!this.find(this.at + ahead)) this.load(found.span.end);
    this.changed();
  }

  // step shows the picture by picks before or after the one that is shown.
  step(by) {
    this.video.pause();
    const found = this.at === null ? null : this.find(this.at), frames = found ? found.span.frames : [];
    const to = found && frames[found.index + by], after = to && frames[found.index + by + 1];
    this.video.currentTime = Math.max(0, to ? to.at + (after ? (after.at - to.at) / 2 : 0.001) : this.video.currentTime + by / 30);
  }

  // explain tells why the video cannot be played.
  async explain() {
    if (this.ended || !this.video.getAttribute("src")) return;
    try {
      await ask(this.video.src, { headers: { Range: "bytes=0-0" } });
      this.failed("this browser cannot play the recording: " + (this.video.error ? this.video.error.message : ""));
    } catch (e) {
      this.failed(e.message);
    }
  }

  end() {
    this.ended = true;
    this.on.abort();
    this.video.removeAttribute("src");
    this.video.load();
  }
}
