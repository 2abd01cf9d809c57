// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// A Recording is a recording of frames (Sink) or of encoded pictures (Video).
type Recording interface {
	Trigger(t Trigger) error // as Sink.Trigger
	State() State
	Close() error

	where() *folder
	triggered() bool // it keeps only what triggers request
	end()            // begins what Close waits for
}

func (s *Sink) triggered() bool  { return s.config.Window != nil }
func (v *Video) triggered() bool { return v.config.Window != nil }

// Recordings is a set of recordings to which triggers are passed. It also gives access to their files, and to those of
// recordings that were removed, until Retain forgets them. The zero Recordings is empty. All methods may be called
// concurrently.
type Recordings struct {
	mu       sync.Mutex
	list     []Recording
	catalogs map[string]*catalog // by the names of their outputs
}

// Add adds a recording.
func (r *Recordings) Add(s Recording) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, s)
	if r.catalogs == nil {
		r.catalogs = map[string]*catalog{}
	}
	d := s.where()
	if r.catalogs[d.name] == nil {
		r.catalogs[d.name] = newCatalog()
	}
	r.catalogs[d.name].folder.Store(d)
	d.opened.Store(&r.catalogs[d.name].opened)
}

// Retain forgets the files of removed recordings of outputs for which keep returns false.
func (r *Recordings) Retain(keep func(output string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.catalogs, func(output string, _ *catalog) bool { return !keep(output) })
}

// Remove removes and closes a recording.
func (r *Recordings) Remove(s Recording) error {
	r.mu.Lock()
	r.list = slices.DeleteFunc(r.list, func(x Recording) bool { return x == s })
	r.mu.Unlock()
	return s.Close()
}

// End begins to close all recordings, of which the streams have ended. Then to remove them one after another takes no
// longer than to remove one.
func (r *Recordings) End() {
	for _, s := range r.named("") {
		s.end()
	}
}

// named returns the recordings with the given name, or all recordings if name is "".
func (r *Recordings) named(name string) []Recording {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.list), func(s Recording) bool { return name != "" && s.where().name != name })
}

// Triggered reports whether a recording with that name, or any recording if the name is empty, keeps only what triggers
// request.
func (r *Recordings) Triggered(name string) bool {
	return slices.ContainsFunc(r.named(name), Recording.triggered)
}

// HasFiles reports whether Catalog gives access to the files of an output.
func (r *Recordings) HasFiles(output string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.catalogs[output] != nil
}

// State returns the state of the recording of an output, or nil if there is none.
func (r *Recordings) State(name string) *State {
	for _, s := range r.named(name) {
		st := s.State()
		return &st
	}
	return nil
}

// States returns the states of the recordings by the names of their outputs.
func (r *Recordings) States() map[string]State {
	states := map[string]State{}
	for _, s := range r.named("") {
		states[s.where().name] = s.State()
	}
	return states
}

// Trigger triggers the recording of the output with that name or, if the name is empty, the first recording. found is
// false if there is none. The error is that of Sink.Trigger.
func (r *Recordings) Trigger(name string, t Trigger) (found bool, err error) {
	for _, s := range r.named(name) {
		return true, s.Trigger(t)
	}
	return false, nil
}

// Edge triggers the recording of an output, or all recordings if name is empty, at the time of an edge of a GPIO line.
// It logs errors.
func (r *Recordings) Edge(name string, at time.Time, log *slog.Logger) {
	for _, s := range r.named(name) {
		if err := s.Trigger(Trigger{Cause: "gpio", At: at}); err != nil {
			log.Warn("an edge of a GPIO line could not trigger a recording", "output", s.where().name, "error", err)
		}
	}
}

// Answer triggers, at each signal, all recordings that accept triggers, until ctx ends. It logs errors.
func (r *Recordings) Answer(ctx context.Context, signals <-chan os.Signal, log *slog.Logger) {
	for {
		select {
		case <-signals:
			for _, s := range r.named("") {
				if err := s.Trigger(Trigger{Cause: "signal"}); err != nil && !errors.Is(err, ErrNoTrigger) {
					log.Warn("a signal could not trigger a recording", "output", s.where().name, "error", err)
				}
			}
		case <-ctx.Done():
			return
		}
	}
}
