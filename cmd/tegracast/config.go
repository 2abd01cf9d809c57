package main

import (
	_ "embed"
	"encoding"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

//go:embed default.yaml
var defaultYAML []byte

// Config is the configuration file.
type Config struct {
	Memory  string         `yaml:"memory,omitempty" jsonschema:"enum=auto,enum=cuda,enum=host" jsonschema_description:"Where frame memory comes from: cuda, host, or auto (default), which takes CUDA where it works."`
	Sources []SourceConfig `yaml:"sources" jsonschema:"minItems=1" jsonschema_description:"Where frames come from."`
	ISP     []ISPConfig    `yaml:"isp,omitempty" jsonschema_description:"Stages that turn Bayer frames into pictures."`
	Kernels []KernelConfig `yaml:"kernels,omitempty" jsonschema_description:"Stages that are CUDA kernels of your own (docs/kernels/README.md)."`
	Outputs []OutputConfig `yaml:"outputs" jsonschema:"minItems=1" jsonschema_description:"Where frames go."`
	GPIO    GPIOConfig     `yaml:"gpio,omitempty" jsonschema_description:"Lines of the board: trigger, strobe, reset, LED, edges and PPS."`
	Web     WebConfig      `yaml:"web,omitempty" jsonschema_description:"Metrics and health over HTTP."`
}

// SourceConfig is a source; exactly one of FPGA, Model and File is given.
type SourceConfig struct {
	Name  string `yaml:"name" jsonschema:"pattern=^[A-Za-z0-9_-]+$,maxLength=64" jsonschema_description:"Name of the source, by which stages and outputs refer to it."`
	Slots int    `yaml:"slots,omitempty" jsonschema:"minimum=3,maximum=64" jsonschema_description:"Number of frames that the source has memory for (default 8)."`

	WriteCombined bool `yaml:"write_combined,omitempty" jsonschema_description:"The frames' memory is for the GPU alone, and the CPU must not read it. Only for bare streams, and with memory: cuda."`

	FPGA  *CameraConfig `yaml:"fpga,omitempty" jsonschema_description:"A camera of an FPGA on PCI Express."`
	Model *ModelConfig  `yaml:"model,omitempty" jsonschema_description:"The FPGA camera in software."`
	File  *FileConfig   `yaml:"file,omitempty" jsonschema_description:"Replays a file."`
}

// CameraConfig is a camera of an FPGA that the kernel module tegra_p2p drives.
type CameraConfig struct {
	Device    string              `yaml:"device" jsonschema:"pattern=^/" jsonschema_description:"Device file of the kernel module, such as /dev/tegra_p2p0. Several cameras may share one."`
	Stream    string              `yaml:"stream,omitempty" jsonschema:"enum=camera,enum=bare" jsonschema_description:"camera (default): the FPGA has a camera block and appends a trailer to each frame. bare: packets of a frame's pixels and nothing else (docs/fpga-interface.md)."`
	Camera    int                 `yaml:"camera,omitempty" jsonschema:"minimum=0,maximum=15" jsonschema_description:"Number of the camera on the FPGA (default 0)."`
	Channel   int                 `yaml:"channel,omitempty" jsonschema:"minimum=0,maximum=3" jsonschema_description:"C2H channel of a bare stream (default 0)."`
	Width     int                 `yaml:"width" jsonschema:"minimum=2,maximum=32768" jsonschema_description:"Width of a frame, in pixels."`
	Height    int                 `yaml:"height" jsonschema:"minimum=2,maximum=32768" jsonschema_description:"Height of a frame, in lines."`
	Sensor    *SensorConfig       `yaml:"sensor,omitempty" jsonschema_description:"How the samples lie in memory (default: RGGB of 10 bits)."`
	Rate      word[pipeline.Rate] `yaml:"rate,omitempty" jsonschema_description:"Frames a second, such as 30 or 30000/1001 (default 30)."`
	Exposure  word[time.Duration] `yaml:"exposure,omitempty" jsonschema_description:"Exposure time, such as 8ms (default: what the sensor is set to)."`
	Gain      float64             `yaml:"gain,omitempty" jsonschema:"minimum=0.00390625,maximum=256" jsonschema_description:"Gain of the sensor (default: what the sensor is set to)."`
	Poll      bool                `yaml:"poll,omitempty" jsonschema_description:"Look for completions in memory instead of waiting for interrupts (default false). All sources of a device must agree."`
	Triggered bool                `yaml:"triggered,omitempty" jsonschema_description:"Take a frame at each trigger instead of rate frames a second. rate then says how often triggers come."`
}

// ModelConfig is the FPGA camera in software.
type ModelConfig struct {
	Stream   string              `yaml:"stream,omitempty" jsonschema:"enum=camera,enum=bare" jsonschema_description:"camera (default), or bare: without camera block and trailers, as a stock design has it."`
	Replay   string              `yaml:"replay,omitempty" jsonschema_description:"Raw file without header, of one frame or more, that the sensor delivers (default: a real test chart at 1920x1080)."`
	Width    int                 `yaml:"width,omitempty" jsonschema:"minimum=64,maximum=32768" jsonschema_description:"Width of a frame, in pixels (default 1920)."`
	Height   int                 `yaml:"height,omitempty" jsonschema:"minimum=2,maximum=32768" jsonschema_description:"Height of a frame, in lines (default 1080)."`
	Sensor   *SensorConfig       `yaml:"sensor,omitempty" jsonschema_description:"How the samples of replay lie in the file (default: RGGB of 10 bits)."`
	Rate     word[pipeline.Rate] `yaml:"rate,omitempty" jsonschema_description:"Frames a second, such as 30 or 30000/1001 (default 30)."`
	Exposure word[time.Duration] `yaml:"exposure,omitempty" jsonschema_description:"Exposure time, such as 8ms. The picture has the brightness of replay at the default: 10ms, or half the frame period if that is less."`
	Shift    *int                `yaml:"shift,omitempty" jsonschema:"minimum=0,multipleOf=2" jsonschema_description:"Even number of pixels by which the picture moves from frame to frame (default 2)."`
	Seed     uint64              `yaml:"seed,omitempty" jsonschema_description:"Seed of the scattered bus addresses and of the faults."`
	Faults   map[string]float64  `yaml:"faults,omitempty" jsonschema_description:"Faults, F1 to F12 (docs/faults.md), each with the share of frames at which it happens."`
}

// FileConfig replays a file.
type FileConfig struct {
	Path   string              `yaml:"path" jsonschema:"minLength=1" jsonschema_description:"A .y4m file, or a sensor's frames without header."`
	Width  int                 `yaml:"width,omitempty" jsonschema:"minimum=2,maximum=32768" jsonschema_description:"Width of a frame, in pixels, for files without header."`
	Height int                 `yaml:"height,omitempty" jsonschema:"minimum=2,maximum=32768" jsonschema_description:"Height of a frame, in lines, for files without header."`
	Sensor *SensorConfig       `yaml:"sensor,omitempty" jsonschema_description:"How the samples lie in a file without header (default: RGGB of 10 bits)."`
	Rate   word[pipeline.Rate] `yaml:"rate,omitempty" jsonschema_description:"Frames a second (default: the file's own rate, or 30)."`
	Once   bool                `yaml:"once,omitempty" jsonschema_description:"End after the last frame instead of starting again."`
}

// SensorConfig says how a sensor's samples lie in memory.
type SensorConfig struct {
	Mosaic string `yaml:"mosaic,omitempty" jsonschema:"enum=rggb,enum=grbg,enum=gbrg,enum=bggr,enum=mono" jsonschema_description:"Colours of the first two samples of the first two lines (default rggb)."`
	Bits   int    `yaml:"bits,omitempty" jsonschema:"minimum=8,maximum=16,multipleOf=2" jsonschema_description:"Bits of a sample (default 10). Samples of more than 8 bits lie in words of 16 bits."`
	Packed bool   `yaml:"packed,omitempty" jsonschema_description:"The samples are RAW10 or RAW12, packed as MIPI CSI-2 packs them. Only for files."`
}

// OutputConfig is an output; exactly one of RTP, Results and FPGA is given.
type OutputConfig struct {
	Name    string                `yaml:"name" jsonschema:"pattern=^[A-Za-z0-9_-]+$,maxLength=64" jsonschema_description:"Name of the output."`
	From    string                `yaml:"from,omitempty" jsonschema_description:"Name of a source, an isp or a kernel (default: the first isp of the first source)."`
	Scale   string                `yaml:"scale,omitempty" jsonschema:"enum=full,enum=half,enum=quarter" jsonschema_description:"Size of the picture: full (default), half or quarter."`
	Rate    word[pipeline.Rate]   `yaml:"rate,omitempty" jsonschema_description:"Upper limit of the frames a second (default: no limit)."`
	Queue   int                   `yaml:"queue,omitempty" jsonschema:"minimum=1,maximum=64" jsonschema_description:"Number of frames that may wait (default 2)."`
	Policy  word[pipeline.Policy] `yaml:"policy,omitempty" jsonschema_description:"Which frame is lost when the output cannot keep up: latest (default) keeps the newest one, block keeps those that already wait."`
	RTP     *RTPConfig            `yaml:"rtp,omitempty" jsonschema_description:"Sends the frames as an RTP stream."`
	Results *ResultsConfig        `yaml:"results,omitempty" jsonschema_description:"Sends what the stages found in each frame, as a line of JSON."`
	FPGA    *FPGAOutConfig        `yaml:"fpga,omitempty" jsonschema_description:"Sends the frames (UYVY) to an FPGA as an H2C stream."`
}

// FPGAOutConfig is an H2C stream to the FPGA.
type FPGAOutConfig struct {
	Card    string `yaml:"card,omitempty" jsonschema_description:"Name of the source whose FPGA takes the frames (default: the source of the frames)."`
	Channel int    `yaml:"channel,omitempty" jsonschema:"minimum=0,maximum=3" jsonschema_description:"H2C channel (default 0)."`
}

// RTPConfig is an RTP stream.
type RTPConfig struct {
	Payload      word[rtp.Payload] `yaml:"payload" jsonschema_description:"raw: RFC 4175. jpeg: RFC 2435. results: what the stages found in the frames, as JSON (docs/results-output.md)."`
	Pixels       string            `yaml:"pixels,omitempty" jsonschema:"enum=uyvy,enum=uyvp,enum=rgb24" jsonschema_description:"For payload raw: uyvy (default) is 4:2:2 of 8 bits, uyvp is 4:2:2 of 10 bits, rgb24 is RGB."`
	Destinations []string          `yaml:"destinations" jsonschema:"minItems=1" jsonschema_description:"Each is host:port with an even port. RTCP goes to the next port."`
	Interface    string            `yaml:"interface,omitempty" jsonschema_description:"Network interface through which multicast leaves."`
	TTL          int               `yaml:"ttl,omitempty" jsonschema:"minimum=0,maximum=255" jsonschema_description:"Time to live of the packets: the number of routers that they may pass."`
	DSCP         int               `yaml:"dscp,omitempty" jsonschema:"minimum=0,maximum=63" jsonschema_description:"Differentiated services code point of the packets (RFC 2474)."`
	MTU          int               `yaml:"mtu,omitempty" jsonschema:"minimum=576,maximum=9000" jsonschema_description:"Largest IP packet, in bytes (default 1500)."`
	Pacing       word[rtp.Pacing]  `yaml:"pacing,omitempty" jsonschema_description:"frame (default): packets are spread over the frame period, in trains of up to 16. wide: in trains of up to 8. narrow: in trains of up to 4. burst: packets are not spread."`
	Clock        string            `yaml:"clock,omitempty" jsonschema_description:"What disciplines the machine's clock, for the SDP, as ptp=IEEE1588-2008:GRANDMASTER:DOMAIN (default: the machine's own clock)."`
	CaptureTime  bool              `yaml:"capture_time,omitempty" jsonschema_description:"Put the capture time of each frame into its packets, as the header extension abs-capture-time."`
	Checksum     bool              `yaml:"checksum,omitempty" jsonschema_description:"Send the CRC-32C of each frame by RTCP, for tegracast probe."`
	Session      string            `yaml:"session,omitempty" jsonschema_description:"For payload results: name of the output whose SDP describes this stream, too."`
	Quality      int               `yaml:"quality,omitempty" jsonschema:"minimum=1,maximum=100" jsonschema_description:"For payload jpeg: quality of the pictures (default 90)."`
}

// word is a value that is one word in the file, and that knows how to read itself.
type word[T any] struct{ V T }

// UnmarshalYAML implements yaml.NodeUnmarshaler, so that a word that cannot be read is reported with its place.
func (w *word[T]) UnmarshalYAML(node ast.Node) error {
	var err error
	switch v := any(&w.V).(type) {
	case encoding.TextUnmarshaler:
		err = v.UnmarshalText([]byte(node.GetToken().Value))
	case *time.Duration:
		if *v, err = time.ParseDuration(node.GetToken().Value); err != nil {
			err = fmt.Errorf("%q: write a time such as 8ms", node.GetToken().Value)
		}
	}
	if err != nil {
		return &yaml.SyntaxError{Message: err.Error(), Token: node.GetToken()}
	}
	return nil
}

// document is a configuration with the text that it was read from, to tell where something stands.
type document struct {
	Config
	path string
	tree *ast.File
	isps []isp.Config // what the sections of Config.ISP and their files say
}

// readConfig reads and checks a configuration file; without a path it is the default one. Every error is a
// usageError that names file, line and column.
func readConfig(path string) (*document, error) {
	text := defaultYAML
	if path == "" {
		path = "default configuration"
	} else {
		b, err := readText(path)
		if err != nil {
			return nil, usageError{err}
		}
		text = b
	}
	d, err := parseConfig(path, text)
	if err != nil {
		return nil, usageError{err}
	}
	return d, nil
}

// maxConfig is the longest configuration file in bytes: a long one has a few thousand.
const maxConfig = 1 << 20

func readText(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: write one with `tegracast config default`", err)
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxConfig+1))
	switch {
	case errors.Is(err, syscall.EISDIR):
		return nil, fmt.Errorf("%s is a directory: name the configuration file in it", path)
	case err != nil:
		return nil, err
	case len(b) > maxConfig:
		return nil, fmt.Errorf("%s is longer than %d bytes: that cannot be a configuration", path, maxConfig)
	}
	return b, nil
}

