package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/kernel"
)

// KernelConfig is a stage that is a user's own CUDA kernel.
type KernelConfig struct {
	Name       string              `yaml:"name" jsonschema:"pattern=^[A-Za-z0-9_-]+$,maxLength=64" jsonschema_description:"Name of the stage, by which kernels and outputs refer to it."`
	From       string              `yaml:"from,omitempty" jsonschema_description:"Name of a source, of an isp, or of a kernel above this one (default: the first isp, or, without one, the first source)."`
	File       string              `yaml:"file" jsonschema:"minLength=1" jsonschema_description:"CUDA C++ (docs/kernels/README.md). It is compiled when the program starts and whenever the file changes."`
	Entry      string              `yaml:"entry,omitempty" jsonschema_description:"Name of the function (default: the name of the file without its extension)."`
	Pixels     string              `yaml:"pixels,omitempty" jsonschema:"enum=uyvy,enum=uyvp,enum=rgb24,enum=grey,enum=i420,enum=nv12" jsonschema_description:"Pixel format that the kernel wants of an isp (default uyvy)."`
	Output     string              `yaml:"output,omitempty" jsonschema:"enum=frame,enum=results" jsonschema_description:"What the kernel makes: frame (default) is frames like those that it gets, results is results."`
	Parameters map[string]float64  `yaml:"parameters,omitempty" jsonschema_description:"Fields of struct parameters."`
	Numbers    []string            `yaml:"numbers,omitempty" jsonschema:"maxItems=64" jsonschema_description:"For results: fields of struct numbers."`
	Labels     []string            `yaml:"labels,omitempty" jsonschema:"maxItems=64" jsonschema_description:"For results: names of the labels 0, 1 and so on of the regions."`
	Bins       int                 `yaml:"bins,omitempty" jsonschema:"minimum=0,maximum=4096" jsonschema_description:"For results: number of bins (default 0)."`
	State      int                 `yaml:"state,omitempty" jsonschema:"minimum=0,maximum=1073741824" jsonschema_description:"Bytes of device memory that keep their contents from frame to frame (default 0)."`
	TimeLimit  word[time.Duration] `yaml:"time_limit,omitempty" jsonschema_description:"Longest time for one frame (default 1s). A kernel that takes longer is taken to hang, and ends the program."`
}

func (d *document) kernel(name string) *KernelConfig {
	if i := slices.IndexFunc(d.Kernels, func(c KernelConfig) bool { return c.Name == name }); i >= 0 {
		return &d.Kernels[i]
	}
	return nil
}

// sourceOf names the source whose frames come to the source or stage called name; the check of the configuration has
// settled every From, and that kernels go round in no circle.
func (d *document) sourceOf(name string) string {
	if c := d.kernel(name); c != nil {
		return d.sourceOf(c.From)
	}
	if c := d.isp(name); c != nil {
		return c.From
	}
	return name
}

// findsResults says whether the kernel hands on no pictures.
func (c *KernelConfig) findsResults() bool { return c != nil && c.Output == "results" }

// config is the stage's configuration.
func (d *document) kernelConfig(c *KernelConfig) kernel.Config {
	cfg := kernel.Config{
		Name: c.Name, File: c.File, Entry: c.Entry, Results: c.findsResults(), Parameters: c.Parameters, Numbers: c.Numbers,
		Labels: c.Labels, Bins: c.Bins, State: c.State, TimeLimit: c.TimeLimit.V,
	}
	if d.source(c.From) == nil {
		cfg.Pixels, _ = d.kernelPixels(c)
	}
	return cfg
}

// kernelPixels are what a kernel works on; they are not known before a file that describes itself is opened.
func (d *document) kernelPixels(c *KernelConfig) (pipeline.PixelFormat, bool) {
	if s := d.source(c.From); s != nil {
		f, known := s.format()
		return f.Pixel, known
	}
	if up := d.kernel(c.From); up != nil {
		return d.kernelPixels(up)
	}
	switch c.Pixels {
	case "uyvp":
		return pipeline.UYVP, true
	case "rgb24":
		return pipeline.RGB24, true
	case "grey":
		return pipeline.Grey, true
	case "i420":
		return pipeline.I420, true
	case "nv12":
		return pipeline.NV12, true
	}
	return pipeline.UYVY, true
}

// checkKernels checks the names before anything else: a kernel is looked up by its name.
func (d *document) checkKernels(names map[string]string) error {
	for i := range d.Kernels {
		if err := d.claim(names, fmt.Sprintf("$.kernels[%d]", i), d.Kernels[i].Name); err != nil {
			return err
		}
	}
	for i := range d.Kernels {
		if err := d.checkKernel(fmt.Sprintf("$.kernels[%d]", i), i); err != nil {
			return err
		}
	}
	return nil
}

// checkKernel settles what kernel i reads from: a source, an isp, or a kernel that stands above it.
func (d *document) checkKernel(path string, i int) error {
	c := &d.Kernels[i]
	if c.From == "" {
		if c.From = d.Sources[0].Name; len(d.ISP) > 0 {
			c.From = d.ISP[0].Name
		}
	}
	if c.Entry == "" {
		c.Entry = kernel.EntryOf(c.File)
	}
	above := slices.ContainsFunc(d.Kernels[:i], func(x KernelConfig) bool { return x.Name == c.From })
	switch {
	case d.Memory == "host":
		return d.errorAt(path, "a kernel works on the GPU: it needs memory: cuda or auto")
	case d.source(c.From) == nil && d.isp(c.From) == nil && !above:
		return d.errorAt(path+".from", "there is no source, isp or kernel above this one called %q", c.From)
	case d.kernel(c.From).findsResults():
		return d.errorAt(path+".from", "kernel %q finds results and hands on no pictures: read from what it reads", c.From)
	case c.Pixels != "" && d.isp(c.From) == nil:
		return d.errorAt(path+".pixels", "%q hands on its frames as they are: leave pixels out", c.From)
	}
	return d.checkKernelCode(path, c)
}

// checkKernelCode checks what the compiler gets.
func (d *document) checkKernelCode(path string, c *KernelConfig) error {
	for name := range c.Parameters {
		if err := kernel.CheckName(name); err != nil {
			return d.errorAt(path+".parameters", "%s", plain(err, kernel.ErrConfig))
		}
	}
	for i, name := range c.Numbers {
		if err := kernel.CheckName(name); err != nil {
			return d.errorAt(fmt.Sprintf("%s.numbers[%d]", path, i), "%s", plain(err, kernel.ErrConfig))
		}
	}
	cfg := d.kernelConfig(c)
	if err := cfg.Validate(); err != nil {
		return d.errorAt(path, "%s", plain(err, kernel.ErrConfig))
	}
	if _, err := kernel.ReadSource(c.File); err != nil {
		return d.errorAt(path+".file", "%s", plain(err, kernel.ErrConfig))
	}
	return nil
}

// checkBehindKernel checks whether an output can take what a kernel makes.
func (d *document) checkBehindKernel(path string, o *OutputConfig, c *KernelConfig) error {
	if o.tellsResults() {
		return nil
	}
	pixels, known := d.kernelPixels(c)
	switch {
	case c.findsResults():
		return d.errorAt(path+".from", "kernel %q finds results and hands on no pictures: read from %q", c.Name, c.From)
	case o.shrink() > 1:
		return d.errorAt(path+".scale", "the pictures of kernel %q are sent as they are: leave scale out", c.Name)
	case known && pixels != o.pixels():
		return d.errorAt(path+".from", "kernel %q makes %s and the output sends %s: let the kernel have such pixels", c.Name, pixels, o.pixels())
	}
	return nil
}
