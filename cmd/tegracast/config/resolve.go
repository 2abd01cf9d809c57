// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"regexp"
	"strings"
)

// Appliance is what a configuration describes: every default is filled in, every reference is resolved.
type Appliance struct {
	Memory   string // auto, cuda or host
	MemoryAt Place

	Sources []Source // in the order of the file
	Stages  []Stage  // behind what they read from
	Outputs []Output
	Lines   []Line // in the order in which they are opened
	Web     Web

	file *File
}

// ISPs is how many isps there are.
func (a *Appliance) ISPs() int { return len(a.file.ISP) }

// Source returns the source of that name, or nil.
func (a *Appliance) Source(name string) *Source {
	return byName(a.Sources, name, func(s *Source) string { return s.Name })
}

// Stage returns the stage of that name, or nil.
func (a *Appliance) Stage(name string) *Stage {
	return byName(a.Stages, name, func(s *Stage) string { return s.Name })
}

// Output returns the output of that name, or nil.
func (a *Appliance) Output(name string) *Output {
	return byName(a.Outputs, name, func(o *Output) string { return o.Name })
}

// Line returns the line of that name, or nil.
func (a *Appliance) Line(name string) *Line {
	return byName(a.Lines, name, func(l *Line) string { return l.Name })
}

func byName[T any](list []T, name string, nameOf func(*T) string) *T {
	for i := range list {
		if nameOf(&list[i]) == name {
			return &list[i]
		}
	}
	return nil
}

// resolver makes an Appliance out of a file, part by part in their order. Types, limits and missing keys have been checked.
type resolver struct {
	doc   *document
	file  *File
	out   *Appliance
	names register // of sources, stages and outputs
	taken register // addresses and channels that outputs use
}

// A register says which section was the first to use a name, an address or a channel.
type register map[string]section

// take notes a use. It returns the section that has taken the key before, if one has.
func (r register) take(key string, at section) (first string, taken bool) {
	if other, taken := r[key]; taken {
		return other.name(), true
	}
	r[key] = at
	return "", false
}

func (r *resolver) resolve() error {
	root := section{r.doc, "$"}
	r.file.Memory = cmp.Or(r.file.Memory, "auto")
	r.out.Memory, r.out.MemoryAt = r.file.Memory, root.key("memory").place()
	r.out.Web = r.file.Web
	if err := r.file.Web.check(root.key("web")); err != nil {
		return err
	}
	for _, step := range []func(section) error{r.sources, r.stages, r.outputs, r.lines, r.writeCombined, r.slots} {
		if err := step(root); err != nil {
			return err
		}
	}
	return nil
}

// nameRule keeps names fit for files: an output's SDP is NAME.sdp.
var nameRule = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// claim notes the name of a part, which no other may have.
func (r register) claim(at section, name string) error {
	if !nameRule.MatchString(name) {
		return at.key("name").errorf("%q: must be 1 to 64 of the letters A to Z and a to z, digits, _ and -", name)
	}
	if first, taken := r.take(name, at); taken {
		return at.key("name").errorf("%q is the name of %s already", name, first)
	}
	return nil
}

// one returns the only kind that a section has.
func one[K any](at section, table any) (K, section, error) {
	kinds, keys, all := given[K](table)
	if len(kinds) != 1 {
		var none K
		return none, at, at.errorf("give exactly one of %s and %s", strings.Join(all[:len(all)-1], ", "), all[len(all)-1])
	}
	return kinds[0], at.key(keys[0]), nil
}

func (r *resolver) sources(root section) error {
	for i := range r.file.Sources {
		c, at := &r.file.Sources[i], root.key("sources").element(i)
		if err := r.names.claim(at, c.Name); err != nil {
			return err
		}
		s, err := r.source(at, c)
		if err != nil {
			return err
		}
		r.out.Sources = append(r.out.Sources, s)
	}
	return nil
}

// stages claims all names before it resolves a stage, so that a name that is used twice is what the first error is about.
func (r *resolver) stages(root section) error {
	lists := r.file.list()
	for _, l := range lists {
		for i, kind := range l.kinds {
			name, _ := kind.head()
			if err := r.names.claim(root.key(l.key).element(i), *name); err != nil {
				return err
			}
		}
	}
	for _, l := range lists {
		for i, kind := range l.kinds {
			s, err := r.stage(root.key(l.key).element(i), strings.TrimSuffix(l.key, "s"), kind)
			if err != nil {
				return err
			}
			r.out.Stages = append(r.out.Stages, s)
		}
	}
	return nil
}

func (r *resolver) outputs(root section) error {
	for i := range r.file.Outputs {
		c, at := &r.file.Outputs[i], root.key("outputs").element(i)
		if err := r.names.claim(at, c.Name); err != nil {
			return err
		}
		o, err := r.output(at, c)
		if err != nil {
			return err
		}
		r.out.Outputs = append(r.out.Outputs, o)
	}
	for i := range r.out.Outputs {
		o := &r.out.Outputs[i]
		o.packed = r.out.packetReady(o)
	}
	return nil
}

// writeCombined refuses whatever reads write-combined frames with the CPU, for which such memory is uncached
// (cudaHostAllocWriteCombined; GPUDirect RDMA 12.9 §13.4.3). Outputs need no look: one that reads a source's own frames
// sends results, and no pixel.
func (r *resolver) writeCombined(root section) error {
	for i := range r.out.Sources {
		s, at := &r.out.Sources[i], root.key("sources").element(i).key("write_combined")
		switch {
		case !s.WriteCombined:
			continue
		case s.cpuReads != "":
			return at.errorf("%s", s.cpuReads)
		case r.out.Memory != "cuda":
			return at.errorf("only a GPU can use write-combined memory: write memory: cuda, or leave write_combined out")
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

// slots compares each source's slots with what its consumers may hold, and two for the next frames.
func (r *resolver) slots(root section) error {
	for i := range r.out.Sources {
		s, need := &r.out.Sources[i], 2
		for j := range r.out.Stages {
			if c := &r.out.Stages[j]; c.From == s.Name {
				need += c.Depth + c.holds
			}
		}
		for j := range r.out.Outputs {
			if o := &r.out.Outputs[j]; o.From == s.Name {
				need += o.Depth + o.holds
			}
		}
		if s.Slots < need {
			return root.key("sources").element(i).key("slots").errorf(
				"%d are too few: what reads from %q may hold so many frames that it needs %d; give it more, or the outputs shorter queues",
				s.Slots, s.Name, need)
		}
	}
	return nil
}

// plain is an error's text without the name of its kind in front, which the place in the file says already.
func plain(err, kind error) string { return strings.TrimPrefix(err.Error(), kind.Error()+": ") }
