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

// A Packetizer turns frames into trains of packets. It is not safe for concurrent use, because it counts sequence
// numbers.
type Packetizer interface {
	// NewTrain returns a train with room for the largest frame, in which everything that is the same for all frames is
	// already filled in. The caller must close it.
	NewTrain() (*Train, error)
	// Packetize fills t, which was made by this packetizer, with f's packets. Their payloads may remain in f, so f must
	// be held until t has been sent and its Sum has returned. If Packetize returns an error, t must not be sent.
	Packetize(t *Train, f *pipeline.Frame) error
	// SetSSRC changes the SSRC of the trains that are packetized from now on. Sequence numbers continue.
	SetSSRC(ssrc uint32)
}

// A Slicer is a Packetizer whose trains may be sent while their frame is filling (pipeline.Frame.Fill). Packetize then
// completes all headers, except for what is known only when the frame is complete. SumLines and Seal do the rest
// instead of Train.Sum, and may run while the train is being sent.
type Slicer interface {
	Packetizer
	// Packets returns the number of packets for the first lines lines.
	Packets(lines int) int
	// SumLines continues the checksum of t with lines [from, to) of f, if the stream has checksums.
	SumLines(t *Train, f *pipeline.Frame, from, to int)
	// Seal completes t, except for the checksum. f must be complete.
	Seal(t *Train, f *pipeline.Frame)
	// Unsent takes back the sequence numbers of the last n packets of the newest train, which will not be sent. The
	// next packets get these numbers.
	Unsent(n int)
}

// NewPacketizer returns the packetizer for a stream of frames of format f. If s.Start is nil it uses random start
// values.
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

// A Train contains the packets of one frame. After Packetize its packets do not change until the next Packetize, so
// they can be sent to any number of destinations. Each packet consists of a header in the train's arena and a payload
// elsewhere, or is one piece of packet-ready memory.
type Train struct {
	mem     []byte        // memory that contains headers, iov, msgs and scratch
	headers []byte        // the arena of the packets' headers
	vectors int           // vectors per packet: 2 for header and payload, or 1
	iov     []udp.Vector  // the vectors of all packets
	msgs    []udp.Message // one for each packet
	scratch []byte        // room for an encoder's output

	count   int                 // number of packets
	uniform bool                // all packets are known to have the same size
	bytes   int                 // total UDP payload of the packets, in bytes
	payload []byte              // memory that payloads point into, kept alive by this reference
	picture []byte              // the encoded picture, of JPEG and H.264
	key     bool                // the picture refers to no other
	crc     func([]byte) uint32 // computes payload's checksum, for Sum; nil if Packetize does or the stream has none
	info    trainInfo
}

// trainInfo holds the data about a frame that RTCP sends.
type trainInfo struct {
	ssrc      uint32
	timestamp uint32
	sequence  uint64    // of the frame
	group     uint64    // of the frame
	captured  time.Time // time from which timestamp was made
	ntp       uint64    // captured as an NTP timestamp
	done      time.Time // end of the frame's DMA or replay; zero if unknown
	pixels    int       // number of bytes that the checksum covers
	crc       uint32    // CRC-32C; 0 without a checksum, or before Sum has computed it
	summed    bool      // crc was computed by Sum, or by SumLines

	unverified bool // pipeline.FlagUnverified
}

// newTrain returns a train of up to packets packets with the given number of vectors each, headers bytes for headers
// and scratch bytes for an encoder.
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

// Len returns the number of packets.
func (t *Train) Len() int { return t.count }

// Bytes returns the total UDP payload of the packets in bytes.
func (t *Train) Bytes() int { return t.bytes }

// Uniform reports whether all packets are known to have the same size. It returns false for all payloads but Raw.
func (t *Train) Uniform() bool { return t.uniform }

// Contiguous reports whether the packets are adjacent in packet-ready memory, each in one piece.
func (t *Train) Contiguous() bool { return t.vectors == 1 }

// Done returns the end of the frame's DMA or replay, or the zero Time if unknown.
func (t *Train) Done() time.Time { return t.info.done }

// SSRC returns the SSRC of the packets.
func (t *Train) SSRC() uint32 { return t.info.ssrc }

// Timestamp returns the RTP timestamp of the packets.
func (t *Train) Timestamp() uint32 { return t.info.timestamp }

// Picture returns the encoded picture: a JPEG file, or the access unit of H.264 as a byte stream. key reports whether it
// refers to no other picture. Other payloads have none.
func (t *Train) Picture() (picture []byte, key bool) { return t.picture, t.key }

// Sum computes the checksum of the frame of the latest Packetize, unless it is already computed or the stream has no
// checksums. It reads the train's payload, and may run in another goroutine while the train is being sent.
func (t *Train) Sum() {
	if t.crc != nil && !t.info.summed {
		t.info.crc, t.info.summed = t.crc(t.payload), true
	}
}

// Checksum returns the frame's Checksum. It calls Sum.
func (t *Train) Checksum() Checksum {
	t.Sum()
	return Checksum{
		Timestamp: t.info.timestamp, CRC: t.info.crc, Sequence: t.info.sequence, Captured: t.info.captured,
		Bytes: uint32(t.info.pixels), Packets: uint32(t.count), Unverified: t.info.unverified,
	}
}

// Group returns the number of the frame's group; Number is 0 if it belongs to none.
func (t *Train) Group() Group {
	return Group{Timestamp: t.info.timestamp, Sequence: t.info.sequence, Number: t.info.group}
}

// Damage returns a report that the frame is damaged; sent is the number of packets that were sent.
func (t *Train) Damage(sent int) Damage {
	return Damage{Timestamp: t.info.timestamp, Packets: uint32(sent), Sequence: t.info.sequence}
}

// Messages returns the kernel's message structs of packets [from, to), one for each. They are outside the Go heap.
func (t *Train) Messages(from, to int) []udp.Message { return t.msgs[from:to] }

// Vectors returns the locations of packets [from, to), one or two for each packet. The slice is outside the Go heap.
func (t *Train) Vectors(from, to int) []udp.Vector { return t.iov[from*t.vectors : to*t.vectors] }

// Size returns the UDP payload of packet i in bytes.
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

// header returns the header of packet i in the arena.
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
