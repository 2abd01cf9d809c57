// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline/ucx/perftest"
)

// TestPeerKilled kills the other process while a message is in flight.
func TestPeerKilled(t *testing.T) {
	t.Run("by listener", func(t *testing.T) {
		w := worker(t, open(t))
		killed(t, w, func(p *process) end { return dial(t, w, p.addr) })
	})
	t.Run("by shared memory", func(t *testing.T) {
		t.Setenv("UCX_TLS", "posix,cma")
		t.Setenv("UCX_KEEPALIVE_INTERVAL", "1s")
		w := worker(t, open(t))
		killed(t, w, func(p *process) end { return meet(t, w, p) })
	})
}

// meet connects to a peer by its worker's address, and makes it connect back.
func meet(t testing.TB, w *Worker, p *process) end {
	t.Helper()
	o, failed := options()
	e, err := w.Connect(p.address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Abort)
	address, err := w.Address()
	if err != nil {
		t.Fatal(err)
	}
	send(t, e, &Outgoing{ID: idMeet, Data: [][]byte{address}})
	return end{e, failed}
}

func killed(t *testing.T, w *Worker, connect func(*process) end) {
	t.Helper()
	echoes := collect(t, w, idEcho)
	p := start(t)
	e := connect(p)
	send(t, e.Endpoint, &Outgoing{ID: idEcho, Data: [][]byte{pattern(10)}})
	next(t, echoes, "echo")
	stalled := send(t, e.Endpoint, &Outgoing{ID: idStall, Data: [][]byte{pattern(1 << 20)}, Protocol: Rendezvous})
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.Wait() // until then the process still exists as a zombie
	wantError(t, next(t, e.failed, "failure"), ErrConnectionReset, ErrEndpointTimeout)
	if next(t, stalled, "end of the send") == nil {
		t.Error("a message that nobody fetched was sent")
	}
	wantError(t, refusal(t, e.Endpoint, &Outgoing{ID: idEcho}), ErrConnectionReset, ErrEndpointTimeout)
	if err := e.Close(within(t, patience)); err == nil {
		t.Error("an endpoint that has failed is closed without an error")
	}
	f := connect(start(t))
	send(t, f.Endpoint, &Outgoing{ID: idEcho, Data: [][]byte{pattern(10)}})
	next(t, echoes, "echo of the next peer")
}

// TestPeerStopped stops the other process, so that it receives nothing.
func TestPeerStopped(t *testing.T) {
	w := worker(t, open(t))
	echoes := collect(t, w, idEcho)
	p, other := start(t), start(t)
	e, f := dial(t, w, p.addr), dial(t, w, other.addr)
	for _, e := range []*Endpoint{e.Endpoint, f.Endpoint} {
		send(t, e, &Outgoing{ID: idEcho, Data: [][]byte{pattern(10)}})
		next(t, echoes, "echo")
	}
	p.stop(t)
	const messages, size = 2000, 8000 // more than the sockets' buffers can hold
	var waiting []<-chan error
	for range messages {
		waiting = append(waiting, send(t, e.Endpoint, &Outgoing{ID: idEcho, Data: [][]byte{pattern(size)}, Protocol: Eager}))
	}
	for second := 1; ; second++ { // messages may still be copied during the first ones
		before := perftest.OnCPU(t)
		time.Sleep(time.Second)
		used := perftest.OnCPU(t) - before
		if used <= time.Second/5 {
			break
		}
		if second == 10 {
			t.Fatalf("a peer that is stopped costs %v of CPU in a second", used)
		}
	}
	send(t, f.Endpoint, &Outgoing{ID: idEcho, Data: [][]byte{pattern(20)}})
	if got := next(t, echoes, "echo of the other peer"); len(got.data) != 20 {
		t.Errorf("%d bytes", len(got.data))
	}
	if err := p.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		if got := next(t, echoes, "echo"); !bytes.Equal(got.data, pattern(size)) {
			t.Fatalf("message %d has %d bytes", i, len(got.data))
		}
		tidy(t, next(t, waiting[i], "end of the send"))
	}
}

// TestListenerFull connects to a listener that accepts nobody, more often than its queue allows. The surplus
// connections must wait without an error, and be established when the listener continues.
func TestListenerFull(t *testing.T) {
	w := worker(t, open(t))
	echoes := collect(t, w, idEcho)
	p := start(t, "UCX_LISTENER_BACKLOG=1")
	p.stop(t)
	var ends []end
	for range 5 {
		ends = append(ends, dial(t, w, p.addr))
	}
	time.Sleep(200 * time.Millisecond)
	for _, e := range ends {
		if err := e.Err(); err != nil {
			t.Error(err)
		}
	}
	if err := p.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for _, e := range ends {
		send(t, e.Endpoint, &Outgoing{ID: idEcho, Data: [][]byte{pattern(10)}})
		if got := next(t, echoes, "echo"); !bytes.Equal(got.data, pattern(10)) {
			t.Errorf("%d bytes", len(got.data))
		}
	}
}

