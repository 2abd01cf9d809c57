// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/lines/linestest"
	"github.com/tegracast/tegracast/cmd/tegracast/memlock"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestMemLock checks that a configuration whose frames exceed the limit of locked memory is refused, with the line to
// change, by a reload, by the page's check and by the page's change, and that the running configuration goes on.
func TestMemLock(t *testing.T) {
	var to []string
	for _, p := range rtptest.EvenPorts(t, 3) {
		to = append(to, fmt.Sprint("127.0.0.1:", p))
	}
	text := "memory: host\n" + reloadConfig(t, to, 31, 1.5, 1400)
	large := strings.Replace(text, "model: {width: 64, height: 16, rate: 31}", "slots: 64\n    model: {width: 640, height: 480, rate: 31}", 1)
	const want = "sources[1].slots: its 64 slots need 38 MiB of memory that is locked"
	s := newReloads(t, text, linestest.New())
	s.editor.store.Limit = &memlock.Limit{Bytes: 16 << 20, From: "a test", Remedy: "raise it"}
	s.editor.store.Folder = t.TempDir()
	if err := s.site.Open(t.Context(), s.reloader.cfg.Web); err != nil {
		t.Fatal(err)
	}
	s.editor.showConfiguration(false)
	s.begin(t)
	s.streaming(t, "raw2")
	before := s.flows.find("two").outputs[0]
	if check := s.editor.Check([]byte(large)); check.Good || len(check.Mistakes) != 1 || check.Mistakes[0].Line != 8 || !strings.Contains(check.Mistakes[0].Message, want) {
		t.Errorf("the page's check: %+v", check)
	}
	if check, err := s.editor.Configure(t.Context(), []byte(large)); err != nil || check.Good || len(check.Mistakes) != 1 || s.editor.Configuration().Kept {
		t.Errorf("the page's change: %+v %v", check, err)
	}
	s.put(t, large)
	if log := s.log.take(); !strings.Contains(log, want) || !strings.Contains(log, "SIGHUP: configuration rejected: still running the previous one") {
		t.Errorf("the reload: %s", log)
	}
	if _, err := s.editor.Reset(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("back to the installed one: %v", err)
	}
	if s.flows.find("two").outputs[0] != before || string(s.reloader.cfg.Text) != text {
		t.Error("what ran was changed")
	}
	s.streaming(t, "raw2")
	s.end(t)
}

// TestPoolsAreWhatIsLocked checks that the pools computed from a configuration are those that an appliance allocates for
// it.
func TestPoolsAreWhatIsLocked(t *testing.T) {
	const text = `
memory: host
web: {listen: none}
sources:
  - {name: one, model: {width: 1280, height: 720}}
  - {name: bare, slots: 12, model: {width: 328, height: 240, stream: bare}}
isp: [{name: isp, from: one}, {name: isp2, from: bare}]
outputs:
  - {name: raw, from: isp, queue: 5, rtp: {payload: raw, destinations: ["127.0.0.1:%[1]d"]}}
  - {name: half, from: isp, scale: half, rtp: {payload: raw, destinations: ["127.0.0.1:%[2]d"]}}
  - {name: jpeg, from: isp, rtp: {payload: jpeg, destinations: ["127.0.0.1:%[3]d"]}}
  - {name: back, from: isp2, fpga: {card: one}}
  - {name: file, from: isp2, record: {directory: %[4]q}}
  - {name: shared, from: isp2, share: {socket: %[5]q}}
`
	p, dir := rtptest.EvenPorts(t, 3), t.TempDir()
	c, err := config.Parse("c.yaml", fmt.Appendf(nil, text, p[0], p[1], p[2], dir, filepath.Join(dir, "s")))
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, p := range memlock.Pools(c) {
		var flags cudahost.Flags
		if p.Shared {
			flags = cudahost.Shared
		}
		want += p.Slots * cudahost.LockedBytes(p.Size, flags)
	}
	if limit := memlock.Own(false); limit != nil && limit.Bytes < uint64(want) {
		t.Skipf("NEEDS CAP_IPC_LOCK, or ulimit -l %d", want>>10)
	}
	before := locked(t)
	a, err := Open(Env{Out: &logLines{}, Log: slog.New(slog.DiscardHandler), Board: linestest.New()}, c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := locked(t) - before; got != want {
		t.Errorf("%d bytes are locked, the configuration says %d", got, want)
	}
	if err := a.opener.closeAll(); err != nil {
		t.Error(err)
	}
}

// locked returns the number of bytes that this process has locked.
func locked(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmLck:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		t.Fatalf("%s", status)
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n << 10
}
