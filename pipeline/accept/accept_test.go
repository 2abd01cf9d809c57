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
		n, err := Next(func() (int, error) {
			if tries++; time.Since(began) < 10*time.Second {
				return 0, syscall.EMFILE
			}
			return 7, nil
		}, log)
		if n != 7 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if tries < 10 || tries > 30 {
			t.Errorf("%d attempts in %v", tries, time.Since(began))
		}
		if lines := strings.Count(out.String(), "\n"); lines != 1 {
			t.Errorf("%d lines:\n%s", lines, out.String())
		}
		if _, err := Next(func() (int, error) { return 0, net.ErrClosed }, log); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}
