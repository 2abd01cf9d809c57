// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
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
	Buffer    int       // bytes wanted of the socket's receive buffer; 0: 8 MiB
	// OnFrame is called with each complete frame: lines without padding, or a JFIF file. The bytes are valid
	// until it returns; it holds up reception. nil: none.
	OnFrame func(picture []byte, info FrameInfo)
	Logger  *slog.Logger // nil: slog.Default
}

const defaultReceiveBuffer = 8 << 20

// ErrReceive is wrapped by the errors of New.
var ErrReceive = errors.New("rtp: cannot receive")

// A Receiver receives one RTP stream, checks it and counts.
type Receiver struct {
	stream *stream
	rtp    int // descriptors
	rtcp   int
	batch  *batch
	buffer int
	told   time.Time // last receiver report

	closing sync.Once
	closed  error
	mu      sync.Mutex
	stats   Stats
}

// Stats are the counters of a Receiver.
type Stats struct {
	Packets    uint64               `json:"packets"`        // RTP, without duplicates
	Bytes      uint64               `json:"bytes"`          // RTP headers and payload
	Lost       uint64               `json:"lost"`           // RFC 3550 A.3
	Reordered  uint64               `json:"reordered"`      // came after a later one
	Duplicates uint64               `json:"duplicates"`     // came twice
	Late       uint64               `json:"late"`           // came after their frame had been given up
	Malformed  uint64               `json:"malformed"`      // RTP and RTCP that break the format
	Foreign    uint64               `json:"foreign"`        // of another SSRC, payload type or sequence
	Byes       uint64               `json:"byes"`           // ends of the stream
	Jitter     float64              `json:"jitter_ms"`      // RFC 3550 A.8
	Frames     uint64               `json:"frames"`         // complete
	Damaged    uint64               `json:"damaged"`        // incomplete
	Matched    uint64               `json:"crc_matched"`    // complete, and the sender's checksum is the same
	Mismatched uint64               `json:"crc_mismatched"` // complete, and it is another one
	Unverified uint64               `json:"crc_unverified"` // complete, without a checksum from the sender
	Latency    pipeline.Percentiles `json:"latency"`        // from the sender's capture to the complete frame
	Buffer     int                  `json:"receive_buffer"` // bytes that the kernel granted
	LastPacket time.Time            `json:"last_packet"`    // when the last RTP packet came; zero: none did
	Silence    time.Duration        `json:"silence_ns"`     // since then, until these counts
	Ended      bool                 `json:"ended"`          // the sender said BYE, and nothing has come since
}

// New opens the sockets and joins the group. Run, or Close when it is never run, gives them back.
func New(c Config) (*Receiver, error) {
	if c.Buffer == 0 {
		c.Buffer = defaultReceiveBuffer
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	m := c.Media
	stream, err := newStream(m, c.OnFrame)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReceive, err)
	}
	r := &Receiver{stream: stream, rtp: -1, rtcp: -1}
	if r.rtp, err = listen(m, m.Port, c.Interface); err == nil {
		r.rtcp, err = listen(m, m.RTCPPort, c.Interface)
	}
	if err == nil {
		r.buffer, err = receiveBuffer(r.rtp, c.Buffer)
	}
	if err == nil {
		r.batch, err = newBatch(r.rtp)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrReceive, err), r.Close())
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

// tick is how often Run looks whether its context has ended.
const tick = 50 * time.Millisecond

// Run receives until ctx ends, and a tick longer if the last frame's checksum is under way; then it returns nil. Stats keeps
// the last counts.
func (r *Receiver) Run(ctx context.Context) error {
	var err error
	for ctx.Err() == nil && err == nil {
		err = r.take(r.rtp, r.rtcp, tick)
		r.tell()
		r.publish()
	}
	if err == nil {
		err = r.drain(true, true) // what came before the end, and was not looked at
	}
	for end := time.Now().Add(tick); err == nil && r.stream.awaitsChecksum() && time.Now().Before(end); {
		err = r.take(-1, r.rtcp, time.Millisecond)
	}
	r.stream.finish()
	r.publish()
	return errors.Join(err, r.Close())
}

// take waits for the sockets, of which -1 is none (poll(2)), and drains those that have something.
func (r *Receiver) take(rtp, rtcp int, patience time.Duration) error {
	fds := [2]unix.PollFd{{Fd: int32(rtp), Events: unix.POLLIN}, {Fd: int32(rtcp), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds[:], int(patience/time.Millisecond)); err != nil && !errors.Is(err, unix.EINTR) {
		return err
	}
	return r.drain(fds[0].Revents != 0, fds[1].Revents != 0)
}

// drain takes what has come, at most a few milliseconds' worth of it.
func (r *Receiver) drain(rtp, rtcp bool) error {
	for i := 0; rtp && i < 16; i++ {
		n, err := r.batch.receive(r.rtp)
		if err != nil {
			return err
		}
		now := time.Now()
		for i := range n {
			b, size, whole := r.batch.datagram(i)
			if !whole {
				r.stream.stats.Malformed++
				continue
			}
			for ; len(b) > size; b = b[size:] {
				r.stream.packet(b[:size], now)
			}
			r.stream.packet(b, now)
		}
		if n < batchSize {
			break
		}
	}
	for i := 0; rtcp && i < 16; i++ {
		b := r.batch.spare()
		n, from, err := unix.Recvfrom(r.rtcp, b, unix.MSG_DONTWAIT)
		if err != nil || n == 0 {
			break // nothing there, or the answer to a report of ours
		}
		r.stream.control(b[:n], udp.AddrPort(from), time.Now())
	}
	return nil
}

// tell sends a receiver report to where the sender's came from.
func (r *Receiver) tell() {
	now := time.Now()
	if now.Sub(r.told) < rtp.ReportInterval {
		return
	}
	if b := r.stream.report(now); b != nil {
		r.told = now
		_ = unix.Sendto(r.rtcp, b, unix.MSG_DONTWAIT, udp.Sockaddr(r.stream.sr.from)) // best effort
	}
}

func (r *Receiver) publish() {
	st := r.stream.snapshot()
	if st.Buffer = r.buffer; !st.LastPacket.IsZero() {
		st.Silence = time.Since(st.LastPacket)
	}
	r.mu.Lock()
	r.stats = st
	r.mu.Unlock()
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
		if r.batch != nil {
			errs = append(errs, r.batch.close())
		}
		r.closed = errors.Join(errs...)
	})
	return r.closed
}
