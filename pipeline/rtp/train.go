// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// A Packetizer turns frames into trains of packets. It is not safe for concurrent use: it counts sequence numbers.
type Packetizer interface {
	// NewTrain makes a train with room for the largest frame and all that stays the same from frame to frame.
	NewTrain() (*Train, error)
	// Packetize fills t, which this packetizer has made, with f's packets. Their payloads stay where they are, so
	// f must be held until t has been sent and its Sum has returned.
	Packetize(t *Train, f *pipeline.Frame) error
	// SetSSRC changes the SSRC of the trains that are packetized from now on. Sequence numbers go on.
	SetSSRC(ssrc uint32)
}

// A Slicer is a Packetizer whose trains may be sent while their frame fills (pipeline.Frame.Fill). Packetize makes all headers
// then, but for what is known when the frame is complete; SumLines and Seal do the rest, in place of Train.Sum, and may do it at the
// same time.
type Slicer interface {
	Packetizer
	// Packets is how many packets the first lines lines are.
	Packets(lines int) int
	// SumLines goes on with the checksum of t by lines from to to of f.
	SumLines(t *Train, f *pipeline.Frame, from, to int)
	// Seal completes t, but for the checksum: f is complete.
	Seal(t *Train, f *pipeline.Frame)
	// Unsent gives back the sequence numbers of the last n packets of the newest train, which are not sent.
	Unsent(n int)
}

// NewPacketizer makes the packetizer of a stream of frames of format f. Without s.Start it begins at random.
func NewPacketizer(s Stream, f pipeline.Format) (Packetizer, error) {
	s = s.WithDefaults()
	if err := s.CheckFormat(f); err != nil {
		return nil, err
	}
	if s.Start == nil {
		s.Start = RandomStart()
	}
	switch s.Payload {
	case JPEG:
		return newJPEGPacketizer(s, f), nil
	case Results:
		return newResultsPacketizer(s), nil
	case H264:
		if s.H264 == nil {
			return nil, fmt.Errorf("%w: payload h264 has no encoder", ErrConfig)
		}
		return newH264Packetizer(s, f), nil
	}
	return newRawPacketizer(s, f), nil
}

// A Train is the packets of one frame. After Packetize it does not change until the next Packetize, so that any
// number of destinations can be sent to from it. Each packet is a header in the train's arena and a payload elsewhere,
// or one piece of packet-ready memory.
type Train struct {
	mem     []byte        // everything below lies in here
	headers []byte        // the arena
	vectors int           // of iov a packet: 2, header and payload, or 1
	iov     []udp.Vector  // of all packets
	msgs    []udp.Message // one for each packet
	scratch []byte        // room for an encoder's output

	count   int                 // packets
	uniform bool                // all packets have one size
	bytes   int                 // UDP payload of all packets
	payload []byte              // the memory that payloads point into, kept alive
	crc     func([]byte) uint32 // of payload, for Sum; nil: Packetize has summed, or there is no checksum
	info    trainInfo
}

// trainInfo is what RTCP tells about a frame.
type trainInfo struct {
	ssrc      uint32
	timestamp uint32
	sequence  uint64    // the frame's
	captured  time.Time // what timestamp was made from
	ntp       uint64    // the same as an NTP timestamp
	done      time.Time // when the frame's DMA was done
	pixels    int       // bytes that the checksum covers
	crc       uint32    // CRC-32C; 0 without checksum
	summed    bool      // by Sum

	unverified bool // pipeline.FlagUnverified
}

// newTrain makes a train of up to packets packets of so many vectors, with headers bytes of headers and scratch bytes
// for an encoder.
func newTrain(packets, vectors, headers, scratch int) (*Train, error) {
	align := func(n int) int { return (n + 63) &^ 63 }
	iov := align(packets * udp.MessageSize)
	head := iov + align(vectors*packets*udp.VectorSize)
	room := head + align(headers)
	mem, err := udp.Map(room + scratch)
	if err != nil {
		return nil, err
	}
	t := &Train{
		mem: mem, msgs: udp.Messages(mem[:packets*udp.MessageSize]), iov: udp.Vectors(mem[iov : iov+vectors*packets*udp.VectorSize]),
		vectors: vectors, headers: mem[head : head+headers], scratch: mem[room:],
	}
	for i := range t.msgs {
		t.msgs[i].Vectors, t.msgs[i].Count = uintptr(unsafe.Pointer(&t.iov[vectors*i])), uint64(vectors)
	}
	return t, nil
}