func parseConfig(path string, text []byte) (d *document, err error) {
	d = &document{path: path}
	defer func() { // a file must not end the program, whatever it does to the library
		if r := recover(); r != nil {
			err = fmt.Errorf("%s:1:1: the YAML library cannot read this file: %v", path, r)
		}
	}()
	if d.tree, err = parser.ParseBytes(text, 0); err != nil {
		return nil, d.located(err)
	}
	if err := d.checkTypes(); err != nil {
		return nil, err
	}
	if err := yaml.NodeToValue(d.tree.Docs[0].Body, &d.Config, yaml.Strict()); err != nil {
		return nil, d.located(err)
	}
	return d, d.check()
}

// located puts "file:line:column: " in front of what the YAML library says.
func (d *document) located(err error) error {
	var y yaml.Error
	if !errors.As(err, &y) || y.GetToken() == nil {
		return fmt.Errorf("%s:1:1: %w", d.path, err)
	}
	what := fmt.Sprintf("%q", y.GetToken().Value)
	if message := y.GetMessage(); !strings.Contains(message, what) {
		what += ": " + message
	} else {
		what = message
	}
	p := y.GetToken().Position
	return fmt.Errorf("%s:%d:%d: %s", d.path, p.Line, p.Column, what)
}

// errorAt is an error at the place of a YAML path such as $.outputs[0].rtp.mtu, or of the nearest part above it that the
// file has.
func (d *document) errorAt(path, format string, a ...any) error {
	message := fmt.Sprintf(format, a...)
	for p := path; p != "$" && p != ""; p = parentPath(p) {
		yp, err := yaml.PathString(p)
		if err != nil {
			continue
		}
		if node, err := yp.FilterFile(d.tree); err == nil && node != nil {
			return d.refuse(node, path, "%s", message)
		}
	}
	return fmt.Errorf("%s:1:1: %s: %s", d.path, path[2:], message)
}

// parentPath cuts the last part off a YAML path.
func parentPath(p string) string {
	for i := len(p) - 1; i > 0; i-- {
		if p[i] == '.' || p[i] == '[' {
			return p[:i]
		}
	}
	return ""
}
