// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"log/slog"
	"time"
)

const (
	againSoon = time.Second      // pause before the first retry; doubles with each failure
	againLate = 30 * time.Second // maximum pause
)

// Persist sends a stream to a server until ctx ends. Each session is one call of the given function, which must return
// an error: the reason why the session ended. The reason is logged if it differs from the previous one, or if the
// session was longer than againLate. The pauses between sessions grow, and are short again after such a session.
func Persist(ctx context.Context, log *slog.Logger, server string, once func(context.Context) error) {
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
		if err.Error() != said {
			said = err.Error()
			log.Warn("the server refused or dropped the stream; it will be tried again", "server", server, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, againLate)
	}
}
