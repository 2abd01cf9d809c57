// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWhatDoesNotEnd checks that parts that do not end are named in the log, and do not prevent the end: without an error
// after a signal, with the fault after a fault.
func TestWhatDoesNotEnd(t *testing.T) {
	fault := errors.New("the camera has not recovered")
	for _, why := range []error{nil, fault} {
		synctest.Test(t, func(t *testing.T) {
			var b bytes.Buffer
			log, ctx, free := slog.New(slog.NewTextHandler(&b, nil)), t.Context(), make(chan struct{})
			if why == nil {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Hour)
				defer cancel()
			}
			began := time.Now()
			err := boundShutdown(ctx, log, func(e *shutdown) error {
				e.Of(func() []string { return []string{"output rec"} }, func() error { <-free; return nil })
				e.Step("the streams", func() { time.Sleep(time.Hour) })
				e.Begin(why)
				e.Step("the page", func() {})
				e.Step("the message bus", func() { <-free })
				return nil
			})
			if d := time.Since(began); !errors.Is(err, why) || (err == nil) != (why == nil) || d != time.Hour+shutdownTime+lastTime {
				t.Errorf("after %v: %v", d, err)
			}
			if said := b.String(); !strings.Contains(said, `"not ended"="the message bus, output rec"`) {
				t.Errorf("the log:\n%s", said)
			}
			close(free)
		})
	}
}

// TestAnEndInTime checks that errors of the shutdown are returned, unless the end was requested: then they are logged.
func TestAnEndInTime(t *testing.T) {
	for _, x := range []struct {
		asked, fault bool
		want         bool // an error is returned
	}{{true, false, false}, {true, true, true}, {false, false, true}, {false, true, true}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var b bytes.Buffer
			failed := errors.New("the flight recorder cannot be written")
			err := boundShutdown(ctx, slog.New(slog.NewTextHandler(&b, nil)), func(e *shutdown) error {
				if x.fault {
					e.Begin(errors.New("the camera has not recovered"))
				}
				if x.asked {
					cancel()
				}
				time.Sleep(shutdownTime - time.Millisecond)
				return failed
			})
			told := strings.Contains(b.String(), "flight recorder")
			if errors.Is(err, failed) != x.want || told == x.want {
				t.Errorf("%+v: %v; the log:\n%s", x, err, &b)
			}
		})
	}
}
