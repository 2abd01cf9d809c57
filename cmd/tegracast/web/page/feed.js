// SPDX-License-Identifier: Apache-2.0
"use strict";

const keptSamples = 300; // five minutes
const silence = 5000; // ms without an event; then the connection is opened again
const forgotten = 15000; // ms without a word of a tab; then it is gone

// withSample returns the samples of the last minutes with a new one.
const withSample = (samples, s) => [...samples.slice(1 - keptSamples), s];

// A Feed receives the appliance's state over one connection (GET api/v1/stream) and passes it on to tabs. In a shared worker it serves
// all tabs of the browser: a browser has only six HTTP/1.1 connections to a host.
class Feed {
  constructor() {
    this.tabs = new Map(); // by port: the pictures that a tab wants (least time between two, by output), when each is due, and when it last said so
    this.forget("");
    this.id = ""; // of the last event
    this.wanted = null;
    setInterval(() => this.check(), 1000);
  }

  // forget forgets what another run of the appliance has sent. start says which run it is from now on.
  forget(start) {
    this.start = start;
    this.samples = [];
    this.records = [];
  }

  // hear handles a message of a tab: what it wants, or that nobody looks at it any more. It answers, so that the tab knows that it is heard.
  hear(port, message) {
    port.postMessage({ kind: "heard" });
    const tab = this.tabs.get(port);
    if (message.gone) this.tabs.delete(port);
    else {
      if (!tab) port.postMessage(this.history());
      this.tabs.set(port, { pictures: message.pictures, due: tab ? tab.due : new Map(), at: Date.now() });
    }
    this.connect();
  }

  history() {
    return { kind: "history", samples: this.samples, records: this.records };
  }

  tell(message) {
    for (const port of this.tabs.keys()) port.postMessage(message);
  }

  // connect opens the stream that the tabs need together, or none.
  connect() {
    const tabs = [...this.tabs.values()], rates = new Map();
    // Each tab loads the pictures itself: with many tabs they come seldom, so that the connections stay free for what is asked.
    this.least = 60 * Math.max(0, tabs.filter((t) => t.pictures.size).length - 1);
    for (const t of tabs)
      for (const [name, ms] of t.pictures) rates.set(name, Math.min(rates.get(name) ?? Infinity, Math.max(ms, this.least)));
    const wanted = tabs.length ? [...rates].map((r) => r.join(":")).sort().slice(0, 16).join(",") : null;
    if (wanted === this.wanted) return;
    this.wanted = wanted;
    this.open();
  }

  open() {
    if (this.source) this.source.close();
    this.source = null;
    if (this.wanted === null) return;
    this.heard = Date.now();
    const source = this.source = new EventSource("api/v1/stream?pictures=" + this.wanted + "&after=" + this.id);
    const on = (kind, take) => source.addEventListener(kind, (e) => {
      this.heard = Date.now();
      this.id = e.lastEventId;
      const start = this.id.split(".")[0];
      if (start !== this.start) {
        this.forget(start);
        this.tell(this.history());
      }
      const message = { kind, data: JSON.parse(e.data) };
      if (kind === "picture") return this.pass(message);
      if (take) take(message.data);
      this.tell(message);
    });
    on("status");
    on("picture");
    on("sample", (s) => { this.samples = withSample(this.samples, s); });
    on("log", (r) => { this.records = [...this.records.slice(-199), r]; });
    source.addEventListener("error", () => this.explain(source));
  }

  // pass passes the notice of a picture to the tabs for which it is due.
  pass(message) {
    const now = Date.now(), name = message.data.output;
    for (const [port, tab] of this.tabs) {
      const due = tab.due.get(name) || 0;
      if (!tab.pictures.has(name) || now < due) continue;
      tab.due.set(name, Math.max(now, due + Math.max(tab.pictures.get(name), this.least)));
      port.postMessage(message);
    }
  }

  // explain asks for the same stream why there is none.
  async explain(source) {
    const asked = new AbortController(), timer = setTimeout(() => asked.abort(), silence);
    try {
      const r = await fetch(source.url, { cache: "no-store", signal: asked.signal });
      if (!r.ok) this.tell({ kind: "trouble", why: (r.status === 401 ? "please reload this page: " : "") + (await r.text()).trim() });
    } catch (e) {
      if (e.name !== "AbortError") this.tell({ kind: "trouble", why: e.message });
    }
    clearTimeout(timer);
    asked.abort(); // an answer that is no refusal would keep a place
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
// shared workers, as on some phones, or cannot load this one, has a feed of its own, and so has one that its worker does not answer any more.
function openFeed(told) {
  let send, worker, wanted = null, unanswered = 0, heard = Date.now();
  const own = () => {
    if (worker) worker.port.onmessage = worker.onerror = null;
    worker = null;
    const feed = new Feed(), port = { postMessage: told };
    send = (message) => feed.hear(port, message);
    if (wanted) send(wanted);
  };
  try {
    worker = new SharedWorker("feed.js", "2"); // another number after a change of what tab and worker tell each other: old tabs may keep the old one
    worker.port.onmessage = (m) => {
      unanswered = 0;
      heard = Date.now();
      told(m.data);
    };
    worker.onerror = own;
    send = (message) => worker.port.postMessage(message);
  } catch {
    own();
  }
  return (message) => {
    wanted = message;
    if (worker && ++unanswered > 3 && Date.now() - heard > silence) own();
    else send(message);
  };
}
