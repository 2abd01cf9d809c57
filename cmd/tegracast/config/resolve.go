// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tegracast/tegracast/board/gpio"
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
)

func (r *resolver) resolve(root yamlfile.Section) error {
	r.file.Memory = cmp.Or(r.file.Memory, "auto")
	r.out.Memory, r.out.MemoryAt = r.file.Memory, root.Key("memory").Place()
	r.out.Web, r.out.RTSP, r.out.Bus, r.out.Clock = r.file.Web, r.file.RTSP, r.file.Bus, r.file.Clock
	first := []error{r.file.Web.Check(root.Key("web")), r.file.RTSP.Check(root.Key("rtsp"))}
	if b := r.file.Bus; b != nil {
		b.SetDefaults()
		first = append(first, b.Check(root.Key("bus")))
	}
	for _, step := range []func(yamlfile.Section) error{r.sources, r.clock, r.groups, r.stages, r.outputs, r.lines, r.writeCombined, r.slots, r.files} {
		if err := step(root); err != nil { // later steps could fail because of this error
			return yamlfile.Join(append(first, err)...)
		}
	}
	return yamlfile.Join(first...)
}

func (r *resolver) sources(root yamlfile.Section) error {
	var errs []error
	for i := range r.file.Sources {
		c, at := &r.file.Sources[i], root.Key("sources").Element(i)
		if err := r.names.claim(at, c.Name); err != nil {
			return yamlfile.Join(append(errs, err)...)
		}
		s, err := r.source(at, c)
		if errs = append(errs, err); err == nil {
			r.out.Sources = append(r.out.Sources, s)
		}
	}
	return yamlfile.Join(errs...)
}

func (r *resolver) clock(root yamlfile.Section) error {
	if r.file.Clock == nil {
		return nil
	}
	return r.file.Clock.check(r, root.Key("clock"))
}

func (r *resolver) source(at yamlfile.Section, c *SourceSection) (Source, error) {
	s := Source{Name: c.Name, Slots: c.Slots, WriteCombined: c.WriteCombined, At: at.Place(), OpenAt: at.Place(), section: c}
	var err error
	if s.Kind, at, err = one[SourceKind](at, c.SourceKinds); err != nil {
		return s, err
	}
	if err := s.Kind.resolve(r, at, &s); err != nil {
		return s, err
	}
	if s.FormatKnown {
		if err := s.Format.Validate(); err != nil {
			return s, at.Key("width").Errorf("%s", plain(err, pipeline.ErrFormat))
		}
	}
	return s, nil
}

// stages resolves the stages. It claims all names before it resolves a stage, so that a duplicate name is the first
// error.
func (r *resolver) stages(root yamlfile.Section) error {
	lists := r.file.list()
	for _, l := range lists {
		for i, kind := range l.kinds {
			name, _ := kind.head()
			if err := r.names.claim(root.Key(l.key).Element(i), *name); err != nil {
				return err
			}
		}
	}
	var errs []error
	wrong := map[string]bool{} // stages that depend on these cannot be checked
	for _, l := range lists {
		for i, kind := range l.kinds {
			name, from := kind.head()
			if *from == "" { // the first isp for another stage, or, without one, the first source
				if *from = r.out.Sources[0].Name; l.key != "isp" && len(r.file.ISP) > 0 {
					*from = r.file.ISP[0].Name
				}
			}
			if wrong[*from] {
				wrong[*name] = true
				continue
			}
			s, err := r.stage(root.Key(l.key).Element(i), strings.TrimSuffix(l.key, "s"), kind)
			if errs = append(errs, err); err == nil {
				r.out.Stages = append(r.out.Stages, s)
			}
			wrong[*name] = err != nil
		}
	}
	return yamlfile.Join(errs...)
}

func (r *resolver) stage(at yamlfile.Section, what string, kind StageKind) (Stage, error) {
	s := Stage{what: what, Depth: stageDepth, Kind: kind, At: at.Place(), OpenAt: at.Place(), section: at}
	if err := kind.resolve(r, at, &s); err != nil {
		return s, err
	}
	name, from := kind.head()
	s.Name, s.From, s.Source = *name, *from, r.out.origin(*from)
	return s, nil
}

