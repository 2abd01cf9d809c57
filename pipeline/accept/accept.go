// SPDX-License-Identifier: Apache-2.0

// Package accept takes connections, also when the process or the machine is short of file descriptors for a while.
package accept

import (
	"errors"
	"log/slog"
	"net"
	"time"
)

// Pauses between attempts.
const (
	firstPause = 5 * time.Millisecond
	maxPause   = time.Second
)

// Next calls accept, the method of a listener, until it returns a connection or net.ErrClosed. Between attempts that fail it pauses, each time
// twice as long, up to a second; it logs the first failure.
func Next[C any](accept func() (C, error), log *slog.Logger) (C, error) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		conn, err := accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		if pause == firstPause {
			log.Warn("a connection cannot be accepted: trying again until it can", "error", err)
		}
		time.Sleep(pause)
	}
}
