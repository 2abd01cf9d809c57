// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"github.com/tegracast/tegracast/board/gpio"
	"github.com/tegracast/tegracast/cmd/tegracast/config/readers"
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
)

// Appliance is what a configuration describes: every default is filled in, every reference is resolved.
type Appliance struct {
	Memory   string // auto, cuda or host
	MemoryAt yamlfile.Place

	Sources []Source // in the order of the file
	Stages  []Stage  // behind what they read from
	Outputs []Output
	Lines   []Line // in the order in which they are opened
	Web     readers.Web
	RTSP    readers.RTSP
	Bus     *readers.Bus // nil: there is none
	Text    []byte       // of the file

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

// origin names the source whose frames come from the source or stage called name.
func (a *Appliance) origin(name string) string {
	if s := a.Stage(name); s != nil {
		return s.Source
	}
	return name
}

// pictures is what the source or the stage called name hands on; false when there is none so far.
func (a *Appliance) pictures(name string) (Pictures, bool) {
	if s := a.Stage(name); s != nil {
		return s.Pictures, true
	}
	if s := a.Source(name); s != nil {
		return Pictures{Pixel: s.Format.Pixel, Known: s.FormatKnown}, true
	}
	return Pictures{}, false
}

// TakeWeb has the page be reached as another configuration says.
func (a *Appliance) TakeWeb(from *Appliance) { a.Web, a.file.Web = from.Web, from.file.Web }

// Changes lists where the files of two configurations differ, as paths such as outputs[raw].rtp.mtu.
func Changes(old, new *Appliance) []string { return yamlfile.Changes(old.file, new.file) }

// A SourceKind is where frames come from: one of the fields of SourceKinds.
type SourceKind interface {
	// resolve fills in the defaults of the section, refuses what cannot be, and fills in what follows from it for s.
	resolve(r *resolver, at yamlfile.Section, s *Source) error
}

// Source is a source of frames.
type Source struct {
	Name          string
	Slots         int // frames of memory
	WriteCombined bool
	Format        pipeline.Format
	FormatKnown   bool // else Format is empty: the file tells when it is opened
	Card          Card
	Slices        bool   // an output wants its frames while they arrive
	Shared        bool   // an output lets other processes map the frames, or what stages make of them
	Bare          bool   // a stream without camera block and trailers
	Triggered     bool   // it exposes when something else triggers it
	NoExposure    string // why nobody knows when its frames are exposed, such as "is a file"; empty: the frames say when
	Kind          SourceKind
	At, SlotsAt   yamlfile.Place
	OpenAt        yamlfile.Place // what is wrong when it cannot be opened

	file     func() error // says whether the file that it reads is good; nil: it reads none
	cpuReads string       // why its frames cannot be in write-combined memory; empty: they can
	section  *SourceSection
}

// Card is the FPGA that frames come from.
type Card struct {
	Name string // the device file, or the name of the source that has a model to itself; empty: there is none
	Own  bool   // it is opened and closed with the source
	Poll bool   // completions are looked for in memory
}

// Same reports whether two sources are opened and work alike.
func (s *Source) Same(other *Source) bool {
	return s.Slices == other.Slices && s.Shared == other.Shared && yamlfile.Same(s.section, other.section)
}

// A StageKind makes pictures or results of frames: an element of one of the lists of StageKinds.
type StageKind interface {
	// head are the keys name and from, which every stage has.
	head() (name, from *string)
	// resolve fills in the defaults of the section, refuses what cannot be, and fills in what follows from it for s.
	resolve(r *resolver, at yamlfile.Section, s *Stage) error
	// checkDeviceOnly refuses a stage that may read the frames of source with the CPU.
	checkDeviceOnly(at yamlfile.Section, source string) error
	// restarts is the kind without what can be changed while it runs.
	restarts() StageKind
}

// Stage is a stage.
type Stage struct {
	Name     string
	From     string // the source or the stage that it reads from
	Source   string // where those frames come from
	Depth    int    // frames that may wait for it
	Pictures Pictures
	Kind     StageKind
	Holds    int // frames in its hands
	MayHold  int // the same on another machine, if that is more
	At       yamlfile.Place
	OpenAt   yamlfile.Place // what is wrong when it cannot be opened

	what    string // a word for its kind, for messages
	wants   pipeline.PixelFormat
	section yamlfile.Section
}

// Pictures is what a stage or a source hands on.
type Pictures struct {
	Any   bool // whatever its consumers ask for
	None  bool // results, and no pictures
	Pixel pipeline.PixelFormat
	Known bool // else a file tells Pixel when it is opened
}

// Same reports whether the sections of two stages, with the defaults, say the same.
func (s *Stage) Same(other *Stage) bool { return yamlfile.Same(s.Kind, other.Kind) }

// Adjusts reports whether two stages differ at most in what can be changed while they run.
func (s *Stage) Adjusts(other *Stage) bool {
	return yamlfile.Same(s.Kind.restarts(), other.Kind.restarts())
}

// An OutputKind is where frames go: one of the fields of OutputKinds.
type OutputKind interface {
	// resolve fills in the defaults of the section, refuses what cannot be, and fills in what follows from it for o.
	// Where o's frames come from is known then.
	resolve(r *resolver, at yamlfile.Section, o *Output) error
	// check refuses frames that cannot be sent. They have o's own rate.
	check(f pipeline.Format) error
	// packets is f laid out as the packets that are sent; false when there is no such layout.
	packets(f pipeline.Format) (pipeline.Format, bool)
}

// Output is an output.
type Output struct {
	Name   string
	From   string // the source or the stage that it reads from
	Source string // where those frames come from
	Depth  int    // frames that may wait
	Rate   pipeline.Rate
	Policy pipeline.Policy
	Card   string // name of the Card that the frames go to; empty: none
	Slices bool   // frames leave while they arrive
	Whole  string // why they do not
	Kind   OutputKind
	Holds  int // frames in its hands, which may be more for some formats
	At     yamlfile.Place
	OpenAt yamlfile.Place // what is wrong when it cannot be opened

	results  bool                 // it sends results, and no pixels
	shown    bool                 // From is an isp, which can make a picture for people
	recorded bool                 // it takes a source's frames, too
	asIs     bool                 // of a source or a kernel, whose frames are not made for it
	packed   bool                 // the isp may lay its pictures out as packets: nobody else reads them
	pixels   pipeline.PixelFormat // what it wants of an isp
	color    pipeline.Colorimetry // the same; none: as the pixels have
	shrink   int                  // how many times narrower and lower than the sensor's frame
	formatAt yamlfile.Place       // what is wrong when the pictures cannot be sent
	section  *OutputSection
}

// Same reports whether the sections of two outputs, with the defaults, say the same.
func (o *Output) Same(other *Output) bool { return yamlfile.Same(o.section, other.section) }

// Adjusts reports whether two outputs differ at most in what can be changed while they run.
func (o *Output) Adjusts(other *Output) bool {
	return o.samePath(other) && yamlfile.Same(o.section.restarts(), other.section.restarts())
}

// A LineKind is what a line of the board is for: one of the fields of GPIO.
type LineKind interface {
	// pin is the line, with the level that is active.
	pin() gpio.Line
	// resolve fills in the defaults of the section, refuses what cannot be, and fills in what follows from it for l.
	resolve(r *resolver, at yamlfile.Section, l *Line) error
}

// Line is a line of the board.
type Line struct {
	Name    string        // its key
	Pin     gpio.Line     // with the level that is active
	Source  string        // whose frames it looks at; empty: none
	Period  time.Duration // from frame to frame of Source
	Output  string        // whose recording it triggers; empty: none
	Follows bool          // of a strobe: the trigger's pulses, and no source
	Kind    LineKind
	At      yamlfile.Place // of its key line
}

// Same reports whether two lines are opened and work alike.
func (l *Line) Same(other *Line) bool {
	return l.Period == other.Period && l.Follows == other.Follows && yamlfile.Same(l.Kind, other.Kind)
}
