// SPDX-License-Identifier: Apache-2.0
// Reads a recording with @mcap/core, by its index and from its beginning, and prints what it has as JSON. Whatever the library
// says by the console is in warnings.

import { createHash } from "node:crypto";
import { open } from "node:fs/promises";
import { McapIndexedReader, McapStreamReader } from "@mcap/core";

const result = { warnings: [], indexed: null, streamed: null };
for (const level of ["log", "info", "warn", "error"]) {
  console[level] = (...words) => result.warnings.push(words.join(" "));
}

const message = (m) =>
  [m.channelId, m.sequence, m.logTime, createHash("sha256").update(m.data).digest("hex")].join(" ");

const file = await open(process.argv[2]);
const { size } = await file.stat();

async function read(offset, length) {
  const b = new Uint8Array(Number(length));
  const { bytesRead } = await file.read(b, 0, b.length, Number(offset));
  return b.subarray(0, bytesRead);
}

async function indexed() {
  const r = await McapIndexedReader.Initialize({ readable: { size: async () => BigInt(size), read } });
  const out = { chunks: r.chunkIndexes.length, attachments: r.attachmentIndexes.length, statistics: Number(r.statistics.messageCount), messages: [] };
  for await (const m of r.readMessages({ validateCrcs: true })) {
    out.messages.push(message(m));
  }
  for await (const a of r.readAttachments({ validateCrcs: true })) {
    out.attachment = a.name;
  }
  return out;
}

async function streamed() {
  const r = new McapStreamReader({ validateCrcs: true });
  const out = { messages: [], done: false };
  for (let at = 0; at < size; at += 1 << 20) {
    r.append(await read(at, Math.min(1 << 20, size - at)));
    try {
      for (let x; (x = r.nextRecord()); ) {
        if (x.type === "Message") {
          out.messages.push(message(x));
        }
      }
    } catch (e) {
      out.broken = String(e);
      return out;
    }
  }
  out.done = r.done();
  return out;
}

try {
  result.indexed = await indexed();
} catch (e) {
  result.refused = String(e);
}
result.streamed = await streamed();
process.stdout.write(JSON.stringify(result));
