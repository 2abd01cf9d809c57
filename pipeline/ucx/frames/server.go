// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// maxSessions is how many may be connected to a server, whatever they do.
const maxSessions = 128

// Errors of a configuration.
var (
	ErrName   = errors.New("frames: impossible name")
	ErrFormat = errors.New("frames: impossible format")
)

// A hub has the streams of a server and those who are connected.
type hub struct {
	release string // of UCX
	log     *slog.Logger

	mu       sync.Mutex
	sinks    []*Sink
	sessions map[*session]struct{}
	open     int // sessions, and those that are being closed
	closed   bool
	empty    chan struct{} // closed when closed and open is 0
}

func newHub(release string, log *slog.Logger) *hub {
	return &hub{release: release, log: log, sessions: map[*session]struct{}{}, empty: make(chan struct{})}
}

// room says whether one more may connect.
func (h *hub) room() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.closed && h.open < maxSessions
}

// connected adds somebody who has connected. It returns nil when there is no room.
func (h *hub) connected(l link, from string, now time.Time) *session {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.open >= maxSessions {
		return nil
	}
	s := &session{hub: h, link: l, from: from, began: now, heard: now, told: now}
	h.sessions[s] = struct{}{}
	h.open++
	return s
}

// drop ends a connection, and tells the other side why. It is called without the lock.
func (h *hub) drop(s *session, y bye, by string) {
	h.mu.Lock()
	if s.state == over {
		h.mu.Unlock()
		return
	}
	s.state = over
	delete(h.sessions, s)
	if k := s.sink; k != nil {
		k.receivers = slices.DeleteFunc(k.receivers, func(x *session) bool { return x == s })
		k.gone.add(s)
	}
	h.mu.Unlock()
	h.log.Info("ucx: a receiver has gone", "receiver", s.from, "reason", by+": "+y.reason, "frames", s.books.sent, "lost", s.books.lost)
	_ = tell(s.link, idBye, y.append(nil))
	s.link.end(h.ended)
}

// ended counts a connection of which nothing is left.
func (h *hub) ended() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
	h.finish()
}

func (h *hub) finish() {
	if h.closed && h.open == 0 {
		close(h.empty)
	}
}

// close ends all connections for good, and waits until nothing is left of them.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	h.finish()
	h.mu.Unlock()
	h.dropAll(bye{CodeEnd, "the sender ends"})
	<-h.empty // ends: connections that do not end are forced to
}

// clear ends all connections, and waits until nothing is left of them. Nobody can connect meanwhile.
func (h *hub) clear(why bye) {
	h.dropAll(why)
	for left := 1; left > 0; time.Sleep(time.Millisecond) {
		h.mu.Lock()
		left = h.open
		h.mu.Unlock()
	}
}

func (h *hub) dropAll(why bye) {
	h.mu.Lock()
	list := slices.Collect(maps.Keys(h.sessions))
	h.mu.Unlock()
	for _, s := range list {
		h.drop(s, why, "here")
	}
}

// forget has all streams forget which slots UCX knows. Nobody is connected.
func (h *hub) forget() error {
	h.mu.Lock()
	list := slices.Clone(h.sinks)
	h.mu.Unlock()
	var errs []error
	for _, k := range list {
		errs = append(errs, k.forget())
	}
	return errors.Join(errs...)
}

// check ends what has taken too long, and tells receivers that the sender is alive.
func (h *hub) check(now time.Time) {
	type late struct {
		*session
		why string
	}
	var slow []late
	var tell []*session
	h.mu.Lock()
	for s := range h.sessions {
		if why := s.late(now); why != "" {
			slow = append(slow, late{s, why})
		} else if s.state == taking && now.Sub(s.told) >= alive && s.telling < maxTelling {
			s.told = now
			s.telling++
			tell = append(tell, s)
		}
	}
	h.mu.Unlock()
	for _, l := range slow {
		h.drop(l.session, bye{CodeSlow, l.why}, "here")
	}
	for _, s := range tell {
		s.tell()
	}
}

// find is the stream of that name; an empty name is that of the only one.
func (h *hub) find(name string) (*Sink, error) {
	var names []string
	for _, k := range h.sinks {
		if k.name == name || name == "" && len(h.sinks) == 1 {
			return k, nil
		}
		names = append(names, k.name)
	}
	if name == "" && len(names) > 0 {
		return nil, fmt.Errorf("there are several streams: name one of %s", strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("there is no stream %q, only: %s", name, strings.Join(names, ", "))
}

// streams are what a welcome tells of.
func (h *hub) streams() (list []stream) {
	for _, k := range h.sinks {
		list = append(list, stream{k.name, k.format})
	}
	return list
}

// add adds a stream.
func (h *hub) add(k *Sink) error {
	if k.name == "" || len(k.name) > maxName {
		return fmt.Errorf("%w: %q: give a stream a name of at most %d bytes", ErrName, k.name, maxName)
	}
	if k.format.PacketPitch > 0 || k.format.Memory != pipeline.MemoryHost || k.format.Size() > maxFrame {
		return fmt.Errorf("%w: %s: frames must be plain, in host memory, and of at most %d bytes", ErrFormat, k.format, maxFrame)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.sinks) == maxStreams || slices.ContainsFunc(h.sinks, func(x *Sink) bool { return x.name == k.name }) {
		return fmt.Errorf("%w: %q is a stream of this address already, or it has %d streams", ErrName, k.name, maxStreams)
	}
	h.sinks = append(h.sinks, k)
	return nil
}

// remove takes a stream off.
func (h *hub) remove(k *Sink) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sinks = slices.DeleteFunc(h.sinks, func(x *Sink) bool { return x == k })
}
