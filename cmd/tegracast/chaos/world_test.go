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

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// A world is the service with all that it depends on.
type world struct {
	log           *journal
	here, there   *network
	names         *nameServer
	disk          *disk
	service       *service
	client        *http.Client
	readers       []*reader
	nats, mqtt    *reader
	late          *lateness
	memoryLimited atomic.Bool
	memory        int64    // of the service at the beginning
	inForce       []string // faults, for the goroutine that plays the script
}

// needs skips the test where it cannot be run, and says what is missing.
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
	w.service.limited, w.service.late = w.memoryLimited.Load, w.late
	w.client = clientOf(w.here)
	password, err := os.ReadFile(filepath.Join(w.service.folder, "web.password"))
	if err != nil {
		t.Fatal(err)
	}
	w.readers = readersOf(w.service, w.there, strings.TrimSpace(string(password)), w.log)
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

// controlledProgram builds the program with the control sockets of its FPGA models. checklinkname=0 lets it have a wall clock of its own.
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

// inOrder sorts faults by their names.
func inOrder(list []fault) []fault {
	slices.SortFunc(list, func(a, b fault) int { return strings.Compare(fmt.Sprint(&a), fmt.Sprint(&b)) })
	return list
}
