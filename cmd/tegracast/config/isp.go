// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/convert"
	"github.com/tegracast/tegracast/pipeline/files"
	"github.com/tegracast/tegracast/pipeline/isp"
	"github.com/tegracast/tegracast/pipeline/isp/cuda"
)

// ISP is a stage that makes pictures from a sensor's frames, or converts those of a source of pictures.
type ISP struct {
	Name         string         `yaml:"name" jsonschema:"pattern=^[A-Za-z0-9_-]+$,maxLength=64" jsonschema_description:"Name of the stage, by which kernels and outputs refer to it."`
	From         string         `yaml:"from,omitempty" jsonschema_description:"Name of a source (default: the first one)."`
	BlackLevel   int            `yaml:"black_level,omitempty" jsonschema:"minimum=0,maximum=65534" jsonschema_description:"What the sensor delivers without light, in its units."`
	BlackLevels  *BlackLevels   `yaml:"black_levels,omitempty" jsonschema_description:"Black level of each channel, instead of black_level."`
	Defects      *Defects       `yaml:"defects,omitempty" jsonschema_description:"Hot and dead pixels to repair."`
	Shading      *Shading       `yaml:"shading,omitempty" jsonschema_description:"Corrects the fall-off of the lens."`
	WhiteBalance Gains          `yaml:"white_balance,omitempty" jsonschema_description:"Gains of the colours. With auto.white_balance, the gains to start with."`
	Demosaic     string         `yaml:"demosaic,omitempty" jsonschema:"enum=malvar,enum=bilinear" jsonschema_description:"malvar (default) is sharper and shows no zipper pattern, bilinear is a little faster."`
	Matrix       *[3][3]float64 `yaml:"matrix,omitempty" jsonschema_description:"Colour matrix, from the sensor's colours to those of BT.709, in rows for red, green and blue, with values from -8 to 8."`
	Gamma        float64        `yaml:"gamma,omitempty" jsonschema:"minimum=1,maximum=4" jsonschema_description:"Gamma of the tone curve (default: the BT.709 transfer function)."`
	Curve        []float64      `yaml:"curve,omitempty" jsonschema:"minItems=2,maxItems=4096,minimum=0,maximum=1" jsonschema_description:"Tone curve instead of gamma: values at equal distances of linear light, joined by lines."`
	Sharpen      float64        `yaml:"sharpen,omitempty" jsonschema:"minimum=0,maximum=4" jsonschema_description:"How much of the detail is added to the picture (default 0)."`
	Flip         string         `yaml:"flip,omitempty" jsonschema:"enum=none,enum=horizontal,enum=vertical" jsonschema_description:"Mirrors the pictures: horizontal swaps left and right, vertical top and bottom (default none). Flipped vertically or rotated, they leave when the frame is complete (latency: frame)."`
	Rotate       int            `yaml:"rotate,omitempty" jsonschema:"enum=0,enum=90,enum=180,enum=270" jsonschema_description:"Degrees by which the pictures are turned clockwise, after flip: 0 (default), 90, 180 or 270. 90 and 270 exchange width and height. defects and shading refer to the sensor's frame."`
	Auto         *Auto          `yaml:"auto,omitempty" jsonschema_description:"Automatic exposure and white balance."`
	Statistics   bool           `yaml:"statistics,omitempty" jsonschema_description:"Each frame carries its histogram, means and focus as a result, for outputs of results."`
	Device       string         `yaml:"device,omitempty" jsonschema:"enum=auto,enum=cpu,enum=cuda" jsonschema_description:"Where the stage works: cpu, cuda, or auto (default), which takes the GPU if memory is CUDA's, else the CPU. The pictures are the same."`
	Workers      int            `yaml:"workers,omitempty" jsonschema:"minimum=1,maximum=256" jsonschema_description:"Number of workers on the CPU (default: one for each CPU)."`

	config isp.Config // the resolved configuration, with the contents of the files
}

// BlackLevels are the black levels of the four channels.
type BlackLevels struct {
	Red       int `yaml:"red" jsonschema:"minimum=0,maximum=65534" jsonschema_description:"Black level of red."`
	GreenRed  int `yaml:"green_red" jsonschema:"minimum=0,maximum=65534" jsonschema_description:"Black level of green in the lines of red, or of all samples of a monochrome sensor."`
	GreenBlue int `yaml:"green_blue" jsonschema:"minimum=0,maximum=65534" jsonschema_description:"Black level of green in the lines of blue."`
	Blue      int `yaml:"blue" jsonschema:"minimum=0,maximum=65534" jsonschema_description:"Black level of blue."`
}

