// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		began, tries := time.Now(), 0
		loop := From(func() (int, error) {
			if tries++; time.Since(began) < 10*time.Second {
				return 0, syscall.EMFILE
			}
			return 7, nil
		}, log)
		n, err := loop.Next()
		if n != 7 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if tries < 10 || tries > 30 {
			t.Errorf("%d attempts in %v", tries, time.Since(began))
		}
		if lines := strings.Count(out.String(), "\n"); lines != 1 {
			t.Errorf("%d lines:\n%s", lines, out.String())
		}
		if _, err := From(func() (int, error) { return 0, net.ErrClosed }, log).Next(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestEveryOtherFails makes every other attempt fail, as if descriptors were free only briefly. It must be logged once
// a minute.
func TestEveryOtherFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		tries := 0
		loop := From(func() (int, error) {
			if tries++; tries%2 == 1 {
				return 0, syscall.EMFILE
			}
			return tries, nil
		}, slog.New(slog.NewTextHandler(&out, nil)))
		for began := time.Now(); time.Since(began) < 5*time.Minute; time.Sleep(100 * time.Millisecond) {
			if _, err := loop.Next(); err != nil {
				t.Fatal(err)
			}
		}
		if lines := strings.Count(out.String(), "\n"); lines < 4 || lines > 6 {
			t.Errorf("%d lines in 5 minutes", lines)
		}
	})
}

// TestRate checks that connections are accepted at a limited rate, however many arrive.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := From(func() (int, error) { return 1, nil }, slog.New(slog.DiscardHandler))
		began, n := time.Now(), 0
		for ; time.Since(began) < 10*time.Second; n++ {
			if _, err := loop.Next(); err != nil {
				t.Fatal(err)
			}
		}
		if n < 20000 || n > 20000+2*burst {
			t.Errorf("%d connections in 10 s, want 2,000 a second and a burst", n)
		}
	})
}
