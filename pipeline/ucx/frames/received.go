// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"errors"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// ReceivedStats are the books of a receiver, over all its connections.
type ReceivedStats struct {
	Stream      string        `json:"stream"`
	Version     uint16        `json:"protocol"`    // its version
	Release     string        `json:"ucx"`         // of this side's UCX
	SenderUCX   string        `json:"sender_ucx"`  // of the sender's UCX
	Connections uint64        `json:"connections"` // that the sender has accepted
	Connected   bool          `json:"connected"`
	Trouble     string        `json:"trouble,omitempty"` // why it is not connected
	Ended       bool          `json:"ended"`             // the sender has said that the stream ends, and it has not begun again
	Frames      uint64        `json:"frames"`            // complete and not damaged
	Bytes       uint64        `json:"bytes"`             // of these
	Results     uint64        `json:"results"`           // frames that came with results
	Lost        uint64        `json:"lost"`              // frames that the sender could not send, for want of credits
	Broken      uint64        `json:"broken"`            // frames that a broken connection has cost
	Missing     uint64        `json:"missing"`           // numbers of the camera that the stream never had
	Matched     uint64        `json:"matched"`           // frames whose CRC is right
	Traced      uint64        `json:"traced"`            // of these, those whose CRC the FPGA computed
	Mismatched  uint64        `json:"mismatched"`        // frames whose CRC is wrong
	Unverified  uint64        `json:"unverified"`        // frames without CRC, or whose CRC was not looked at
	Silence     time.Duration `json:"silence_ns"`        // since the last frame

	Latency  pipeline.Percentiles `json:"latency"`  // from what the frame shows to its last byte here
	Transfer pipeline.Percentiles `json:"transfer"` // from the sender's turn to the last byte here
}

// tally is what a receiver counts. Its lock guards stats and last.
type tally struct {
	stats             ReceivedStats
	last              time.Time
	latency, transfer pipeline.Histogram
}

// Stats reads the books.
func (r *Receiver) Stats() ReceivedStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.tally.stats
	s.Release, s.Connected = r.local, r.now != nil && r.now.state == getting
	s.Latency, s.Transfer = r.tally.latency.Percentiles(), r.tally.transfer.Percentiles()
	if r.trouble != nil {
		s.Trouble = r.trouble.Error()
	}
	if r.now != nil {
		s.Lost += r.now.books.lost
	}
	if !r.tally.last.IsZero() {
		s.Silence = time.Since(r.tally.last)
	}
	return s
}

// leave closes the books of a connection.
func (r *Receiver) leave(a *attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.tally.stats
	s.Lost += a.books.lost
	if a.books.sent > a.came {
		s.Broken += a.books.sent - a.came
	}
	var y *ByeError
	s.Ended = s.Ended || a.begun && errors.As(a.err, &y) && y.Code == CodeEnd
	a.state, r.now = calling, nil
}