// Defects lists the known pixels to repair, and the threshold for outliers.
type Defects struct {
	Pixels    [][2]int `yaml:"pixels,omitempty" jsonschema:"minimum=0,maximum=32767" jsonschema_description:"Known defects: x and y of each, counted from 0 at the upper left."`
	File      string   `yaml:"file,omitempty" jsonschema:"minLength=1" jsonschema_description:"Text file with more known defects: x and y of each. # starts a comment."`
	Threshold int      `yaml:"threshold,omitempty" jsonschema:"minimum=1,maximum=65535" jsonschema_description:"Repair each pixel that differs from all its neighbours by more than this, in the sensor's units (default: no search)."`
}

// Shading is a lens shading grid.
type Shading struct {
	File string `yaml:"file" jsonschema:"minLength=1" jsonschema_description:"Text file: columns and rows of the grid, then red, green_red, green_blue and blue, each followed by its gains, line by line. # starts a comment."`
}

// Gains are the gains of the white balance. An omitted gain is 1.
type Gains struct {
	Red   float64 `yaml:"red,omitempty" jsonschema:"minimum=0.000244140625,maximum=16" jsonschema_description:"Gain of red (default 1)."`
	Green float64 `yaml:"green,omitempty" jsonschema:"minimum=0.000244140625,maximum=16" jsonschema_description:"Gain of green (default 1)."`
	Blue  float64 `yaml:"blue,omitempty" jsonschema:"minimum=0.000244140625,maximum=16" jsonschema_description:"Gain of blue (default 1)."`
}

func (c *ISP) head() (name, from *string) { return &c.Name, &c.From }

// Config returns the stage's configuration, including the contents of the files that the section names.
func (c *ISP) Config() isp.Config { return c.config }

func (c *ISP) resolve(r *resolver, at yamlfile.Section, s *Stage) error {
	source := r.out.Source(c.From)
	switch {
	case source == nil:
		return at.Key("from").Errorf("there is no source %q", c.From)
	case !source.FormatKnown:
		return at.Errorf("the frames of source %q are known only when it is opened: an isp takes a sensor's frames, or those of a camera with width, "+
			"height and pixels", c.From)
	case c.Converts(source.Format):
		return c.resolvePictures(at, s, source)
	case c.Device == "cuda" && r.out.Memory == "host":
		return at.Key("device").Errorf("cuda needs memory: cuda or auto")
	case c.BlackLevels != nil && c.BlackLevel != 0:
		return at.Key("black_level").Errorf("black_levels gives one for each channel: leave black_level out")
	case c.Curve != nil && c.Gamma != 0:
		return at.Key("gamma").Errorf("curve is the tone curve: leave gamma out")
	case c.Rotate%90 != 0 || c.Rotate < 0 || c.Rotate > 270:
		return at.Key("rotate").Errorf("%d: must be 0, 90, 180 or 270", c.Rotate)
	case c.Curve != nil && len(c.Curve) < 2:
		return at.Key("curve").Errorf("must have at least two knots, for black and for white")
	}
	c.config = c.values()
	if err := c.addFiles(at); err != nil {
		return err
	}
	err := c.config.Validate()
	if err == nil {
		err = c.config.CheckInput(source.Format)
	}
	if err != nil {
		return at.Errorf("%s", plain(err, isp.ErrConfig))
	}
	if err := c.checkDefects(at.Key("defects"), source.Format); err != nil {
		return err
	}
	s.Pictures, s.Holds = Pictures{Any: true, Turned: c.config.Turn.Transpose}, 1
	switch {
	case c.Device == "cuda":
		s.Holds = cuda.Holds
	case c.Device != "cpu" && r.out.Memory != "host": // a GPU may be present
		s.MayHold = cuda.Holds
	}
	return checkAuto(c.Auto, r, at.Key("auto"), c.Name, source)
}

// Converts reports whether frames of format f are pictures, which the stage converts.
func (c *ISP) Converts(f pipeline.Format) bool { return slices.Contains(convert.Inputs(), f.Pixel) }

// resolvePictures is resolve for a source of pictures. It refuses what is for the samples of a sensor.
func (c *ISP) resolvePictures(at yamlfile.Section, s *Stage, source *Source) error {
	if c.Device == "cuda" {
		return at.Key("device").Errorf("pictures are converted by the CPU: leave device out")
	}
	section, only := reflect.ValueOf(*c), []string{"name", "from", "device", "workers"}
	for i := range section.NumField() {
		if key, _, _ := strings.Cut(section.Type().Field(i).Tag.Get("yaml"), ","); key != "" && !slices.Contains(only, key) && !section.Field(i).IsZero() {
			return at.Key(key).Errorf("%q delivers pictures, which are converted only: leave %s out", c.From, key)
		}
	}
	if err := convert.CheckInput(source.Format); err != nil {
		return at.Errorf("%s", plain(err, convert.ErrUnsupported))
	}
	s.Pictures, s.Holds = Pictures{Any: true, Converted: true}, 1
	return nil
}

