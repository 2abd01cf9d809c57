// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tegracast/tegracast/board/gpio"
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
)

// Appliance is a configuration whose defaults are filled in and whose references are resolved.
type Appliance struct {
	Memory   string // auto, cuda or host
	MemoryAt yamlfile.Place

	Sources []Source // in the order of the file
	Stages  []Stage  // each after the part that it reads from
	Outputs []Output
	Lines   []Line // in the order in which they are opened
	Web     Web
	RTSP    RTSP
	Bus     *Bus   // nil: none
	Clock   *Clock // nil: the cameras' clocks run freely
	Text    []byte // the text of the file

	file *File
}

// Source returns the source called name, or nil if there is none.
func (a *Appliance) Source(name string) *Source {
	return byName(a.Sources, name, func(s *Source) string { return s.Name })
}

// Stage returns the stage called name, or nil if there is none.
func (a *Appliance) Stage(name string) *Stage {
	return byName(a.Stages, name, func(s *Stage) string { return s.Name })
}

// Output returns the output called name, or nil if there is none.
func (a *Appliance) Output(name string) *Output {
	return byName(a.Outputs, name, func(o *Output) string { return o.Name })
}

// Line returns the line called name, or nil if there is none.
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

// origin returns the name of the source from which the frames of the source or stage called name come.
func (a *Appliance) origin(name string) string {
	if s := a.Stage(name); s != nil {
		return s.Source
	}
	return name
}

// MemoryOf returns the name of the source or stage in whose memory the frames of the source or stage called name are.
func (a *Appliance) MemoryOf(name string) string {
	for s := a.Stage(name); s != nil && s.Passes; s = a.Stage(name) {
		name = s.From
	}
	return name
}

// pictures returns what the source or stage called name delivers, or false if none of that name has been resolved so
// far.
func (a *Appliance) pictures(name string) (Pictures, bool) {
	if s := a.Stage(name); s != nil {
		return s.Pictures, true
	}
	if s := a.Source(name); s != nil {
		return Pictures{Pixel: s.Format.Pixel, Known: s.FormatKnown}, true
	}
	return Pictures{}, false
}

// TakeWeb replaces the section web by that of another configuration.
func (a *Appliance) TakeWeb(from *Appliance) { a.Web, a.file.Web = from.Web, from.file.Web }

// Changes lists where the files of two configurations differ, and the files of models that these name, as paths such as
// outputs[raw].rtp.mtu.
func Changes(old, new *Appliance) []string {
	list := yamlfile.Changes(old.file, new.file)
	for i := range new.Stages {
		s := &new.Stages[i]
		key := fmt.Sprintf("infer[%s]", s.Name) // other kinds have no digest
		of := func(path string) bool { return strings.HasPrefix(path, key) }
		if o := old.Stage(s.Name); o != nil && o.digest != s.digest && !slices.ContainsFunc(list, of) {
			list = append(list, key+".model")
		}
	}
	return list
}

// A SourceKind is a kind of source: one of the fields of SourceKinds.
type SourceKind interface {
	// resolve fills in the defaults of the section, refuses invalid values, and sets the fields of s that follow from the
	// section.
	resolve(r *resolver, at yamlfile.Section, s *Source) error
}

// Source is a source of frames.
type Source struct {
	Name          string
	Slots         int // number of frames that its memory holds
	WriteCombined bool
	Format        pipeline.Format
	FormatKnown   bool // if false, Format is zero, because only the opened file or camera tells it
	Card          Card
	Slices        bool   // its frames are handed on while they arrive, because an isp works on them then
	Shared        bool   // an output lets other processes map the frames, or the pictures that stages make from them
	Bare          bool   // a stream without a camera block and trailers
	Triggered     bool   // its exposures are triggered from outside
	NoExposure    string // why the exposure times of its frames are unknown, such as "is a file"; empty: the frames carry them
	Kind          SourceKind
	At, SlotsAt   yamlfile.Place
	OpenAt        yamlfile.Place // place for the error if it cannot be opened

	cpuReads string // error for write_combined: why the CPU must access the frames for the source; empty: it need not
	section  *SourceSection
	// file checks the file that the source reads, and returns the format of its frames. It is nil if the source reads none.
	file func() (pipeline.Format, error)
}

// Card is the FPGA that frames come from.
type Card struct {
	Name string // the device file, or the name of the source if the source is a model; empty: no card
	Own  bool   // it is opened and closed with the source
	Poll bool   // completions are polled in memory
}

// Paged reports whether each frame of the source lies in whole pages, because a device writes it.
func (s *Source) Paged() bool {
	_, camera := s.Kind.(*V4L2)
	return camera || s.Card.Name != ""
}

// Same reports whether two sources are opened in the same way and work alike.
func (s *Source) Same(other *Source) bool {
	return s.Slices == other.Slices && s.Shared == other.Shared && yamlfile.Same(s.section, other.section)
}

// A StageKind makes pictures or results from frames. It is an element of one of the lists of StageKinds.
type StageKind interface {
	// head returns pointers to the keys name and from, which every stage has.
	head() (name, from *string)
	// resolve fills in the defaults of the section, refuses invalid values, and sets the fields of s that follow from the
	// section.
	resolve(r *resolver, at yamlfile.Section, s *Stage) error
	// checkDeviceOnly refuses a stage that may read the frames of source with the CPU.
	checkDeviceOnly(at yamlfile.Section, source string) error
	// restarts returns the section, or a copy of it, without the values that can change while the stage runs.
	restarts() StageKind
}

