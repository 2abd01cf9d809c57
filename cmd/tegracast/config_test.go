// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

const good = programtest.Small

// goodYAML writes a valid configuration with one change.
func goodYAML(t *testing.T, old, new string) (path string) {
	t.Helper()
	if !strings.Contains(good, old) {
		t.Fatalf("%q is not in the configuration", old)
	}
	return programtest.Write(t, "c.yaml", strings.Replace(good, old, new, 1))
}

const (
	camera  = "camera, model: {width: 320, height: 240}}]"
	streams = "{name: raw, rtp: {payload: raw, destinations: [\"127.0.0.1:5004\"]}}"
	second  = "{name: two, rtp: {payload: raw, destinations: [\"127.0.0.1:5006\"]}}"
)

// kinds lists values of the wrong kind, unknown keys, and refused YAML: old, new, message.
var kinds = [][3]string{
	{"{name: isp}", "{name: isp, gama: 2}", `c.yaml:2:19: isp[0]: unknown key "gama"; known here are name, from,`},
	{"320", "wide", `c.yaml:1:41: sources[0].model.width: "wide": must be a whole number from 64 to 32768`},
	{"320", `"320"`, `c.yaml:1:41: sources[0].model.width: "320": must be a whole number from 64 to 32768, without quotes`},
	{"320", "320.0", `"320.0": must be a whole number`},
	{"320", "0320", `"0320": must be a whole number from 64 to 32768, in plain decimal digits`},
	{"320", "[320]", "a list: must be a whole number"},
	{"320", "{a: 1}", "a map: must be a whole number"},
	{"320", "~", "there is no value"},
	{"320", "!int 320", "tags such as !int are not read"},
	{"320", "&w 320", "anchors (&) and aliases (*) are not read"},
	{"320", "99999999999999999999", "must be a whole number"},
	{"240}", "240, seed: -1}", "seed: -1: must be a whole number"},
	{"payload: raw", "payload: raw, mtu: 0", "rtp.mtu: \"0\": must be auto, or a whole number from 576 to 9000"},
	{"payload: raw", "payload: raw, checksum: 1", `"1": must be true or false`},
	{"payload: raw", `payload: raw, checksum: "true"`, `"true": must be true or false, without quotes`},
	{"payload: raw", "payload: [raw]", "a list: must be one word"},
	{"payload: raw", "payload: rao", `rtp.payload: "rao": must be one of raw, jpeg, results, h264`},
	{"payload: raw, ", "", "outputs[0].rtp: the key payload is missing"},
	{"{name: isp}", "{name: isp, gamma: 0.5}", "gamma: 0.5: must be a number such as 1.5 from 1 to 4"},
	{"{name: isp}", "{name: isp, gamma: bt709}", `"bt709": must be a number such as 1.5`},
	{"name: raw", "name: 5", "5 is read as something else than text: put it in quotes"},
	{"name: raw", "name: [a]", "a list: must be text"},
	{"name: raw", "name: ../raw", `outputs[0].name: "../raw": must be 1 to 64 of the letters`},
	{"name: raw", "name: raw, scale: third", `scale: "third": use full, half or quarter`},
	{"name: raw", "name: raw, policy: newest", `policy: "newest": must be latest or block`},
	{"{name: isp}", "{name: isp, matrix: [[1, 0, 0], [0, 1, 0]]}", "isp[0].matrix: a list of 2: must have 3"},
	{"{name: isp}", "{name: isp, matrix: [[1, 0, 0], [0, 1, 0], [0, 9, 1]]}", "isp[0]: matrix element 7 is 9: must be from -8 to 8"},
	{"{name: isp}", "{name: isp, defects: {pixels: [[1, 2], [3]]}}", "c.yaml:2:46: isp[0].defects.pixels[1]: a list of 1: must have 2"},
	{"{name: isp}", "{name: isp, curve: [0, 1.5]}", "isp[0].curve[1]: 1.5: must be a number such as 1.5 from 0 to 1"},
	{"{name: isp}", "{name: isp, demosaic: best}", `isp[0].demosaic: "best": use malvar or bilinear`},
	{"{name: isp}", "{name: isp, device: gpu}", `isp[0].device: "gpu": use auto, cpu or cuda`},
	{"isp: [{name: isp}]", "memory: host\nisp: [{name: isp, device: cuda}]", "isp[0].device: cuda needs memory: cuda or auto"},
	{"isp: [", "memory: gpu\nisp: [", `c.yaml:2:9: memory: "gpu": use auto, cuda or host`},
	{"isp: [{name: isp}]", "isp: {name: isp}", "a map: must be a list"},
	{"isp: [", "isp: [{name: isp2}]\nisp: [", "already defined"},
	{"isp: [", "isp: {[", "c.yaml:2:"},
	{"isp: [", "<<: {a: 1}\nisp: [", `unknown key "<<"`},
	{good, "", "c.yaml:1:1: there is nothing in it: write one with `tegracast config default`"},
	{good, "# nothing\n", "there is nothing in it"},
	{good, "raw\n", "must be a map"},
	{"sources:", "# caf\xc3\xa9\r\n# caf\xe9\nsources:", "c.yaml:2:6: the byte 0xe9 is not UTF-8: save the file as UTF-8"},
	{"320", "\xff\xfe", "c.yaml:1:41: the byte 0xff is not UTF-8"},
	{good, good + "---\n" + good, "c.yaml:4:1: a second document begins here"},
	{good, "%YAML 1.2\n---\n" + good, "directives are not read"},
}

