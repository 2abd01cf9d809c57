// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/spf13/pflag"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
)

// newLogger returns a logger that writes records of at least a level to errw, as text or JSON. If it is to write text,
// and errw is os.Stderr and the journal's stream (JOURNAL_STREAM, systemd.exec(5)), it uses the journal's own protocol
// instead, with priorities and fields, and journald is true.
func newLogger(errw io.Writer, level slog.Level, asJSON bool) (log *slog.Logger, journald bool) {
	if errw == io.Writer(os.Stderr) && !asJSON {
		if ours, err := journal.StderrIsJournalStream(); err == nil && ours {
			return slog.New(&journalHandler{send: journal.Send, level: level}), true
		}
	}
	if asJSON {
		return slog.New(jsonHandler(errw, level)), false
	}
	return slog.New(slog.NewTextHandler(errw, &slog.HandlerOptions{Level: level})), false
}

// jsonHandler returns a handler that writes records of at least a level to w as JSON. Durations, addresses and other
// values with a text of their own are strings, as in the text format.
func jsonHandler(w io.Writer, level slog.Level) slog.Handler {
	return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if v, is := a.Value.Any().(fmt.Stringer); is && a.Value.Kind() != slog.KindTime {
			a.Value = slog.StringValue(fmt.Sprint(v))
		}
		return a
	}})
}

// logFlags adds the options for logging. After parsing, logger returns the logger that they select, or an error if a
// value is invalid.
func (e env) logFlags(f *pflag.FlagSet) (logger func() (*slog.Logger, error)) {
	level := f.String("log-level", "info", "log messages of at least `LEVEL`: debug, info, warn or error")
	format := f.String("log-format", "text", "log as `FORMAT`: text (in a service the journal's fields) or json")
	return func() (*slog.Logger, error) {
		var least slog.Level
		if !slices.Contains(optionValues["log-level"], *level) || least.UnmarshalText([]byte(*level)) != nil {
			return nil, terminal.UsageError{Err: fmt.Errorf("--log-level %s: must be debug, info, warn or error", *level)}
		}
		if *format != "text" && *format != "json" {
			return nil, terminal.UsageError{Err: fmt.Errorf("--log-format %s: must be text or json", *format)}
		}
		log, _ := newLogger(e.Err, least, *format == "json")
		return log, nil
	}
}

// journalHandler sends records to the journal. MESSAGE is the readable text with all attributes. Each attribute is also a
// field: `journalctl FAULT=…`, `journalctl -o verbose`.
type journalHandler struct {
	send   func(message string, p journal.Priority, fields map[string]string) error
	level  slog.Level // the lowest level that is sent
	attrs  []slog.Attr
	prefix string // names of the open groups, each with a trailing dot
}

// fieldNames holds, by the key of an attribute, the names of journal fields that are not derived from the key.
var fieldNames = map[string]string{"after frame": "FRAME", "first at frame": "FRAME"}

// Enabled implements slog.Handler.
func (h *journalHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level
}

// Handle implements slog.Handler.
func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	attrs := h.attrs
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs[:len(attrs):len(attrs)], slog.Attr{Key: h.prefix + a.Key, Value: a.Value})
		return true
	})
	fields := map[string]string{}
	for _, a := range attrs {
		if name := fieldName(a.Key); name != "" {
			fields[name] = a.Value.Resolve().String()
		}
	}
	return h.send(messageText(ctx, r.Message, attrs), priority(r.Level), fields)
}

// messageText returns the message, followed by the attributes in slog's text format. It leaves out time and level,
// which the journal stores itself.
func messageText(ctx context.Context, message string, attrs []slog.Attr) string {
	if len(attrs) == 0 {
		return message
	}
	var b bytes.Buffer
	text := slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
			return slog.Attr{}
		}
		return a
	}})
	r := slog.Record{}
	r.AddAttrs(attrs...)
	_ = text.Handle(ctx, r) // writing to a buffer cannot fail
	return message + " " + strings.TrimSpace(b.String())
}

// lastWords returns a line for the journal's stream, for a process that ends with an error (sd-daemon(3): <3> is the
// priority). The journal assigns a message of its own protocol to the unit only if the process still exists when it
// reads the message; it always assigns the stream to the unit.
func lastWords(message string, err error) string {
	return fmt.Sprintf("<%d>%s\n", journal.PriErr, messageText(context.Background(), message, []slog.Attr{slog.Any("error", err)}))
}

// fieldName returns the journal's field name for the key of an attribute (systemd.journal-fields(7)): at most 64
// capital letters, digits and underscores, beginning with a letter. It is empty if the key has no ASCII letter.
func fieldName(key string) string {
	if name := fieldNames[key]; name != "" {
		return name
	}
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, key)
	name = strings.TrimLeft(name, "_0123456789")
	if name == "MESSAGE" || name == "PRIORITY" {
		return "LOG_" + name
	}
	return name[:min(len(name), 64)]
}

// priority converts a level to syslog's scale.
func priority(l slog.Level) journal.Priority {
	switch {
	case l >= slog.LevelError:
		return journal.PriErr
	case l >= slog.LevelWarn:
		return journal.PriWarning
	case l >= slog.LevelInfo:
		return journal.PriInfo
	}
	return journal.PriDebug
}

// WithAttrs implements slog.Handler.
func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.attrs = append([]slog.Attr{}, h.attrs...)
	for _, a := range attrs {
		next.attrs = append(next.attrs, slog.Attr{Key: h.prefix + a.Key, Value: a.Value})
	}
	return &next
}

// WithGroup implements slog.Handler.
func (h *journalHandler) WithGroup(name string) slog.Handler {
	next := *h
	next.prefix += name + "."
	return &next
}
