// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"errors"
	"fmt"
	"image"
	"maps"
	"slices"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/onnx"
	"github.com/tegracast/tegracast/pipeline/infer/onnxruntime"
	"github.com/tegracast/tegracast/pipeline/infer/postprocess"
	"github.com/tegracast/tegracast/pipeline/infer/preprocess"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// ErrModel is wrapped by errors about a model that does not fit its configuration.
var ErrModel = errors.New("the model does not fit")

// Providers are the execution providers of ONNX Runtime that a model can run with.
var Providers = []string{onnxruntime.TensorRT, onnxruntime.CUDA, onnxruntime.CPU}

// A Config describes a model.
type Config struct {
	Model   string // path of the ONNX file
	Library string // path of ONNX Runtime; "": the usual places
	Threads int    // of the CPU
	Memory  uint64 // bytes that the process may use, without a GPU's memory
	Cache   string // folder for engines of TensorRT, which need minutes to be made; "": they are not kept
	Every   int    // the model gets every n-th frame
	Input   Input
	Output  Output
}

// A Task is the work of a process, which gets it as JSON.
type Task struct {
	Config   Config
	Provider string          // one of Providers
	Format   pipeline.Format // of the frames
}

// Input says how a frame becomes the model's input.
type Input struct {
	Crop          image.Rectangle // part of the frame; empty: the whole
	Width, Height int             // of the input in pixels; 0: as in the model's file
	NHWC          bool            // the channels are the last dimension, else the first after the batch
	BGR           bool            // order of the colours; else RGB
	Letterbox     bool            // the aspect ratio is kept, and the rest filled with Fill; else the picture is stretched
	Fill          float64         // sample, 0 to 255
	Mean, Scale   [3]float64      // by channel: input = (sample - Mean) * Scale, with samples from 0 to 255
}

// Output says how the model's outputs become results.
type Output struct {
	Kind      postprocess.Kind
	Labels    []string
	Threshold float64 // 0 to 1
	NMS       float64 // intersection over union above which the lower score is left out; 0: nothing is
	Expand    float64 // by how much boxes of a heat map grow: Expand * area / perimeter on each side
}

// A Plan is a Config that fits a model.
type Plan struct {
	Model  *onnx.Model
	Input  tensor.Info // of the model, with the size that it gets
	config Config
}

// limits bound the files of a model.
var limits = onnx.Limits{}

// NewPlan reads the model's file and compares it with the configuration. Errors say which key is wrong, and wrap ErrModel
// unless the file cannot be read.
func NewPlan(c Config) (*Plan, error) {
	m, err := onnx.Open(c.Model, limits)
	if err != nil {
		return nil, err
	}
	in, err := c.Input.fit(m.Inputs)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrModel, err)
	}
	p := &Plan{Model: m, Input: in, config: c}
	if _, err := p.Postprocessor(pipeline.Format{}); err != nil {
		return nil, fmt.Errorf("%w: output: %w", ErrModel, err)
	}
	return p, nil
}

// fit returns the model's input with the configured size.
func (c *Input) fit(inputs []tensor.Info) (in tensor.Info, err error) {
	if len(inputs) != 1 {
		return in, fmt.Errorf("input: the model has %d inputs, %v, and must have one", len(inputs), inputs)
	}
	in = inputs[0]
	switch {
	case in.Type != tensor.Float32 && in.Type != tensor.Float16 && in.Type != tensor.Uint8:
		return in, fmt.Errorf("input: %s: must have elements of float32, float16 or uint8", in)
	case len(in.Shape) != 3 && len(in.Shape) != 4:
		return in, fmt.Errorf("input: %s: must have the dimensions batch, channels, height and width (or without batch)", in)
	}
	in.Shape = append([]int64(nil), in.Shape...)
	dims := in.Shape
	if len(dims) == 4 {
		if dims[0] != 1 && dims[0] != tensor.Dynamic {
			return in, fmt.Errorf("input: %s: the batch has %d pictures, and must have 1", in, dims[0])
		}
		dims[0], dims = 1, dims[1:]
	}
	channels, height, width := &dims[0], &dims[1], &dims[2]
	if c.NHWC {
		height, width, channels = channels, height, width
	}
	if *channels == tensor.Dynamic {
		*channels = 3
	}
	if *channels != 1 && *channels != 3 {
		other := "nhwc"
		if c.NHWC {
			other = "nchw"
		}
		return in, fmt.Errorf("input.layout: %s has %d channels, and must have 1 or 3: is its layout %s?", in, *channels, other)
	}
	for _, side := range []struct {
		name string
		of   *int64
		want int
	}{{"width", width, c.Width}, {"height", height, c.Height}} {
		if *side.of == tensor.Dynamic {
			*side.of = int64(side.want)
		}
		switch {
		case *side.of == 0:
			return in, fmt.Errorf("input.size: the model leaves its %s open: write the size", side.name)
		case side.want != 0 && *side.of != int64(side.want):
			return in, fmt.Errorf("input.size: the model has a %s of %d, and size has %d", side.name, *side.of, side.want)
		}
	}
	return in, nil
}