// combinations lists invalid values and invalid combinations.
var combinations = [][3]string{
	{"240}", "240, rate: fast}", `rate: "fast": write frames a second as 30 or 30000/1001`},
	{"model: {width", "fpga: {device: tegra_p2p0, width", `sources[0].fpga.device: "tegra_p2p0": name a device file such as /dev/tegra_p2p0`},
	{"model: {width", "fpga: {width", "the key device is missing"},
	{"model: {width", "fpga: {device: /dev/tegra_p2p0, exposure: 1s, width", "sources[0].fpga.exposure: 1s: must be from 0 to the frame period"},
	{
		"{name: camera, model: {width: 320, height: 240}}", "{name: camera, fpga: {device: /dev/x, width: 320, height: 240}}, {name: two, fpga: {device: /dev//x, width: 320, height: 240}}",
		`sources[1].fpga: camera 0 of /dev/x is already source "camera"`,
	},
	{
		"{name: camera, model: {width: 320, height: 240}}", "{name: camera, fpga: {device: /dev/x, stream: bare, channel: 1, width: 320, height: 240}}, {name: two, fpga: {device: /dev/x, stream: bare, channel: 1, width: 320, height: 240}}",
		`sources[1].fpga: channel 1 of /dev/x is already source "camera"`,
	},
	{"model: {width", "fpga: {device: /dev/x, stream: naked, width", `c.yaml:1:57: sources[0].fpga.stream: "naked": use camera or bare`},
	{"model: {width", "fpga: {device: /dev/x, channel: 1, width", "c.yaml:1:58: sources[0].fpga.channel: the camera's registers name its channel"},
	{"model: {width", "fpga: {device: /dev/x, stream: bare, channel: 4, width", "sources[0].fpga.channel: 4: must be a whole number from 0 to 3"},
	{"model: {width", "fpga: {device: /dev/x, stream: bare, camera: 1, width", "c.yaml:1:71: sources[0].fpga.camera: a bare stream has no camera block"},
	{"model: {width", "fpga: {device: /dev/x, stream: bare, exposure: 1ms, width", "c.yaml:1:73: sources[0].fpga.exposure: a bare stream has no camera block"},
	{"model: {width", "fpga: {device: /dev/x, stream: bare, gain: 2, width", "c.yaml:1:69: sources[0].fpga.gain: a bare stream has no camera block"},
	{"model: {width", "fpga: {device: /dev/x, stream: bare, triggered: true, width", "c.yaml:1:74: sources[0].fpga.triggered: a bare stream has no camera block"},
	{"240}", "240, stream: bare, exposure: 1ms}", "sources[0].model.exposure: a bare stream has no camera block"},
	{"240}}]\nisp: [{name: isp}]", "240, stream: bare}}]\nisp: [{name: isp, auto: {exposure: {}}}]", `isp[0].auto.exposure: source "camera" is a bare stream`},
	{"240}}]\nisp: [", "240, stream: bare}}]\ngpio: {pps: {line: P}}\nisp: [", `gpio.pps.source: source "camera" is a bare stream`},
	{"name: camera", "name: camera, write_combined: true", "c.yaml:1:42: sources[0].write_combined: the CPU reads every frame to check the FPGA's CRC: leave write_combined out"},
	{"{name: camera, model: {width: 320, height: 240}}", "{name: camera, write_combined: true, file: {path: x.raw, width: 320, height: 240}}", "sources[0].write_combined: the CPU itself reads the file"},
	{
		"{name: camera, model: {width: 320, height: 240}}", "{name: camera, write_combined: true, v4l2: {device: /dev/x, width: 320, height: 240, pixels: uyvy}}",
		"sources[0].write_combined: pictures of a camera are converted, or sent, by the CPU: leave write_combined out",
	},
	{
		"{name: camera, model: {width: 320, height: 240}}", "{name: camera, write_combined: true, v4l2: {device: /dev/x, width: 320, height: 240, sensor: {bits: 10}}}",
		"sources[0].write_combined: only a GPU can use write-combined memory: write memory: cuda",
	},
	{camera, "camera, write_combined: true, model: {width: 320, height: 240, stream: bare}}]", "sources[0].write_combined: only a GPU can use write-combined memory: write memory: cuda"},
	{camera, "camera, write_combined: true, model: {width: 320, height: 240, stream: bare}}]\nmemory: host", "sources[0].write_combined: only a GPU can use write-combined memory"},
	{camera, "camera, write_combined: true, model: {width: 320, height: 240, stream: bare}}]\nmemory: cuda", `isp[0].device: the frames of "camera" are in write-combined memory, which the CPU must not read: write device: cuda`},
	{
		camera + "\nisp: [{name: isp}]", "camera, write_combined: true, model: {width: 320, height: 240, stream: bare}}]\nmemory: cuda\nkernels: [{name: k, from: camera, file: ../../docs/kernels/focus.cu}]\nisp: [{name: isp, device: cuda}]",
		`kernels[0].from: the frames of "camera" are in write-combined memory, and the CPU copies them while the kernel is in quarantine: write output: results`,
	},
	{
		"{name: camera, model: {width: 320, height: 240}}", "{name: camera, fpga: {device: /dev/x, poll: true, width: 320, height: 240}}, {name: two, fpga: {device: /dev//x, camera: 1, width: 320, height: 240}}",
		`sources[1].fpga.poll: false, but source "camera" of the same device has true: give poll the same value in both`,
	},
	{"240}", "240, poll: true}", `sources[0].model: unknown key "poll"`},
	{"model: {width: 320, height: 240}", "v4l2: {width: 320, height: 240}", "sources[0].v4l2: the key device is missing"},
	{"model: {width: 320, height: 240}", "v4l2: {device: video0}", `sources[0].v4l2.device: "video0": name a device file such as /dev/video0`},
	{"model: {width: 320, height: 240}", "v4l2: {device: /dev/video0}", `isp[0]: the frames of source "camera" are known only when it is opened`},
	{"model: {width: 320, height: 240}", "v4l2: {device: /dev/video0, width: 320}", "sources[0].v4l2: give both width and height, or neither"},
	{"model: {width: 320, height: 240}", "v4l2: {device: /dev/video0, sensor: {bits: 12}}", "sources[0].v4l2: give width and height of the sensor's frames"},
	{
		"model: {width: 320, height: 240}", "v4l2: {device: /dev/video0, width: 320, height: 240, sensor: {bits: 12}, pixels: uyvy}",
		"sources[0].v4l2.pixels: sensor says what the camera delivers",
	},
	{
		"model: {width: 320, height: 240}", "v4l2: {device: /dev/video0, width: 320, height: 240, sensor: {bits: 14, packed: true}}",
		"sources[0].v4l2.sensor.bits: 14: packed samples have 10 or 12 bits",
	},
	{
		"model: {width: 320, height: 240}", "v4l2: {device: /dev/video0, width: 320, height: 240, sensor: {bits: 10}, exposure: 40ms}",
		"sources[0].v4l2.exposure: 40ms: must be from 0 to the frame period",
	},
	{
		"{name: camera, model: {width: 320, height: 240}}",
		"{name: camera, v4l2: {device: /dev/video0, width: 320, height: 240, sensor: {bits: 10}}}, {name: two, v4l2: {device: /dev//video0}}",
		`sources[1].v4l2.device: /dev//video0 is already source "camera"`,
	},
	{"240}", "240, rate: 0}", `sources[0].model.rate: "0": write frames a second`},
	{"240}", "240, rate: 20000}", "sources[0].model.rate: 20000: the sensor cannot: period 50µs"},
	{"240}", "240, exposure: 8}", `exposure: "8": the unit is missing: write 8s, or another one of h, m, s, ms and us`},
	{"240}", "240, exposure: soon}", `exposure: "soon": write a time such as 8ms`},
	{"240}", "240, exposure: 40ms}", "exposure: 40ms: must be from 0 to the frame period"},
	{"240}", "240, shift: 3}", "shift: 3: must be even"},
	{"240}", "240, faults: {F3: 2}}", "sources[0].model.faults.F3: "},
	{"240}", "240, faults: {F99: 0.1}}", `"F99", want F1 to F12`},
	{"240}", "240, faults: {F3: often}}", `"often": must be a number`},
	{"240}", "240, stream: bare, triggered: true}", "sources[0].model.triggered: a bare stream has no camera block"},
	{"isp: [", "groups: [{name: g, sources: [other]}]\nisp: [", `groups[0].sources[0]: there is no source "other"`},
	{"isp: [", "groups: [{name: g, sources: []}]\nisp: [", "groups[0].sources: "},
	{"isp: [", "groups: [{name: g, sources: [camera]}, {name: h, sources: [camera]}]\nisp: [", `groups[1].sources[0]: source "camera" is in group "g" already`},
	{"isp: [", "groups: [{name: g, sources: [camera, camera]}]\nisp: [", `groups[0].sources[1]: source "camera" is in group "g" already`},
	{"isp: [", "groups: [{name: g, sources: [camera]}, {name: g, sources: [camera]}]\nisp: [", `groups[1].name: "g" is the name of`},
	{"isp: [", "groups: [{name: g, sources: [camera], tolerance: -1ms}]\nisp: [", "groups[0].tolerance: -1ms: must not be negative"},
	{"isp: [", "groups: [{name: g, sources: [camera], tolerance: 50ms}]\nisp: [", "groups[0].tolerance: 50ms: must be less than half of the time from frame"},
	{"isp: [", "groups: [{name: g, sources: [camera], rate: 100, tolerance: 5ms}]\nisp: [", "groups[0].tolerance: 5ms: must be less than half of the time from group"},
	{"isp: [", "groups: [{name: g, sources: [camera], rate: 100, delay: 10ms}]\nisp: [", "groups[0].delay: 10ms: must be from 0 to less than"},
	{"isp: [", "groups: [{name: g, sources: [camera], delay: 10ms}]\nisp: [", "groups[0].delay: give rate, too"},
	{"isp: [", "groups: [{name: g, sources: [camera], trigger: true}]\nisp: [", `groups[0].sources[0]: source "camera" exposes by itself`},
	{
		"model: {width: 320, height: 240}}]\n",
		"v4l2: {device: /dev/video0, triggered: true, sensor: {}, width: 320, height: 240}}]\ngroups: [{name: g, sources: [camera], rate: 30, trigger: true}]\n",
		"groups[0].sources[0]: only an FPGA has a register",
	},
	{"240}}]\nisp: [", "240, triggered: true}}]\ngroups: [{name: g, sources: [camera], trigger: true}]\nisp: [", "groups[0].trigger: give rate, too"},
	{"240}}]\nisp: [", "240, stream: bare}}]\ngroups: [{name: g, sources: [camera]}]\nisp: [", `groups[0].sources[0]: source "camera" is a bare stream`},
	{"320", "3200", "the test chart has 1920x1080 pixels, 3200x240 are wanted"},
	{"320, height: 240", "321, height: 240, stream: bare", "outputs[0].rtp.payload: impossible format: UYVY 321x240: 4:2:2 needs an even width"},
	{"320, height: 240", "322, height: 241", "155204 bytes: must be a multiple of 16"},
	{"320, height: 240", "328, height: 242", "sources[0].model.width: a frame has 158752 bytes: must be a multiple of 64"},
	{"model: {width: 320, height: 240", "fpga: {device: /dev/x, width: 808, height: 606", "a frame has 979296 bytes: must be a multiple of 64"},
	{"240}", "240, sensor: {bits: 12}}", "sources[0].model.sensor: the test chart is RGGB of 10 bits"},
	{"240}", "240, sensor: {bits: 11}}", "sources[0].model.sensor.bits: 11: must be 8, 10, 12, 14 or 16"},
	{"240}", "240, sensor: {packed: true}}", "sources[0].model.sensor.packed: an FPGA sends samples in bytes or 16-bit words"},
	{"model: {width: 320, height: 240}", "file: {path: x.raw, width: 320, height: 240, sensor: {bits: 8, packed: true}}", "sensor.bits: 8: packed samples have 10 or 12 bits"},
	{"model: {width: 320, height: 240}", "file: {path: x.raw, width: 322, height: 240, sensor: {packed: true}}", "width must be a multiple of 4"},
	{"model: {width: 320, height: 240}", "file: {path: x.y4m, sensor: {bits: 8}}", "sources[0].file.sensor: a .y4m file holds pictures"},
	{"width: 320", "replay: x.raw", "sources[0].model: give both width and height"},
	{"240}", "240}, file: {path: x}", "exactly one of fpga, v4l2, model, file and recording"},
	{"model: {width: 320, height: 240}", "file: {path: x.raw}", "a headerless file needs its width and height"},
	{"model: {width: 320, height: 240}", "file: {path: x.y4m, width: 320, height: 240}", "leave them out"},
	{"model: {width: 320, height: 240}", "file: {path: x.raw, width: 320, height: 240, rate: 45001}", "c.yaml:1:77: sources[0].file.rate: 45001: must be at most 45000"},
	{"model: {width: 320, height: 240}", "file: {path: x.y4m}", "isp takes a sensor's frames"},
	{"model: {width: 320, height: 240}", "recording: {files: [/none/*.mcap]}", "sources[0].recording.files: there is no file /none/*.mcap"},
	{"model: {width: 320, height: 240}", "recording: {files: [config_test.go]}", "config_test.go: mcap: not an MCAP file"},
	{"model: {width: 320, height: 240}", "recording: {files: [x], from: later}", "\"later\": write a frame's number such as 1200"},
	{"name: raw, ", "name: raw, latency: now, ", `outputs[0].latency: "now": use frame or slice`},
	{"name: raw, rtp: {payload: raw", "name: raw, latency: slice, rtp: {payload: jpeg", "c.yaml:3:32: outputs[0].latency: only rtp with payload raw leaves in slices"},
	{"model: {width: 320, height: 240}}]\nisp: [{name: isp}]\noutputs: [{name: raw, ", "file: {path: x.raw, width: 320, height: 240}}]\nisp: [{name: isp}]\noutputs: [{name: raw, latency: slice, ", `the frames of "camera" do not come in slices`},
	{"240}", "240, readout: 40ms}", "sources[0].model.readout: 40ms: must be from 0 to the frame period, 33.333333ms"},
	{"name: camera", "name: camera, slots: 4", "sources[0].slots: 4 are too few: what reads from \"camera\" may hold so many frames that it needs 5"},
	{camera + "\nisp: [{name: isp}]\noutputs: [{name: raw, ", "camera, slots: 8, file: {path: x.y4m}}]\noutputs: [{name: raw, queue: 6, ", "so many frames that it needs 10"},
	{"{name: isp}", "{name: camera}", `"camera" is the name of sources[0] already`},
	{"{name: isp}", "{name: isp, from: cam}", `isp[0].from: there is no source "cam"`},
	{"{name: isp}", "{name: isp, black_level: 1023}", "from 0 to 1022"},
	{"{name: isp}", "{name: isp, black_levels: {red: 1, green_red: 2, green_blue: 3, blue: 1023}}", "isp[0]: black level of blue 1023: must be from 0 to 1022"},
	{"{name: isp}", "{name: isp, black_level: 1, black_levels: {red: 1, green_red: 2, green_blue: 3, blue: 4}}", "isp[0].black_level: black_levels gives one for each channel"},
	{"{name: isp}", "{name: isp, gamma: 2, curve: [0, 1]}", "c.yaml:2:26: isp[0].gamma: curve is the tone curve"},
	{"{name: isp}", "{name: isp, rotate: 45}", "isp[0].rotate: 45: must be 0, 90, 180 or 270"},
	{"{name: isp}", "{name: isp, flip: both}", `isp[0].flip: "both": use none, horizontal or vertical`},
	{"{name: isp}]\noutputs: [{name: raw, ", "{name: isp, rotate: 90}]\noutputs: [{name: raw, latency: slice, ", `isp "isp" turns the pictures (flip: none, rotate: 90)`},
	{"{name: isp}", "{name: isp, curve: [0]}", "isp[0].curve: must have at least two knots"},
	{"{name: isp}", "{name: isp, defects: {file: /nowhere}}", "isp[0].defects.file: stat /nowhere: no such file or directory: correct the path"},
	{"{name: isp}", "{name: isp, shading: {file: /}}", "isp[0].shading.file: / is a directory, not a regular file"},
	{"{name: isp}", "{name: isp, shading: {file: configcmd.go}}", `isp[0].shading.file: configcmd.go, line 1: the number of columns is "//"`},
	{"isp: [{name: isp}]\n", "", `source "camera" delivers Bayer frames, which need an isp`},
	{"name: raw", "name: raw, from: camera", "outputs[0].from: source \"camera\" delivers Bayer frames"},
	{"name: raw", "name: raw, from: cam", `there is no source and no stage "cam"`},
	{"payload: raw", "payload: results, pixels: uyvp", "outputs[0].rtp.pixels: only payload raw has pixels"},
	{"payload: raw", "payload: raw, session: raw", "outputs[0].rtp.session: only payload results has a session"},
	{"payload: raw", "payload: results, session: raw", `outputs[0].rtp.session: "raw" is not an output that sends pictures by RTP`},
	{"{name: raw, rtp: {payload: raw", "{name: raw, scale: half, rtp: {payload: results", "outputs[0].scale: results have no size"},
	{"payload: raw", "payload: raw, quality: 50", "outputs[0].rtp.quality: only payload jpeg has a quality"},
	{"payload: raw", "payload: jpeg, bitrate: 5000", "outputs[0].rtp.bitrate: only payload h264 has a bit rate"},
	{"payload: raw", "payload: jpeg, encoder: /dev/video11", "outputs[0].rtp.encoder: only payload h264 has an encoder"},
	{"payload: raw", "payload: jpeg, bitrate_min: 500", "outputs[0].rtp.bitrate_min: only payload h264 has a bit rate"},
	{"payload: raw", "payload: h264, bitrate: 500, bitrate_min: 501", "outputs[0].rtp.bitrate_min: 501 is more than bitrate, which is 500"},
	{"payload: raw", "payload: h264, bitrate: 9", "bitrate"},
	{"payload: raw", "payload: h264, bitrate: 5000", ""},
	{"payload: raw", "payload: h264, pixels: uyvp", "only payload raw has pixels"},
	{"payload: raw", "payload: raw, interface: lo", "outputs[0].rtp.interface: no destination is a multicast group: leave interface out"},
	{streams, "{name: a, record: {directory: /d, pack: true}}", "outputs[0].record: impossible format: UYVY cannot be packed"},
	{streams, "{name: a, record: {directory: /d, format: mp4}}", "outputs[0].record.format: only encoded pictures have a choice"},
	{streams, "{name: a, rtp: {payload: raw, destinations: [\"192.0.2.1:5004\"]}, record: {directory: /d}}", "outputs[0].record: only streams with payload h264 or jpeg"},
	{streams, "{name: a, rtp: {payload: h264}, record: {directory: /d, pack: true}}", "outputs[0].record.pack: only a camera's samples can be packed"},
	{streams, "{name: a, rtp: {payload: h264}, record: {directory: /d, keep_for: -1h}}", "outputs[0].record.keep_for: -1h0m0s: must be more than 0"},
	{streams, "{name: a, rtp: {payload: h264}, record: {directory: /d}, results: {}}", "give exactly one of"},
	{streams, "{name: a, record: {directory: /d, trigger: {}}}", "outputs[0].record.trigger: give before, after or both"},
	{streams, "{name: a, record: {directory: /d, trigger: {before: -1s}}}", "outputs[0].record.trigger.before: -1s: must not be less than 0"},
	{
		streams, "{name: a, rtp: {payload: h264, bitrate: 240000}, record: {directory: /d, trigger: {before: 1m}}}",
		"outputs[0].record.trigger.before: 1m0s: pictures of up to 240000 kbit/s are kept in memory, at most 1 GiB: give at most 35s",
	},
	{
		streams, "{name: a, record: {directory: /d, trigger: {after: 1s, result: {stage: isq, number: n, above: 1}}}}",
		`record.trigger.result.stage: the frames of "isp" do not come through a stage "isq"`,
	},
	{
		"isp: [{name: isp}]\noutputs: [" + streams, "gpio: {led: {line: L}}\nisp: [{name: isp}]\n" +
			"outputs: [{name: a, record: {directory: /d, trigger: {after: 1s, gpio: {line: L}}}}",
		"outputs[0].record.trigger.gpio.line: L is already the line of gpio.led",
	},
	{streams, "{name: a, results: {}}", "outputs[0].results: give the destination of the results"},
	{streams, "{name: a, results: {udp: [here]}}", `outputs[0].results.udp[0]: "here": must be host:port`},
	{streams, "{name: a, results: {udp: [\"h:1\", \"h:1\"]}}", "h:1 is the destination of outputs[0].results.udp[0] already"},
	{streams, "{name: a, results: {tcp: \":1\"}}", `outputs[0].results.tcp: ":1": must be host:port`},
	{streams, "{name: a, results: {tcp: \"h:1\"}}, {name: b, results: {tcp: \"h:1\"}}", "outputs[0].results.tcp listens at h:1 already"},
	{streams, "{name: a, ucx: {}}", "outputs[0].ucx: the key listen is missing"},
	{streams, "{name: a, ucx: {listen: here}}", `outputs[0].ucx.listen: "here": write an IP address and a port`},
	{streams, "{name: a, ucx: {listen: \"0.0.0.0:1\", allow: [10.0.0.0/8, 10.0.0.1]}}", `outputs[0].ucx.allow[1]: "10.0.0.1": write an address range`},
	{streams, "{name: a, ucx: {listen: \"0.0.0.0:1\", receivers: 17}}", "outputs[0].ucx.receivers: 17: must be a whole number from 1 to 16"},
	{
		streams, "{name: a, scale: half, from: camera, ucx: {listen: \"0.0.0.0:1\"}}",
		`outputs[0].scale: source "camera" is taken as it is: leave scale out`,
	},
	{streams, "{name: a, share: {}}", "outputs[0].share: the key socket is missing"},
	{streams, "{name: a, share: {socket: here}}", `outputs[0].share.socket: "here": write a path that begins with /`},
	{streams, "{name: a, share: {socket: /s, mode: '0990'}}", `outputs[0].share.mode: "0990": write a mode such as '0660'`},
	{streams, "{name: a, share: {socket: /s, users: [1, -1]}}", "outputs[0].share.users[1]: -1: write the number of one of the users"},
	{streams, "{name: a, share: {socket: /s, consumers: 17}}", "outputs[0].share.consumers: 17: must be a whole number from 1 to 16"},
	{streams, "{name: a, share: {socket: /s}}, {name: b, share: {socket: /s}}", "outputs[1].share.socket: /s is outputs[0].share.socket already: give it another path"},
	{streams, "{name: a, scale: half, share: {socket: /s, groups: [7]}}", ""},
	{
		streams, "{name: a, results: {tcp: \"127.0.0.1:1\"}}, {name: b, ucx: {listen: \"127.0.0.1:1\"}}",
		"outputs[0].results.tcp listens at 127.0.0.1:1 already",
	},
	{"127.0.0.1:5004", "127.0.0.1", "c.yaml:3:58: outputs[0].rtp.destinations[0]: "},
	{"127.0.0.1:5004", "127.0.0.1:5005", "port must be even"},
	{"5004\"]", "5004\", \"[::ffff:127.0.0.1]:5004\"]", "is the destination of outputs[0].rtp.destinations[0] already"},
	{streams, streams + ", " + strings.Replace(second, "5006", "5004", 1), "outputs[1].rtp.destinations[0]: 127.0.0.1:5004 is the destination of outputs[0]"},
	{"isp: [", "gpio: {trigger: {line: A}}\nisp: [", "c.yaml:2:17: gpio.trigger: the key rate is missing"},
	{"isp: [", "gpio: {trigger: {line: \"a b\", rate: 30}}\nisp: [", "gpio.trigger.line: \"a b\": write its name, such as PQ.05, or its place, such as gpiochip0:5"},
	{"isp: [", "gpio: {trigger: {line: A, rate: 30, width: 34ms}}\nisp: [", "gpio.trigger.width: 34ms: must be shorter than the time from pulse to pulse"},
	{"isp: [", "gpio: {trigger: {line: A, rate: 30}, strobe: {line: B}}\nisp: [", "gpio.strobe.width: with gpio.trigger, give the time that it is on"},
	{"isp: [", "gpio: {trigger: {line: A, rate: 30}, strobe: {line: B, source: camera, width: 1ms}}\nisp: [", "gpio.strobe.source: the strobe follows gpio.trigger"},
	{"isp: [", "gpio: {strobe: {line: B, source: cam}}\nisp: [", `gpio.strobe.source: there is no source "cam"`},
	{"isp: [", "gpio: {led: {line: gpiochip0:5}, pps: {line: gpiochip0:5, active_low: true}}\nisp: [", "c.yaml:2:46: gpio.pps.line: gpiochip0 line 5 is already the line of gpio.led"},
	{"isp: [", "gpio: {reset: {line: R}}\nisp: [", "gpio.reset.device: there is no source with this FPGA to reset"},
	{"isp: [", "gpio: {trigger_in: {line: I, tolerance: 17ms}}\nisp: [", `gpio.trigger_in.tolerance: 17ms: must be less than half of the frame period of source "camera"`},
	{"isp: [", "gpio: {trigger_in: {line: I, delay: -1ms}}\nisp: [", "gpio.trigger_in.delay: -1ms: an exposure does not begin before"},
	{"isp: [", "gpio: {strobe: {line: S, width: -1ms}}\nisp: [", "gpio.strobe.width: -1ms: must be above 0"},
	{"model: {width: 320, height: 240}}]\nisp: [", "fpga: {device: /dev/x, width: 320, height: 240}}]\ngpio: {reset: {line: R, device: /dev/y}}\nisp: [", "gpio.reset.device: there is no source with this FPGA to reset: \"/dev/y\""},
	{"model: {width: 320, height: 240}}]\nisp: [", "fpga: {device: /dev/x, width: 320, height: 240}}]\ngpio: {reset: {line: R, settle: 1m}}\nisp: [", "gpio.reset.settle: 1m0s: must be up to 5s"},
	{"model: {width: 320, height: 240}}]\nisp: [", "fpga: {device: /dev/x, width: 320, height: 240, triggered: true}}]\ngpio: {strobe: {line: S}}\nisp: [", `gpio.strobe: only whoever triggers source "camera" knows when it exposes`},
	{"[" + streams + "]", "[]", "outputs: there must be at least one"},
	{"outputs: [" + streams + "]\n", "", "the key outputs is missing"},
}

