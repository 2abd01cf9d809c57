// SPDX-License-Identifier: Apache-2.0

package memlock

import (
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
)

// A Pool is the memory of the frames that a source delivers, or of those that a stage delivers in one format.
type Pool struct {
	Source bool // of a source, not a stage
	Slots  int
	Size   int  // bytes of a frame
	Paged  bool // each slot of the source is rounded up to whole pages
	Shared bool // other processes may map it
	Pins   int  // number of FPGA streams on PCI Express for which it is pinned
	At     yamlfile.Place
}

// Pools lists the memory of all frames, except those of a source whose format is unknown until its file is opened and
// of the stages after it, and the pictures for the page. A stage that may find a GPU is counted as if it does.
func Pools(a *config.Appliance) (list []Pool) {
	for i := range a.Sources {
		s := &a.Sources[i]
		if !s.FormatKnown {
			continue
		}
		p := Pool{Source: true, Slots: s.Slots, Size: s.Format.Size(), Paged: s.Paged(), Shared: s.Shared, At: s.SlotsAt}
		if _, is := s.Kind.(*config.FPGA); is {
			p.Pins = 1
		}
		list = append(list, p)
	}
	for i := range a.Stages {
		if s := &a.Stages[i]; a.Source(s.Source).FormatKnown && !s.Passes {
			list = append(list, stagePools(a, s)...)
		}
	}
	return list
}

// stagePools returns a pool for each format requested from a stage: a slot for every frame that its consumers may hold,
// for those that the stage holds, and one more, as allocated by package pipeline's graph.
func stagePools(a *config.Appliance, s *config.Stage) (list []Pool) {
	source := a.Source(s.Source)
	at := map[pipeline.Format]int{} // in list
	add := func(f pipeline.Format, holds, pins int) {
		i, there := at[f]
		if !there {
			i = len(list)
			list = append(list, Pool{Slots: max(s.Holds, s.MayHold) + 1, Size: f.Size(), Shared: source.Shared, At: s.At})
			at[f] = i
		}
		list[i].Slots += holds
		list[i].Pins += pins
	}
	for i := range a.Stages {
		if k := &a.Stages[i]; a.MemoryOf(k.From) == s.Name {
			add(input(a, k), k.Depth+k.Holds, 0)
		}
	}
	for i := range a.Outputs {
		o := &a.Outputs[i]
		if a.MemoryOf(o.From) != s.Name {
			continue
		}
		want, own, err := o.Formats(source.Format)
		if err != nil { // it has been refused
			continue
		}
		if want == (pipeline.Format{}) {
			want = input(a, a.Stage(o.From))
		}
		add(want, o.Depth+holding(o, own), pins(a, o))
	}
	return list
}

// input returns the format of the frames that a stage reads.
func input(a *config.Appliance, s *config.Stage) pipeline.Format {
	f := a.Source(s.Source).Format
	switch k := s.Kind.(type) { // a stage with an impossible format is refused when it is opened
	case *config.Kernel:
		c := k.Config()
		f, _ = c.Input(f)
	case *config.External:
		c := k.Config()
		f, _ = c.Input(f)
	}
	return f
}

// pins returns the number of FPGA streams on PCI Express for which an output pins the frames that it sends.
func pins(a *config.Appliance, o *config.Output) int {
	if stream, is := o.Kind.(*config.FPGAStream); is {
		if _, is := a.Source(stream.Card).Kind.(*config.FPGA); is {
			return 1
		}
	}
	return 0
}

// holding returns the maximum number of frames of a format that an output holds.
func holding(o *config.Output, own pipeline.Format) int {
	switch k := o.Kind.(type) {
	case *config.RTP:
		c := k.Config(o.Name)
		return c.Holds(own)
	case *config.FPGAStream: // of capture.FPGAOutput: two are with the device, and one waits for room there
		return 3
	}
	return max(o.Holds, 1)
}
