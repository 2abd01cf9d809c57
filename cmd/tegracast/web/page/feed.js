// SPDX-License-Identifier: Apache-2.0
"use strict";

const keptSamples = 300; // five minutes
const silence = 5000; // ms without an event; then the connection is opened again
const forgotten = 15000; // ms without a word of a tab; then it is gone

// withSample returns the samples of the last minutes with a new one. Numbers that begin again belong to a new run of the appliance.
function withSample(samples, s) {
  return samples.length && s.number <= samples.at(-1).number ? [s] : [...samples.slice(1 - keptSamples), s];
}

// A Feed receives the appliance's state over one connection (GET api/v1/stream) and passes it on to tabs. In a shared worker it serves
// all tabs of the browser: a browser has only six HTTP/1.1 connections to a host.
class Feed {
  constructor() {
    this.tabs = new Map(); // by port: the pictures that a tab wants, the least time between two, and when it last said so
    this.samples = [];
    this.records = [];
    this.status = null;
    this.id = ""; // of the last event
    this.wanted = "";
    setInterval(() => this.check(), 1000);
  }

  // hear handles a message of a tab: what it wants, or that nobody looks at it any more.
  hear(port, message) {
    if (message.gone) this.tabs.delete(port);
    else {
      if (!this.tabs.has(port)) port.postMessage({ kind: "history", samples: this.samples, records: this.records });
      this.tabs.set(port, { ...message, at: Date.now() });
    }
    this.connect();
  }

  tell(message) {
    for (const port of this.tabs.keys()) port.postMessage(message);
  }

  // connect opens the stream that the tabs need together, or none.
  connect() {
    const tabs = [...this.tabs.values()];
    const pictures = [...new Set(tabs.flatMap((t) => t.pictures))].sort().slice(0, 16);
    // Each tab loads the pictures itself: with many tabs they come seldom, so that the connections stay free for what is asked.
    const every = Math.max(Math.min(...tabs.map((t) => t.every)), 60 * (tabs.length - 1));
    const wanted = tabs.length ? "pictures=" + pictures.map(encodeURIComponent).join(",") + "&every=" + every : "";
    if (wanted === this.wanted) return;
    this.wanted = wanted;
    this.open();
  }

  open() {
    if (this.source) this.source.close();
    this.source = null;
    if (!this.wanted) return;
    this.heard = Date.now();
    const source = this.source = new EventSource("api/v1/stream?" + this.wanted + "&after=" + this.id);
    const on = (kind, keep) => source.addEventListener(kind, (e) => {
      this.heard = Date.now();
      this.id = e.lastEventId;
      const data = JSON.parse(e.data);
      if (keep) keep(data);
      this.tell({ kind, data });
    });
    on("status");
    on("picture");
    on("sample", (s) => { this.samples = withSample(this.samples, s); });
    on("log", (r) => { this.records = [...this.records.slice(-199), r]; });
    source.addEventListener("error", () => this.explain(source));
  }

  // explain asks why there is no stream.
  async explain(source) {
    try {
      const r = await fetch("api/v1/status", { cache: "no-store", signal: AbortSignal.timeout(silence) });
      if (!r.ok) this.tell({ kind: "trouble", why: (await r.text()).trim() });
    } catch (e) {
      if (e.name !== "TimeoutError") this.tell({ kind: "trouble", why: e.message });
    }
    // The browser opens a stream again that was cut, but not one that was refused.
    if (source.readyState === EventSource.CLOSED && source === this.source) setTimeout(() => source === this.source && this.open(), 1000);
  }

  // check forgets tabs that are gone, and opens a stream again from which nothing comes.
  check() {
    for (const [port, tab] of this.tabs) if (Date.now() - tab.at > forgotten) this.tabs.delete(port);
    this.connect();
    if (this.source && Date.now() - this.heard > silence) this.open();
  }
}

if ("SharedWorkerGlobalScope" in self) {
  const feed = new Feed();
  self.addEventListener("connect", (e) => {
    const port = e.ports[0];
    port.onmessage = (m) => feed.hear(port, m.data);
  });
}

// openFeed returns a function that sends the feed what this tab wants. The feed calls told with each message. A tab whose browser has no
// shared workers, as on some phones, or cannot load this one, has a feed of its own.
function openFeed(told) {
  let send, wanted = null;
  const own = () => {
    const feed = new Feed(), port = { postMessage: told };
    send = (message) => feed.hear(port, message);
    if (wanted) send(wanted);
  };
  try {
    const worker = new SharedWorker("feed.js");
    worker.port.onmessage = (m) => told(m.data);
    worker.onerror = own;
    send = (message) => worker.port.postMessage(message);
  } catch {
    own();
  }
  return (message) => send(wanted = message);
}