// checkDeviceOnly implements StageKind.
func (c *ISP) checkDeviceOnly(at yamlfile.Section, source string) error {
	if c.Device != "cuda" {
		return at.Key("device").Errorf("the frames of %q are in write-combined memory, which the CPU must not read: write device: cuda", source)
	}
	return nil
}

// restarts implements StageKind. The loops can be frozen and released while the stage runs.
func (c *ISP) restarts() StageKind {
	fixed := *c
	if c.Auto != nil {
		fixed.Auto = c.Auto.Released()
	}
	return &fixed
}

// values returns the stage's configuration without the contents of files.
func (c *ISP) values() isp.Config {
	w := c.WhiteBalance
	cfg := isp.Config{
		BlackLevel: c.BlackLevel, Gamma: c.Gamma, Sharpen: c.Sharpen, Workers: c.Workers,
		Gains: isp.Gains{R: w.Red, G: w.Green, B: w.Blue}, Demosaic: isp.Malvar,
		Turn: isp.NewTurn(c.Flip == "horizontal", c.Flip == "vertical", c.Rotate),
	}
	if c.Statistics {
		cfg.Results = c.Name
	}
	if c.Demosaic == "bilinear" {
		cfg.Demosaic = isp.Bilinear
	}
	if b := c.BlackLevels; b != nil {
		cfg.Black = [4]int{isp.R: b.Red, isp.Gr: b.GreenRed, isp.Gb: b.GreenBlue, isp.B: b.Blue}
	}
	if c.Defects != nil {
		cfg.Defects.Threshold = c.Defects.Threshold
		for _, p := range c.Defects.Pixels {
			cfg.Defects.Pixels = append(cfg.Defects.Pixels, image.Pt(p[0], p[1]))
		}
	}
	if c.Matrix != nil {
		for i := range cfg.Matrix {
			cfg.Matrix[i] = c.Matrix[i/3][i%3]
		}
	}
	for _, v := range c.Curve {
		cfg.Curve = append(cfg.Curve, int(math.Round(v*isp.White)))
	}
	return cfg
}

// addFiles reads the files that the section names into c.config.
func (c *ISP) addFiles(at yamlfile.Section) error {
	if c.Defects != nil && c.Defects.File != "" {
		pixels, err := readCalibration(c.Defects.File, isp.ParseDefects)
		if err != nil {
			return at.Key("defects").Key("file").Errorf("%w", err)
		}
		c.config.Defects.Pixels = append(c.config.Defects.Pixels, pixels...)
	}
	if c.Shading != nil {
		var err error
		if c.config.Shading, err = readCalibration(c.Shading.File, isp.ParseShading); err != nil {
			return at.Key("shading").Key("file").Errorf("%w", err)
		}
	}
	return nil
}

// checkDefects refuses known defects outside the picture. In c.config.Defects.Pixels, those of the section's "pixels"
// key come before those of the section's file.
func (c *ISP) checkDefects(at yamlfile.Section, f pipeline.Format) error {
	for i, p := range c.config.Defects.Pixels {
		if p.In(image.Rect(0, 0, f.Width, f.Height)) {
			continue
		}
		place, file := at.Key("pixels").Element(i), ""
		if i >= len(c.Defects.Pixels) {
			place, file = at.Key("file"), c.Defects.File+": "
		}
		return place.Errorf("%s[%d, %d]: x must be from 0 to %d and y from 0 to %d, in a picture of %dx%d",
			file, p.X, p.Y, f.Width-1, f.Height-1, f.Width, f.Height)
	}
	return nil
}

// maxCalibration is the maximum size of a calibration file in bytes.
const maxCalibration = 16 << 20

func readCalibration[T any](path string, parse func(io.Reader) (T, error)) (v T, err error) {
	text, err := files.ReadRegular(path, maxCalibration, "a calibration")
	if err != nil {
		return v, err
	}
	v, err = parse(bytes.NewReader(text))
	if errors.Is(err, isp.ErrConfig) {
		err = fmt.Errorf("%s, %s", path, plain(err, isp.ErrConfig))
	}
	return v, err
}
