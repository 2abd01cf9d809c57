// SPDX-License-Identifier: Apache-2.0
"use strict";

const beginLimit = 5000; // ms until the first frame; then there is another way to look
const keptReports = 256; // of frames that have not been shown

// A Watch plays an output by WebRTC (WHEP). It draws each frame on a canvas, with what was found in that very frame: frame and report have
// the same RTP timestamp. ended(played) is called when it has ended by itself.
class Watch {
  constructor(name, canvas, ended) {
    this.canvas = canvas;
    this.ended = ended;
    this.played = false;
    this.reports = new Map(); // by RTP timestamp
    this.drawn = null; // RTP timestamp of the frame on the canvas
    this.unmarked = null; // the same, if its report has not come
    this.drawnAt = null; // when that was, in ms
    this.video = document.createElement("video");
    this.video.muted = this.video.playsInline = true;
    this.peer = new RTCPeerConnection();
    this.peer.addTransceiver("video", { direction: "recvonly" });
    this.peer.addEventListener("track", (e) => this.play(e.track));
    this.peer.addEventListener("connectionstatechange", (e) => {
      if (e.target.connectionState === "failed" || e.target.connectionState === "closed") this.fail();
    });
    const channel = this.peer.createDataChannel("results");
    channel.addEventListener("message", (e) => this.keep(JSON.parse(e.data)));
    channel.addEventListener("close", () => this.fail());
    this.timer = setTimeout(() => this.played || this.fail(), beginLimit);
    this.begin(name).catch(() => this.fail());
  }

  // possible says whether this browser can.
  static possible() {
    return "RTCPeerConnection" in window && "VideoFrame" in window && "requestVideoFrameCallback" in HTMLVideoElement.prototype;
  }

  async begin(name) {
    await this.peer.setLocalDescription();
    const path = encodeURIComponent(name) + "/whep";
    const r = await fetch(path, { method: "POST", headers: { "Content-Type": "application/sdp" }, body: this.peer.localDescription.sdp });
    if (r.status !== 201) throw new Error(await r.text());
    this.session = r.headers.get("Location");
    if (!this.peer) return this.leave(); // it has ended meanwhile
    await this.peer.setRemoteDescription({ type: "answer", sdp: await r.text() });
  }

  play(track) {
    this.video.srcObject = new MediaStream([track]);
    const next = (now, frame) => {
      if (!this.peer) return;
      this.video.requestVideoFrameCallback(next);
      this.draw(frame);
    };
    this.video.requestVideoFrameCallback(next);
    this.video.play().catch(() => this.fail());
  }

  // keep keeps a report for its frame. One that comes late may find its frame drawn.
  keep(report) {
    if (report.rtp === this.unmarked) return this.mark(report);
    this.reports.set(report.rtp, report);
    if (this.reports.size > keptReports) this.reports.delete(this.reports.keys().next().value);
  }

  // draw draws the picture that the video has now. That may be a newer one than the frame that it is called for: the picture itself says
  // which one it is, by its RTP timestamp, or else by its time.
  draw(frame) {
    let picture;
    try {
      picture = new VideoFrame(this.video);
    } catch {
      return; // a video that has just begun may have none (InvalidStateError)
    }
    this.played = true;
    const canvas = this.canvas;
    const own = picture.metadata ? picture.metadata().rtpTimestamp : undefined;
    const rtp = own !== undefined ? own : Math.round(frame.mediaTime * 1e6) === picture.timestamp ? frame.rtpTimestamp : this.drawn;
    if (rtp !== this.drawn) {
      this.drawnAt = performance.now();
      if (canvas.width !== frame.width || canvas.height !== frame.height) [canvas.width, canvas.height] = [frame.width, frame.height];
      canvas.getContext("2d").drawImage(picture, 0, 0, frame.width, frame.height);
      this.drawn = this.unmarked = rtp;
      const report = this.reports.get(rtp);
      this.reports.delete(rtp);
      if (report) this.mark(report);
    }
    picture.close();
  }

  mark(report) {
    this.unmarked = null;
    drawReport(this.canvas, report);
  }

  fail() {
    if (!this.peer) return;
    this.end();
    this.ended(this.played);
  }

  // end ends the session.
  end() {
    if (!this.peer) return;
    clearTimeout(this.timer);
    const peer = this.peer;
    this.peer = null;
    peer.close();
    this.leave();
  }

  leave() {
    if (this.session) fetch(this.session, { method: "DELETE", keepalive: true }).catch(() => {}); // else it ends by itself
    this.session = null;
  }
}