// impossiblePictures lists pictures that cannot be sent: the change in the source, and in the output.
var impossiblePictures = [][3]string{
	{"328, height: 240, stream: bare", "scale: half, rtp: {payload: raw", ""},
	{"328, height: 241, stream: bare", "scale: half, rtp: {payload: raw", "half of 328x241 is no whole number of pixels and lines"},
	{"324, height: 242, stream: bare", "scale: half, rtp: {payload: raw", ""},
	{"328, height: 242, stream: bare", "scale: half, rtp: {payload: jpeg", "4:2:0 needs an even width and an even height"},
	{"328, height: 241, stream: bare", "rtp: {payload: jpeg", "4:2:0 needs an even width and an even height"},
	{"2048, height: 240, replay: x.raw", "rtp: {payload: jpeg", "at most 2040 pixels"},
	{"2048, height: 240, replay: x.raw", "scale: half, rtp: {payload: jpeg", ""},
}

var located = regexp.MustCompile(`c\.yaml:[0-9]+:[0-9]+: `)

// refused checks that `config check` and `serve` give the same refusal, without Go's own words.
func refused(t *testing.T, path, want string) {
	t.Helper()
	for _, args := range [][]string{{"config", "check", path}, {"serve", "--sdp-dir", t.TempDir(), "--config", path}} {
		status, _, errw := runs(t, args...)
		if status != exitUsage || !strings.Contains(errw, want) || !located.MatchString(errw) || strings.Contains(errw, "\n") ||
			strings.Contains(errw, "float64") || strings.Contains(errw, "main.") {
			t.Errorf("%s: status %d, %q, want %q", args[0], status, errw, want)
		}
	}
}

