package rtp

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
)

// inNamespace runs f on a thread in a network namespace of its own, which ends with it.
func inNamespace(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		f()
	}()
	if err := <-done; err != nil {
		t.Fatalf("network namespace (needs root): %v", err)
	}
}

// ip runs the command in the calling thread's namespace.
func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// transmitOnly makes an interface that takes packets for 10.9.0.2 and forgets them.
func transmitOnly(t *testing.T) {
	t.Helper()
	ip(t, "link", "add", "x", "type", "ifb")
	ip(t, "address", "add", "10.9.0.1/24", "dev", "x")
	ip(t, "link", "set", "x", "up")
	neighbour(t)
}

func neighbour(t *testing.T) {
	t.Helper()
	ip(t, "neigh", "replace", "10.9.0.2", "lladdr", "02:00:00:00:00:02", "dev", "x", "nud", "permanent")
}

// TestLinkFaults: while an interface is down or too narrow frames are cut and counted, and nothing stays in flight;
// afterwards the stream is whole again by itself.
func TestLinkFaults(t *testing.T) {
	plain := testFormat(t, pipeline.UYVY, 1920, 64, 30)
	c := Config{Destinations: []string{"10.9.0.2:5004"}, Pacing: PaceBurst}
	ready, _ := c.PacketReady(plain)
	for name, f := range map[string]pipeline.Format{"gather": plain, "packet-ready": ready} {
		t.Run(name, func(t *testing.T) {
			inNamespace(t, func() {
				transmitOnly(t)
				s := testSink(t, c, f)
				frames := 0
				play := func(what string, wantWhole bool) {
					t.Helper()
					before := s.Stats().Destinations[0]
					frame := testFrame(plain, frames)
					if f.PacketPitch > 0 {
						frame = packReady(frame, f)
					}
					frames++
					send(t, s, frame)
					st := s.Stats().Destinations[0]
					if whole := st.Frames > before.Frames; whole != wantWhole {
						t.Errorf("%s: whole %v, want %v: %+v", what, whole, wantWhole, st)
					}
					if st.Frames+st.Cut != uint64(frames) || st.Packets+st.Dropped != uint64(frames*s.trains[0].Len()) {
						t.Errorf("%s: the books do not close: %+v", what, st)
					}
				}
				play("at first", true)
				ip(t, "link", "set", "x", "down")
				play("interface down", false)
				ip(t, "link", "set", "x", "up")
				neighbour(t)
				play("interface up again", true)
				ip(t, "link", "set", "x", "mtu", "1000")
				play("MTU too small", false)
				if last := s.Stats().Destinations[0].LastError; !strings.Contains(last, "lower mtu") {
					t.Errorf("it says %q", last)
				}
				ip(t, "link", "set", "x", "mtu", "1500")
				play("MTU large again", true)
				for deadline := time.Now().Add(5 * time.Second); s.trains[0].inFlight.Load() > 0; time.Sleep(time.Millisecond) {
					s.sender.reap()
					if time.Now().After(deadline) {
						t.Fatalf("%d calls are in flight for ever", s.trains[0].inFlight.Load())
					}
				}
			})
		})
	}
}

// TestZeroCopyHoldsTheFrame: where the kernel sends from the frame's own memory, the engine stays, and the frame is held
// exactly until the kernel has let go.
func TestZeroCopyHoldsTheFrame(t *testing.T) {
	inNamespace(t, func() {
		transmitOnly(t)
		plain := testFormat(t, pipeline.UYVY, 1920, 64, 30)
		c := Config{Destinations: []string{"10.9.0.2:5004"}, Pacing: PaceBurst}
		f, _ := c.PacketReady(plain)
		s := testSink(t, c, f)
		for n := range 20 {
			send(t, s, packReady(testFrame(plain, n), f))
		}
		for deadline := time.Now().Add(5 * time.Second); s.trains[0].inFlight.Load() > 0; time.Sleep(time.Millisecond) {
			s.sender.reap()
			if time.Now().After(deadline) {
				t.Fatalf("%d calls are in flight for ever", s.trains[0].inFlight.Load())
			}
		}
		d := (*s.sender.dests.Load())[0]
		if d.engine != ZeroCopy || d.zero.next != 20*192/16 {
			t.Errorf("sends by %v, %d calls, want %v, %d", d.engine, d.zero.next, ZeroCopy, 20*192/16)
		}
	})
}
