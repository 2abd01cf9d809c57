// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx"
)

// An attempt is one connection of a receiver. The receiver's lock guards link and the fields from state on.
type attempt struct {
	receiver *Receiver
	link     link
	welcomed chan welcome
	over     chan struct{} // closed when err is set
	once     sync.Once
	err      error // why the connection ended

	state    attemptState
	version  uint16          // of the protocol, from the welcome on
	format   pipeline.Format // requested
	heard    time.Time       // when the sender last sent something
	told     time.Time       // when this side last sent something
	granted  int             // credits that the sender holds
	granting bool            // a credit message is being sent
	begun    bool            // the sender has accepted, so frames may arrive
	came     uint64
	last     frameHeader // header of the previous frame
	books    books       // as last reported by the sender
	results  [4]found    // of the latest frames, a ring
	turn     int
}

// found holds the results of a frame, which arrive before it.
type found struct {
	sequence uint64
	text     []byte
}

type attemptState uint8

const (
	calling attemptState = iota // hello is being sent, or has been
	asking                      // welcome received; the subscription is next, or has been sent
	getting
)

func newAttempt(r *Receiver, now time.Time) *attempt {
	return &attempt{receiver: r, welcomed: make(chan welcome, 1), over: make(chan struct{}), heard: now, told: now}
}

// run connects and returns when the connection has ended.
func (a *attempt) run(ctx context.Context) error {
	r := a.receiver
	r.mu.Lock()
	r.now = a
	r.mu.Unlock()
	l, err := r.dial(ctx, a)
	if err != nil {
		a.fail(err)
		r.leave(a)
		return err
	}
	r.mu.Lock()
	a.link = l
	r.mu.Unlock()
	h := hello{oldest, newest, r.local}
	if err := sendControl(l, idHello, h.append(nil)); err != nil {
		a.fail(err)
	}
	a.watch(ctx)
	r.leave(a)
	y := bye{CodeEnd, "the receiver ends"}
	var wrong *ByeError
	switch {
	case errors.Is(a.err, errWire):
		y = bye{CodeBroken, a.err.Error()}
	case errors.As(a.err, &wrong):
		y = bye{wrong.Code, wrong.Reason}
	}
	_ = sendControl(l, idBye, y.append(nil))
	ended := make(chan struct{})
	l.end(func() { close(ended) })
	<-ended // ends: a connection that does not end is forced to
	return a.err
}

// hasFrames reports whether a frame has arrived.
func (a *attempt) hasFrames() bool {
	a.receiver.mu.Lock()
	defer a.receiver.mu.Unlock()
	return a.came > 0
}

// watch drives the connection until it ends.
func (a *attempt) watch(ctx context.Context) {
	clock := time.NewTicker(tick)
	defer clock.Stop()
	var taken <-chan struct{} // nil until welcomed
	for {
		select {
		case <-ctx.Done():
			a.fail(ctx.Err())
		case <-a.over:
			return
		case w := <-a.welcomed:
			if err := a.prepare(w); err != nil {
				a.fail(err)
			}
			taken = a.receiver.taken
		case <-taken:
			taken = nil
			if err := a.subscribe(); err != nil {
				a.fail(err)
			}
		case now := <-clock.C:
			a.check(now)
		}
	}
}

// fail ends the connection. Only the first reason counts.
func (a *attempt) fail(err error) {
	a.once.Do(func() {
		a.err = err
		close(a.over)
	})
}

// check ends the connection if the sender has been silent for too long. It sends a credit message without credits if
// frames are being received and no credit message has been sent for a while.
func (a *attempt) check(now time.Time) {
	r := a.receiver
	r.mu.Lock()
	silent, quiet := now.Sub(a.heard) > patience, a.state == getting && now.Sub(a.told) >= alive
	unanswered := a.state == calling && len(a.welcomed) == 0
	if quiet {
		a.told = now
	}
	l := a.link
	r.mu.Unlock()
	switch {
	case silent && unanswered:
		a.fail(fmt.Errorf("the sender at %s has not answered for %v: %s", r.config.Address, patience, sameDevices))
	case silent:
		a.fail(fmt.Errorf("the sender at %s has sent nothing for %v", r.config.Address, patience))
	case quiet:
		if err := sendControl(l, idCredit, appendCredit(nil, 0)); err != nil {
			a.fail(err)
		}
	}
}

// prepare checks the sender's versions, chooses the stream, and allocates the buffers for it.
func (a *attempt) prepare(w welcome) error {
	r := a.receiver
	if w.version < oldest || w.version > newest {
		return &ByeError{CodeVersion, fmt.Sprintf("the sender wants version %d of the protocol, this side speaks %d to %d", w.version, oldest, newest)}
	}
	if err := ucx.CheckRelease(w.release); err != nil {
		return &ByeError{CodeVersion, err.Error()}
	}
	s, err := choose(w.streams, r.config.Stream)
	if err != nil {
		return err
	}
	f, err := r.config.Region.of(s.format)
	if err != nil {
		return err
	}
	r.mu.Lock()
	st := &r.tally.stats
	st.Version, st.SenderUCX, st.Stream = w.version, w.release, s.name
	a.version, a.format = w.version, f
	r.mu.Unlock()
	return r.prepare(f)
}

// subscribe sends the subscription.
func (a *attempt) subscribe() error {
	r := a.receiver
	r.mu.Lock()
	a.state, a.granted = asking, r.free
	wants := subscribe{stream: r.tally.stats.Stream, every: uint32(r.config.Every), region: r.config.Region, credits: uint32(r.free)}
	r.mu.Unlock()
	return sendControl(a.link, idSubscribe, wants.append(nil))
}

// choose finds a stream by name; an empty name selects the only stream.
func choose(list []stream, name string) (stream, error) {
	var names []string
	for _, s := range list {
		if s.name == name || name == "" && len(list) == 1 {
			return s, nil
		}
		names = append(names, s.name)
	}
	all := strings.Join(names, ", ")
	switch {
	case all == "":
		return stream{}, errors.New("the sender has no stream")
	case name == "":
		return stream{}, fmt.Errorf("the sender has several streams: name one of %s", all)
	}
	return stream{}, fmt.Errorf("the sender has no stream %q, only: %s", name, all)
}

// grant gives the sender credits for the free buffers. While a credit message is being sent, further credits are
// collected for the next one.
func (a *attempt) grant(now time.Time) {
	r := a.receiver
	r.mu.Lock()
	more := r.free - a.granted
	if a.state != getting || more <= 0 || a.granting || r.now != a {
		r.mu.Unlock()
		return
	}
	a.granted, a.told, a.granting = a.granted+more, now, true
	l := a.link
	r.mu.Unlock()
	if err := l.Send(control(idCredit, appendCredit(nil, uint32(more))), a.hasGranted); err != nil {
		a.fail(err)
	}
}

// hasGranted is called when a credit message has been sent. It grants the credits that have been collected in the
// meantime, or ends the connection if the message was not sent.
func (a *attempt) hasGranted(err error) {
	r := a.receiver
	r.mu.Lock()
	a.granting = false
	r.mu.Unlock()
	if err != nil {
		a.fail(err) // the sender did not get them
		return
	}
	a.grant(time.Now())
}
