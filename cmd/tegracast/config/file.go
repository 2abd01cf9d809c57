// SPDX-License-Identifier: Apache-2.0

package config

import (
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
)

// File is a configuration file. The tags of its structs define both the JSON Schema and the type checks.
type File struct {
	Memory     string          `yaml:"memory,omitempty" jsonschema:"enum=auto,enum=cuda,enum=host" jsonschema_description:"Where frame memory comes from: cuda, host, or auto (default), which takes CUDA where it works."`
	Sources    []SourceSection `yaml:"sources" jsonschema:"minItems=1" jsonschema_description:"Where frames come from."`
	StageKinds `yaml:",inline"`
	Outputs    []OutputSection `yaml:"outputs" jsonschema:"minItems=1" jsonschema_description:"Where frames go."`
	Groups     []*Group        `yaml:"groups,omitempty" jsonschema_description:"Sources whose frames of one moment get one number, and books of complete groups."`
	GPIO       GPIO            `yaml:"gpio,omitempty" jsonschema_description:"Lines of the board: trigger, strobe, reset, LED, edges and PPS."`
	RTSP       RTSP            `yaml:"rtsp,omitempty" jsonschema_description:"RTSP server, at which readers ask for the RTP streams (docs/watch.md)."`
	Clock      *Clock          `yaml:"clock,omitempty" jsonschema_description:"The clock that the clocks of the cameras follow (default: none; they run freely). tegracast sets no clock but theirs."`
	Bus        *Bus            `yaml:"bus,omitempty" jsonschema_description:"Message bus, NATS or MQTT, that gets events, health, and results of outputs with bus (docs/bus.md)."`
	Web        Web             `yaml:"web,omitempty" jsonschema_description:"The page, metrics and health over HTTP."`
}

// SourceSection is a source. Exactly one kind is given.
type SourceSection struct {
	Name          string `yaml:"name" jsonschema:"pattern=^[A-Za-z0-9_-]+$,maxLength=64" jsonschema_description:"Name of the source, by which stages and outputs refer to it."`
	Slots         int    `yaml:"slots,omitempty" jsonschema:"minimum=3,maximum=64" jsonschema_description:"Number of frames that the source has memory for (default 8, or more if what reads from the source and a snapshot may hold more)."`
	WriteCombined bool   `yaml:"write_combined,omitempty" jsonschema_description:"The frames' memory is for the GPU alone, and the CPU must not read it. Only for bare streams and the samples of v4l2 cameras, and with memory: cuda."`
	SourceKinds   `yaml:",inline"`
}

// SourceKinds are the kinds of sources.
type SourceKinds struct {
	FPGA      *FPGA      `yaml:"fpga,omitempty" jsonschema_description:"A camera of an FPGA on PCI Express."`
	V4L2      *V4L2      `yaml:"v4l2,omitempty" jsonschema_description:"A camera with a driver of the kernel (Video4Linux2): on CSI, USB, or a capture card."`
	Model     *Model     `yaml:"model,omitempty" jsonschema_description:"The FPGA camera in software."`
	File      *Replay    `yaml:"file,omitempty" jsonschema_description:"Replays a file."`
	Recording *Recording `yaml:"recording,omitempty" jsonschema_description:"Plays recordings (outputs with record): the frames have their bytes, numbers and times."`
}

// StageKinds are the kinds of stages. Each kind has its own list.
type StageKinds struct {
	ISP      []*ISP      `yaml:"isp,omitempty" jsonschema_description:"Stages that turn Bayer frames into pictures."`
	Kernels  []*Kernel   `yaml:"kernels,omitempty" jsonschema_description:"Stages that are CUDA kernels of your own (docs/kernels/README.md)."`
	External []*External `yaml:"external,omitempty" jsonschema_description:"Stages whose work another process does, such as one with PyTorch or TensorRT (docs/inference.md): frames go on with the results that it returns."`
	Infer    []*Infer    `yaml:"infer,omitempty" jsonschema_description:"Stages that run an ONNX model on the frames (docs/inference.md)."`
}

// OutputSection is an output. Exactly one kind is given.
type OutputSection struct {
	Name        string                         `yaml:"name" jsonschema:"pattern=^[A-Za-z0-9_-]+$,maxLength=64" jsonschema_description:"Name of the output."`
	From        string                         `yaml:"from,omitempty" jsonschema_description:"Name of a source or a stage (default: the first isp of the first source)."`
	Scale       string                         `yaml:"scale,omitempty" jsonschema:"enum=full,enum=half,enum=quarter" jsonschema_description:"Size of the picture: full (default), half or quarter."`
	Rate        Rate                           `yaml:"rate,omitempty" jsonschema_description:"Upper limit of the frames a second (default: no limit)."`
	Queue       int                            `yaml:"queue,omitempty" jsonschema:"minimum=1,maximum=64" jsonschema_description:"Number of frames that may wait (default 2, and one more for each 500 MB of frames a second, at most 10)."`
	Latency     string                         `yaml:"latency,omitempty" jsonschema:"enum=frame,enum=slice" jsonschema_description:"When a frame leaves: line by line while it arrives from the camera (slice), or when it is complete (frame). The default is slice where it is possible: for rtp with payload raw, behind an isp. A frame that turns out to be damaged has left in part then, without its marker. With another payload the isp works while the frame arrives, unless all rtp outputs behind it have frame."`
	Policy      yamlfile.Word[pipeline.Policy] `yaml:"policy,omitempty" jsonschema_description:"Which frame is dropped when the output cannot keep up: latest (default) keeps the newest frame, block keeps those that already wait."`
	OutputKinds `yaml:",inline"`
}

// OutputKinds are the kinds of outputs.
type OutputKinds struct {
	RTP     *RTP        `yaml:"rtp,omitempty" jsonschema_description:"Sends the frames as an RTP stream."`
	Results *Results    `yaml:"results,omitempty" jsonschema_description:"Sends what the stages found in each frame, as a line of JSON."`
	Record  *Record     `yaml:"record,omitempty" jsonschema_description:"Keeps the frames in files (docs/recording.md): of a source as they are, of an isp UYVY, in the format MCAP. Beside rtp with payload h264 or jpeg: the encoded pictures that the stream sends, as MP4 or MCAP."`
	UCX     *UCX        `yaml:"ucx,omitempty" jsonschema_description:"Lets servers take the frames, and what stages found in them, by UCX (docs/ucx.md): of a source as they are, of an isp UYVY."`
	Share   *Share      `yaml:"share,omitempty" jsonschema_description:"Lets other processes of this machine map the frames, and what stages found in them, without a copy (docs/share.md): of a source as they are, of an isp UYVY."`
	FPGA    *FPGAStream `yaml:"fpga,omitempty" jsonschema_description:"Sends the frames (UYVY) to an FPGA as an H2C stream."`
}
