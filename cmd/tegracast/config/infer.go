// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"image"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline/infer"
	"github.com/tegracast/tegracast/pipeline/infer/postprocess"
	"github.com/tegracast/tegracast/pipeline/share"
)

// Infer is a stage that runs a model on the frames. It passes them on with the model's results.
type Infer struct {
	Name      string      `yaml:"name" jsonschema:"pattern=^[A-Za-z0-9_-]+$,maxLength=64" jsonschema_description:"Name of the stage, used by outputs and in its results."`
	From      string      `yaml:"from,omitempty" jsonschema_description:"Name of a source, of an isp, of a kernel that makes frames, or of a stage above this one that passes frames on (default: the first isp, or, without one, the first source)."`
	Pixels    string      `yaml:"pixels,omitempty" jsonschema:"enum=uyvy,enum=rgb24,enum=grey,enum=i420,enum=nv12" jsonschema_description:"Pixel format of the frames, if they come from an isp (default uyvy). The outputs behind the stage send the same pixels."`
	Model     string      `yaml:"model" jsonschema:"minLength=1" jsonschema_description:"Path of the model, an ONNX file. In a configuration that comes from the page it must be in the folder web.models."`
	Input     InferInput  `yaml:"input,omitempty" jsonschema_description:"How a frame becomes the model's input."`
	Output    InferOutput `yaml:"output" jsonschema_description:"How the model's outputs become results."`
	Providers []string    `yaml:"providers,omitempty" jsonschema:"minItems=1,maxItems=3,uniqueItems=true,enum=tensorrt,enum=cuda,enum=cpu" jsonschema_description:"What runs the model: the first of these that can (default [cpu]; write [tensorrt, cuda, cpu] to use a GPU)."`
	Every     int         `yaml:"every,omitempty" jsonschema:"minimum=1,maximum=1048576" jsonschema_description:"The model gets every n-th frame (default 1)."`
	Deadline  Duration    `yaml:"deadline,omitempty" jsonschema_description:"How long a frame waits for its results at most (default 100ms; at most 1s, and 60 frame periods). It goes on without results then."`
	Threads   int         `yaml:"threads,omitempty" jsonschema:"minimum=1,maximum=64" jsonschema_description:"Threads of the CPU that the model runs on (default: half of the processors)."`
	Memory    int         `yaml:"memory,omitempty" jsonschema:"minimum=512,maximum=1048576" jsonschema_description:"MiB of memory that the model's process may use, without a GPU's memory (default 4096)."`
	Library   string      `yaml:"library,omitempty" jsonschema_description:"Path of ONNX Runtime's library, 1.17 or newer (default: libonnxruntime.so.1 where the system has its libraries)."`

	passed passed
	labels []string
}

// InferInput is the model's input.
type InferInput struct {
	Crop      []int     `yaml:"crop,omitempty" jsonschema:"minItems=4,maxItems=4" jsonschema_description:"Part of the frame in pixels: [x, y, width, height] (default: the whole)."`
	Size      []int     `yaml:"size,omitempty" jsonschema:"minItems=2,maxItems=2" jsonschema_description:"[width, height] of the input in pixels, if the model's file leaves it open."`
	Layout    string    `yaml:"layout,omitempty" jsonschema:"enum=nchw,enum=nhwc" jsonschema_description:"Order of the dimensions: channels before (nchw, default) or after height and width (nhwc)."`
	Colors    string    `yaml:"colors,omitempty" jsonschema:"enum=rgb,enum=bgr" jsonschema_description:"Order of the channels (default rgb)."`
	Letterbox bool      `yaml:"letterbox,omitempty" jsonschema_description:"Keep the aspect ratio, and fill the rest; else the picture is stretched."`
	Fill      float64   `yaml:"fill,omitempty" jsonschema:"minimum=0,maximum=255" jsonschema_description:"Sample that fills the rest, from 0 (default) to 255."`
	Mean      []float64 `yaml:"mean,omitempty" jsonschema:"minItems=1,maxItems=3" jsonschema_description:"What is subtracted from samples of 0 to 255: a number for each channel, or one for all (default [0])."`
	Scale     []float64 `yaml:"scale,omitempty" jsonschema:"minItems=1,maxItems=3" jsonschema_description:"What the differences are multiplied by, likewise (default [1]); 0.00392157 makes 0 to 1 of samples."`
}

