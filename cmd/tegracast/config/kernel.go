// SPDX-License-Identifier: Apache-2.0

package config

import (
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/kernel"
)

// Kernel is a stage that runs a user's own CUDA kernel.
type Kernel struct {
	Name       string             `yaml:"name" jsonschema:"pattern=^[A-Za-z0-9_-]+$,maxLength=64" jsonschema_description:"Name of the stage, by which kernels and outputs refer to it."`
	From       string             `yaml:"from,omitempty" jsonschema_description:"Name of a source, of an isp, or of a kernel above this one (default: the first isp, or, without one, the first source)."`
	File       string             `yaml:"file" jsonschema:"minLength=1" jsonschema_description:"CUDA C++ (docs/kernels/README.md). It is compiled when the program starts and whenever the file changes."`
	Entry      string             `yaml:"entry,omitempty" jsonschema_description:"Name of the function (default: the name of the file without its extension)."`
	Pixels     string             `yaml:"pixels,omitempty" jsonschema:"enum=uyvy,enum=uyvp,enum=rgb24,enum=grey,enum=i420,enum=nv12" jsonschema_description:"Pixel format that the kernel wants of an isp (default uyvy)."`
	Output     string             `yaml:"output,omitempty" jsonschema:"enum=frame,enum=results" jsonschema_description:"What the kernel makes: frame (default) for frames of the same format, results for results."`
	Parameters map[string]float64 `yaml:"parameters,omitempty" jsonschema_description:"Fields of struct parameters."`
	Numbers    []string           `yaml:"numbers,omitempty" jsonschema:"maxItems=64" jsonschema_description:"For results: fields of struct numbers."`
	Labels     []string           `yaml:"labels,omitempty" jsonschema:"maxItems=64" jsonschema_description:"For results: names of the labels 0, 1 and so on of the regions."`
	Bins       int                `yaml:"bins,omitempty" jsonschema:"minimum=0,maximum=4096" jsonschema_description:"For results: number of bins (default 0)."`
	State      int                `yaml:"state,omitempty" jsonschema:"minimum=0,maximum=1073741824" jsonschema_description:"Bytes of device memory that keep their contents from frame to frame (default 0)."`
	TimeLimit  Duration           `yaml:"time_limit,omitempty" jsonschema_description:"Longest time for one frame (default 1s). A kernel that takes longer is taken to hang, and ends the program."`

	pixel  pipeline.PixelFormat // the pixel format that it gets from an isp or a kernel; 0 if it reads from a source
	turned bool                 // it gets Turned pictures
}

func (c *Kernel) head() (name, from *string) { return &c.Name, &c.From }

// results reports whether the kernel delivers results only, and no pictures.
func (c *Kernel) results() bool { return c.Output == "results" }

// Config returns the stage's configuration.
func (c *Kernel) Config() kernel.Config {
	return kernel.Config{
		Name: c.Name, File: c.File, Entry: c.Entry, Pixels: c.pixel, Turned: c.turned, Results: c.results(), Parameters: c.Parameters, Numbers: c.Numbers,
		Labels: c.Labels, Bins: c.Bins, State: c.State, TimeLimit: c.TimeLimit.V,
	}
}

// kernelPixels maps the values of the "pixels" key to the pixel formats that a kernel can request from an isp. "" is the
// default.
var kernelPixels = map[string]pipeline.PixelFormat{
	"": pipeline.UYVY, "uyvy": pipeline.UYVY, "uyvp": pipeline.UYVP, "rgb24": pipeline.RGB24,
	"grey": pipeline.Grey, "i420": pipeline.I420, "nv12": pipeline.NV12,
}

func (c *Kernel) resolve(r *resolver, at yamlfile.Section, s *Stage) error {
	if c.Entry == "" {
		c.Entry = kernel.EntryOf(c.File)
	}
	in, ok := r.out.pictures(c.From)
	switch {
	case r.out.Memory == "host":
		return at.Errorf("a kernel works on the GPU: it needs memory: cuda or auto")
	case !ok:
		return at.Key("from").Errorf("there is no source, isp or kernel above this one called %q", c.From)
	case in.None:
		return at.Key("from").Errorf("kernel %q outputs results, not pictures: give this kernel the same from as that one", c.From)
	case in.Pixel == pipeline.MJPEG:
		return at.Key("from").Errorf("%q delivers JPEG files, which %s", c.From, decodes)
	case c.Pixels != "" && !in.Any:
		return at.Key("pixels").Errorf("%q passes its frames on unchanged: leave pixels out", c.From)
	case in.Any:
		in = Pictures{Pixel: kernelPixels[c.Pixels], Known: true, Turned: in.Turned}
		c.pixel = in.Pixel
	case r.out.Source(c.From) == nil:
		c.pixel = in.Pixel
	}
	s.Pictures, s.wants, s.Holds, s.OpenAt = in, in.Pixel, kernel.Holds, at.Key("file").Place()
	s.Pictures.None, c.turned = c.results(), in.Turned
	return c.checkCode(at)
}

// checkCode checks the names that are passed to the compiler, the stage's other values, and that its file can be read.
func (c *Kernel) checkCode(at yamlfile.Section) error {
	for name := range c.Parameters {
		if err := kernel.CheckName(name); err != nil {
			return at.Key("parameters").Errorf("%s", plain(err, kernel.ErrConfig))
		}
	}
	for i, name := range c.Numbers {
		if err := kernel.CheckName(name); err != nil {
			return at.Key("numbers").Element(i).Errorf("%s", plain(err, kernel.ErrConfig))
		}
	}
	cfg := c.Config()
	if err := cfg.Validate(); err != nil {
		return at.Errorf("%s", plain(err, kernel.ErrConfig))
	}
	if _, err := kernel.ReadSource(c.File); err != nil {
		return at.Key("file").Errorf("%s", plain(err, kernel.ErrConfig))
	}
	return nil
}

// checkDeviceOnly implements StageKind.
func (c *Kernel) checkDeviceOnly(at yamlfile.Section, source string) error {
	if !c.results() {
		return at.Key("from").Errorf("the frames of %q are in write-combined memory, and the CPU copies them while the kernel is in quarantine: "+
			"write output: results, or read from an isp", source)
	}
	return nil
}

// restarts implements StageKind.
func (c *Kernel) restarts() StageKind { return c }
