// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tegracast/tegracast/pipeline/bus"
	"github.com/tegracast/tegracast/pipeline/record"
)

// Recording publishes an event of a recording.
func (b *Bus) Recording(n record.News) {
	e := bus.Happened{Kind: bus.KindRecording, Output: n.Output, File: n.File}
	if n.Deleted {
		e.Kind = bus.KindDeleted
	}
	if t := n.Trigger; t != nil {
		moment := time.Unix(0, t.At).UTC()
		e = bus.Happened{Kind: bus.KindTrigger, Output: n.Output, Cause: t.Cause, Moment: &moment, Frame: &t.Frame}
	}
	b.queueEvent(e)
}

// Handler returns a handler that publishes the log's warnings and errors as faults.
func (b *Bus) Handler() slog.Handler { return &handler{bus: b} }

type handler struct {
	bus   *Bus
	attrs []slog.Attr // the keys include the names of the groups
	group string
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.bus.open.Load()
}

// Handle implements slog.Handler.
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	e := bus.Happened{Kind: bus.KindFault, Level: strings.ToLower(r.Level.String()), Text: r.Message}
	if n := len(h.attrs) + r.NumAttrs(); n > 0 {
		e.Fields = make(map[string]string, n)
	}
	for _, a := range h.attrs {
		e.Fields[a.Key] = a.Value.Resolve().String()
	}
	r.Attrs(func(a slog.Attr) bool {
		e.Fields[h.group+a.Key] = a.Value.Resolve().String()
		return true
	})
	h.bus.queueEvent(e)
	return nil
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(list []slog.Attr) slog.Handler {
	next := &handler{h.bus, slices.Clone(h.attrs), h.group}
	for _, a := range list {
		a.Key = h.group + a.Key
		next.attrs = append(next.attrs, a)
	}
	return next
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.bus, h.attrs, h.group + name + "."}
}