// InferOutput says how the model's outputs become results.
type InferOutput struct {
	Kind      string   `yaml:"kind" jsonschema:"enum=classes,enum=heatmap,enum=detections" jsonschema_description:"What the model finds (docs/inference.md): classes of the whole picture, a heatmap whose spots become regions, or detections as torchvision's models deliver them."`
	Labels    string   `yaml:"labels,omitempty" jsonschema_description:"Path of a text file with the name of a class in each line, from class 0 on."`
	Threshold *float64 `yaml:"threshold,omitempty" jsonschema:"minimum=0,maximum=1" jsonschema_description:"Lowest score of a result (default 0.5)."`
	NMS       float64  `yaml:"nms,omitempty" jsonschema:"minimum=0,maximum=1" jsonschema_description:"Of detections of a class that overlap by more than this (intersection over union), only the best is kept (default 0: all are)."`
	Expand    float64  `yaml:"expand,omitempty" jsonschema:"minimum=0,maximum=8" jsonschema_description:"For a heatmap: regions grow on each side by this times area/perimeter (default 0; text detectors of the kind DB need 1.5)."`
}

const (
	defaultModelMemory    = 4096 // MiB
	defaultModelThreshold = 0.5
	defaultModels         = "/etc/tegracast/models"
)

func (c *Infer) head() (name, from *string) { return &c.Name, &c.From }

// Config returns the stage's configuration, without what the appliance adds: the command, and folders.
func (c *Infer) Config() infer.StageConfig {
	in, out := &c.Input, &c.Output
	model := infer.Config{
		Model: c.Model, Library: c.Library, Threads: c.Threads, Memory: uint64(c.Memory) << 20, Every: c.Every,
		Input: infer.Input{
			NHWC: in.Layout == "nhwc", BGR: in.Colors == "bgr", Letterbox: in.Letterbox, Fill: in.Fill,
			Mean: channels(in.Mean, 0), Scale: channels(in.Scale, 1),
		},
		Output: infer.Output{Kind: postprocess.Kind(out.Kind), Labels: c.labels, Threshold: *out.Threshold, NMS: out.NMS, Expand: out.Expand},
	}
	if k := in.Crop; len(k) == 4 {
		model.Input.Crop = image.Rect(k[0], k[1], k[0]+k[2], k[1]+k[3])
	}
	if k := in.Size; len(k) == 2 {
		model.Input.Width, model.Input.Height = k[0], k[1]
	}
	return infer.StageConfig{
		StageConfig: share.StageConfig{Name: c.Name, Pixels: c.passed.pixel, Turned: c.passed.turned, Deadline: c.Deadline.V, Waits: c.passed.waits},
		Infer:       model,
		Providers:   c.Providers,
	}
}

// channels returns a number for each channel.
func channels(list []float64, other float64) [3]float64 {
	switch len(list) {
	case 3:
		return [3]float64(list)
	case 1:
		other = list[0]
	}
	return [3]float64{other, other, other}
}

func (c *Infer) resolve(r *resolver, at yamlfile.Section, s *Stage) error {
	if len(c.Providers) == 0 {
		c.Providers = []string{"cpu"}
	}
	c.Memory, c.Every, c.Deadline.V = cmp.Or(c.Memory, defaultModelMemory), cmp.Or(c.Every, 1), cmp.Or(c.Deadline.V, share.DefaultDeadline)
	if c.Output.Threshold == nil {
		c.Output.Threshold = new(float64)
		*c.Output.Threshold = defaultModelThreshold
	}
	in, err := c.passed.resolve(r, at, c.From, c.Pixels)
	if err != nil {
		return err
	}
	s.OpenAt = at.Key("model").Place()
	if err := c.passed.finish(r, at, s, c.From, in, c.Config().StageConfig); err != nil {
		return err
	}
	return c.check(r, at, s, in)
}

