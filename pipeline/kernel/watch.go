// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/tegracast/tegracast/cudahost"
)

// poll is the interval at which the file is checked.
const poll = time.Second

// A watch recompiles the kernel when its file changes.
type watch struct {
	stage *Stage
	info  os.FileInfo // of the file when it was last read
	seen  string      // key of the content at that time
	blind bool        // the file could not be read, and this was logged
}

// changed reports whether the file may have a different content than when it was last read.
func (w *watch) changed(now os.FileInfo) bool {
	return w.info == nil || !os.SameFile(w.info, now) || w.info.Size() != now.Size() || !w.info.ModTime().Equal(now.ModTime())
}

// buildFirst builds the kernel for the first time. It returns nil if the kernel is in quarantine.
func (w *watch) buildFirst() (*loaded, error) {
	src, err := w.read()
	if err != nil {
		return nil, err
	}
	w.seen = src.key
	if w.stage.leftOut(src) {
		return nil, nil
	}
	return w.stage.build(src)
}

func (s *Stage) build(src *source) (*loaded, error) {
	p, err := s.device.build(src)
	if err != nil {
		return nil, err
	}
	return &loaded{p, src.key}, nil
}

// read reads the file and records its metadata.
func (w *watch) read() (*source, error) {
	c := &w.stage.config
	if info, err := os.Stat(c.File); err == nil { // before the content, so that a later change is noticed
		w.info = info
	}
	text, err := ReadSource(c.File)
	if err != nil {
		return nil, err
	}
	return newSource(c, text), nil
}

// leftOut reports whether the kernel is in quarantine. If it is, leftOut records that the kernel is skipped, and logs
// how to release it.
func (s *Stage) leftOut(src *source) bool {
	e := s.quarantine.Find(src.key)
	if e == nil {
		return false
	}
	s.log.Warn("kernel is in quarantine and skipped: change its file, or remove the entry, to try it again",
		"kernel", s.config.Name, "file", s.config.File, "what", e.What, "when", e.When, "frame", e.Frame, "entry", s.quarantine.Path(src.key))
	s.exiled.Store(e)
	return true
}

func (w *watch) watchFile(ctx context.Context) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.stage.order.lost:
			return
		case <-tick.C:
			w.rebuildChanged()
		}
	}
}

// rebuildChanged compiles the file if it has changed, or if its kernel was released from quarantine, and replaces the
// running kernel. It does neither if the file's kernel is in quarantine.
func (w *watch) rebuildChanged() {
	s := w.stage
	released := s.exiled.Load() != nil && s.quarantine.Find(w.seen) == nil
	info, err := os.Stat(s.config.File)
	if err == nil && !w.changed(info) && !released {
		return
	}
	var src *source
	if err == nil {
		src, err = w.read()
	}
	if err != nil {
		if !w.blind {
			s.log.Warn("kernel's file cannot be read: the previous version keeps running", "kernel", s.config.Name, "error", err)
		}
		w.blind = true
		return
	}
	w.blind = false
	if src.key == w.seen && !released {
		return
	}
	w.seen = src.key
	if s.running() && s.quarantine.Find(src.key) != nil {
		s.log.Error("kernel was changed to one that is in quarantine: the previous version keeps running",
			"kernel", s.config.Name, "file", s.config.File, "entry", s.quarantine.Path(src.key))
		return
	}
	if !s.running() && s.leftOut(src) {
		return
	}
	w.replace(src)
}

func (s *Stage) running() bool { return s.exiled.Load() == nil }

// replace replaces the running kernel with a new one, between two frames. If the new one cannot be built, the previous
// one keeps running.
func (w *watch) replace(src *source) {
	s := w.stage
	p, err := s.build(src)
	if err == nil {
		err = s.exchange(p)
	}
	if errors.Is(err, cudahost.ErrInterrupted) {
		return
	}
	if err != nil {
		s.log.Error("changed kernel rejected: the previous version keeps running", "kernel", s.config.Name, "file", s.config.File, "error", err)
		return
	}
	s.log.Info("kernel was changed and works", "kernel", s.config.Name, "file", s.config.File)
}

// exchange replaces the program in use by p, whose state starts with zeros.
func (s *Stage) exchange(p *loaded) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.Join(ErrClosed, p.close())
	}
	s.settle()
	if f := s.order.Fault(); f != nil {
		return f
	}
	if s.in.Pixel != 0 {
		if err := p.plan(s.in); err != nil {
			return errors.Join(err, p.close())
		}
	}
	old := s.program
	s.program = p
	s.exiled.Store(nil)
	if old == nil {
		return nil
	}
	if err := old.close(); err != nil { // the new one works nevertheless
		s.log.Warn("closing the previous kernel failed", "kernel", s.config.Name, "error", err)
	}
	return nil
}
