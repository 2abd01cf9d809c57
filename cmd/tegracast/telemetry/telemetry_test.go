// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline/bus"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/report"
)

// TestFaultsOfTheLog checks that warnings and errors become events with their attributes, and that nothing else does, nor
// anything while the bus is closed.
func TestFaultsOfTheLog(t *testing.T) {
	b := New()
	log := slog.New(b.Handler())
	log.Error("closed")
	b.open.Store(true)
	log.Info("no fault")
	log.With("output", "raw").WithGroup("g").Warn("late", "by", time.Second, "error", io.EOF)
	log.Error("bare")
	frame := uint64(7)
	b.Recording(record.News{Output: "clip", Trigger: &record.TriggerNote{Cause: "gpio", At: 5e9, Frame: frame}})
	b.Recording(record.News{Output: "clip", File: "/f"})
	moment := time.Unix(5, 0).UTC()
	for _, want := range []bus.Happened{
		{Kind: "fault", Level: "warn", Text: "late", Fields: map[string]string{"output": "raw", "g.by": "1s", "g.error": "EOF"}},
		{Kind: "fault", Level: "error", Text: "bare"},
		{Kind: "trigger", Output: "clip", Cause: "gpio", Moment: &moment, Frame: &frame},
		{Kind: "recording", Output: "clip", File: "/f"},
	} {
		if e := <-b.events; !reflect.DeepEqual(e, want) {
			t.Errorf("%+v, want %+v", e, want)
		}
	}
	for range waiting + 3 {
		log.Error("too many")
	}
	if n := b.missed.Load(); n != 3 || len(b.events) != waiting {
		t.Errorf("%d waiting, %d missed", len(b.events), n)
	}
}

// TestBooks checks that waiting messages are counted while the bus cannot be reached, and that a closed bus has no
// counters and takes no results.
func TestBooks(t *testing.T) {
	b, log := New(), slog.New(slog.DiscardHandler)
	c := &config.Bus{Server: "nats://127.0.0.1:1", Board: "a"}
	c.SetDefaults()
	publish := b.Results("numbers")
	if publish(report.Report{}) == nil || published(b) || b.Status() != "" {
		t.Error("a bus that is closed")
	}
	folder := t.TempDir()
	for range 2 { // the second one replaces the first
		if err := b.Open(c, folder, log); err != nil {
			t.Fatal(err)
		}
		if err := publish(report.Report{}); err != nil {
			t.Error(err)
		}
	}
	r := prometheus.NewRegistry()
	r.MustRegister(b)
	var printed strings.Builder
	for begin := time.Now(); !strings.Contains(printed.String(), "0 messages published, 2 wait, lost 0"); time.Sleep(10 * time.Millisecond) {
		printed.Reset()
		b.Print(&printed)
		if time.Since(begin) > time.Minute {
			t.Fatal(printed.String())
		}
	}
	if all, err := r.Gather(); err != nil || len(all) != 6 || !strings.Contains(b.Status(), "bus away, 2 messages wait") || waitingMessages(b) != 2 {
		t.Errorf("%v %v %q", err, all, b.Status())
	}
	if err := b.Close(); err != nil || published(b) {
		t.Error(err)
	}
	if err := b.Open(nil, folder, log); err != nil || published(b) {
		t.Error(err)
	}
}

// published reports whether something is published.
func published(b *Bus) bool {
	_, is := b.Stats()
	return is
}

// waitingMessages returns the number of waiting messages.
func waitingMessages(b *Bus) int {
	st, _ := b.Stats()
	return st.Waiting
}
