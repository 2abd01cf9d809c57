// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"log/slog"
	"time"
)

const (
	againSoon = time.Second      // after which a server that was lost is asked again, and twice as long each time it refuses,
	againLate = 30 * time.Second // up to this
)

// Persist has a server take a stream until ctx ends: once does so until the session ends, and says why. The log hears of each new reason.
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
			log.Warn("the server does not take the stream, or no longer: it is asked again", "server", server, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, againLate)
	}
}
