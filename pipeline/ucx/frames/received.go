// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"errors"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// ReceivedStats are the counters of a receiver, over all its connections.
type ReceivedStats struct {
	Stream      string        `json:"stream"`            // name of the output
	Version     uint16        `json:"protocol"`          // version that both sides speak
	Release     string        `json:"ucx"`               // version of UCX here
	SenderUCX   string        `json:"sender_ucx"`        // version of UCX there
	Connections uint64        `json:"connections"`       // connections that the sender has accepted
	Connected   bool          `json:"connected"`         // there was a connection when the counts were taken
	Trouble     string        `json:"trouble,omitempty"` // why there is no connection
	Ended       bool          `json:"ended"`             // the sender has ended the stream, which has not started again
	Frames      uint64        `json:"frames"`            // complete and undamaged
	Bytes       uint64        `json:"bytes"`             // of their pixels
	Results     uint64        `json:"results"`           // frames with results of stages
	Lost        uint64        `json:"lost"`              // frames that the sender did not send for lack of credits or room
	Broken      uint64        `json:"broken"`            // frames lost when connections broke
	Missing     uint64        `json:"missing"`           // frames that never reached the stream, by their numbers
	Matched     uint64        `json:"matched"`           // frames with the right CRC
	Traced      uint64        `json:"traced"`            // matched frames with a CRC by their source, such as an FPGA
	Mismatched  uint64        `json:"mismatched"`        // frames with a wrong CRC
	Unverified  uint64        `json:"unverified"`        // frames without a CRC, or whose CRC was not checked
	Silence     time.Duration `json:"silence_ns"`        // since the last undamaged frame; 0 if there was none

	Latency  pipeline.Percentiles `json:"latency"`  // from exposure to the arrival of the last byte
	Transfer pipeline.Percentiles `json:"transfer"` // from the start of sending to the last byte here
}

// tally holds the counters of a receiver. The receiver's lock guards stats and last.
type tally struct {
	stats             ReceivedStats
	last              time.Time
	latency, transfer pipeline.Histogram
}

// Stats returns the counters.
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

// leave adds a connection that has ended to the counters.
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
