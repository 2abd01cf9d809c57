// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/tegracast/tegracast/pipeline/ucx"
)

// A sessionState is the stage that a connection has reached.
type sessionState uint8

const (
	arrived sessionState = iota // has said nothing yet
	greeted                     // has said hello and was welcomed
	taking                      // receives frames
	over
)

const (
	inFlight   = 2 // a stream has room for this many frames in flight for each of StreamConfig.Receivers
	maxTelling = 4 // maximum number of idState messages that UCX has not sent yet
	// Messages that a receiver may send: some at the start, one for each frame, and some per second.
	firstMessages  = 16
	secondMessages = 10
)

// A session is a receiver as seen by the sender. The hub's lock guards it.
type session struct {
	hub  *hub
	link link
	from string

	address netip.Addr // of from
	version uint16     // of the protocol; 0 before the hello

	state    sessionState
	began    time.Time
	heard    time.Time // when the receiver last sent something
	told     time.Time // when its counters were last sent to the receiver
	telling  int       // states being sent
	messages uint64    // messages that the receiver has sent

	sink    *Sink
	wants   subscribe
	credits uint32
	books   books
	bytes   uint64
	free    []*flight
	flying  []*flight
}

// receive handles a message from the receiver. The hub's lock must not be held.
func (s *session) receive(m incoming, now time.Time) {
	reply, y := s.handleMessage(m, now)
	switch {
	case y != nil && m.id == idBye:
		s.hub.drop(s, *y, "the receiver")
		return
	case y != nil:
		s.hub.drop(s, *y, "here")
		return
	case reply == nil:
		return
	}
	if err := s.link.Send(reply, nil); err != nil {
		s.failed(err)
		return
	}
	if reply.ID == idAccept {
		s.join()
	}
}

// failed ends a broken connection.
func (s *session) failed(err error) {
	s.hub.drop(s, bye{CodeEnd, err.Error()}, "UCX")
}

// handleMessage processes a message, and returns the reply. y is nil, or the reason why the connection must end.
func (s *session) handleMessage(m incoming, now time.Time) (reply *ucx.Outgoing, y *bye) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.state == over {
		return reply, nil
	}
	s.heard = now
	s.messages++
	broken := func(format string, a ...any) (*ucx.Outgoing, *bye) {
		return reply, &bye{CodeBroken, fmt.Sprintf(format, a...)}
	}
	switch allowed := firstMessages + s.books.sent + secondMessages*uint64(now.Sub(s.began)/time.Second); {
	case s.messages > allowed:
		return broken("%d messages, which is too many", s.messages)
	case m.fetch != nil || len(m.data) > maxControl || len(m.header) > 0:
		return broken("message %d has %d bytes", m.id, max(m.length, len(m.data), len(m.header)))
	case m.id == idHello && s.state == arrived:
		return s.hello(m.data)
	case m.id == idSubscribe && s.state == greeted:
		return s.subscribe(m.data)
	case m.id == idCredit && s.sink != nil:
		more, err := parseCredit(m.data)
		if err != nil || s.credits+more > maxCredits {
			return broken("%d credits besides %d: %v", more, s.credits, err)
		}
		s.credits += more
		return reply, nil
	case m.id == idBye:
		end, err := parseBye(m.data)
		if err != nil {
			return broken("%v", err)
		}
		return reply, &end
	}
	return broken("message %d at the wrong time", m.id)
}

func (s *session) hello(data []byte) (reply *ucx.Outgoing, y *bye) {
	h, err := parseHello(data)
	if err != nil {
		return reply, &bye{CodeBroken, err.Error()}
	}
	version, err := common(h)
	if err != nil {
		return reply, &bye{CodeVersion, err.Error()}
	}
	s.state, s.version = greeted, version
	w := welcome{version: version, release: s.hub.release, streams: s.hub.streams(s.address)}
	return control(idWelcome, w.append(nil)), nil
}

