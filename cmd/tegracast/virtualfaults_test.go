// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/vfiouser/endpoint"
)

// sharedConfig has two cameras and an output on one card. The first camera's pictures also go back to the card.
const sharedConfig = `
sources:
  - {name: left, fpga: {device: /dev/tegra_p2p0, width: 320, height: 240, rate: 8}}
  - {name: right, fpga: {device: /dev/tegra_p2p0, camera: 1, width: 320, height: 240, rate: 8}}
isp:
  - {name: first, from: left}
  - {name: second, from: right}
outputs:
  - {name: raw, from: first, rtp: {payload: raw, destinations: ["` + vjetson.HostAddress + `:5004"], checksum: true}}
  - {name: other, from: second, rtp: {payload: raw, destinations: ["` + vjetson.HostAddress + `:5006"], checksum: true}}
  - {name: card, from: first, fpga: {channel: 1}}
`

// sinkChannel is the channel on which the card of newEndpoint receives pictures.
const sinkChannel = 1

// faultsUnderWay returns the faults that can happen while the card streams, except F11, a revocation.
func faultsUnderWay() []model.FaultID {
	return slices.DeleteFunc(model.FaultIDs(), func(id model.FaultID) bool { return id == model.F2 || id == model.F3 || id == model.F11 })
}

// sharedCard streams two cameras of a card, sends it pictures, and injects one fault after the other. Everything must
// recover after each, and no receiver may get a wrong byte.
func sharedCard(t *testing.T, m *vjetson.Machine, card *endpoint.Endpoint, faults []model.FaultID) {
	if err := m.CopyIn(t.Context(), programtest.Write(t, "shared.yaml", sharedConfig), "/run/shared.yaml"); err != nil {
		t.Fatal(err)
	}
	exe := programtest.Program(t)
	sdp := serving(t, m, "/run/shared.yaml")
	c, err := m.HostCommand(context.Background(), exe, "probe", "--sdp", sdp, "--duration", "1000h", "--json")
	if err != nil {
		t.Fatal(err)
	}
	receiver := programtest.StartCommand(t, c)
	programtest.Listening(t, receiver.Process.Pid, 5004)
	comesBack(t, m, card)
	for _, id := range faults {
		began := time.Now()
		inject(t, card, id)
		for card.Card().FaultCounts()[id] == 0 {
			if time.Since(began) > time.Minute {
				t.Fatalf("%v does not happen: %v", id, card.Card().FaultCounts())
			}
			time.Sleep(10 * time.Millisecond)
		}
		comesBack(t, m, card)
		t.Logf("%v: all streams again after %.1f s", id, time.Since(began).Seconds())
	}
	got, _ := receiver.Received(t, 5004)
	if got.Frames == 0 || got.Mismatched+got.Malformed+got.Foreign > 0 {
		t.Errorf("the receiver got %+v", got)
	}
	if r := card.Card().Received(sinkChannel); r.Good == 0 || r.Bad+r.OutOfOrder > 0 {
		t.Errorf("the card got %+v", r)
	}
	said := stopServing(t, m)
	t.Logf("%d frames received; the card: %+v; faults %v\n%s", got.Frames, card.Card().Received(sinkChannel), card.Card().FaultCounts(), said)
}

// stopsUnderFaults makes an engine continue after it was stopped, for a while (F2) or until it is reset (F3). The next
// process that opens the device must find it in order.
func stopsUnderFaults(t *testing.T, m *vjetson.Machine, card *endpoint.Endpoint) {
	for _, id := range []model.FaultID{model.F2, model.F3} {
		serving(t, m, "/run/shared.yaml")
		comesBack(t, m, card)
		inject(t, card, id)
		comesBack(t, m, card) // an engine applies the fault with its next frame
		if _, err := m.Shell(t.Context(), "kill -TERM $(pidof tegracast)"); err != nil {
			t.Error(err)
		}
		said := ended(t, m, "/run/serve.log")
		if n := card.Card().FaultCounts()[id]; n != 1 {
			t.Errorf("%v happened %d times:\n%s", id, n, said)
		}
	}
	serving(t, m, "/run/shared.yaml")
	comesBack(t, m, card)
	stopServing(t, m)
}

