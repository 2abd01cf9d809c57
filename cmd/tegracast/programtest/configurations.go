// SPDX-License-Identifier: Apache-2.0

package programtest

// Small is a configuration with one source, one isp and one output.
const Small = `sources: [{name: camera, model: {width: 320, height: 240}}]
isp: [{name: isp}]
outputs: [{name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:5004"]}}]
`

// WithKernels is a configuration with two kernels: one that finds results, and one that draws. Its paths are valid in
// the folders directly below cmd/tegracast.
const WithKernels = `sources: [{name: camera, model: {width: 320, height: 240}}]
isp: [{name: isp}]
kernels:
  - {name: motion, file: ../../../docs/kernels/motion.cu, pixels: grey, output: results, parameters: {share: 0.5}, numbers: [moving], labels: [it], bins: 3, state: 64, time_limit: 50ms}
  - {name: focus, from: isp, file: ../../../docs/kernels/focus.cu}
outputs:
  - {name: raw, from: focus, rtp: {payload: raw, destinations: ["127.0.0.1:5004"]}}
  - {name: lines, from: motion, results: {udp: ["127.0.0.1:5010"]}}
`

// WithAuto is a format string for a configuration; its argument is the isp's "auto" section. The isp is linear, so that
// a picture's mean is proportional to the light.
const WithAuto = `
memory: host
sources: [{name: camera, model: {width: 640, height: 360, rate: 30}}]
isp: [{name: isp, gamma: 1, white_balance: {red: 1.5, blue: 1.1}, auto: %s}]
outputs: [{name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:5004"]}}]
`

// WriteCombined is a format for a configuration of frames in write-combined memory, with the ports of its three outputs.
const WriteCombined = `
memory: cuda
web: {listen: none}
sources:
  - {name: camera, write_combined: true, model: {width: 320, height: 240, rate: 20, stream: bare}}
isp:
  - {name: isp, device: cuda}
outputs:
  - {name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:%d"], checksum: true}}
  - {name: lines, from: camera, results: {tcp: "127.0.0.1:%d"}}
  - {name: told, from: camera, rtp: {payload: results, destinations: ["127.0.0.1:%d"]}}
`
