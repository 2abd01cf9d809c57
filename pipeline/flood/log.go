// SPDX-License-Identifier: Apache-2.0

package flood

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// Limits on the log records that strangers cause: a burst, and after that one in each interval.
const (
	logBurst = 60
	logEvery = 2 * time.Second
)

// Logger returns a logger for events that strangers can cause as often as they like: connections, and invalid messages.
// After a burst only one of its records per interval logEvery reaches log, each with the number of those that were
// omitted before, so that the log keeps room for other records.
func Logger(log *slog.Logger) *slog.Logger {
	return slog.New(&logHandler{log.Handler(), &logBooks{limit: Limit{Burst: logBurst, Every: logEvery}}})
}

// A logHandler passes on the records that the limit allows.
type logHandler struct {
	slog.Handler
	books *logBooks
}

// logBooks is the state that a logger shares with the loggers derived from it.
type logBooks struct {
	limit Limit
	left  atomic.Int64 // records omitted since the last one that was passed on
}

// Handle implements slog.Handler.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	if !h.books.limit.Allows(time.Now()) {
		h.books.left.Add(1)
		return nil
	}
	if left := h.books.left.Swap(0); left > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int64("not logged before", left))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logHandler{h.Handler.WithAttrs(attrs), h.books}
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	return &logHandler{h.Handler.WithGroup(name), h.books}
}
