package rtp

import (
	"errors"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
)

// A Packetizer turns frames into trains of packets. It is not safe for concurrent use: it counts sequence numbers.
type Packetizer interface {
	// NewTrain makes a train with room for the largest frame and all that stays the same from frame to frame.
	NewTrain() (*Train, error)
	// Packetize fills t, which this packetizer has made, with f's packets. Their payloads stay where they are, so
	// f must be held until t has been sent.
	Packetize(t *Train, f *pipeline.Frame) error
}

// A Train is the packets of one frame. After Packetize it does not change until the next Packetize, so that any
// number of destinations can be sent to from it. Each packet is a header in the train's arena and a payload elsewhere,
// or one piece of packet-ready memory.
type Train struct {
	mem     []byte    // everything below lies in here
	headers []byte    // the arena
	vectors int       // of iov a packet: 2, header and payload, or 1
	iov     []iovec   // of all packets
	msgs    []mmsghdr // one for each packet
	scratch []byte    // room for an encoder's output

	count   int    // packets
	uniform int    // UDP payload of every packet in bytes; 0: they differ
	bytes   int    // UDP payload of all packets
	payload []byte // the memory that payloads point into, kept alive
	info    trainInfo

	departure time.Duration // of the packets that are sent now, by the monotonic clock

	inFlight atomic.Int32 // messages of MSG_ZEROCOPY that the kernel has not done with; until then the frame must stay
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
}

// newTrain makes a train of up to packets packets of so many vectors, with headers bytes of headers and scratch bytes
// for an encoder.
func newTrain(packets, vectors, headers, scratch int) (*Train, error) {
	align := func(n int) int { return (n + 63) &^ 63 }
	iov := align(packets * mmsghdrSize)
	head := iov + align(vectors*packets*iovecSize)
	room := head + align(headers)
	mem, err := mapMemory(room + scratch)
	if err != nil {
		return nil, err
	}
	t := &Train{
		mem: mem, msgs: mmsghdrs(mem[:packets*mmsghdrSize]), iov: iovecs(mem[iov : iov+vectors*packets*iovecSize]), vectors: vectors,
		headers: mem[head : head+headers], scratch: mem[room:],
	}
	for i := range t.msgs {
		t.msgs[i].iov, t.msgs[i].iovLen = uintptr(unsafe.Pointer(&t.iov[vectors*i])), uint64(vectors)
	}
	return t, nil
}

// Len is the number of packets.
func (t *Train) Len() int { return t.count }

// size is the UDP payload of packet i in bytes.
func (t *Train) size(i int) int {
	if t.vectors == 1 {
		return int(t.iov[i].len)
	}
	return int(t.iov[2*i].len + t.iov[2*i+1].len)
}

// Packet returns header and payload of packet i.
func (t *Train) Packet(i int) (header, payload []byte) {
	if t.vectors == 1 {
		at := t.iov[i].base - address(t.payload)
		head := uintptr(len(t.headers) / len(t.iov))
		return t.payload[at : at+head], t.payload[at+head : at+uintptr(t.iov[i].len)]
	}
	h, p := t.iov[2*i], t.iov[2*i+1]
	from := h.base - address(t.headers)
	at := p.base - address(t.payload)
	return t.headers[from : from+uintptr(h.len)], t.payload[at : at+uintptr(p.len)]
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
