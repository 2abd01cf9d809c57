// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// Config describes a Receiver.
type Config struct {
	Media     rtp.Media // one of rtp.ParseSDP's
	Interface string    // on which multicast is received; empty: as the route says
	Buffer    int       // bytes wanted of the socket's receive buffer; 0: a raw frame, at least 8 MiB, at most 64
	// OnFrame is called with each complete frame: lines without padding, a JFIF file, or a byte stream of H.264 (Annex B). The bytes are valid
	// until it returns. What comes meanwhile waits in 64 MiB at most, and then in the socket's buffer. nil: none.
	OnFrame func(picture []byte, info FrameInfo)
	Logger  *slog.Logger // nil: slog.Default
}

// MaxSegments is how many packets are in one datagram at most when the kernel drops it: those that a sender on this machine
// has handed over together (UDP_MAX_SEGMENTS, 64 or 128), or that came in a row from the network (UDP_GRO_CNT_MAX, 64).
const MaxSegments = 128

// Bytes that are wanted of a socket's buffer. A frame comes in a frame period, for which a receiver may be held up.
const (
	leastReceiveBuffer = 8 << 20
	mostReceiveBuffer  = 64 << 20
)

// ErrReceive is wrapped by the errors of New.
var ErrReceive = errors.New("rtp: cannot receive")

// A Receiver receives one RTP stream, checks it and counts.
type Receiver struct {
	stream *stream
	rtp    int // descriptors
	rtcp   int
	ring   *ring
	buffer int
	told   time.Time // last receiver report
	over   time.Time // when Run's context had ended; zero: not yet

	drops   atomic.Int64 // see Stats
	dropped uint32       // the kernel's counter when it was read last

	closing sync.Once
	closed  error
	mu      sync.Mutex
	stats   Stats
}

// Stats are the counters of a Receiver.
type Stats struct {
	Packets          uint64               `json:"packets"`                // RTP, without duplicates
	Bytes            uint64               `json:"bytes"`                  // RTP headers and payload
	Lost             uint64               `json:"lost"`                   // RFC 3550 A.3
	Drops            int64                `json:"receiver_drops"`         // datagrams dropped at this socket, each up to MaxSegments packets; -1: not known
	Reordered        uint64               `json:"reordered"`              // came after a later one
	Duplicates       uint64               `json:"duplicates"`             // came twice
	Late             uint64               `json:"late"`                   // came after their frame had been given up
	Malformed        uint64               `json:"malformed"`              // RTP and RTCP that break the format
	Foreign          uint64               `json:"foreign"`                // of another SSRC, payload type or sequence
	OtherSender      string               `json:"other_sender,omitempty"` // one that sends to this port at the same time, by SSRC and address
	Byes             uint64               `json:"byes"`                   // ends of the stream
	Jitter           time.Duration        `json:"jitter_ns"`              // RFC 3550 A.8
	Frames           uint64               `json:"frames"`                 // complete
	Damaged          uint64               `json:"damaged"`                // incomplete
	SourceDamaged    uint64               `json:"source_damaged"`         // of these, or of those that began before: damaged at their source, the sender says
	SourceUnverified uint64               `json:"source_unverified"`      // whose source has no checksums, the sender says
	Matched          uint64               `json:"crc_matched"`            // complete, and the sender's checksum is the same
	Mismatched       uint64               `json:"crc_mismatched"`         // complete, and it is another one
	Unverified       uint64               `json:"crc_unverified"`         // complete, without a checksum from the sender
	Latency          pipeline.Percentiles `json:"latency"`                // from the sender's capture to the complete frame
	Buffer           int                  `json:"buffer_bytes"`           // that the kernel granted
	LastPacket       time.Time            `json:"last_packet"`            // when the last RTP packet came; zero: none did
	Silence          time.Duration        `json:"silence_ns"`             // since then, until these counts, or until reception was to end
	Ended            bool                 `json:"ended"`                  // the sender said BYE, and nothing has come since
}

// New opens the sockets and joins the group. Run, or Close when it is never run, gives them back.
func New(c Config) (*Receiver, error) {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	m := c.Media
	stream, err := newStream(m, c.OnFrame)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReceive, err)
	}
	if c.Buffer == 0 {
		c.Buffer = min(max(leastReceiveBuffer, stream.frameBytes()), mostReceiveBuffer)
	}
	r := &Receiver{stream: stream, rtp: -1, rtcp: -1}
	if r.ring, err = newRing(2 * stream.frameBytes()); err == nil {
		r.rtp, err = listen(m, m.Port, c.Interface)
	}
	if err == nil {
		r.rtcp, err = listen(m, m.RTCPPort, c.Interface)
	}
	if err == nil {
		r.buffer, err = receiveBuffer(r.rtp, c.Buffer)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrReceive, err), r.Close())
	}
	_ = unix.SetsockoptInt(r.rtp, unix.SOL_UDP, unix.UDP_GRO, 1) // a kernel that refuses it delivers packet by packet
	if _, ok := socketDrops(r.rtp); !ok {
		r.drops.Store(-1)
	}
	if r.buffer < c.Buffer {
		c.Logger.Warn("rtp: socket receive buffer is small: bursts may be lost here", "bytes", r.buffer, "wanted", c.Buffer,
			"remedy", fmt.Sprintf("sysctl -w net.core.rmem_max=%d", c.Buffer))
	}
	return r, nil
}

// receiveBuffer asks beyond the limit first, which needs CAP_NET_ADMIN.
func receiveBuffer(fd, want int) (granted int, err error) {
	if n, err := udp.SetBuffer(fd, unix.SO_RCVBUFFORCE, want); err == nil && n > 0 {
		if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err == nil {
			return got / 2, nil
		}
	}
	return udp.SetBuffer(fd, unix.SO_RCVBUF, want)
}

// Stats reads the counters.
func (r *Receiver) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// Close frees a Receiver that is not running. A second Close does nothing.
func (r *Receiver) Close() error {
	r.closing.Do(func() {
		var errs []error
		for _, fd := range []int{r.rtp, r.rtcp} {
			if fd >= 0 {
				errs = append(errs, unix.Close(fd))
			}
		}
		if r.ring != nil {
			errs = append(errs, r.ring.free())
		}
		r.closed = errors.Join(errs...)
	})
	return r.closed
}