func (r *resolver) outputs(root yamlfile.Section) error {
	var errs []error
	for i := range r.file.Outputs {
		c, at := &r.file.Outputs[i], root.Key("outputs").Element(i)
		if err := r.names.claim(at, c.Name); err != nil {
			return yamlfile.Join(append(errs, err)...)
		}
		o, err := r.output(at, c)
		if errs = append(errs, err); err == nil {
			r.out.Outputs = append(r.out.Outputs, o)
		}
	}
	if err := yamlfile.Join(errs...); err != nil {
		return err
	}
	for i := range r.out.Outputs {
		o := &r.out.Outputs[i]
		o.packed = r.out.packetReady(o)
	}
	return nil
}

func (r *resolver) output(at yamlfile.Section, c *OutputSection) (Output, error) {
	o := Output{Name: c.Name, Rate: c.Rate.V, Policy: c.Policy.V, At: at.Place(), section: c}
	kinds := c.OutputKinds
	if c.RTP != nil && c.Record != nil { // the stream is recorded
		kinds.Record, c.RTP.recorded = nil, true
	}
	kind, kindAt, err := one[OutputKind](at, kinds)
	if err != nil {
		return o, err
	}
	if c.From == "" { // the first isp of the first source
		c.From = r.out.Sources[0].Name
		if i := slices.IndexFunc(r.file.ISP, func(isp *ISP) bool { return isp.From == c.From }); i >= 0 {
			c.From = r.file.ISP[i].Name
		}
	}
	in, ok := r.out.pictures(c.From)
	if !ok {
		return o, at.Key("from").Errorf("there is no source and no stage %q", c.From)
	}
	o.From, o.Source, o.Kind = c.From, r.out.origin(c.From), kind
	if o.traits, err = kind.resolve(r, kindAt, &o); err != nil {
		return o, err
	}
	if c.RTP != nil && c.Record != nil {
		if err := c.Record.resolveVideo(r, at.Key("record"), &o, c.RTP.Payload.V); err != nil {
			return o, err
		}
		o.Video, o.beforeAt = c.Record, at.Key("record").Key("trigger").Key("before").Place()
	}
	o.Holds, o.pixels = cmp.Or(o.Holds, 1), cmp.Or(o.pixels, pipeline.UYVY)
	o.OpenAt, o.formatAt = cmp.Or(o.OpenAt, o.At), cmp.Or(o.formatAt, kindAt.Place())
	if o.shared {
		r.out.Source(o.Source).Shared = true
	}
	o.shown, o.turned, o.passed = in.Any, in.Turned, r.out.Stage(c.From) != nil && !in.Any && !in.None
	if in.Known {
		o.passes = in.Pixel
	}
	o.asIs = o.results && !in.Any && !in.None || o.recorded && r.out.Source(r.out.MemoryOf(c.From)) != nil
	if o.recorded && in.Known && !in.Any {
		o.pixels = in.Pixel // a kernel's format
	}
	if o.results && c.Scale != "" {
		return o, at.Key("scale").Errorf("results have no size: leave scale out")
	}
	if err := o.fits(at, r.out, in); err != nil {
		return o, err
	}
	_, own, _ := o.Formats(r.out.Source(o.Source).Format) // zero if fits knows no format
	o.Depth = cmp.Or(c.Queue, pipeline.DefaultDepth(own))
	return o, o.slice(at.Key("latency"), r.out)
}

func (r *resolver) lines(root yamlfile.Section) error {
	at := root.Key("gpio")
	kinds, keys, _ := given[LineKind](r.file.GPIO)
	used := map[gpio.Line]string{}
	for _, name := range lineOrder {
		i := slices.Index(keys, name)
		if i < 0 {
			continue
		}
		l := Line{Name: name, Pin: kinds[i].pin(), Kind: kinds[i], At: at.Key(name).Key("line").Place()}
		if err := r.line(used, at.Key(name), l); err != nil {
			return err
		}
	}
	for i := range r.file.Outputs {
		c := &r.file.Outputs[i]
		if c.Record == nil || c.Record.Trigger == nil || c.Record.Trigger.GPIO == nil {
			continue
		}
		kind, at := c.Record.Trigger.GPIO, root.Key("outputs").Element(i).Key("record").Key("trigger").Key("gpio")
		l := Line{Name: recordLine(c.Name), Pin: kind.pin(), Output: c.Name, Kind: kind, At: at.Key("line").Place()}
		if err := r.line(used, at, l); err != nil {
			return err
		}
	}
	return nil
}