// check refuses numbers that are not possible, and a model that does not fit.
func (c *Infer) check(r *resolver, at yamlfile.Section, s *Stage, in Pictures) error {
	for _, list := range []struct {
		key     string
		numbers []float64
	}{{"mean", c.Input.Mean}, {"scale", c.Input.Scale}} {
		if len(list.numbers) == 2 {
			return at.Key("input").Key(list.key).Errorf("two numbers: write one for all channels, or three")
		}
	}
	for i, p := range c.Providers {
		if !slices.Contains(infer.Providers, p) || slices.Contains(c.Providers[:i], p) {
			return at.Key("providers").Element(i).Errorf("%q: write tensorrt, cuda and cpu, each at most once", p)
		}
	}
	if slices.ContainsFunc(c.Input.Size, func(n int) bool { return n < 1 || n > 8192 }) {
		return at.Key("input").Key("size").Errorf("%v: write [width, height], each from 1 to 8192", c.Input.Size)
	}
	if k := c.Input.Crop; len(k) == 4 && (min(k[0], k[1]) < 0 || min(k[2], k[3]) < 1) {
		return at.Key("input").Key("crop").Errorf("%v: write [x, y, width, height], with a width and a height above 0", k)
	}
	if err := c.checkFolder(r, at); err != nil {
		return err
	}
	if path := c.Output.Labels; path != "" {
		var err error
		if c.labels, err = postprocess.ReadLabels(path); err != nil {
			return at.Key("output").Key("labels").Errorf("%w", err)
		}
	}
	plan, err := infer.NewPlan(c.Config().Infer)
	if err != nil {
		return at.Key("model").Errorf("%w", err)
	}
	s.digest = fmt.Sprintf("%s %x", plan.Model.Digest, sha256.Sum256([]byte(strings.Join(c.labels, "\n"))))
	source := r.out.Source(r.out.origin(c.From))
	if !source.FormatKnown || in.Pixel == 0 {
		return nil // the process finds it
	}
	f, err := source.Format.As(in.Pixel, in.Turned)
	if err != nil {
		return at.Key("pixels").Errorf("%w", err)
	}
	if _, err := plan.Preprocessor(f); err != nil {
		return at.Key("input").Errorf("%w", err)
	}
	return nil
}

// checkFolder returns an error if a text that comes from the page has a file that the page may not choose: neither one of
// the installed configuration, nor, for models and labels, one in the folder of models.
func (c *Infer) checkFolder(r *resolver, at yamlfile.Section) error {
	if r.installed == nil {
		return nil
	}
	known := map[string]bool{"": true}
	if f := r.installed.file; f != nil {
		for _, k := range f.Infer {
			known[k.Model], known[k.Output.Labels], known[k.Library] = true, true, true
		}
	}
	folder := cmp.Or(r.installed.Web.Models, defaultModels)
	if r.installed.file == nil {
		folder = ""
	}
	for _, x := range []struct {
		at   yamlfile.Section
		path string
	}{{at.Key("model"), c.Model}, {at.Key("output").Key("labels"), c.Output.Labels}} {
		switch {
		case known[x.path] || within(folder, x.path):
		case folder == "":
			return x.at.Errorf("%q: the page cannot choose models while the installed configuration has a mistake", x.path)
		default:
			return x.at.Errorf("%q: on the page, a model's files must be in %s (web.models of the installed file)", x.path, folder)
		}
	}
	if !known[c.Library] {
		return at.Key("library").Errorf("%q: the page cannot change the library: write it into the installed file", c.Library)
	}
	return nil
}

// within reports whether path is that of a file in folder, also after links have been followed.
func within(folder, path string) bool {
	if folder == "" {
		return false
	}
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return false
	}
	path, err = filepath.EvalSymlinks(path)
	return err == nil && filepath.IsAbs(path) && strings.HasPrefix(path, folder+"/")
}

// checkDeviceOnly implements StageKind.
func (c *Infer) checkDeviceOnly(at yamlfile.Section, source string) error {
	return c.passed.checkDeviceOnly(at, source)
}

// restarts implements StageKind.
func (c *Infer) restarts() StageKind { return c }