// dimensions returns the sizes that the input gives to dimensions which the model's file names. It leaves out a name of two
// sizes, which the model cannot mean.
func (p *Plan) dimensions() map[string]int64 {
	sizes, twice := map[string]int64{}, map[string]bool{}
	for i, name := range p.Model.Dimensions[0] {
		size, known := sizes[name]
		twice[name] = twice[name] || name == "" || known && size != p.Input.Shape[i]
		sizes[name] = p.Input.Shape[i]
	}
	maps.DeleteFunc(sizes, func(name string, _ int64) bool { return twice[name] })
	return sizes
}

// is returns an error if ONNX Runtime has found other inputs and outputs than the plan: somebody has changed the file.
func (p *Plan) is(inputs, outputs []tensor.Info) error {
	same := func(a, b tensor.Info) bool { return a.Name == b.Name && a.Type == b.Type }
	if !slices.EqualFunc(p.Model.Inputs, inputs, same) || !slices.EqualFunc(p.Model.Outputs, outputs, same) {
		return fmt.Errorf("%w: its file has changed while it was read, from %v to %v", ErrModel, p.Model.Inputs, inputs)
	}
	return nil
}

// Preprocessor returns the preprocessor for frames of format f.
func (p *Plan) Preprocessor(f pipeline.Format) (*preprocess.Preprocessor, error) {
	c, err := p.preprocessing(f)
	if err != nil {
		return nil, err
	}
	return preprocess.New(c)
}

func (p *Plan) preprocessing(f pipeline.Format) (preprocess.Config, error) {
	in := &p.config.Input
	if whole := image.Rect(0, 0, f.Width, f.Height); !in.Crop.In(whole) {
		return preprocess.Config{}, fmt.Errorf("%w: input.crop: [%d %d %d %d] is not within the frame, which has %d x %d pixels",
			ErrModel, in.Crop.Min.X, in.Crop.Min.Y, in.Crop.Dx(), in.Crop.Dy(), f.Width, f.Height)
	}
	dims := p.Input.Shape[len(p.Input.Shape)-3:]
	channels, height, width := dims[0], dims[1], dims[2]
	if in.NHWC {
		height, width, channels = dims[0], dims[1], dims[2]
	}
	return preprocess.Config{
		Format: f, Crop: in.Crop, Width: int(width), Height: int(height), Channels: int(channels), Type: p.Input.Type, NHWC: in.NHWC, BGR: in.BGR,
		Letterbox: in.Letterbox, Fill: in.Fill, Mean: in.Mean, Scale: in.Scale,
	}, nil
}

// Postprocessor returns the postprocessor for frames of format f.
func (p *Plan) Postprocessor(f pipeline.Format) (*postprocess.Postprocessor, error) {
	o := &p.config.Output
	return postprocess.New(postprocess.Config{
		Kind: o.Kind, Labels: o.Labels, Threshold: o.Threshold, NMS: o.NMS, Expand: o.Expand,
		Width: f.Width, Height: f.Height, Outputs: p.Model.Outputs, Operators: p.Model.OutputOperators,
	})
}
