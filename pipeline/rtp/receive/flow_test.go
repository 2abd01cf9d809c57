// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// BenchmarkFlow sends one stream of 8K frames over the loopback, evenly at each rate, and reports how much of it
// arrives. Losses mean that the receiver was too slow. Use -benchtime 60x: an iteration is a frame.
func BenchmarkFlow(b *testing.B) {
	for _, gbps := range []int{2, 4, 6, 8, 12, 16, 20, 24, 32} {
		b.Run(fmt.Sprintf("%dGbps", gbps), func(b *testing.B) { benchmarkFlow(b, float64(gbps)*1e9) })
	}
}

func benchmarkFlow(b *testing.B, rate float64) {
	stream := rtp.Stream{Start: testStart()}
	f, ok := stream.PacketReady(rtptest.Format(b, pipeline.UYVY, 7680, 4320, 30)) // packets of one size
	if !ok {
		b.Fatal("there is no packet-ready layout")
	}
	frame := &pipeline.Frame{Format: f, Bytes: make([]byte, f.Size()), Times: pipeline.Times{ExposureStart: time.Unix(1700000000, 0)}}
	for i := range frame.Bytes {
		frame.Bytes[i] = byte(i * 7)
	}
	wire := packets(b, testSender(b, stream, f), frame)
	port := rtptest.EvenPorts(b, 1)[0]
	at := netip.MustParseAddr("127.0.0.1")
	r, err := New(Config{
		Media:  rtp.Media{Address: at, Port: port, RTCPPort: port + 1, Payload: rtp.Raw, PayloadType: 96, Width: f.Width, Height: f.Height},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	out := newOutlet(b, netip.AddrPortFrom(at, uint16(port)), wire)
	runtime.GC()
	out.frame(rate) // touches the memory for the first time
	time.Sleep(100 * time.Millisecond)
	out.frame(rate)
	time.Sleep(100 * time.Millisecond)
	before := r.Stats()
	b.ResetTimer()
	out.due = time.Now()
	for range b.N {
		out.frame(rate)
	}
	b.StopTimer()
	time.Sleep(200 * time.Millisecond)
	cancel()
	running.Wait()
	st := r.Stats()
	sent := float64(b.N) * float64(len(wire)*len(wire[0]))
	b.ReportMetric(sent*8/1e9/b.Elapsed().Seconds(), "Gbit/s-sent")
	b.ReportMetric(float64(st.Bytes-before.Bytes)/sent*100, "%-received")
	b.ReportMetric(float64(st.Frames-before.Frames)/float64(b.N)*100, "%-whole-frames")
	b.ReportMetric(0, "ns/op")
}

// An outlet sends a frame repeatedly, with as many packets at a time as the kernel splits (UDP_SEGMENT).
type outlet struct {
	fd     int
	memory []byte
	size   int // of a packet
	due    time.Time
	msgs   []udp.Message
	iov    []udp.Vector
}

const (
	burst  = 16 // packets in a datagram before the kernel splits it, as in the sender
	bursts = 8  // per call
)

func newOutlet(b *testing.B, to netip.AddrPort, wire [][]byte) *outlet {
	size := len(wire[0])
	heads, vecs := bursts*udp.MessageSize, bursts*udp.VectorSize
	mem, err := udp.Map(heads + vecs + len(wire)*size)
	if err != nil {
		b.Fatal(err)
	}
	o := &outlet{memory: mem[heads+vecs:], size: size, msgs: udp.Messages(mem[:heads]), iov: udp.Vectors(mem[heads:][:vecs])}
	for i := range o.msgs {
		o.msgs[i].Vectors, o.msgs[i].Count = uintptr(unsafe.Pointer(&o.iov[i])), 1
	}
	for i, p := range wire {
		if len(p) != size {
			b.Fatalf("packet %d has %d bytes, others %d", i, len(p), size)
		}
		copy(o.memory[i*size:], p)
	}
	if o.fd, err = unix.Socket(udp.Family(to.Addr()), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err == nil {
		err = unix.Connect(o.fd, udp.Sockaddr(to))
	}
	if err == nil {
		err = unix.SetsockoptInt(o.fd, unix.SOL_UDP, unix.UDP_SEGMENT, size)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = unix.Close(o.fd), unix.Munmap(mem) })
	return o
}

// frame sends the next frame at rate, in bit/s.
func (o *outlet) frame(rate float64) {
	packets := len(o.memory) / o.size
	for i := 0; i < packets; i += burst * bursts {
		n := min(burst*bursts, packets-i)
		part := o.memory[i*o.size:][:n*o.size]
		if wait := time.Until(o.due); wait > 100*time.Microsecond {
			time.Sleep(wait)
		}
		o.due = o.due.Add(time.Duration(float64(len(part)) * 8e9 / rate))
		o.send(part)
	}
	for i := range packets { // numbers and timestamp of the next frame
		p := o.memory[i*o.size:]
		number := uint32(binary.BigEndian.Uint16(p[12:]))<<16 | uint32(binary.BigEndian.Uint16(p[2:]))
		number += uint32(packets)
		binary.BigEndian.PutUint16(p[12:], uint16(number>>16))
		binary.BigEndian.PutUint16(p[2:], uint16(number))
		binary.BigEndian.PutUint32(p[4:], binary.BigEndian.Uint32(p[4:])+3000)
	}
}

func (o *outlet) send(part []byte) {
	count := 0
	for i := 0; i < len(part); count++ {
		n := min(burst*o.size, len(part)-i)
		o.iov[count] = udp.Vector{Base: udp.Address(part[i:]), Len: uint64(n)}
		i += n
	}
	for sent := 0; sent < count; {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(o.fd), uintptr(unsafe.Pointer(&o.msgs[sent])), uintptr(count-sent), 0, 0, 0)
		if errno != 0 {
			panic(errno)
		}
		sent += int(n)
	}
}