func (s *session) subscribe(data []byte) (reply *ucx.Outgoing, y *bye) {
	wants, err := parseSubscribe(data)
	if err != nil {
		return reply, &bye{CodeBroken, err.Error()}
	}
	k, err := s.hub.find(wants.stream, s.address)
	switch {
	case err != nil:
		return reply, &bye{CodeStream, err.Error()}
	case len(k.receivers) >= k.receiversMost:
		return reply, &bye{CodeFull, fmt.Sprintf("%s has its %d receivers already", k.name, k.receiversMost)}
	}
	format, err := wants.region.of(k.format)
	if err != nil {
		return reply, &bye{CodeRegion, err.Error()}
	}
	s.sink, s.wants, s.credits = k, wants, wants.credits
	return control(idAccept, appendFormat(nil, format)), nil
}

// join lets the receiver get frames, from the next one on, or drops it if the stream has ended or is full.
func (s *session) join() {
	h := s.hub
	h.mu.Lock()
	over, full := s.state == over || s.sink.ended, len(s.sink.receivers) >= s.sink.receiversMost
	if !over && !full {
		s.state = taking
		s.sink.receivers = append(s.sink.receivers, s)
	}
	h.mu.Unlock()
	switch {
	case over:
		h.drop(s, bye{CodeEnd, "the stream has ended"}, "here")
	case full:
		h.drop(s, bye{CodeFull, fmt.Sprintf("%s has its %d receivers already", s.sink.name, s.sink.receiversMost)}, "here")
	default:
		h.log.Info("ucx: a receiver takes frames", "receiver", s.from, "stream", s.sink.name, "every", s.wants.every, "region", s.wants.region)
	}
}

// late returns what has taken too long, or "" if nothing has.
func (s *session) late(now time.Time) string {
	switch {
	case s.state == arrived && now.Sub(s.began) > patience:
		return fmt.Sprintf("no hello within %v: messages need UCP_AM_SEND_FLAG_REPLY, and %s", patience, sameDevices)
	case s.state != taking && now.Sub(s.began) > patience:
		return fmt.Sprintf("no subscription within %v", patience)
	case now.Sub(s.heard) > patience:
		return fmt.Sprintf("it has sent nothing for %v", patience)
	}
	for _, f := range s.flying {
		if now.Sub(f.begun) > patience {
			return fmt.Sprintf("it has not taken frame %d for %v", f.header.sequence, patience)
		}
	}
	return ""
}

// sendCounters sends the receiver its counters.
func (s *session) sendCounters() {
	s.hub.mu.Lock()
	k := s.books
	s.hub.mu.Unlock()
	told := func(err error) {
		s.hub.mu.Lock()
		s.telling--
		s.hub.mu.Unlock()
		if err != nil {
			s.failed(err)
		}
	}
	if err := s.link.Send(control(idState, k.append(nil)), told); err != nil {
		s.failed(err)
	}
}

// room reports whether one more frame may be in flight to this receiver. spare is how many more frames the stream may
// hold. A receiver may use its own share and those of the receivers that are not connected.
func (s *session) room(spare int) bool {
	others := len(s.sink.receivers) - 1
	return spare > 0 && (len(s.flying) < inFlight || spare > inFlight*others+1)
}

// claim takes the next frame for the receiver if the receiver wants it and there is room. Otherwise it returns nil; a
// frame that the receiver wants but has no room for is lost.
func (s *session) claim(now time.Time, spare int) *flight {
	due := s.books.offered%uint64(s.wants.every) == 0
	s.books.offered++
	switch {
	case !due:
		return nil
	case s.credits == 0 || !s.room(spare):
		s.books.lost++
		return nil
	}
	s.credits--
	s.books.sent++
	if len(s.free) == 0 {
		s.free = append(s.free, newFlight(s))
	}
	f := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.flying = append(s.flying, f)
	f.begun, f.header.books = now, s.books
	return f
}
