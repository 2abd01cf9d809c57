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

// Config configures a Receiver.
type Config struct {
	Media     rtp.Media // a result of rtp.ParseSDP
	Interface string    // name of the interface for multicast and link-local addresses; empty: determined by the route
	Buffer    int       // requested receive buffer of the socket in bytes; 0: a raw frame's size, limited to 8 to 64 MiB
	// OnFrame, if not nil, is called with each complete frame: lines without padding, a JFIF file, a byte stream of
	// H.264 (Annex B), or the JSON of results. The bytes are valid until it returns. Packets that arrive meanwhile are kept in up to 64 MiB of
	// memory, and then in the socket's buffer.
	OnFrame func(picture []byte, info FrameInfo)
	Logger  *slog.Logger // nil: slog.Default
}

// MaxSegments is the maximum number of packets in one datagram that the kernel drops: packets that a sender on this
// machine has handed over together (UDP_MAX_SEGMENTS, 64 or 128), or that arrived from the network in succession
// (UDP_GRO_CNT_MAX, 64).
const MaxSegments = 128

// Limits of the default buffer size in bytes. A frame arrives within a frame period, and a receiver may be held up for
// as long.
const (
	leastReceiveBuffer = 8 << 20
	mostReceiveBuffer  = 64 << 20
)

// ErrReceive is wrapped by the errors of New.
var ErrReceive = errors.New("rtp: cannot receive")

// A Receiver receives one RTP stream, checks it and counts packets and frames.
type Receiver struct {
	stream *stream
	rtp    int // file descriptors
	rtcp   int
	ring   *ring
	buffer int
	told   time.Time // time of the latest receiver report
	over   time.Time // end of Run's context; zero until then

	drops   atomic.Int64 // Stats.Drops
	dropped uint32       // the kernel's counter at the last reading

	closing sync.Once
	closed  error
	mu      sync.Mutex
	stats   Stats
}

// Stats are the counters of a Receiver.
type Stats struct {
	Packets          uint64               `json:"packets"`                // valid packets of the stream, each once
	Bytes            uint64               `json:"bytes"`                  // RTP headers and payload of these packets
	Lost             uint64               `json:"lost"`                   // packets missing (RFC 3550 A.3)
	Drops            int64                `json:"receiver_drops"`         // datagrams dropped at this socket, each of up to 128 packets; -1: not known
	Reordered        uint64               `json:"reordered"`              // packets that came after a later one
	Duplicates       uint64               `json:"duplicates"`             // packets that had already arrived
	Late             uint64               `json:"late"`                   // packets that came after their frame, or a newer one, was completed or given up
	Malformed        uint64               `json:"malformed"`              // packets that break RTP or RTCP
	Interlaced       bool                 `json:"interlaced,omitempty"`   // the malformed packets have interlaced video, which is not received
	Foreign          uint64               `json:"foreign"`                // packets of another sender or payload type, or with an implausible sequence number
	OtherSender      string               `json:"other_sender,omitempty"` // SSRC of another sender to this port, and where its reports come from
	Byes             uint64               `json:"byes"`                   // number of BYE packets
	Jitter           time.Duration        `json:"jitter_ns"`              // interarrival jitter (RFC 3550 A.8), mean of all packets
	Frames           uint64               `json:"frames"`                 // complete frames
	Damaged          uint64               `json:"damaged"`                // incomplete frames
	SourceDamaged    uint64               `json:"source_damaged"`         // frames damaged at the source, according to the sender; also before reception began
	SourceUnverified uint64               `json:"source_unverified"`      // frames whose source has no checksums, according to the sender
	Matched          uint64               `json:"crc_matched"`            // complete frames whose checksum equals the sender's
	Mismatched       uint64               `json:"crc_mismatched"`         // complete frames whose checksum differs from the sender's
	Unverified       uint64               `json:"crc_unverified"`         // complete frames without a checksum from the sender
	Grouped          uint64               `json:"grouped,omitempty"`      // frames with the number of a group, according to the sender
	Group            uint64               `json:"group,omitempty"`        // the latest such number
	Results          uint64               `json:"results,omitempty"`      // frames with results, of a stream of results
	Regions          uint64               `json:"regions,omitempty"`      // regions in these results
	Latency          pipeline.Percentiles `json:"latency"`                // from the capture to the complete frame
	Buffer           int                  `json:"buffer_bytes"`           // receive buffer of the socket
	LastPacket       time.Time            `json:"last_packet"`            // arrival of the last RTP packet; zero if there was none
	Silence          time.Duration        `json:"silence_ns"`             // from last_packet to these counts, or to the end of reception
	Ended            bool                 `json:"ended"`                  // the sender has sent BYE, and no valid packet followed
}

// New returns a Receiver with open sockets, which have joined the group if there is one. Run closes them, as does Close
// if Run is never called.
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
	if err == nil && !m.Mux {
		r.rtcp, err = listen(m, m.RTCPPort, c.Interface)
	}
	if err == nil {
		r.buffer, err = receiveBuffer(r.rtp, c.Buffer)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrReceive, err), r.Close())
	}
	_ = unix.SetsockoptInt(r.rtp, unix.SOL_UDP, unix.UDP_GRO, 1) // a kernel that refuses this delivers single packets
	if _, ok := socketDrops(r.rtp); !ok {
		r.drops.Store(-1)
	}
	if r.buffer < c.Buffer {
		c.Logger.Warn("rtp: socket receive buffer is small: bursts may be lost here", "bytes", r.buffer, "wanted", c.Buffer,
			"remedy", fmt.Sprintf("sysctl -w net.core.rmem_max=%d", c.Buffer))
	}
	return r, nil
}

// receiveBuffer requests a receive buffer of want bytes for a socket, and returns the size granted. It first tries to
// exceed the system's limit, which needs CAP_NET_ADMIN.
func receiveBuffer(fd, want int) (granted int, err error) {
	if n, err := udp.SetBuffer(fd, unix.SO_RCVBUFFORCE, want); err == nil && n > 0 {
		if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err == nil {
			return got / 2, nil
		}
	}
	return udp.SetBuffer(fd, unix.SO_RCVBUF, want)
}

// Stats returns the receiver's counters.
func (r *Receiver) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// Close frees a Receiver that is not running. A second Close only returns the first one's error.
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