// line resolves l and adds it. It refuses a line that is in used already.
func (r *resolver) line(used map[gpio.Line]string, at yamlfile.Section, l Line) error {
	bare := l.Pin
	bare.ActiveLow = false
	if other, is := used[bare]; is {
		return at.Key("line").Errorf("%s is already the line of %s: give it another line", bare, other)
	}
	used[bare] = at.Name()
	if err := l.Kind.resolve(r, at, &l); err != nil {
		return err
	}
	r.out.Lines = append(r.out.Lines, l)
	return nil
}

// writeCombined refuses write-combined memory without memory: cuda, and with any part that reads the frames with the
// CPU, because such memory is uncached for the CPU (cudaHostAllocWriteCombined; GPUDirect RDMA 12.9 §13.4.3). Of the
// outputs only a recording, UCX and share read the samples of a source's own frames.
func (r *resolver) writeCombined(root yamlfile.Section) error {
	for i := range r.out.Sources {
		s, at := &r.out.Sources[i], root.Key("sources").Element(i).Key("write_combined")
		switch {
		case !s.WriteCombined:
			continue
		case s.cpuReads != "":
			return at.Errorf("%s", s.cpuReads)
		case r.out.Memory != "cuda":
			return at.Errorf("only a GPU can use write-combined memory: write memory: cuda, or leave write_combined out")
		}
		for j := range r.out.Outputs {
			if o := &r.out.Outputs[j]; o.From == s.Name && o.recorded {
				return at.Errorf("output %q reads the frames by the CPU: leave write_combined out", o.Name)
			}
		}
		for j := range r.out.Stages {
			if stage := &r.out.Stages[j]; stage.From == s.Name {
				if err := stage.Kind.checkDeviceOnly(stage.section, s.Name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

const (
	defaultSlots = 8 // number of slots of a source whose section gives none, unless its consumers may hold more
	stillSlots   = 2 // number of frames that a snapshot of a source's samples may hold
)

// slots checks that each source has enough slots for the frames that its consumers may hold, and two for the next
// frames. A source whose section gives no number gets defaultSlots, or as many as its consumers and a snapshot need.
func (r *resolver) slots(root yamlfile.Section) error {
	for i := range r.out.Sources {
		s, need, may := &r.out.Sources[i], 2, 2
		s.SlotsAt = root.Key("sources").Element(i).Key("slots").Place()
		for j := range r.out.Stages {
			if c := &r.out.Stages[j]; r.out.MemoryOf(c.From) == s.Name {
				need += c.Depth + c.Holds
				may += c.Depth + max(c.Holds, c.MayHold)
			}
		}
		for j := range r.out.Outputs {
			if o := &r.out.Outputs[j]; r.out.MemoryOf(o.From) == s.Name {
				need += o.Depth + o.Holds
				may += o.Depth + o.Holds
			}
		}
		if s.Slots == 0 {
			s.Slots = max(may+stillSlots, defaultSlots)
			s.section.Slots = s.Slots
		}
		if s.Slots < need {
			return root.Key("sources").Element(i).Key("slots").Errorf(
				"%d are too few: what reads from %q may hold so many frames that it needs %d; give it more, or the outputs shorter queues",
				s.Slots, s.Name, need)
		}
	}
	return nil
}

// files checks the files that sources read, and that outputs can send their frames, after everything else was valid.
func (r *resolver) files(yamlfile.Section) error {
	for i := range r.out.Sources {
		s := &r.out.Sources[i]
		if s.file == nil {
			continue
		}
		f, err := s.file()
		if err != nil {
			return s.OpenAt.Errorf("%w", err)
		}
		if s.FormatKnown {
			continue // the outputs have been checked
		}
		for i := range r.out.Outputs {
			if o := &r.out.Outputs[i]; o.From == s.Name {
				if err := o.sendsFile(f); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// sendsFile refuses an output that cannot send frames of format f, which is the format of its source's file.
func (o *Output) sendsFile(f pipeline.Format) error {
	want, _, err := o.Formats(f)
	if err == nil && want != (pipeline.Format{}) && want.Pixel != f.Pixel {
		return o.formatAt.Errorf("source %q has %s, but the output sends %s: nothing converts them", o.From, f.Pixel, want.Pixel)
	}
	return err
}
