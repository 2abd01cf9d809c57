// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/monotonic"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// listener returns a receiver on the loopback and its address.
func listener(t testing.TB) (*net.UDPConn, string) {
	t.Helper()
	port := rtptest.EvenPorts(t, 1)[0]
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadBuffer(4 << 20)
	t.Cleanup(func() { _ = c.Close() })
	return c, fmt.Sprintf("127.0.0.1:%d", port)
}

// read returns the datagrams that wait at c, and those that arrive within a few milliseconds. It waits much longer for
// the first want datagrams, because the kernel of a slow machine may deliver them late, and a thread that is late for a
// deadline would find none.
func read(t testing.TB, c *net.UDPConn, want int) [][]byte {
	t.Helper()
	var out [][]byte
	b := make([]byte, 10000)
	for {
		patience := 30 * time.Millisecond
		if len(out) < want {
			patience = 10 * time.Second
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		n, err := c.Read(b)
		if err != nil {
			return out
		}
		out = append(out, bytes.Clone(b[:n]))
	}
}

// send packetizes and sends frame f.
func send(t testing.TB, s *Sink, f *pipeline.Frame) bool {
	t.Helper()
	if err := s.packer.Packetize(s.trains[0].Train, f); err != nil {
		t.Fatal(err)
	}
	return sendTrain(s, s.trains[0])
}

func TestAllDestinationsGetTheSameBytes(t *testing.T) {
	a, addrA := listener(t)
	b, addrB := listener(t)
	f := rtptest.Format(t, pipeline.UYVY, 320, 240, 100)
	s := testSink(t, Config{Stream: rtp.Stream{Start: testStart()}, Destinations: []string{addrA}}, f)
	want := packets(t, s, rtptest.Frame(f, 0))
	sendTrain(s, s.trains[0])
	if err := s.Add(at(addrB)); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(at(addrB)); !errors.Is(err, ErrDestination) {
		t.Errorf("the same destination twice: %v", err)
	}
	sendTrain(s, s.trains[0])
	if err := s.Remove(addrA); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(addrA); !errors.Is(err, ErrDestination) {
		t.Errorf("removed twice: %v", err)
	}
	sendTrain(s, s.trains[0])
	for name, got := range map[string][][]byte{"a": read(t, a, 2*len(want)), "b": read(t, b, 2*len(want))} {
		if len(got) != 2*len(want) {
			t.Fatalf("%s got %d packets, want %d", name, len(got), 2*len(want))
		}
		for i, p := range got {
			if !bytes.Equal(p, want[i%len(want)]) {
				t.Fatalf("%s: packet %d differs", name, i)
			}
		}
	}
	st := s.Stats()
	if len(st.Destinations) != 1 || st.Destinations[0].Frames != 2 || st.Packets != 480 || st.Bytes != 480*660 {
		t.Errorf("%+v", st)
	}
}

// stall replaces destination d's socket by one end of a socket pair whose other end is not read, so that it accepts
// only a few packets.
func stall(t *testing.T, d *destination) (peer int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(d.socket.fd)
	d.socket.fd = pair[0]
	t.Cleanup(func() { _ = unix.Close(pair[1]) })
	return pair[1]
}

func TestAStalledDestinationDisturbsNobody(t *testing.T) {
	a, addrA := listener(t)
	_, addrB := listener(t)
	f := rtptest.Format(t, pipeline.UYVY, 320, 240, 20)
	s := testSink(t, Config{Destinations: []string{addrB, addrA}}, f)
	peer := stall(t, (*s.sender.dests.Load())[0])
	for n := range 3 {
		start := time.Now()
		if send(t, s, rtptest.Frame(f, n)) {
			t.Error("failed, although one destination took everything")
		}
		if d := time.Since(start); d > 10*time.Second { // 10 ms by design
			t.Errorf("a stalled destination held the frame for %v", d)
		}
	}
	if got := read(t, a, 720); len(got) != 720 {
		t.Errorf("the other destination got %d packets, want 720", len(got))
	}
	st := s.Stats().Destinations[0]
	if st.Cut != 3 || st.Frames != 0 || st.Packets+st.Dropped != 720 || st.Packets == 0 || !strings.Contains(st.LastError, "too slowly") {
		t.Errorf("%+v", st)
	}
	b := make([]byte, 2000)
	for n, err := unix.Read(peer, b); n > 0; n, err = unix.Read(peer, b) { // the receiver starts to read
		if err != nil {
			t.Fatal(err)
		}
	}
	go func() { // and continues to read
		for {
			n, err := unix.Read(peer, b)
			if n == 0 || (err != nil && err != unix.EAGAIN) {
				return
			}
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(peer), Events: unix.POLLIN}}, 100)
		}
	}()
	send(t, s, rtptest.Frame(f, 3))
	if st := s.Stats().Destinations[0]; st.Frames != 1 || st.LastError != "" {
		t.Errorf("after the stall: %+v", st)
	}
}

