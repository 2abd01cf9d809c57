// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/pipeline/bus"
)

const hostBus = vjetson.HostAddress + ":4222"

// bus starts NATS on this host, in the network of the virtual machine.
func (a *installed) bus(t *testing.T, folder string) *server.Server {
	t.Helper()
	c, err := a.HostCommand(t.Context(), "true")
	if err != nil {
		t.Fatal(err)
	}
	s := newBusServer(t, hostBus, folder)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		err := unix.Setns(int(c.ExtraFiles[0].Fd()), unix.CLONE_NEWNET)
		if err == nil {
			s.Start()
		}
		started <- err
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	return s
}

// publishes makes the service publish on a bus of this host, under all of the unit's restrictions. fleet lists it here.
// While the server is away, messages are stored on the machine's disk. Afterwards all have arrived, by their numbers.
func (a *installed) publishes(t *testing.T) {
	const file, store = "/etc/tegracast/tegracast.yaml", "/var/lib/tegracast/bus"
	folder := t.TempDir()
	s := a.bus(t, folder)
	a.is(t, "systemctl show -P DropInPaths tegracast", "/etc/systemd/system/tegracast.service.d/50-memlock.conf\n")
	a.must(t, "cp "+file+" /root/kept; printf '  - {name: numbers, results: {bus: true}}\\nbus: {server: \"nats://"+hostBus+"\", board: jetson}\\n' >> "+
		file+"; systemctl reload tegracast")
	a.must(t, said("the bus accepts messages"))
	a.listed(t)
	s.Shutdown()
	s.WaitForShutdown()
	a.must(t, "for i in $(seq 300); do stat -c '%U:%G %a' "+store+"/*.messages > /root/stored 2>/dev/null && exit 0; sleep .1; done; exit 1")
	a.is(t, "sort -u /root/stored; stat -c '%U:%G %a' "+store, "tegracast:tegracast 600\ntegracast:tegracast 700\n")
	s = a.bus(t, folder)
	for began := time.Now(); ; time.Sleep(500 * time.Millisecond) {
		m := a.metrics(t)
		if strings.Contains(m, "\ntegracast_bus_connected 1\n") && strings.Contains(m, "\ntegracast_bus_stored_bytes 0\n") {
			break
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("what waits on the disk does not leave it:\n%s", m)
		}
	}
	a.must(t, "cp /root/kept "+file+"; systemctl reload tegracast")
	a.back(t, "without a bus", time.Now())
	list := messagesOf[bus.Results](t, "", "tegracast.jetson.results.numbers", nats.InProcessServer(s))
	for i, r := range list {
		if r.Sequence != uint64(i+1) || r.Epoch != 1 || i > 0 && r.Frame <= list[i-1].Frame {
			t.Fatalf("%d: %+v", i, r)
		}
	}
	t.Logf("%d results of frames came over the bus, none is missing", len(list))
	if len(list) < 20 {
		t.Errorf("only %d results", len(list))
	}
}

// listed waits until fleet lists the machine with its state.
func (a *installed) listed(t *testing.T) {
	for began := time.Now(); ; time.Sleep(500 * time.Millisecond) {
		c, err := a.HostCommand(t.Context(), a.program, "fleet", "--server", "nats://"+hostBus, "--json")
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.Output() // a busy server may not answer in time
		var f Fleet
		if err == nil {
			err = json.Unmarshal(out, &f)
		}
		if err == nil && len(f.Boards) == 1 && f.Boards[0].State == "streaming" {
			h := f.Boards[0].Health
			streams := func(name string) bool {
				return slices.ContainsFunc(h.Outputs, func(o bus.OutputHealth) bool { return o.Name == name && o.Delivered > 0 })
			}
			if h.Board == "jetson" && h.Program == older && streams("raw") && streams("numbers") {
				return
			}
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("the machine is not listed as it is: %v\n%s", err, out)
		}
	}
}
