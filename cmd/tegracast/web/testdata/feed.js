// SPDX-License-Identifier: Apache-2.0
"use strict";

// It runs page/feed.js with a clock, streams and a shared worker that do what the test says, and prints each check that fails.
const { readFileSync } = require("node:fs");
const { runInNewContext } = require("node:vm");

function check(what, got, want) {
  if (JSON.stringify(got) !== JSON.stringify(want)) console.log(what + ": " + JSON.stringify(got) + ", want " + JSON.stringify(want));
}

// load returns what feed.js defines, the streams that it opens, and the clock.
function load(more) {
  const streams = [], clock = { now: 1e6 };
  class EventSource {
    constructor(url) {
      this.url = url;
      this.on = {};
      this.readyState = 0;
      streams.push(this);
    }
    addEventListener(kind, f) { this.on[kind] = f; }
    close() { this.readyState = EventSource.CLOSED; }
    emit(kind, lastEventId, data) { this.on[kind]({ lastEventId, data: JSON.stringify(data) }); }
  }
  EventSource.CLOSED = 2;
  const scope = {
    self: {}, setInterval() {}, setTimeout() {}, clearTimeout() {}, Map, AbortController, EventSource, Date: { now: () => clock.now },
    ...more,
  };
  const text = readFileSync(__dirname + "/../page/feed.js", "utf8") + "\n({ Feed, openFeed });";
  return { ...runInNewContext(text, scope), streams, clock };
}

class Port {
  constructor() { this.got = []; }
  postMessage(m) { this.got.push(m); }
  take(kind) {
    const list = this.got.filter((m) => m.kind === kind);
    this.got = this.got.filter((m) => m.kind !== kind);
    return list;
  }
}

function restarts() {
  const { Feed, streams } = load(), feed = new Feed(), port = new Port();
  feed.hear(port, { pictures: new Map() });
  streams[0].emit("sample", "7.5.0", { number: 5 });
  streams[0].emit("log", "7.5.1", { msg: "old" });
  port.got = [];
  streams[0].emit("log", "8.0.1", { msg: "new" });
  check("records of a new run", feed.records, [{ msg: "new" }]);
  check("samples of a new run", feed.samples, []);
  check("what a tab is told", port.got.map((m) => m.kind), ["history", "log"]);
}

function paces() {
  const { Feed, streams, clock } = load(), feed = new Feed(), fast = new Port(), slow = new Port(), none = new Port();
  feed.hear(fast, { pictures: new Map([["raw", 0]]) });
  check("one tab", streams.at(-1).url, "api/v1/stream?pictures=raw:0&after=");
  feed.hear(slow, { pictures: new Map([["beside", 1000], ["raw", 1000]]) });
  feed.hear(none, { pictures: new Map() });
  check("three tabs", streams.at(-1).url, "api/v1/stream?pictures=beside:1000,raw:60&after=");
  for (let i = 0; i < 100; i++, clock.now += 100) {
    streams.at(-1).emit("picture", "7.0.0", { output: "raw" });
    if (i % 10 === 0) streams.at(-1).emit("picture", "7.0.0", { output: "beside" });
  }
  const names = (port) => port.take("picture").map((m) => m.data.output).sort().join(" ");
  check("the fast tab", names(fast), Array(100).fill("raw").join(" "));
  check("the slow tab", names(slow).replace(/ raw$/, ""), [...Array(10).fill("beside"), ...Array(10).fill("raw")].join(" "));
  check("the tab without pictures", names(none), "");
}

async function explains() {
  let answer, asked;
  const fetch = async (url, options) => {
    asked = { url, signal: options.signal };
    return answer;
  };
  const { Feed, streams } = load({ fetch }), feed = new Feed(), port = new Port();
  feed.hear(port, { pictures: new Map() });
  for (const [status, text, want] of [[503, "too many\n", "too many"], [401, "no key", "please reload this page: no key"], [200, "", undefined]]) {
    answer = { ok: status === 200, status, text: async () => text };
    await feed.explain(streams[0]);
    check("status " + status, port.take("trouble").map((m) => m.why), want === undefined ? [] : [want]);
    check("what was asked", asked.url, streams[0].url);
    check("whether the answer was ended", asked.signal.aborted, true);
  }
}

function outlives() {
  const port = new Port(), told = [];
  const { openFeed, streams, clock } = load({ SharedWorker: function SharedWorker() { this.port = port; } });
  const say = openFeed((m) => told.push(m.kind));
  for (let i = 0; i < 10; i++, clock.now += 2000) {
    say({ pictures: new Map() });
    port.onmessage({ data: { kind: "heard" } });
  }
  for (let i = 0; i < 10; i++) say({ pictures: new Map() }); // many at once
  check("streams while the worker answers", streams.length, 0);
  for (let i = 0; i < 3; i++, clock.now += 2000) say({ pictures: new Map() });
  say({ pictures: new Map() });
  check("streams when it does not", streams.length, 1);
}

restarts();
paces();
outlives();
explains();