func TestAllDestinationsStalledFailsTheFrame(t *testing.T) {
	_, addr := listener(t)
	f := rtptest.Format(t, pipeline.UYVY, 320, 240, 100)
	s := testSink(t, Config{Destinations: []string{addr}}, f)
	stall(t, (*s.sender.dests.Load())[0])
	if !send(t, s, rtptest.Frame(f, 0)) {
		t.Error("frame counts as sent")
	}
}

func TestAKilledReceiverComesBack(t *testing.T) {
	a, addrA := listener(t)
	b, addrB := listener(t)
	f := rtptest.Format(t, pipeline.UYVY, 320, 240, 100)
	s := testSink(t, Config{Destinations: []string{addrA, addrB}}, f)
	var log bytes.Buffer
	d := (*s.sender.dests.Load())[0]
	d.log = slog.New(slog.NewTextHandler(&log, nil))
	_ = a.Close()
	for n := range 5 {
		if send(t, s, rtptest.Frame(f, n)) {
			t.Error("nobody listening is no failure")
		}
	}
	if got := read(t, b, 5*240); len(got) != 5*240 {
		t.Errorf("the other destination got %d packets, want 1200", len(got))
	}
	st := s.Stats().Destinations[0]
	if st.Refused < 5 || st.Cut != 5 || st.Packets > 5*2*defaultBurst || !strings.Contains(st.LastError, NobodyListens) {
		t.Errorf("%+v", st)
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `level=INFO msg="rtp: nobody listens at the destination yet"`) {
		t.Errorf("the log of a destination at which nobody has listened yet:\n%s", got)
	}
	// An old refusal must not cost a frame.
	if _, err := unix.Write(d.socket.fd, []byte{0}); err != nil {
		t.Fatal(err)
	}
	ua, _ := net.ResolveUDPAddr("udp4", addrA)
	again, err := net.ListenUDP("udp4", ua)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	_ = again.SetReadBuffer(4 << 20)
	send(t, s, rtptest.Frame(f, 5))
	if got := read(t, again, 240); len(got) != 240 {
		t.Errorf("the receiver that came back got %d packets of its first frame, want 240", len(got))
	}
	if st := s.Stats().Destinations[0]; st.Frames != 1 || st.LastError != "" {
		t.Errorf("%+v", st)
	}
	for n := range 2 {
		send(t, s, rtptest.Frame(f, 6+n))
	}
	_ = again.Close()
	d.logged = time.Time{}
	for n := range 2 {
		send(t, s, rtptest.Frame(f, 8+n))
	}
	if got := log.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, `level=WARN msg="rtp: destination loses frames"`) {
		t.Errorf("the log of a destination whose receiver has gone:\n%s", got)
	}
}

