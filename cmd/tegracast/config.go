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
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

//go:embed default.yaml
var defaultYAML []byte

// Config is the configuration file.
type Config struct {
	Memory  string         `yaml:"memory,omitempty" jsonschema:"enum=auto,enum=cuda,enum=host,description=where frame memory comes from; auto takes CUDA where it works"`
	Sources []SourceConfig `yaml:"sources" jsonschema:"minItems=1,description=where frames come from"`
	ISP     []ISPConfig    `yaml:"isp,omitempty" jsonschema:"description=stages that make pictures out of Bayer frames"`
	Kernels []KernelConfig `yaml:"kernels,omitempty" jsonschema:"description=stages that are CUDA kernels of your own (docs/kernels/README.md)"`
	Outputs []OutputConfig `yaml:"outputs" jsonschema:"minItems=1,description=where frames go to"`
	GPIO    GPIOConfig     `yaml:"gpio,omitempty" jsonschema:"description=lines of the board: trigger and strobe and so on"`
	Web     WebConfig      `yaml:"web,omitempty" jsonschema:"description=metrics and health over HTTP"`
}

// SourceConfig is a source; exactly one of FPGA, Model and File is given.
type SourceConfig struct {
	Name  string `yaml:"name" jsonschema:"pattern=^[A-Za-z0-9_-]+$,maxLength=64"`
	Slots int    `yaml:"slots,omitempty" jsonschema:"minimum=3,maximum=64,description=frames of memory; default 8"`

	WriteCombined bool `yaml:"write_combined,omitempty" jsonschema:"description=that memory is for the GPU alone: the CPU must not read it; of bare streams with memory: cuda"`

	FPGA  *CameraConfig `yaml:"fpga,omitempty" jsonschema:"description=a camera of an FPGA on PCI Express"`
	Model *ModelConfig  `yaml:"model,omitempty" jsonschema:"description=the FPGA camera in software"`
	File  *FileConfig   `yaml:"file,omitempty" jsonschema:"description=replays a file"`
}

// CameraConfig is a camera of an FPGA that the kernel module tegra_p2p drives.
type CameraConfig struct {
	Device    string              `yaml:"device" jsonschema:"pattern=^/,description=device file of the kernel module such as /dev/tegra_p2p0; several cameras may share one"`
	Stream    string              `yaml:"stream,omitempty" jsonschema:"enum=camera,enum=bare,description=camera: a camera block and trailers; bare: packets of a frame's pixels and nothing else (docs/fpga-interface.md); default camera"`
	Camera    int                 `yaml:"camera,omitempty" jsonschema:"minimum=0,maximum=15,description=number of the camera on the FPGA; default 0"`
	Channel   int                 `yaml:"channel,omitempty" jsonschema:"minimum=0,maximum=3,description=C2H channel of a bare stream; default 0"`
	Width     int                 `yaml:"width" jsonschema:"minimum=2,maximum=32768,description=pixels"`
	Height    int                 `yaml:"height" jsonschema:"minimum=2,maximum=32768,description=lines"`
	Sensor    *SensorConfig       `yaml:"sensor,omitempty" jsonschema:"description=how its samples lie in memory; default: RGGB of 10 bits"`
	Rate      word[pipeline.Rate] `yaml:"rate,omitempty" jsonschema:"description=frames a second as 30 or 30000/1001; default 30"`
	Exposure  word[time.Duration] `yaml:"exposure,omitempty" jsonschema:"description=such as 8ms; default: the sensor's"`
	Gain      float64             `yaml:"gain,omitempty" jsonschema:"minimum=0.00390625,maximum=256,description=of the sensor; default: as it is"`
	Poll      bool                `yaml:"poll,omitempty" jsonschema:"description=look for completions in memory instead of waiting for interrupts; the same for all sources of a device; default false"`
	Triggered bool                `yaml:"triggered,omitempty" jsonschema:"description=a frame for each trigger instead of rate frames a second; rate is what the triggers have"`
}

// ModelConfig is the FPGA camera in software.
type ModelConfig struct {
	Stream   string              `yaml:"stream,omitempty" jsonschema:"enum=camera,enum=bare,description=bare: without camera block and trailers as a stock design has it; default camera"`
	Replay   string              `yaml:"replay,omitempty" jsonschema:"description=headerless raw file of one or more frames that the sensor delivers; default: a real test chart at 1920x1080"`
	Width    int                 `yaml:"width,omitempty" jsonschema:"minimum=64,maximum=32768,description=pixels; default 1920"`
	Height   int                 `yaml:"height,omitempty" jsonschema:"minimum=2,maximum=32768,description=lines; default 1080"`
	Sensor   *SensorConfig       `yaml:"sensor,omitempty" jsonschema:"description=how the samples of replay lie in it; default: RGGB of 10 bits"`
	Rate     word[pipeline.Rate] `yaml:"rate,omitempty" jsonschema:"description=frames a second as 30 or 30000/1001; default 30"`
	Exposure word[time.Duration] `yaml:"exposure,omitempty" jsonschema:"description=such as 8ms; the picture is that of replay at 10ms (or half the frame period if that is less), which is the default"`
	Shift    *int                `yaml:"shift,omitempty" jsonschema:"minimum=0,multipleOf=2,description=even number of pixels by which the picture moves from frame to frame; default 2"`
	Seed     uint64              `yaml:"seed,omitempty" jsonschema:"description=of the scattered bus addresses and of the faults"`
	Faults   map[string]float64  `yaml:"faults,omitempty" jsonschema:"description=faults F1 to F12 (docs/faults.md) and the share of frames at which each happens"`
}

