// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"

	"github.com/tegracast/tegracast/pipeline"
)

// A StageKind makes pictures or results of frames: an element of one of the lists of StageKinds.
type StageKind interface {
	// head are the keys name and from, which every stage has.
	head() (name, from *string)
	// resolve fills in the defaults of the section, refuses what cannot be, and fills in what follows from it for s.
	resolve(r *resolver, at section, s *Stage) error
	// checkDeviceOnly refuses a stage that may read the frames of source with the CPU.
	checkDeviceOnly(at section, source string) error
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
	At       Place
	OpenAt   Place // what is wrong when it cannot be opened

	what    string // a word for its kind, for messages
	holds   int    // frames in its hands
	wants   pipeline.PixelFormat
	section section
}

// Pictures is what a stage or a source hands on.
type Pictures struct {
	Any   bool // whatever its consumers ask for
	None  bool // results, and no pictures
	Pixel pipeline.PixelFormat
	Known bool // else a file tells Pixel when it is opened
}

// stageDepth is how many frames may wait for a stage.
const stageDepth = 2

// Same reports whether the sections of two stages, with the defaults, say the same.
func (s *Stage) Same(other *Stage) bool { return same(s.Kind, other.Kind) }

// Adjusts reports whether two stages differ at most in what can be changed while they run.
func (s *Stage) Adjusts(other *Stage) bool { return same(s.Kind.restarts(), other.Kind.restarts()) }

// stageList is a list of stages of one kind.
type stageList struct {
	key   string
	kinds []StageKind
}

// list has all kinds of stages.
func (k StageKinds) list() (lists []stageList) {
	v := reflect.ValueOf(k)
	for i := range v.NumField() {
		l := stageList{key: keyOf(v.Type().Field(i))}
		for j := range v.Field(i).Len() {
			l.kinds = append(l.kinds, v.Field(i).Index(j).Interface().(StageKind))
		}
		lists = append(lists, l)
	}
	return lists
}

func (r *resolver) stage(at section, what string, kind StageKind) (Stage, error) {
	s := Stage{what: what, Depth: stageDepth, Kind: kind, At: at.place(), OpenAt: at.place(), section: at}
	if err := kind.resolve(r, at, &s); err != nil {
		return s, err
	}
	name, from := kind.head()
	s.Name, s.From, s.Source = *name, *from, r.out.origin(*from)
	return s, nil
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