// TestCloseOfStoppedPeer checks that neither way to close waits for a peer that fetches nothing, and that a rendezvous
// in progress ends. If the peer is not stopped, 1.13.1 could perform an orderly close, but must not be asked to while
// the rendezvous is in progress.
func TestCloseOfStoppedPeer(t *testing.T) {
	w := worker(t, open(t))
	echoes := collect(t, w, idEcho)
	p := start(t)
	signal := func(s syscall.Signal) {
		if err := p.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, abort := range []bool{false, true} {
		for _, stopped := range []bool{false, true} {
			e := dial(t, w, p.addr)
			send(t, e.Endpoint, &Outgoing{ID: idEcho})
			next(t, echoes, "echo")
			stalled := send(t, e.Endpoint, &Outgoing{ID: idStall, Data: [][]byte{pattern(1 << 20)}, Protocol: Rendezvous})
			if stopped {
				p.stop(t)
			}
			if abort {
				e.Abort()
			} else if err := e.Close(within(t, 100*time.Millisecond)); err == nil {
				t.Error("closed in order while a message is under way")
			}
			if next(t, stalled, "end of the send") == nil {
				t.Error("a message that nobody fetched was sent")
			}
			signal(syscall.SIGCONT)
		}
	}
	e := dial(t, w, p.addr)
	send(t, e.Endpoint, &Outgoing{ID: idEcho})
	next(t, echoes, "echo of the peer that goes on")
}

// TestConnects connects and closes many times, orderly and by force, and checks that nothing is left behind. The long
// run does it 1,000 times.
func TestConnects(t *testing.T) {
	rounds := 60
	if os.Getenv("TEGRACAST_LONG") != "" {
		rounds = 1000
	}
	c := open(t)
	a, b := worker(t, c), worker(t, c)
	got := collect(t, b, 1)
	l := listen(t, b, loopback, func(r *ConnRequest) {
		var e *Endpoint
		e, err := r.Accept(EndpointOptions{Failed: func(error) { e.Abort() }})
		if err != nil {
			t.Error(err)
		}
	})
	warm := rounds / 3
	var before books
	for i := range rounds {
		if i == warm {
			before = inventory(t)
		}
		connectOnce(t, a, l.Addr(), got, i%2 == 0)
	}
	after := inventory(t)
	t.Logf("after %d connections: %+v, after %d: %+v", warm, before, rounds, after)
	most := int64(rounds-warm) * 16 << 10
	for range 100 { // what the library and the runtime release later
		if after.descriptors <= before.descriptors && after.goroutines <= before.goroutines && b.open() == 0 && after.resident-before.resident <= most {
			break
		}
		time.Sleep(50 * time.Millisecond)
		after = inventory(t)
	}
	if after.descriptors > before.descriptors+2 || after.goroutines > before.goroutines+2 {
		t.Errorf("after %d connections %+v, after %d %+v", warm, before, rounds, after)
	}
	if grown := after.resident - before.resident; grown > most {
		t.Errorf("%d connections took %d KB", rounds-warm, grown>>10)
	}
	if n := len(a.requests); n > 16 {
		t.Errorf("%d requests were made", n)
	}
	if n := a.open() + b.open(); n > 0 {
		t.Errorf("%d endpoints are left", n)
	}
}

// open returns how many endpoints the worker has.
func (w *Worker) open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(len(w.endpoints), len(w.byHandle))
}

func connectOnce(t *testing.T, w *Worker, to netip.AddrPort, got <-chan parcel, flush bool) {
	t.Helper()
	e, err := w.Dial(to, EndpointOptions{})
	if err != nil {
		t.Fatal(err)
	}
	send(t, e, &Outgoing{ID: 1, Data: [][]byte{pattern(100)}})
	next(t, got, "message")
	if flush {
		tidy(t, e.Close(within(t, patience)))
	} else {
		e.Abort()
	}
}

// books are the resources that a process holds.
type books struct {
	descriptors, goroutines int
	resident                int64
}

func inventory(t *testing.T) books {
	t.Helper()
	runtime.GC()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	if err != nil {
		t.Fatal(fmt.Errorf("statm: %w", err))
	}
	return books{len(names), runtime.NumGoroutine(), pages * int64(os.Getpagesize())}
}
