// SPDX-License-Identifier: Apache-2.0

package ending

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

// TestWhatDoesNotEnd is named in the log, and the end comes all the same: after a signal without an error, after a fault with that.
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
			err := Within(ctx, log, func(e *End) error {
				e.Of(func() []string { return []string{"output rec"} }, func() error { <-free; return nil })
				e.Step("the streams", func() { time.Sleep(time.Hour) })
				e.Begin(why)
				e.Step("the page", func() {})
				e.Step("the message bus", func() { <-free })
				return nil
			})
			if d := time.Since(began); !errors.Is(err, why) || (err == nil) != (why == nil) || d != time.Hour+Limit+lastTime {
				t.Errorf("after %v: %v", d, err)
			}
			if said := b.String(); !strings.Contains(said, `"not ended"="the message bus, output rec"`) {
				t.Errorf("the log:\n%s", said)
			}
			close(free)
		})
	}
}

// TestAnEndInTime is what it is.
func TestAnEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var b bytes.Buffer
		want := errors.New("the flight recorder cannot be written")
		err := Within(ctx, slog.New(slog.NewTextHandler(&b, nil)), func(*End) error {
			time.Sleep(time.Second + Limit - time.Millisecond)
			return want
		})
		if !errors.Is(err, want) || b.Len() > 0 {
			t.Errorf("%v; the log:\n%s", err, &b)
		}
	})
}
