// SPDX-License-Identifier: Apache-2.0
// Calls every operation of a running appliance by a client that openapi-client-axios makes from its OpenAPI document, and checks that
// status, media type and JSON of each answer are in the document. Usage: node client.mjs URL TOKEN
import Ajv from "ajv/dist/2020.js";
import openapi from "openapi-client-axios";

const [base, token] = process.argv.slice(2);
const headers = { Authorization: "Bearer " + token };
const definition = await (await fetch(base + "/api/v1/openapi.json", { headers })).json();
const OpenAPIClient = openapi.default || openapi;
const api = new OpenAPIClient({
  definition, axiosConfigDefaults: { baseURL: base, headers, validateStatus: () => true, responseType: "text", transformResponse: (x) => x, timeout: 20000 },
});
const client = await api.init();
const ajv = new Ajv({ strict: false, validateFormats: false });
ajv.addSchema(definition, "api");
const pointer = (s) => s.replaceAll("~", "~0").replaceAll("/", "~1").replaceAll("{", "%7B").replaceAll("}", "%7D");
const faults = [], text = (await client.configuration()).data;
const yaml = JSON.parse(text).text;
let recorded; // a file of the output jpeg that is finished; one begins each second
while (!(recorded = JSON.parse((await client.recordings()).data).files.find((f) => f.state === "finished"))) await new Promise((r) => setTimeout(r, 200));
const name = recorded.file, first = recorded.first_frame;

// The parameters, body and further options of each call. Streams without an end are left after the first bytes.
const endless = { responseType: "stream" };
const calls = [
  ["status"], ["stream", { pictures: "jpeg:500" }, undefined, endless], ["events", {}, undefined, endless], ["events", { since: 0 }], ["openapi"],
  ["stream", { pictures: "jpeg:often" }], ["events", { since: "x" }],
  ...["sdp", "picture", "fullPicture", "rawPhotograph"].flatMap((id) => [[id, { name: "jpeg" }], [id, { name: "none" }]]), ["pictures", { name: "jpeg" }, undefined, endless],
  ["trigger", { name: "jpeg" }], ["metrics"], ["health"], ["ready"],
  ["watch", { name: "jpeg" }, "", { headers: { "Content-Type": "text/plain" } }], ["unwatch", { name: "jpeg", session: "x" }], ["trickle", { name: "jpeg", session: "x" }],
  ["send", { name: "raw", destination: "127.0.0.1:40000" }], ["send", { name: "raw", destination: "127.0.0.1:40001" }],
  ["unsend", { name: "raw", destination: "127.0.0.1:40000" }], ["unsend", { name: "raw", destination: "127.0.0.1:40000" }],
  ["recordings"], ["recordings", { before: "none" }],
  ...["getRecording", "recordingVideo", "recordingFrames"].flatMap((id) => [[id, { name }], [id, { name: "none.mp4" }]]),
  ["recordingFrames", { name, from: first, to: first + 2 }], ["recordingFrames", { name, from: "x" }], ["recordingVideo", { name, from: 1e9 }],
  ["deleteRecording", { name }], ["deleteRecording", { name }],
  ["stop", { name: "jpeg" }], ["start", { name: "jpeg" }], ["stop", { name: "none" }],
  ["configuration"], ["checkConfiguration", undefined, yaml], ["checkConfiguration", undefined, "x: 1"], ["configure", undefined, yaml], ["configure", { "If-Match": '"other"' }, yaml], ["resetConfiguration"],
  ["setExposure", { name: "camera" }, { exposure_us: 5000 }], ["setExposure", { name: "none" }, {}],
  ["setWhiteBalance", { name: "isp" }, { red: 1.5, blue: 1.5 }], ["setWhiteBalance", { name: "isp" }, { auto: true }],
];

const operations = new Map(api.getOperations().map((o) => [o.operationId, o]));
const missing = [...operations.keys()].filter((id) => !calls.some((c) => c[0] === id));
if (missing.length) faults.push("no call of " + missing.join(", "));
for (const [id, parameters, body, options] of calls) {
  const o = operations.get(id);
  if (!o) {
    faults.push("there is no operation " + id);
    continue;
  }
  const asked = id + " " + JSON.stringify(parameters || {}), bound = AbortSignal.timeout(60000);
  const r = await client[id](parameters, body, { ...options, signal: bound }).catch((e) => {
    throw new Error(asked + ": " + (bound.aborted ? "the answer has no end" : e));
  });
  const what = asked + ": " + r.status;
  let answer = o.responses[r.status];
  if (answer && answer.$ref) answer = definition.components.responses[answer.$ref.split("/").at(-1)];
  const type = String(r.headers["content-type"] || "").split(";")[0];
  if (options === endless && r.status === 200) r.data.destroy();
  if (!answer || !(answer.content || {})[type]) faults.push(what + " " + type + " is not in the document");
  else if (type === "application/json") {
    const schema = answer.content[type].schema;
    const valid = ajv.compile(JSON.parse(JSON.stringify(schema).replaceAll('"#/', '"api#/')));
    if (!valid(JSON.parse(r.data))) faults.push(what + ": " + ajv.errorsText(valid.errors));
  }
}
for (const f of faults) console.log(f);
console.log(calls.length + " calls of " + operations.size + " operations");
process.exit(faults.length ? 1 : 0);
