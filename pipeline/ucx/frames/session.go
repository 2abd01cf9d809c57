// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"fmt"
	"time"

	"github.com/tegracast/tegracast/pipeline/ucx"
)

// A sessionState is how far somebody who has connected has come.
type sessionState uint8

const (
	arrived sessionState = iota // said nothing so far
	greeted                     // has said hello, and was welcomed
	taking                      // gets frames
	over
)

const (
	inFlight   = 2 // frames that may be on their way to a receiver at a time, for each that the stream has room for
	maxTelling = 4 // states that UCX has not sent yet
	// Messages that a receiver may send: some to begin, one for each frame, and some a second.
	firstMessages  = 16
	secondMessages = 10
)

// A session is a receiver as the sender sees it. The hub's lock guards it.
type session struct {
	hub  *hub
	link link
	from string

	state    sessionState
	began    time.Time
	heard    time.Time // when it has last said something
	told     time.Time // when its books were last told
	telling  int       // states that are being sent
	messages uint64    // that it has sent

	sink    *Sink
	wants   subscribe
	credits uint32
	books   books
	bytes   uint64
	free    []*flight
	flying  []*flight
}

// receive takes a message of the receiver's. The hub's lock is not held.
func (s *session) receive(m incoming, now time.Time) {
	reply, y := s.take(m, now)
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

// failed ends a connection that is broken.
func (s *session) failed(err error) {
	s.hub.drop(s, bye{CodeEnd, err.Error()}, "UCX")
}

// take does what a message asks for, and returns the answer. A bye says why the connection ends.
func (s *session) take(m incoming, now time.Time) (reply *ucx.Outgoing, y *bye) {
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
	s.state = greeted
	w := welcome{version: version, release: s.hub.release, streams: s.hub.streams()}
	return control(idWelcome, w.append(nil)), nil
}

func (s *session) subscribe(data []byte) (reply *ucx.Outgoing, y *bye) {
	wants, err := parseSubscribe(data)
	if err != nil {
		return reply, &bye{CodeBroken, err.Error()}
	}
	k, err := s.hub.find(wants.stream)
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

// join lets frames come, from the next one on.
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

// late says what has taken too long; empty: nothing has.
func (s *session) late(now time.Time) string {
	switch {
	case s.state != taking && now.Sub(s.began) > patience:
		return fmt.Sprintf("no subscription within %v", patience)
	case now.Sub(s.heard) > patience:
		return fmt.Sprintf("it has said nothing for %v", patience)
	}
	for _, f := range s.flying {
		if now.Sub(f.begun) > patience {
			return fmt.Sprintf("it has not taken frame %d for %v", f.header.sequence, patience)
		}
	}
	return ""
}

// tell tells the receiver its books.
func (s *session) tell() {
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

// room says whether one more frame may be on its way, of the spare ones that the stream may still hold. The receiver has its own, and the
// others' who are not there.
func (s *session) room(spare int) bool {
	others := len(s.sink.receivers) - 1
	return spare > 0 && (len(s.flying) < inFlight || spare > inFlight*others+1)
}

// claim takes the next frame for the receiver, if it wants it and it and the stream have room. A frame that it wants and cannot have is
// lost.
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
