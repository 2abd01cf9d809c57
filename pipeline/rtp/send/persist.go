// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	againSoon = time.Second      // pause before the first retry; doubles with each failure
	againLate = 30 * time.Second // maximum pause
)

// An Acceptance reports whether a server takes a stream. The zero Acceptance is that of a server that has not answered
// yet.
type Acceptance struct{ why atomic.Pointer[string] }

// Taken records that the server has accepted the stream.
func (a *Acceptance) Taken() { a.why.Store(new(string)) }

// Trouble returns why the server does not take the stream, or "" if it does.
func (a *Acceptance) Trouble() string {
	if why := a.why.Load(); why != nil {
		return *why
	}
	return "the server has not accepted the stream yet"
}

// Persist sends a stream to a server until ctx ends. Each session is one call of the given function, which must return
// an error: the reason why the session ended, which at records. The reason is logged if it differs from the previous one,
// or if the session was longer than againLate. The pauses between sessions grow, and are short again after such a session.
func Persist(ctx context.Context, log *slog.Logger, server string, at *Acceptance, once func(context.Context) error) {
	wait, said := againSoon, ""
	for ctx.Err() == nil {
		begin := time.Now()
		err := once(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begin) > againLate {
			wait, said = againSoon, ""
		}
		why := err.Error()
		at.why.Store(&why)
		if why != said {
			said = why
			log.Warn("the server refused or dropped the stream; it will be tried again", "server", server, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, againLate)
	}
}
