// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx"
)

// TestAReceiverWaitsLongerForAStreamThatHasEnded checks that only a connection that delivers a frame resets the pause.
func TestAReceiverWaitsLongerForAStreamThatHasEnded(t *testing.T) {
	f := format(t, pipeline.Grey, 32, 16)
	for _, frame := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			calls := 0
			say := []*ucx.Outgoing{control(idAccept, appendFormat(nil, f)), control(idBye, (&bye{CodeEnd, "it has ended"}).append(nil))}
			if frame {
				header := (&frameHeader{sequence: 1, size: uint64(f.Size())}).append(nil, newest)
				frame := &ucx.Outgoing{ID: idFrame, Header: header, Data: [][]byte{make([]byte, f.Size())}, Protocol: ucx.Rendezvous}
				say = []*ucx.Outgoing{say[0], frame, say[1]}
			}
			r := sender(t, func(own *line, m incoming) {
				switch m.id {
				case idHello:
					calls++
					_ = own.Send(control(idWelcome, (&welcome{newest, "1.13.1", []stream{{"front", f}}}).append(nil)), func(error) {})
				case idSubscribe:
					for _, o := range say {
						_ = own.Send(o, func(error) {})
						time.Sleep(time.Millisecond)
					}
				}
			})
			if err := r.start(ctx); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx, func(f *pipeline.Frame) { f.Release() }) }()
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if n := calls; frame && n < 100 || !frame && (n < 8 || n > 12) {
				t.Errorf("frames %v: %d connections in 30 s, %+v", frame, n, r.Stats())
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCloseWhileMessagesArrive checks that a receiver closes UCX while its worker passes messages to it.
func TestCloseWhileMessagesArrive(t *testing.T) {
	for range 10 {
		closeWhileMessagesArrive(t)
	}
}

func closeWhileMessagesArrive(t *testing.T) {
	k := &client{attempts: map[*ucx.Endpoint]*attempt{}}
	var err error
	if k.context, k.worker, err = openContext(k.receive); err != nil {
		t.Fatal(err)
	}
	c, w, err := openContext(func(*ucx.Message) {})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(w.Close(), c.Close()) }() // its endpoint has failed
	address, err := k.worker.Address()
	if err != nil {
		t.Fatal(err)
	}
	e, err := w.Connect(address, ucx.EndpointOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		sent := make(chan error, 1)
		for {
			if e.Send(control(idWelcome, nil), func(err error) { sent <- err }) != nil {
				return
			}
			select {
			case err := <-sent:
				if err != nil {
					return
				}
			case <-stop:
				return
			}
		}
	}()
	time.Sleep(10 * time.Millisecond) // messages arrive
	closed := make(chan error, 1)
	go func() { closed <- k.close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("UCX is not closed while messages arrive")
	}
	close(stop)
	<-stopped
}
