// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/flood"
)

// Limits of connections to a server, in any state: in total, and from one address, or for IPv6 from one /64, which
// belongs to one network.
const (
	maxSessions  = 128
	maxOfAddress = 32
)

// Errors in a configuration.
var (
	ErrName   = errors.New("frames: impossible name")
	ErrFormat = errors.New("frames: impossible format")
)

// A hub manages the streams of a server and its connections.
type hub struct {
	release string       // of UCX
	log     *slog.Logger // for messages about receivers
	changed func() error // called when other addresses than before may take streams; may be nil

	mu       sync.Mutex
	sinks    []*Sink
	sessions map[*session]struct{}
	refusals pipeline.FaultLog
	open     int                // sessions, including those being closed
	of       map[netip.Addr]int // open by address or network
	closed   bool
	empty    chan struct{} // closed once closed is set and open is 0
}

func newHub(release string, log *slog.Logger) *hub {
	return &hub{release: release, log: flood.Logger(log), sessions: map[*session]struct{}{}, of: map[netip.Addr]int{}, empty: make(chan struct{})}
}

// objection returns why no further receiver may connect from an address, or "" if one may: there is room, and it may
// take at least one stream, if there are any.
func (h *hub) objection(from netip.Addr) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.noRoom(from)
}

// noRoom is objection with the lock held.
func (h *hub) noRoom(from netip.Addr) string {
	switch {
	case h.closed:
		return "the sender ends"
	case h.open >= maxSessions:
		return fmt.Sprintf("%d connections are open", maxSessions)
	case from.IsValid() && h.of[flood.Network(from)] >= maxOfAddress:
		return fmt.Sprintf("%d connections of its address are open", maxOfAddress)
	case len(h.sinks) > 0 && !slices.ContainsFunc(h.sinks, func(k *Sink) bool { return k.allows(from) }):
		return "its address may take no output: ucx.allow lists those that may"
	}
	return ""
}

// refused logs why a receiver gets no connection or no answer: the first time, and then once a minute for each reason.
// The lock must not be held.
func (h *hub) refused(from, why string) {
	h.mu.Lock()
	left, due := h.refusals.Due(why, time.Now())
	h.mu.Unlock()
	if due {
		h.log.Warn("ucx: a receiver is refused", pipeline.Unlogged([]any{"receiver", from, "reason", why}, left)...)
	}
}

// plain returns the address of a, without port and zone; an IPv4 address in IPv6 form is converted to IPv4 form.
func plain(a netip.AddrPort) netip.Addr { return a.Addr().Unmap().WithZone("") }

// connected adds a new connection. It returns nil if noRoom has an objection to its address.
func (h *hub) connected(l link, from string, now time.Time) *session {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, _ := netip.ParseAddrPort(from) // invalid if UCX does not know the address: then it counts for no network
	address := plain(at)
	if h.noRoom(address) != "" {
		return nil
	}
	s := &session{hub: h, link: l, from: from, address: address, began: now, heard: now, told: now}
	h.sessions[s] = struct{}{}
	h.open++
	h.of[flood.Network(address)]++
	return s
}

// drop ends a connection and tells the receiver why. The lock must not be held.
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
	_ = sendControl(s.link, idBye, y.append(nil))
	s.link.end(func() { h.ended(s) })
}

// ended counts a connection as completely gone.
func (h *hub) ended(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
	from := flood.Network(s.address)
	if h.of[from]--; h.of[from] == 0 {
		delete(h.of, from)
	}
	h.finish()
}

func (h *hub) finish() {
	if h.closed && h.open == 0 {
		close(h.empty)
	}
}

// close ends all connections for good, and waits until they are completely gone.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	h.finish()
	h.mu.Unlock()
	h.dropAll(bye{CodeEnd, "the sender ends"})
	<-h.empty // ends: connections that do not end are forced to
}

// clear ends all connections, and waits until they are completely gone. The caller must prevent new ones.
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

// forget unregisters the slots of all streams from UCX. Nobody may be connected.
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

// check drops connections that have been silent or slow for too long. It sends the other receivers their counters, at
// intervals of at least alive, because a receiver ends its connection if the sender is silent for too long.
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
		s.sendCounters()
	}
}

// find returns the stream called name, if the given address may receive it. An empty name selects the only stream that
// the address may receive.
func (h *hub) find(name string, from netip.Addr) (*Sink, error) {
	var names []string
	list := h.allowed(from)
	for _, k := range list {
		if k.name == name || name == "" && len(list) == 1 {
			return k, nil
		}
		names = append(names, k.name)
	}
	if name == "" && len(names) > 0 {
		return nil, fmt.Errorf("there are several streams: name one of %s", strings.Join(names, ", "))
	}
	return nil, fmt.Errorf("there is no stream %q, only: %s", name, strings.Join(names, ", "))
}

// allowed returns the streams that an address may receive. The lock must be held. To that address, the others do not
// exist.
func (h *hub) allowed(from netip.Addr) []*Sink {
	return slices.DeleteFunc(slices.Clone(h.sinks), func(k *Sink) bool { return !k.allows(from) })
}

// streams returns the list of streams in the welcome for an address.
func (h *hub) streams(from netip.Addr) (list []stream) {
	for _, k := range h.allowed(from) {
		list = append(list, stream{k.name, k.format})
	}
	return list
}

// add adds a stream. It returns an error if its name or its format is impossible, if its name is taken, or if there are
// too many streams.
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

// remove removes a stream from the list of streams.
func (h *hub) remove(k *Sink) error {
	h.mu.Lock()
	h.sinks = slices.DeleteFunc(h.sinks, func(x *Sink) bool { return x == k })
	h.mu.Unlock()
	return h.streamsChanged()
}

// streamsChanged calls changed after the list of streams has changed.
func (h *hub) streamsChanged() error {
	if h.changed == nil {
		return nil
	}
	return h.changed()
}

// networks returns the networks that may receive a stream; none without a stream.
func (h *hub) networks() (list []netip.Prefix) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.sinks {
		if len(k.allow) == 0 {
			return flood.Everyone
		}
		list = append(list, k.allow...)
	}
	return list
}
