// SPDX-License-Identifier: Apache-2.0
// Writes recordings of others with @mcap/core into a folder. Byte j of image i is (40 i + 7 j) mod 256.

import { closeSync, openSync, writeSync } from "node:fs";
import { McapWriter } from "@mcap/core";

const text = new TextEncoder();
const pixels = (i, size) => Uint8Array.from({ length: size }, (_, j) => (40 * i + 7 * j) & 255);

// fields builds a message of ROS: CDR with alignment and texts that end with a zero, or the serialisation of ROS 1.
function fields(ros1) {
  const b = ros1 ? [] : [0, 1, 0, 0];
  const u32 = (v) => {
    while (!ros1 && b.length % 4) b.push(0);
    for (let i = 0; i < 4; i++) b.push((v >>> (8 * i)) & 255);
  };
  const string = (s) => {
    u32(s.length + (ros1 ? 0 : 1));
    b.push(...text.encode(s));
    if (!ros1) b.push(0);
  };
  if (ros1) u32(77);
  u32(1700000000), u32(5), string("cam");
  return { b, u32, string };
}

const image = (o, i) => {
  const f = fields(o.ros1);
  f.u32(o.h), f.u32(o.w), f.string(o.encoding), f.b.push(o.big ? 1 : 0), f.u32(o.step), f.u32(o.step * o.h);
  return Uint8Array.from([...f.b, ...pixels(i, o.step * o.h)]);
};

const compressed = (o) => {
  const f = fields(o.ros1);
  f.string(o.encoding), f.u32(3);
  return Uint8Array.from([...f.b, 255, 216, 255]);
};

// protobuf builds a message from [number, value]: a number is fixed32, the rest has a length.
const varint = (v) => (v < 128 ? [v] : [(v & 127) | 128, ...varint(v >>> 7)]);
function protobuf(list) {
  return Uint8Array.from(list.flatMap(([n, v]) => {
    if (typeof v === "number") return [(n << 3) | 5, v & 255, (v >>> 8) & 255, (v >>> 16) & 255, v >>> 24];
    const b = typeof v === "string" ? [...text.encode(v)] : [...v];
    return [(n << 3) | 2, ...varint(b.length), ...b];
  }));
}

const time = [8, ...varint(1700000000), 16, 5];
const raw = (o, i) => {
  const data = [6, pixels(i, o.step * o.h)];
  const rest = [[1, time], [2, o.w], [3, o.h], [4, o.encoding], [5, o.step]];
  return protobuf(o.first ? [data, ...rest, [7, "cam"]] : [...rest, data, [7, "cam"]]);
};
const video = (o) => protobuf([[1, time], [2, "cam"], [3, [0, 0, 1]], [4, o.encoding]]);
const picture = (o) => protobuf([[1, time], [2, [1, 2, 3]], [3, o.encoding], [4, "cam"]]);

const kinds = {
  "sensor_msgs/msg/Image": [image, "cdr", "ros2msg"],
  "sensor_msgs/Image": [image, "ros1", "ros1msg"],
  "sensor_msgs/msg/CompressedImage": [compressed, "cdr", "ros2msg"],
  "sensor_msgs/CompressedImage": [compressed, "ros1", "ros1msg"],
  "foxglove.RawImage": [raw, "protobuf", "protobuf"],
  "foxglove.CompressedImage": [picture, "protobuf", "protobuf"],
  "foxglove.CompressedVideo": [video, "protobuf", "protobuf"],
};

// write writes n images of each channel in turn.
async function write(name, options, n, channels) {
  const file = openSync(`${process.argv[2]}/${name}.mcap`, "w");
  let at = 0n;
  const writable = {
    position: () => at,
    write: async (b) => {
      writeSync(file, b);
      at += BigInt(b.length);
    },
  };
  const w = new McapWriter({ writable, ...options });
  await w.start({ profile: "ros2", library: "others" });
  const list = [];
  for (const o of channels) {
    const [make, messageEncoding, encoding] = kinds[o.schema];
    const schemaId = await w.registerSchema({ name: o.schema, encoding, data: text.encode("x") });
    const ros1 = messageEncoding === "ros1";
    const channelId = await w.registerChannel({ schemaId, topic: o.topic ?? "/cam", messageEncoding, metadata: new Map() });
    list.push([channelId, (i) => make({ ...o, ros1 }, i)]);
  }
  for (let i = 0; i < n; i++) {
    for (const [channelId, data] of list) {
      const logTime = 1700000000000000000n + BigInt(i) * 100000000n;
      await w.addMessage({ channelId, sequence: 0, logTime, publishTime: 0n, data: data(i) });
    }
  }
  await w.end();
  closeSync(file);
}

const ros = (encoding, step, more) => ({ schema: "sensor_msgs/msg/Image", encoding, w: 64, h: 48, step, ...more });
const bayer = ros("bayer_rggb8", 64);
await write("chunks", {}, 5, [bayer]);
await write("small-chunks", { chunkSize: 8000 }, 5, [bayer]);
await write("one-a-chunk", { chunkSize: 1 }, 5, [bayer]);
await write("no-chunks", { useChunks: false }, 5, [bayer]);
const none = { useStatistics: false, useSummaryOffsets: false, useMessageIndex: false, useChunkIndex: false };
await write("no-index", none, 5, [bayer]);
await write("no-message-index", { useMessageIndex: false }, 5, [bayer]);
await write("no-repeats", { repeatSchemas: false, repeatChannels: false }, 5, [bayer]);

for (const [encoding, step, more] of JSON.parse(process.argv[3])) {
  await write(`${encoding}-${step}${more.big ? "-big" : ""}`, {}, 3, [ros(encoding, step, more)]);
}
await write("ros1", {}, 3, [{ ...bayer, schema: "sensor_msgs/Image" }]);
await write("foxglove", {}, 3, [{ ...bayer, schema: "foxglove.RawImage" }]);
await write("foxglove-first", {}, 3, [{ ...ros("bgr8", 200), schema: "foxglove.RawImage", first: true }]);

const jpeg = { schema: "sensor_msgs/msg/CompressedImage", encoding: "jpeg", topic: "/jpeg" };
await write("jpeg-too", {}, 3, [jpeg, bayer]);
await write("two", {}, 3, [bayer, ros("rgb8", 192, { topic: "/second" })]);
await write("jpeg", {}, 3, [{ ...jpeg, topic: "/cam" }]);
await write("jpeg-ros1", {}, 3, [{ ...jpeg, topic: "/cam", schema: "sensor_msgs/CompressedImage" }]);
await write("jpeg-foxglove", {}, 3, [{ ...jpeg, topic: "/cam", schema: "foxglove.CompressedImage" }]);
await write("h264", {}, 3, [{ schema: "foxglove.CompressedVideo", encoding: "h264" }]);
await write("rgba8", {}, 3, [ros("rgba8", 256)]);
await write("odd", {}, 3, [ros("uyvy", 130, { w: 63 })]);
