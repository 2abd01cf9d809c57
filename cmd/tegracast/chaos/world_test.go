// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// A world is the service with everything that it depends on.
type world struct {
	log          *journal
	here, there  *network
	names        *nameServer
	disk         *disk
	service      *service
	client       *http.Client
	password     string
	readers      []*reader
	nats, mqtt   *reader
	late         *lateness
	limitedUntil atomic.Int64 // memory is limited until then, ns since 1970; the kernel may kill a process a little later
	memory       int64        // of the service at the start
	inForce      []string     // faults, for the goroutine that plays the script
}

// needs skips the test with the reason if it cannot run here.
func needs(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NEEDS root, for network namespaces, mounts and limits")
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("NEEDS /dev/fuse, by which the disk is slow: %v", err)
	}
	f.Close()
	for _, name := range []string{"ip", "ffmpeg", "nats-server", "mosquitto"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("NEEDS %s (make setup-test): %v", name, err)
		}
	}
}

// newWorld starts everything but the service, which it prepares.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{log: newJournal(), late: &lateness{}}
	program := controlledProgram(t)
	w.here, w.there = newNetwork(t, "service"), newNetwork(t, "readers")
	link(t, w.here, w.there)
	w.names, w.disk = newNameServer(t, w.here), newDisk(t)
	w.service = newService(t, w.log, program, w.disk, w.here)
	w.service.limited = func() bool { return time.Now().UnixNano() < w.limitedUntil.Load() }
	w.service.late = w.late
	password, err := os.ReadFile(filepath.Join(w.service.folder, "web.password"))
	if err != nil {
		t.Fatal(err)
	}
	w.password = strings.TrimSpace(string(password))
	w.client = clientOf(w.here, w.password)
	w.readers = readersOf(w.service, w.there, w.password, w.log)
	w.nats, w.mqtt = serversOf(t, w.there, w.log)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, r := range append(slices.Clone(w.readers), w.nats, w.mqtt) {
		running.Go(func() { r.run(ctx) })
	}
	running.Go(func() { w.late.watch(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return w
}

// controlledProgram builds the program with the control sockets of its FPGA models. checklinkname=0 permits its own wall
// clock.
func controlledProgram(t *testing.T) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "tegracast")
	c := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", "modelcontrol", "-ldflags=-checklinkname=0", "-o", exe, programtest.Path)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return exe
}

// inOrder sorts faults by name.
func inOrder(list []fault) []fault {
	slices.SortFunc(list, func(a, b fault) int { return strings.Compare(fmt.Sprint(&a), fmt.Sprint(&b)) })
	return list
}
