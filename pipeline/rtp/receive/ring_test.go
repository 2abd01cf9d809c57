// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

func testRing(t testing.TB) *ring {
	t.Helper()
	g, err := newRing(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.free(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// fill stores the datagram b, with packets of the given size, at place i as the kernel does.
func (g *ring) fill(i int, b []byte, size int) {
	m := &g.msgs[i]
	m.Len, m.Flags, m.ControlLen = uint32(copy(g.buffers[i*packetRoom:][:packetRoom], b)), 0, 0
	if size > 0 {
		note := g.notes[i*noteRoom:][:noteRoom]
		binary.NativeEndian.PutUint64(note, unix.SizeofCmsghdr+4)
		binary.NativeEndian.PutUint32(note[8:], unix.SOL_UDP)
		binary.NativeEndian.PutUint32(note[12:], unix.UDP_GRO)
		binary.NativeEndian.PutUint32(note[16:], uint32(size))
		m.ControlLen = unix.SizeofCmsghdr + 8
	}
	g.about[i] = about{at: time.Unix(1700000000, 0)}
}

// TestRingKeepsOrder passes numbers through the ring between two goroutines, several times around, with an end in
// between.
func TestRingKeepsOrder(t *testing.T) {
	const all, counted = 20 * ringSize, 7*ringSize + 5
	g := testRing(t)
	var reader sync.WaitGroup
	reader.Go(func() {
		for next := 0; next < all; {
			i, n := g.space()
			for k := range n {
				if n = min(n, all-next, 1+next%batchSize); k < n {
					g.fill(i+k, binary.NativeEndian.AppendUint32(nil, uint32(next+k)), 0)
				}
			}
			if next < counted && next+n > counted {
				n = counted - next
			}
			if g.putDatagrams(n); next+n == counted {
				g.endReception(time.Unix(1, 0))
			}
			next += n
		}
	})
	next, ends := 0, 0
	for next < all {
		i, n, over, err := g.takeDatagrams()
		if err != nil || over && (n != 0 || next != counted || !g.endAt.Equal(time.Unix(1, 0))) {
			t.Fatalf("at %d: %d datagrams, over %v, %v", next, n, over, err)
		}
		if over {
			ends++
		}
		for k := range n {
			if b, size, whole := g.datagram(i + k); !whole || size != 4 || int(binary.NativeEndian.Uint32(b)) != next {
				t.Fatalf("datagram %d: % x, size %d, whole %v", next, b, size, whole)
			}
			next++
		}
		g.done(n)
	}
	if reader.Wait(); ends != 1 {
		t.Errorf("told %d times of the end", ends)
	}
	g.wake()
	if _, n, over, err := g.takeDatagrams(); n != 0 || over || err != nil {
		t.Errorf("woken: %d datagrams, over %v, %v", n, over, err)
	}
}

// TestFullRingLetsGo checks that closing a full ring releases its reader.
func TestFullRingLetsGo(t *testing.T) {
	g := testRing(t)
	for range ringSize / batchSize {
		_, n := g.space()
		g.putDatagrams(n)
	}
	waits := make(chan int)
	go func() { _, n := g.space(); waits <- n }()
	select {
	case n := <-waits:
		t.Fatalf("room for %d datagrams in a full ring", n)
	case <-time.After(10 * time.Millisecond):
	}
	g.close()
	if n := <-waits; n != 0 {
		t.Errorf("room for %d datagrams in a closed ring", n)
	}
}

// one returns a Receiver of x's stream on the loopback, with the smallest buffer that the kernel allows, and a socket
// connected to it.
func one(t *testing.T, x *feed, onFrame func([]byte, FrameInfo)) (*Receiver, *net.UDPConn) {
	t.Helper()
	port := rtptest.EvenPorts(t, 1)[0]
	x.media.Address, x.media.Port, x.media.RTCPPort = netip.MustParseAddr("127.0.0.1"), port, port+1
	r, err := New(Config{Media: x.media, Logger: slog.New(slog.DiscardHandler), Buffer: 1, OnFrame: onFrame})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return r, c
}

// TestASlowFrameHoldsUpNothing checks that packets are read from the socket, whose buffer holds only two, while a frame
// is being processed.
func TestASlowFrameHoldsUpNothing(t *testing.T) {
	x := newFeed(t, rtp.Raw, 6)
	looking, looked := make(chan bool), make(chan bool)
	first := true
	r, c := one(t, x, func([]byte, FrameInfo) {
		if first {
			first = false
			looking <- true
			<-looked
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	send := func(n int, taken func(i int) bool) {
		for i, b := range packets(t, x.sink, x.frames[n]) {
			if _, err := c.Write(b); err != nil {
				t.Error(err)
			}
			for begin := time.Now(); !taken(i); time.Sleep(50 * time.Microsecond) {
				if time.Since(begin) > 10*time.Second {
					t.Fatalf("packet %d of frame %d was not taken from the socket", i, n)
				}
			}
		}
	}
	send(0, func(i int) bool { return i == 23 || r.Stats().Packets > uint64(i) }) // the last frame is being processed
	<-looking
	before := waiting(r)
	for n := 1; n < len(x.frames); n++ {
		send(n, func(i int) bool { return waiting(r) == before+24*(n-1)+i+1 })
	}
	looked <- true
	cancel()
	running.Wait()
	if st := r.Stats(); st.Frames != uint64(len(x.frames)) || st.Lost+st.Damaged != 0 || st.Drops != 0 {
		t.Errorf("%+v", st)
	}
}

// waiting returns the number of datagrams in r's ring, including those being processed.
func waiting(r *Receiver) int {
	r.ring.mu.Lock()
	defer r.ring.mu.Unlock()
	return r.ring.count
}

// TestReceiverTellsItsOwnDrops checks that the drops at this socket are exactly the packets that neither arrived nor
// were lost elsewhere.
func TestReceiverTellsItsOwnDrops(t *testing.T) {
	x := newFeed(t, rtp.Raw, 4)
	r, c := one(t, x, nil)
	sent, elsewhere := 0, 0
	send := func(n, lost int) {
		for i, b := range packets(t, x.sink, x.frames[n]) {
			if i == lost {
				elsewhere++
				continue
			}
			if _, err := c.Write(b); err != nil {
				t.Fatal(err)
			}
			sent++
		}
	}
	send(0, -1) // nothing is reading: about two packets fit
	send(1, 5)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	st := r.Stats()
	if st.Packets == 0 || st.Drops <= 0 || int(st.Packets)+int(st.Drops) != sent || elsewhere != 1 {
		t.Errorf("%d sent: %+v", sent, st)
	}
}

// TestCRCIsThatOfThePicture checks this for packets in any order, and when a part of the picture is received again with
// other pixels.
func TestCRCIsThatOfThePicture(t *testing.T) {
	x := newFeedOf(t, rtp.Raw, rtptest.Format(t, pipeline.UYVY, 640, 360, 30), 3)
	var crcs []uint32
	x.s.onFrame = func(b []byte, info FrameInfo) {
		if crcs = append(crcs, info.CRC); info.CRC != rtp.CRC(b) {
			t.Errorf("frame %d: CRC %#x, want %#x", len(crcs), info.CRC, rtp.CRC(b))
		}
	}
	x.send(0, shuffle)
	x.send(1, func(p [][]byte) [][]byte {
		again := make([]byte, len(p[3]))
		last := len(p) - 1
		copy(again, p[3])
		copy(again[2:4], p[last][2:4]) // the last packet overwrites another packet's pixels with different ones
		again[100] ^= 0xff
		p = append(p[:last:last], again, p[last])
		number := binary.BigEndian.Uint16(p[last][2:]) + 1
		p[last+1] = append([]byte{}, p[last+1]...)
		binary.BigEndian.PutUint16(p[last+1][2:], number)
		return p
	})
	if len(crcs) != 2 {
		t.Errorf("%d frames", len(crcs))
	}
}

// TestFramesHaveTheirMemoryBeforeTheyCome checks that memory is allocated in advance and kept, because allocating it
// later would delay reception.
func TestFramesHaveTheirMemoryBeforeTheyCome(t *testing.T) {
	x := newFeed(t, rtp.Raw, 5)
	var before [2]*byte
	for i := range before {
		before[i] = unsafe.SliceData(x.s.open[i].mem)
	}
	for n := range x.frames {
		x.send(n, shuffle)
	}
	for i, at := range before {
		if a := &x.s.open[i]; at == nil || unsafe.SliceData(a.mem) != at || len(a.mem) != 320*24*2 {
			t.Errorf("frame %d: %d bytes, at %p before and at %p now", i, len(a.mem), at, unsafe.SliceData(a.mem))
		}
	}
}

// FuzzMerged feeds a datagram of several packets, as the kernel delivers it, and checks that each packet is counted
// once.
func FuzzMerged(f *testing.F) {
	x := newFeedOf(f, rtp.Raw, rtptest.Format(f, pipeline.UYVY, 16, 4, 30), 1)
	var seed []byte
	wire := packets(f, x.sink, x.frames[0])
	for _, b := range wire {
		seed = append(seed, b...)
	}
	f.Add(seed, len(wire[0]))
	f.Add(seed[:len(seed)-3], len(wire[0]))
	f.Add(seed, 0)
	f.Add([]byte{}, 1)
	g := testRing(f)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		size &= 0xffff
		r := &Receiver{stream: testStream(t, x.media, nil), ring: g}
		g.fill(5, b, size)
		r.feed(5)
		want := uint64(1)
		if size > 0 && len(b) > 0 {
			want = uint64((min(len(b), packetRoom) + size - 1) / size)
		}
		st := r.stream.snapshot()
		if st.Packets+st.Duplicates+st.Foreign > want || st.Malformed > want {
			t.Fatalf("%d packets in %d bytes of %d: %+v", want, len(b), size, st)
		}
		r.stream.finish()
	})
}