func TestBadConfig(t *testing.T) {
	for _, c := range append(append([][3]string{}, kinds...), combinations...) {
		if c[2] != "" {
			refused(t, goodYAML(t, c[0], c[1]), c[2])
		}
	}
	yes := goodYAML(t, "payload: raw", "payload: raw, checksum: yes")
	if _, _, errw := runs(t, "config", "check", yes); !strings.HasSuffix(errw, `"yes": must be true or false`) {
		t.Errorf("a word without quotes: %q", errw)
	}
	replay := programtest.Write(t, "x.raw", strings.Repeat("\x00", 2*2048*240))
	for _, c := range impossiblePictures {
		text := strings.NewReplacer("320, height: 240", c[0], "rtp: {payload: raw", c[1]).Replace(good)
		accepted(t, programtest.Write(t, "c.yaml", strings.Replace(text, "x.raw", replay, 1)), c[2])
	}
}

// TestBareConfig has what a stock design needs, and no more.
func TestBareConfig(t *testing.T) {
	path := goodYAML(t, "model: {width", "fpga: {device: /dev/tegra_p2p0, stream: bare, channel: 3, rate: 30, sensor: {bits: 8}, width")
	if status, _, errw := runs(t, "config", "check", path); status != exitOK {
		t.Error(errw)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add(config.Default())
	for _, c := range append(append([][3]string{}, kinds...), combinations...) {
		f.Add([]byte(strings.Replace(good, c[0], c[1], 1)))
	}
	for _, s := range []string{"sources: &a [*a]\n", "sources: !00000 ", "", "outputs:\n  - rtp: {mtu: 1e99}\n", "? a\n: b\n", "---\n---\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := config.Parse("c.yaml", text)
		if err != nil {
			if !located.MatchString(err.Error()) {
				t.Errorf("no place: %v", err)
			}
			return
		}
		if len(c.Sources) == 0 || len(c.Outputs) == 0 {
			t.Error("a configuration without source or output was taken")
		}
		for i := range c.Outputs {
			o := &c.Outputs[i]
			source, stage := c.Source(o.Source), c.Stage(o.From)
			if stage == nil || !stage.Pictures.Any {
				continue
			}
			if _, _, err := o.Formats(source.Format); err != nil {
				t.Error(err)
			}
		}
	})
}
