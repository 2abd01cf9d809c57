// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx"
)

// TestAReceiverWaitsLongerForAStreamThatHasEnded: only a connection that brings a frame resets its wait.
func TestAReceiverWaitsLongerForAStreamThatHasEnded(t *testing.T) {
	f := format(t, pipeline.Grey, 32, 16)
	for _, frame := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			calls := 0
			say := []*ucx.Outgoing{control(idAccept, appendFormat(nil, f)), control(idBye, (&bye{CodeEnd, "it has ended"}).append(nil))}
			if frame {
				header := (&frameHeader{sequence: 1, size: uint64(f.Size())}).append(nil)
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
