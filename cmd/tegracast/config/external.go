// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/share"
)

// External is a stage whose work another process does. It passes its frames on with the results that the process
// returns.
type External struct {
	Name     string   `yaml:"name" jsonschema:"pattern=^[A-Za-z0-9_-]+$,maxLength=64" jsonschema_description:"Name of the stage, used by outputs and in its results."`
	From     string   `yaml:"from,omitempty" jsonschema_description:"Name of a source, of an isp, of a kernel that makes frames, or of an external stage above this one (default: the first isp, or, without one, the first source)."`
	Pixels   string   `yaml:"pixels,omitempty" jsonschema:"enum=uyvy,enum=uyvp,enum=rgb24,enum=grey,enum=i420,enum=nv12" jsonschema_description:"Pixel format of the frames, if they come from an isp (default uyvy). The outputs behind the stage send the same pixels."`
	Socket   string   `yaml:"socket" jsonschema:"minLength=1" jsonschema_description:"Path of the Unix socket that the process connects to, such as /run/tegracast/model."`
	Deadline Duration `yaml:"deadline,omitempty" jsonschema_description:"How long a frame waits for its results at most (default 100ms; at most 1s, and 60 frame periods)."`
	Policy   string   `yaml:"policy,omitempty" jsonschema:"enum=pass,enum=drop" jsonschema_description:"What becomes of a frame without results: with pass (default) it goes on without them, with drop it is dropped."`
	Frames   int      `yaml:"frames,omitempty" jsonschema:"minimum=1,maximum=16" jsonschema_description:"How many frames the process may hold (default 2)."`
	Mode     string   `yaml:"mode,omitempty" jsonschema:"pattern=^0?[0-7]{3}$" jsonschema_description:"Mode of the socket, in quotes (default '0660')."`
	Users    []int    `yaml:"users,omitempty" jsonschema_description:"Numbers of the users that may connect, of those that the mode allows (default: all)."`
	Groups   []int    `yaml:"groups,omitempty" jsonschema_description:"Numbers of the primary groups that may connect."`

	passed passed
}

// passed describes the frames of a stage that passes them on.
type passed struct {
	pixel  pipeline.PixelFormat // of frames from a stage; 0 if it reads from a source
	turned bool                 // it gets Turned pictures
	waits  bool                 // the source waits
}

func (c *External) head() (name, from *string) { return &c.Name, &c.From }

// Config returns the stage's configuration.
func (c *External) Config() share.StageConfig {
	return share.StageConfig{
		Name: c.Name, Pixels: c.passed.pixel, Turned: c.passed.turned,
		Socket: c.Socket, Mode: c.socket().FileMode(), Users: IDs(c.Users), Groups: IDs(c.Groups),
		Frames: c.Frames, Deadline: c.Deadline.V, Drop: c.Policy == "drop", Waits: c.passed.waits,
	}
}

// socket returns the keys about the socket, which are those of Share.
func (c *External) socket() *Share {
	return &Share{Socket: c.Socket, Mode: c.Mode, Users: c.Users, Groups: c.Groups}
}

func (c *External) resolve(r *resolver, at yamlfile.Section, s *Stage) error {
	c.Frames, c.Mode = cmp.Or(c.Frames, defaultFrames), cmp.Or(c.Mode, defaultMode)
	c.Deadline.V, c.Policy = cmp.Or(c.Deadline.V, share.DefaultDeadline), cmp.Or(c.Policy, "pass")
	if err := c.socket().claim(r, at); err != nil {
		return err
	}
	in, err := c.passed.resolve(r, at, c.From, c.Pixels)
	if err != nil {
		return err
	}
	s.OpenAt = at.Key("socket").Place()
	return c.passed.finish(r, at, s, c.From, in, c.Config())
}

// resolve finds the frames that a stage with these keys passes on.
func (p *passed) resolve(r *resolver, at yamlfile.Section, from, pixels string) (Pictures, error) {
	in, ok := r.out.pictures(from)
	switch {
	case !ok:
		return in, at.Key("from").Errorf("there is no source and no stage above this one called %q", from)
	case in.None:
		return in, at.Key("from").Errorf("%q outputs results, not pictures: give this stage the same from as that one", from)
	case in.Pixel == pipeline.MJPEG:
		return in, at.Key("from").Errorf("%q delivers JPEG files, which %s", from, decodes)
	case pixels != "" && !in.Any:
		return in, at.Key("pixels").Errorf("%q delivers its frames as they are: leave pixels out", from)
	case in.Any:
		in = Pictures{Pixel: kernelPixels[pixels], Known: true, Turned: in.Turned}
		p.pixel = in.Pixel
	case r.out.Source(r.out.MemoryOf(from)) == nil:
		p.pixel = in.Pixel
	}
	source := r.out.Source(r.out.origin(from))
	source.Shared = true
	p.turned, p.waits = in.Turned, false
	if played, is := source.Kind.(*Recording); is {
		p.waits = played.Unpaced()
	}
	return in, nil
}

// finish sets the fields of a stage that passes on the frames of from.
func (p *passed) finish(r *resolver, at yamlfile.Section, s *Stage, from string, in Pictures, cfg share.StageConfig) error {
	source, rate := r.out.Source(r.out.origin(from)), pipeline.Rate{Num: 60, Den: 1} // the most that is usual
	if source.FormatKnown {
		rate = source.Format.Rate
	}
	s.Pictures, s.wants, s.Holds, s.Passes = in, in.Pixel, cfg.Holds(rate), true
	if err := cfg.CheckDeadline(source.Format.Rate); err != nil {
		return at.Key("deadline").Errorf("%w", err)
	}
	return nil
}

// checkDeviceOnly implements StageKind.
func (c *External) checkDeviceOnly(at yamlfile.Section, source string) error {
	return c.passed.checkDeviceOnly(at, source)
}

func (p *passed) checkDeviceOnly(at yamlfile.Section, source string) error {
	return at.Key("from").Errorf("the frames of %q are in write-combined memory, which the CPU of the other process cannot read fast: "+
		"leave write_combined out, or read from an isp", source)
}

// restarts implements StageKind.
func (c *External) restarts() StageKind { return c }

// IDs converts numbers of users or groups to the kernel's type.
func IDs(list []int) (all []uint32) {
	for _, id := range list {
		all = append(all, uint32(id))
	}
	return all
}
