// SPDX-License-Identifier: Apache-2.0
// What editors make of the schema: node check.mjs SCHEMA.json FILE.yaml... prints for each file the mistakes that ajv finds, in strict
// mode, and those that the YAML language server shows, and at its end the server's hover text of the first key.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import Ajv from "ajv/dist/2020.js";
import { parse } from "yaml";

const [schemaFile, ...files] = process.argv.slice(2);
const schema = JSON.parse(readFileSync(schemaFile, "utf8"));
const validate = new Ajv({ strict: true, allErrors: true }).compile(schema);

const bin = createRequire(import.meta.url).resolve("yaml-language-server/bin/yaml-language-server");
const server = spawn(process.execPath, [bin, "--stdio"], { stdio: ["pipe", "pipe", "inherit"] });
const waiting = new Map(); // by id of a request, or address of a document
let last = 0;
let rest = Buffer.alloc(0);

function write(message) {
  const text = JSON.stringify({ jsonrpc: "2.0", ...message });
  server.stdin.write(`Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`);
}

function request(method, params) {
  write({ id: ++last, method, params });
  return new Promise((resolve) => waiting.set(last, resolve));
}

function take(message) {
  if (message.method === "textDocument/publishDiagnostics") {
    waiting.get(message.params.uri)?.(message.params.diagnostics);
  } else if (message.method && message.id !== undefined) { // what the server asks for
    write({ id: message.id, result: message.method === "workspace/configuration" ? message.params.items.map(() => ({})) : null });
  } else if (message.id !== undefined) {
    waiting.get(message.id)?.(message.result);
  }
}

server.stdout.on("data", (bytes) => {
  rest = Buffer.concat([rest, bytes]);
  for (;;) {
    const head = rest.indexOf("\r\n\r\n");
    if (head < 0) return;
    const length = Number(/Content-Length: (\d+)/i.exec(rest.subarray(0, head).toString())[1]);
    if (rest.length < head + 4 + length) return;
    const text = rest.subarray(head + 4, head + 4 + length).toString();
    rest = rest.subarray(head + 4 + length);
    take(JSON.parse(text));
  }
});

await request("initialize", { processId: process.pid, rootUri: null, capabilities: { textDocument: { hover: { contentFormat: ["plaintext"] } } } });
write({ method: "initialized", params: {} });

const found = {};
for (const file of files) {
  const uri = pathToFileURL(file).href;
  const text = `# yaml-language-server: $schema=${pathToFileURL(schemaFile).href}\n${readFileSync(file, "utf8")}`;
  const shown = new Promise((resolve) => waiting.set(uri, resolve));
  write({ method: "textDocument/didOpen", params: { textDocument: { uri, languageId: "yaml", version: 1, text } } });
  validate(parse(text));
  found[file] = {
    ajv: (validate.errors ?? []).map((e) => `${e.instancePath} ${e.message}`),
    editor: (await shown).map((d) => d.message),
  };
  const line = text.split("\n").findIndex((l) => /^[a-z]+:/.test(l));
  const hover = await request("textDocument/hover", { textDocument: { uri }, position: { line, character: 1 } });
  found[file].hover = hover?.contents?.value ?? "";
}
console.log(JSON.stringify(found));
server.kill();
