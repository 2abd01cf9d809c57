// SPDX-License-Identifier: Apache-2.0

// Package accept accepts connections, even if the process or the machine temporarily runs out of file descriptors.
package accept

import (
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/flood"
)

// Pauses between attempts.
const (
	firstPause = 5 * time.Millisecond
	maxPause   = time.Second
)

// A Loop accepts the connections of a listener, for one goroutine.
type Loop[C any] struct {
	accept func() (C, error)
	log    *slog.Logger
	told   pipeline.FaultLog
	rate   flood.Limit
	pause  time.Duration // before the next connection
}

// burst and every limit the rate at which connections are accepted, so that a flood of them takes little CPU time from
// the frames. The kernel queues at most 4,096 connections: a legitimate client behind those is accepted after about two
// seconds.
const (
	burst = 512
	every = 500 * time.Microsecond
)

// From returns a Loop over a listener's Accept method.
func From[C any](accept func() (C, error), log *slog.Logger) *Loop[C] {
	return &Loop[C]{accept: accept, log: log, rate: flood.Limit{Burst: burst, Every: every}}
}

// Next waits for a connection and returns it. If too many connections have arrived, it first pauses. It returns an
// error, which wraps net.ErrClosed, only when the listener is closed. After other errors it tries again, with pauses
// that double up to a second, and logs at most once a minute.
func (l *Loop[C]) Next() (C, error) {
	time.Sleep(l.pause)
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		conn, err := l.accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			l.pause = l.rate.Pause(time.Now())
			return conn, err
		}
		if left, due := l.told.Due("", time.Now()); due {
			l.log.Warn("a connection cannot be accepted: trying again until it can", pipeline.Unlogged([]any{"error", err}, left)...)
		}
		time.Sleep(pause)
	}
}

// Listener returns a listener whose Accept is Next.
func Listener(l net.Listener, log *slog.Logger) net.Listener {
	return listener{l, From(l.Accept, log)}
}

type listener struct {
	net.Listener
	loop *Loop[net.Conn]
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) { return l.loop.Next() }