func inject(t *testing.T, card *endpoint.Endpoint, id model.FaultID) {
	t.Helper()
	if err := card.Card().Inject(id); err != nil {
		t.Fatal(err)
	}
}

var sourceFrames = regexp.MustCompile(`(?m)^tegracast_source_frames_total\{.*\} (\d+)$`)

// comesBack waits until both cameras have delivered some more frames, and the card has received some.
func comesBack(t *testing.T, m *vjetson.Machine, card *endpoint.Endpoint) {
	t.Helper()
	const more = 3
	var first []uint64
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		text, err := m.Shell(t.Context(), "wget -qO- http://127.0.0.1:8080/metrics")
		now := []uint64{card.Card().Received(sinkChannel).Good}
		for _, f := range sourceFrames.FindAllStringSubmatch(text, -1) {
			n, _ := strconv.ParseUint(f[1], 10, 64) // digits
			now = append(now, n)
		}
		if err != nil || len(now) != 3 {
			t.Fatalf("%v\n%s", err, text)
		}
		if first == nil {
			first = now
		}
		if now[0] >= first[0]+more && now[1] >= first[1]+more && now[2] >= first[2]+more {
			return
		}
		if time.Since(began) > 2*time.Minute {
			said, _ := m.Shell(t.Context(), "cat /run/serve.log")
			t.Fatalf("the card and its sources had %d frames, and have %d:\n%s", first, now, said)
		}
	}
}

// lostInFlight makes the function lose its state while XDMA writes. Nothing may be written afterwards.
func lostInFlight(t *testing.T, m *vjetson.Machine, how string) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	var injecting sync.WaitGroup
	defer func() { cancel(); injecting.Wait() }()
	injecting.Go(func() { // the program requests an error of the port by a file
		for ctx.Err() == nil {
			if _, err := m.Shell(ctx, "rm /run/inject"); err == nil {
				if err := m.InjectError(ctx, "slot0", "MALF_TLP"); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	r, err := m.Run(ctx, "/bin/tests", "-test.run", "^TestLostInFlight$", "-test.v", "-device", "/dev/tegra_p2p0", "-lost-by", how)
	if err != nil || r.Status != 0 || !strings.Contains(string(r.Stdout), "--- PASS: TestLostInFlight") {
		t.Errorf("status %d, %v\n%s%s", r.Status, err, r.Stdout, r.Stderr)
	}
}

// kexecInFlight starts another kernel while the card streams. The card must write nothing from then on. It ends the
// machine.
func kexecInFlight(t *testing.T, m *vjetson.Machine, card *endpoint.Endpoint) {
	// The machine's network is not used: virtio_net of Linux 6.1 may spin for ever when a program sends while devices are
	// shut down.
	if _, err := m.Shell(t.Context(), "sed s/192.168.77.1/127.0.0.1/ /etc/tegracast.yaml >/run/kexec.yaml"); err != nil {
		t.Fatal(err)
	}
	serving(t, m, "/run/kexec.yaml")
	before := card.Books().Written
	for began := time.Now(); card.Books().Written == before; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("the card does not write")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	started, err := m.Expect(`kexec_core: Starting new kernel`)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = m.Run(ctx, "sh", "-c", "GUEST=1 exec /guest.test -test.run '^TestStartKernel$'") }() // does not return
	if _, err := started.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	written := card.Books().Written
	if err := m.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if log := strings.Join(m.KernelLog(), "\n"); !strings.Contains(log, "second kernel: bus master false") {
		t.Errorf("the second kernel does not say that bus mastering is off:\n%s", log)
	}
	if now := card.Books().Written; now != written {
		t.Errorf("the card wrote %d bytes under the second kernel", now-written)
	}
	t.Logf("%d bytes were written before, none since", written)
}