// FileConfig replays a file.
type FileConfig struct {
	Path   string              `yaml:"path" jsonschema:"minLength=1,description=a .y4m file or headerless frames of a sensor"`
	Width  int                 `yaml:"width,omitempty" jsonschema:"minimum=2,maximum=32768,description=pixels; for headerless files"`
	Height int                 `yaml:"height,omitempty" jsonschema:"minimum=2,maximum=32768,description=lines; for headerless files"`
	Sensor *SensorConfig       `yaml:"sensor,omitempty" jsonschema:"description=how the samples lie in a headerless file; default: RGGB of 10 bits"`
	Rate   word[pipeline.Rate] `yaml:"rate,omitempty" jsonschema:"description=frames a second; default: the file's or 30"`
	Once   bool                `yaml:"once,omitempty" jsonschema:"description=end after the last frame instead of beginning again"`
}

// SensorConfig says how a sensor's samples lie in memory.
type SensorConfig struct {
	Mosaic string `yaml:"mosaic,omitempty" jsonschema:"enum=rggb,enum=grbg,enum=gbrg,enum=bggr,enum=mono,description=colours of the first two samples of the first two lines; default rggb"`
	Bits   int    `yaml:"bits,omitempty" jsonschema:"minimum=8,maximum=16,multipleOf=2,description=of a sample; above 8 in 16-bit words; default 10"`
	Packed bool   `yaml:"packed,omitempty" jsonschema:"description=RAW10 or RAW12 as MIPI CSI-2 packs them; of files only"`
}

// OutputConfig is an output; exactly one of RTP, Results and FPGA is given.
type OutputConfig struct {
	Name    string                `yaml:"name" jsonschema:"pattern=^[A-Za-z0-9_-]+$,maxLength=64"`
	From    string                `yaml:"from,omitempty" jsonschema:"description=name of a source or an isp or a kernel; default: the first isp of the first source"`
	Scale   string                `yaml:"scale,omitempty" jsonschema:"enum=full,enum=half,enum=quarter,description=size of the picture; default full"`
	Rate    word[pipeline.Rate]   `yaml:"rate,omitempty" jsonschema:"description=at most so many frames a second; default: all"`
	Queue   int                   `yaml:"queue,omitempty" jsonschema:"minimum=1,maximum=64,description=frames that may wait; default 2"`
	Policy  word[pipeline.Policy] `yaml:"policy,omitempty" jsonschema:"description=which frame is lost when the output cannot keep up: latest keeps the newest and block what waits already"`
	RTP     *RTPConfig            `yaml:"rtp,omitempty" jsonschema:"description=sends the frames as an RTP stream"`
	Results *ResultsConfig        `yaml:"results,omitempty" jsonschema:"description=sends what stages have found in each frame as a line of JSON"`
	FPGA    *FPGAOutConfig        `yaml:"fpga,omitempty" jsonschema:"description=sends the frames (UYVY) to an FPGA as an H2C stream"`
}

// FPGAOutConfig is an H2C stream to the FPGA.
type FPGAOutConfig struct {
	Card    string `yaml:"card,omitempty" jsonschema:"description=name of the source whose FPGA it is; default: the one that the frames come from"`
	Channel int    `yaml:"channel,omitempty" jsonschema:"minimum=0,maximum=3,description=H2C channel; default 0"`
}

// RTPConfig is an RTP stream.
type RTPConfig struct {
	Payload      word[rtp.Payload] `yaml:"payload" jsonschema:"description=raw: RFC 4175; jpeg: RFC 2435; results: what stages have found in the frames as JSON (docs/results-output.md)"`
	Pixels       string            `yaml:"pixels,omitempty" jsonschema:"enum=uyvy,enum=uyvp,enum=rgb24,description=of raw: 4:2:2 of 8 bits (default) or of 10 bits; or RGB"`
	Destinations []string          `yaml:"destinations" jsonschema:"minItems=1,description=host:port with an even port; RTCP goes to the next one"`
	Interface    string            `yaml:"interface,omitempty" jsonschema:"description=by which multicast leaves"`
	TTL          int               `yaml:"ttl,omitempty" jsonschema:"minimum=0,maximum=255"`
	DSCP         int               `yaml:"dscp,omitempty" jsonschema:"minimum=0,maximum=63"`
	MTU          int               `yaml:"mtu,omitempty" jsonschema:"minimum=576,maximum=9000,description=default 1500"`
	Pacing       word[send.Pacing] `yaml:"pacing,omitempty" jsonschema:"description=frame: packets spread over the frame period in trains of up to 16; wide: of up to 8; narrow: of up to 4; burst: not spread"`
	Clock        string            `yaml:"clock,omitempty" jsonschema:"description=what the machine's clock is disciplined by as ptp=IEEE1588-2008:GRANDMASTER:DOMAIN; for the SDP; default: its own clock"`
	CaptureTime  bool              `yaml:"capture_time,omitempty" jsonschema:"description=put each frame's time of capture into its packets as header extension abs-capture-time"`
	Checksum     bool              `yaml:"checksum,omitempty" jsonschema:"description=send each frame's CRC-32C by RTCP for tegracast probe"`
	Session      string            `yaml:"session,omitempty" jsonschema:"description=of results: name of the output in whose SDP they stand too"`
	Quality      int               `yaml:"quality,omitempty" jsonschema:"minimum=1,maximum=100,description=of JPEG; default 90"`
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
