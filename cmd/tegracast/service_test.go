// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/journal"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestJournalHandler checks that a journal entry has the level's priority, the attributes as fields, and a message that
// also contains them.
func TestJournalHandler(t *testing.T) {
	type entry struct {
		message string
		p       journal.Priority
		fields  map[string]string
	}
	var got []entry
	h := &journalHandler{send: func(m string, p journal.Priority, f map[string]string) error {
		got = append(got, entry{m, p, f})
		return nil
	}}
	log := slog.New(h)
	log.Debug("not logged")
	log.Info("plain")
	log.With("output", "raw").Warn("source restarting", "source", "camera", "after frame", 41, "fault", errors.New("the link is down"))
	log.WithGroup("rtp").Error("lost", "1 of", 2, "message", "kept apart")
	want := []entry{
		{"plain", journal.PriInfo, map[string]string{}},
		{
			`source restarting output=raw source=camera "after frame"=41 fault="the link is down"`, journal.PriWarning,
			map[string]string{"OUTPUT": "raw", "SOURCE": "camera", "FRAME": "41", "FAULT": "the link is down"},
		},
		{`lost "rtp.1 of"=2 rtp.message="kept apart"`, journal.PriErr, map[string]string{"RTP_1_OF": "2", "RTP_MESSAGE": "kept apart"}},
	}
	if len(got) != len(want) {
		t.Fatalf("%d entries: %v", len(got), got)
	}
	for i, w := range want {
		if g := got[i]; g.message != w.message || g.p != w.p || !maps.Equal(g.fields, w.fields) {
			t.Errorf("%+v, want %+v", g, w)
		}
	}
	for key, name := range map[string]string{"a b": "A_B", "_x": "X", "9": "", "message": "LOG_MESSAGE", "ä": "", strings.Repeat("x", 80): strings.Repeat("X", 64)} {
		if g := fieldName(key); g != name {
			t.Errorf("field of %q: %q, want %q", key, g, name)
		}
	}
}

// serviceManager returns the socket of a service manager with the given watchdog interval in microseconds.
func serviceManager(t *testing.T, watchdog string) *net.UnixConn {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", watchdog)
	return conn
}

// TestServiceManager is the other end of sd_notify(3). The program must report readiness when its streams are announced
// and armed, feed the watchdog, and report that it stops.
func TestServiceManager(t *testing.T) {
	dir, conn := t.TempDir(), serviceManager(t, "400000")
	p := rtptest.EvenPorts(t, 1)
	cfg := programtest.Write(t, "config.yaml", strings.NewReplacer("192.168.77.1:5004", fmt.Sprint("127.0.0.1:", p[0]), "fpga: {device: /dev/tegra_p2p0, ", "model: {").Replace(cameraConfig))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"serve", "--config", cfg, "--sdp-dir", dir}, io.Discard, io.Discard)
	}()
	next := func() string {
		buf := make([]byte, 4096)
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	if said := next(); !strings.HasPrefix(said, "READY=1\n") {
		t.Errorf("first it says %q", said)
	}
	if _, err := os.Stat(filepath.Join(dir, "raw.sdp")); err != nil {
		t.Errorf("ready before the stream was announced: %v", err)
	}
	slow := func(said string) bool { return strings.HasPrefix(said, "STATUS=") } // a frame may be late on this machine
	for n := 0; n < 5; {
		if said := next(); said == "WATCHDOG=1" {
			n++
		} else if !slow(said) {
			t.Fatalf("it says %q", said)
		}
	}
	cancel()
	said := next()
	for ; said == "WATCHDOG=1" || slow(said); said = next() {
	}
	if said != "STOPPING=1" {
		t.Errorf("at last it says %q", said)
	}
	if status := <-ended; status != 0 {
		t.Errorf("status %d", status)
	}
}
