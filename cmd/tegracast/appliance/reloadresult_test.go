// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
)

// serviceManager opens the socket of a service manager. heard closes it and returns the messages.
func serviceManager(t *testing.T) (heard func() []string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "40000000")
	all := make(chan []string)
	go func() {
		var list []string
		for buf := make([]byte, 8192); ; {
			n, err := conn.Read(buf)
			if err != nil || string(buf[:n]) == "STOPPING=1" {
				all <- list
				return
			}
			list = append(list, string(buf[:n]))
		}
	}()
	return func() []string {
		defer conn.Close()
		select {
		case list := <-all:
			return list
		case <-time.After(time.Minute):
			t.Fatal("the service manager is not told of the end")
			return nil
		}
	}
}

// TestALongReload checks that the service manager is asked to wait during a long reload, for five minutes at most, and
// that the watchdog is still fed. The result is reported only once the service is ready. An error of any length fits into
// a message.
func TestALongReload(t *testing.T) {
	heard := serviceManager(t)
	synctest.Test(t, func(t *testing.T) {
		armed := make(chan struct{})
		h, err := newHealthWatch(func(context.Context) bool { <-armed; return true }, func() pipeline.Stats { return pipeline.Stats{} }, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.Run(ctx)
		}()
		h.Reload()(errors.New("too early"))
		close(armed)
		synctest.Wait()
		done := h.Reload()
		time.Sleep(reloadTime + time.Minute)
		done(errors.New("line 1\nthe end" + strings.Repeat("ä", 4096)))
		h.Reload()(nil)
		cancel()
		<-ended
	})
	list := heard()
	var told []string // without those to the watchdog
	fed, extended := 0, 0
	for _, said := range list {
		switch {
		case said == "WATCHDOG=1":
			fed++
		case said == "EXTEND_TIMEOUT_USEC=20000000":
			extended++
		default:
			told = append(told, said)
		}
		if len(said) > 4096 || !utf8.ValidString(said) {
			t.Errorf("%d bytes: %q", len(said), said)
		}
	}
	if least := int(reloadTime.Seconds()) - 2; fed < least+60 || extended < least || extended > least+3 {
		t.Errorf("the watchdog was fed %d times, and %d times the service manager was asked to wait", fed, extended)
	}
	want := []string{
		"READY=1\nSTATUS=the last reload has failed at ??:??:??: too early", "RELOADING=1\nMONOTONIC_USEC=*",
		"READY=1\nSTATUS=the last reload has failed at ??:??:??: line 1; the end*…", "RELOADING=1\nMONOTONIC_USEC=*", "READY=1\nSTATUS=",
	}
	if !slices.EqualFunc(told, want, func(said, pattern string) bool { ok, err := filepath.Match(pattern, said); return ok && err == nil }) {
		t.Errorf("%.400q, want %q", told, want)
	}
}

// TestAReloadWithoutAnAnswer checks that RequestReload returns an error if the service ends, gives no answer, or does not
// reload.
func TestAReloadWithoutAnAnswer(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("RUNTIME_DIRECTORY", dir)
	if err := RequestReload(t.Context(), os.Getpid(), dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "has no file to reload") {
		t.Error(err)
	}
	(&healthWatch{log: slog.New(slog.NewTextHandler(t.Output(), nil))}).Reloads()
	service := exec.CommandContext(t.Context(), "sleep", "60") // SIGHUP ends it
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- service.Wait() }()
	if err := RequestReload(t.Context(), service.Process.Pid, dir); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Error(err)
	}
	<-ended
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, unix.SIGHUP)
	defer signal.Stop(hangup)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := RequestReload(t.Context(), os.Getpid(), dir)
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "has not ended its reload in 5m0s") || took != reloadTime {
			t.Errorf("%v after %v", err, took)
		}
	})
}
