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
			err := within(ctx, log, func(e *ending) error {
				e.step("the streams", func() { time.Sleep(time.Hour) })
				e.begin(why)
				e.step("the page", func() {})
				e.step("the message bus", func() { <-free })
				return nil
			})
			if d := time.Since(began); !errors.Is(err, why) || (err == nil) != (why == nil) || d != time.Hour+endTime {
				t.Errorf("after %v: %v", d, err)
			}
			if said := b.String(); !strings.Contains(said, `"not ended"="the message bus"`) {
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
		err := within(ctx, slog.New(slog.NewTextHandler(&b, nil)), func(*ending) error {
			time.Sleep(time.Second + endTime - time.Millisecond)
			return want
		})
		if !errors.Is(err, want) || b.Len() > 0 {
			t.Errorf("%v; the log:\n%s", err, &b)
		}
	})
}