type Stage struct {
	Name     string
	From     string // the source or the stage that it reads from
	Source   string // the source of those frames
	Depth    int    // maximum number of frames that wait for it
	Pictures Pictures
	Kind     StageKind
	Holds    int  // maximum number of frames that it holds
	Passes   bool // it passes its frames on, in the memory of From
	MayHold  int  // maximum number of frames that it holds if it works on a GPU; 0: Holds
	At       yamlfile.Place
	OpenAt   yamlfile.Place // place for the error if it cannot be opened

	digest  string // of the files that it reads, in which a change makes another stage; "": none
	what    string // the kind's name in messages
	wants   pipeline.PixelFormat
	section yamlfile.Section
}

// Pictures describes what a stage or a source delivers.
type Pictures struct {
	Any    bool // any format that a consumer requests
	None   bool // only results, no pictures
	Turned bool // their width is the height of the source's frames, and their height the width
	Pixel  pipeline.PixelFormat
	Known  bool // if neither Any nor Known, Pixel is unknown until a file is opened

	Converted bool // they are converted from pictures of 8 bits
}

// Same reports whether the sections of two stages, with defaults filled in, and the models that they name are equal.
func (s *Stage) Same(other *Stage) bool {
	return s.digest == other.digest && yamlfile.Same(s.Kind, other.Kind)
}

// Adjusts reports whether two stages differ at most in values that can change while the stage runs.
func (s *Stage) Adjusts(other *Stage) bool {
	return s.digest == other.digest && yamlfile.Same(s.Kind.restarts(), other.Kind.restarts())
}

// An OutputKind is a kind of output: one of the fields of OutputKinds.
type OutputKind interface {
	// resolve fills in the defaults of the section, refuses invalid values, and returns the traits that follow from the
	// section. Name, From and Source of o are set before.
	resolve(r *resolver, at yamlfile.Section, o *Output) (traits, error)
}

// traits are the properties of an output that follow from its kind. The zero value belongs to an output that takes UYVY
// from an isp and holds one frame.
type traits struct {
	Holds  int            // maximum number of frames that it holds, except packet-ready ones of rtp; 0: one
	Card   string         // name of the Card that the frames go to; empty: none
	OpenAt yamlfile.Place // place for the error if it cannot be opened; zero: the output's

	results  bool                 // it sends results, and no pixels
	recorded bool                 // it can also take a source's own frames
	shared   bool                 // other processes map the frames
	pixels   pipeline.PixelFormat // the pixel format that it requests from an isp
	color    pipeline.Colorimetry // the colorimetry that it requests from an isp; none: that of the pixel format
	formatAt yamlfile.Place       // place for the error if the pictures cannot be sent; zero: the kind's section

	// check refuses frames of format f, which has the output's own frame rate, if the output cannot send them; nil: it
	// can send all.
	check func(f pipeline.Format) error
	// packets returns f with its memory laid out as the packets to send, or false if there is no such layout; nil: no
	// format has one.
	packets func(f pipeline.Format) (pipeline.Format, bool)
}

type Output struct {
	traits
	Name   string
	From   string // the source or the stage that it reads from
	Source string // the source of those frames
	Depth  int    // maximum number of frames that wait
	Rate   pipeline.Rate
	Policy pipeline.Policy
	Video  *Record // the recording of the encoded pictures that it sends; nil: none
	Slices bool    // frames are sent while they arrive
	Whole  string  // why Slices is false; empty: it is true
	Kind   OutputKind
	At     yamlfile.Place

	turned   bool                 // From delivers Turned pictures
	shown    bool                 // From is an isp, which can make a picture for viewing
	passed   bool                 // From is a stage that passes pictures on, or makes one format only
	passes   pipeline.PixelFormat // of these pictures; 0: the source's
	asIs     bool                 // it takes the frames of a source or a kernel as they are, since these are not made for it
	packed   bool                 // the isp may lay out its pictures as packets, because nothing else reads them
	beforeAt yamlfile.Place       // place of the key before of the trigger of Video
	section  *OutputSection
}

// Same reports whether the sections of two outputs, with defaults filled in, are equal.
func (o *Output) Same(other *Output) bool { return yamlfile.Same(o.section, other.section) }

// Adjusts reports whether two outputs differ at most in values that can change while the output runs.
func (o *Output) Adjusts(other *Output) bool {
	return o.samePath(other) && yamlfile.Same(o.section.restarts(), other.section.restarts())
}

// A LineKind is the purpose of a line of the board: one of the fields of GPIO, or a RecordGPIO.
type LineKind interface {
	// pin returns the line with its active level.
	pin() gpio.Line
	// resolve fills in the defaults of the section, refuses invalid values, and sets the fields of l that follow from the
	// section.
	resolve(r *resolver, at yamlfile.Section, l *Line) error
}

type Line struct {
	Name    string        // its key in the section gpio, or record-OUTPUT
	Pin     gpio.Line     // with its active level
	Source  string        // the source whose frames it refers to; empty: none
	Period  time.Duration // frame period of Source
	Output  string        // the output whose recording it triggers; empty: none
	Follows bool          // a strobe that follows the trigger's pulses and has no source
	Kind    LineKind
	At      yamlfile.Place // place of the key "line"
}

// Same reports whether two lines are opened in the same way and work alike.
func (l *Line) Same(other *Line) bool {
	return l.Period == other.Period && l.Follows == other.Follows && yamlfile.Same(l.Kind, other.Kind)
}