func TestUnusableDestinations(t *testing.T) {
	f := rtptest.Format(t, pipeline.UYVY, 320, 240, 100)
	for name, tt := range map[string]struct {
		c    Config
		want string
	}{
		"broadcast": {Config{Destinations: []string{"255.255.255.255:5004"}}, ""},
		"interface": {Config{Destinations: []string{"239.1.1.1:5004"}, Interface: "none0"}, "none0"},
		"name":      {Config{Destinations: []string{"no-such-host.invalid:5004"}}, "host is not known"},
	} {
		tt.c.Logger = slog.New(slog.DiscardHandler)
		_, err := New(tt.c, f)
		if !errors.Is(err, ErrDestination) || !strings.Contains(err.Error(), tt.c.Destinations[0]) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := connectError(netip.MustParseAddrPort("192.0.2.1:5004"), unix.ENETUNREACH)
	if !errors.Is(err, unix.ENETUNREACH) || !strings.Contains(err.Error(), "ip route get 192.0.2.1") {
		t.Error(err)
	}
}

func TestSocketOptions(t *testing.T) {
	_, addr := listener(t)
	f := rtptest.Format(t, pipeline.UYVY, 320, 240, 30)
	get := func(fd, level, opt int) int {
		v, err := unix.GetsockoptInt(fd, level, opt)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	s := testSink(t, Config{Destinations: []string{addr, "239.255.1.2:5004"}, Interface: "lo", DSCP: 46, TTL: 7}, f)
	uni, multi := (*s.sender.dests.Load())[0], (*s.sender.dests.Load())[1]
	for _, tt := range []struct{ got, want int }{
		{get(uni.socket.fd, unix.IPPROTO_IP, unix.IP_TOS), 46 << 2},
		{get(uni.socket.fd, unix.IPPROTO_IP, unix.IP_TTL), 7},
		{get(multi.socket.fd, unix.IPPROTO_IP, unix.IP_MULTICAST_TTL), 7},
		{get(uni.socket.fd, unix.SOL_SOCKET, unix.SO_SNDBUF), 2 * uni.socket.buffer},
	} {
		if tt.got != tt.want {
			t.Errorf("got %d, want %d", tt.got, tt.want)
		}
	}
	if r, err := unix.GetsockoptInet4Addr(multi.socket.fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF); err != nil || r != [4]byte{} {
		t.Errorf("multicast interface %v: %v", r, err) // an index is set, which reads as no address
	}
	sa, err := unix.Getsockname(uni.socket.fd)
	if err != nil || int(udp.AddrPort(sa).Port())+1 != uni.socket.conn.LocalAddr().(*net.UDPAddr).Port {
		t.Errorf("RTCP is not on the port after RTP: %v %v", udp.AddrPort(sa), err)
	}
}

func TestIPv6(t *testing.T) {
	c, err := net.ListenUDP("udp6", &net.UDPAddr{IP: net.IPv6loopback})
	if err != nil {
		t.Skip("NEEDS IPv6: ", err)
	}
	defer func() { _ = c.Close() }()
	for c.LocalAddr().(*net.UDPAddr).Port%2 != 0 {
		_ = c.Close()
		if c, err = net.ListenUDP("udp6", &net.UDPAddr{IP: net.IPv6loopback}); err != nil {
			t.Fatal(err)
		}
	}
	f := rtptest.Format(t, pipeline.UYVY, 64, 48, 100)
	s := testSink(t, Config{Destinations: []string{c.LocalAddr().String()}, DSCP: 10, TTL: 3}, f)
	want := packets(t, s, rtptest.Frame(f, 0))
	sendTrain(s, s.trains[0])
	if got := read(t, c, len(want)); len(got) != len(want) || !bytes.Equal(got[7], want[7]) {
		t.Errorf("%d packets", len(got))
	}
}

// TestSmallBufferWarns requests more than any sensible limit.
func TestSmallBufferWarns(t *testing.T) {
	_, addr := listener(t)
	var log bytes.Buffer
	f := rtptest.Format(t, pipeline.UYVY, 8192, 8192, 1)
	s, err := New(Config{Destinations: []string{addr}, Pacing: PaceBurst, Logger: slog.New(slog.NewTextHandler(&log, nil))}, f)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if want := "sysctl -w net.core.wmem_max=134217728"; !strings.Contains(log.String(), want) {
		t.Errorf("log %q lacks %q", log.String(), want)
	}
}

func TestLinkWarning(t *testing.T) {
	dir := t.TempDir()
	for name, speed := range map[string]string{"eth0": "1000\n", "veth0": "-1\n", "odd0": "fast\n"} {
		if err := os.MkdirAll(filepath.Join(dir, "class/net", name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "class/net", name, "speed"), []byte(speed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name string
		bits float64
		warn bool
	}{{"eth0", 0.99e9, false}, {"eth0", 1.06e9, true}, {"veth0", 9e9, false}, {"odd0", 9e9, false}, {"lo", 9e9, false}, {"", 9e9, false}} {
		if got := checkLink(tt.name, linkSpeed(dir, tt.name), tt.bits); (got != "") != tt.warn {
			t.Errorf("%s at %v: %q", tt.name, tt.bits, got)
		}
	}
}

// TestPacerDoesNotDrift plays frames of 200 bursts to a thread that always wakes up late, or is held up once.
func TestPacerDoesNotDrift(t *testing.T) {
	const us, bursts = time.Microsecond, 200
	for name, tt := range map[string]struct{ late, heldUp, end time.Duration }{
		"in time":      {0, 0, 0},
		"always late":  {140 * us, 0, 140 * us},
		"held up":      {50 * us, 5 * time.Millisecond, 50 * us},
		"for too long": {0, time.Second, time.Second}, // longer than the frame: cannot be made up at twice the rate
	} {
		p := pacer{start: time.Hour, interval: 148 * us, least: 74 * us}
		now, row, longest := p.start, 0, 0
		for k := range bursts {
			if k == 20 {
				now, row = now+tt.heldUp, 0
			}
			if p.schedule(k, now); p.due-now > earlyEnough {
				now, row = p.due+tt.late, 0
			}
			row++
			longest = max(longest, row)
		}
		lateness := now - (p.start + (bursts-1)*p.interval)
		if lateness < -earlyEnough || lateness > tt.end || longest > maxBehind+1 {
			t.Errorf("%s: %v late at the end, %d bursts in a row", name, lateness, longest)
		}
	}
	now := monotonic.Now()
	if sleepUntil(now + 2*time.Millisecond); monotonic.Now() < now+2*time.Millisecond {
		t.Error("woke too early")
	}
	sleepUntil(now) // returns at once for a time in the past
}

// TestAheadOfTheKernel checks that bursts are handed to a kernel that paces them at most as early as is allowed, and without
// a sleep if they are not too early.
func TestAheadOfTheKernel(t *testing.T) {
	const interval, most = time.Second, 4
	for _, tt := range []struct{ early, sleeps time.Duration }{{100 * interval, 98 * interval}, {3 * interval, 0}} {
		slept := 0
		p := pacer{clock: monotonic.NewClock(), interval: interval, turn: &turn{yield: func(struct{}) bool { slept++; return true }}}
		p.start = p.now() + tt.early
		due := p.ahead(0, most)
		if due != p.start || (slept == 1) != (tt.sleeps > 0) || slept == 1 && p.turn.due != p.start-tt.early+tt.sleeps {
			t.Errorf("%v early: due at %v, %d sleeps until %v, start %v", tt.early, due, slept, p.turn.due, p.start)
		}
	}
}

func TestSendAllocatesNothing(t *testing.T) {
	c, addr := listener(t)
	go func() { // drains the socket, so that nothing is refused
		b := make([]byte, 2000)
		for {
			if _, err := c.Read(b); err != nil {
				return
			}
		}
	}()
	f := rtptest.Format(t, pipeline.UYVY, 320, 240, 1000)
	s := testSink(t, Config{Stream: rtp.Stream{Checksum: true}, Destinations: []string{addr}}, f)
	frame := rtptest.Frame(f, 0)
	allocs := -1.0
	inTurn(s, func() {
		allocs = testing.AllocsPerRun(20, func() {
			if err := s.packer.Packetize(s.trains[0].Train, frame); err != nil || s.sender.Send(s.trains[0]) {
				t.Error("not sent: ", err)
			}
		})
	})
	if allocs != 0 {
		t.Fatalf("%v allocations a frame", allocs)
	}
}