// Len is the number of packets.
func (t *Train) Len() int { return t.count }

// Bytes is the UDP payload of all packets.
func (t *Train) Bytes() int { return t.bytes }

// Uniform says whether all packets have one size.
func (t *Train) Uniform() bool { return t.uniform }

// Contiguous says whether the packets lie one after the other in packet-ready memory, each in one piece.
func (t *Train) Contiguous() bool { return t.vectors == 1 }

// Done is when the frame's DMA was done; zero: not known.
func (t *Train) Done() time.Time { return t.info.done }

// SSRC is that of the frame.
func (t *Train) SSRC() uint32 { return t.info.ssrc }

// Timestamp is that of all packets.
func (t *Train) Timestamp() uint32 { return t.info.timestamp }

// Payload is what the packets carry, in one piece and without what the payload format adds: of H.264 the access unit as a byte stream.
func (t *Train) Payload() []byte { return t.payload }

// Sum computes the checksum of the frame that Packetize was given last, unless that is done. It reads the frame's pixels,
// and may run in another goroutine while the train is sent.
func (t *Train) Sum() {
	if t.crc != nil && !t.info.summed {
		t.info.crc, t.info.summed = t.crc(t.payload), true
	}
}

// Checksum tells what the frame was. It sums, if Sum has not.
func (t *Train) Checksum() Checksum {
	t.Sum()
	return Checksum{
		Timestamp: t.info.timestamp, CRC: t.info.crc, Sequence: t.info.sequence, Captured: t.info.captured,
		Bytes: uint32(t.info.pixels), Packets: uint32(t.count), Unverified: t.info.unverified,
	}
}

// Damage tells that the frame is damaged, of which the first sent packets were sent.
func (t *Train) Damage(sent int) Damage {
	return Damage{Timestamp: t.info.timestamp, Packets: uint32(sent), Sequence: t.info.sequence}
}

// Messages are the kernel's structs for packets from to to, one for each. They lie outside the Go heap.
func (t *Train) Messages(from, to int) []udp.Message { return t.msgs[from:to] }

// Vectors are where packets from to to lie, in one piece or two each. They lie outside the Go heap.
func (t *Train) Vectors(from, to int) []udp.Vector { return t.iov[from*t.vectors : to*t.vectors] }

// Size is the UDP payload of packet i in bytes.
func (t *Train) Size(i int) int {
	if t.vectors == 1 {
		return int(t.iov[i].Len)
	}
	return int(t.iov[2*i].Len + t.iov[2*i+1].Len)
}

// Packet returns header and payload of packet i.
func (t *Train) Packet(i int) (header, payload []byte) {
	if t.vectors == 1 {
		at := t.iov[i].Base - udp.Address(t.payload)
		head := uintptr(len(t.headers) / len(t.iov))
		return t.payload[at : at+head], t.payload[at+head : at+uintptr(t.iov[i].Len)]
	}
	p := t.iov[2*i+1]
	at := p.Base - udp.Address(t.payload)
	return t.header(i), t.payload[at : at+uintptr(p.Len)]
}

// header is that of packet i in the arena.
func (t *Train) header(i int) []byte {
	if t.vectors == 1 {
		n := len(t.headers) / len(t.iov)
		return t.headers[i*n:][:n]
	}
	h := t.iov[2*i]
	return t.headers[h.Base-udp.Address(t.headers):][:h.Len]
}

// Close frees the train's memory.
func (t *Train) Close() error {
	if t.mem == nil {
		return errors.New("rtp: train is closed already")
	}
	err := unix.Munmap(t.mem)
	*t = Train{}
	return err
}
