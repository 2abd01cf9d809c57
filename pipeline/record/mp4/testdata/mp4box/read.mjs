// SPDX-License-Identifier: Apache-2.0
// Reads MP4 files with mp4box and prints an array with what it has of each as JSON: the samples of the first track, the
// emsg boxes, and the edits.

import { readFileSync } from "node:fs";
import { createFile, Log, MP4BoxBuffer } from "mp4box";

Log.setLogLevel(Log.LOG_LEVEL_NONE ?? 0);

function read(path) {
  const result = { error: "", codec: "", width: 0, height: 0, created: 0, samples: [], notes: [], edits: [], index: 0 };
  const file = createFile();
  file.onError = (module, message) => (result.error = `${module}: ${message}`);
  file.onReady = (info) => {
    const { codec, track_width: width, track_height: height } = info.tracks[0];
    Object.assign(result, { codec, width, height, created: info.created.getTime() / 1000 });
    result.edits = (info.tracks[0].edits ?? []).map((e) => [Number(e.segment_duration), Number(e.media_time)]);
  };
  file.appendBuffer(MP4BoxBuffer.fromArrayBuffer(new Uint8Array(readFileSync(path)).buffer, 0), true);
  file.flush();
  if (!file.moov) {
    result.error ||= "no moov box";
    return result;
  }
  result.samples = file
    .getTrackSamplesInfo(file.moov.traks[0].tkhd.track_id)
    .map((s) => [s.offset, s.size, Number(s.dts), s.duration, s.is_sync ? 1 : 0]);
  for (const b of file.boxes) {
    if (b.type === "emsg") {
      const { scheme_id_uri: scheme, timescale: scale, event_duration: duration, id } = b;
      result.notes.push({ scheme, scale, duration, id, time: Number(b.presentation_time), data: Buffer.from(b.message_data).toString() });
    } else if (b.type === "mfra") {
      result.index++;
    }
  }
  return result;
}

process.stdout.write(JSON.stringify(process.argv.slice(2).map(read)));
