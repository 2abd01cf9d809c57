// SPDX-License-Identifier: Apache-2.0

package send

import (
	"fmt"

	"github.com/tegracast/tegracast/pipeline"
)

// Stats are the counters of a Sink.
type Stats struct {
	Frames       uint64               `json:"frames"`         // packetized
	Failed       uint64               `json:"failed"`         // could not be packetized
	Packets      uint64               `json:"packets"`        // to the destinations of now
	Bytes        uint64               `json:"bytes"`          // UDP payload of these packets
	Bits         int                  `json:"bits,omitempty"` // a second, that the encoder makes; 0: it does not follow receivers
	Bucket       Occupancy            `json:"bucket"`         // of a receiver's buffer in packets, as reckoned here
	Gap          pipeline.Percentiles `json:"gap"`            // between bursts
	First        pipeline.Percentiles `json:"first_packet"`   // from the end of the frame's DMA until it is handed to the kernel; negative: before
	Last         pipeline.Percentiles `json:"last_packet"`    // the same, or until the kernel is to send it
	Destinations []DestinationStats   `json:"destinations"`
}

// DestinationStats are the counters of one destination.
type DestinationStats struct {
	Address    string   `json:"address"`              // as configured, or a reader's
	Reader     string   `json:"reader,omitempty"`     // how the reader has asked for the stream; empty: it is configured
	Packets    uint64   `json:"packets"`              // taken by the kernel
	Bytes      uint64   `json:"bytes"`                // UDP payload of these packets
	Frames     uint64   `json:"frames"`               // sent as a whole
	Cut        uint64   `json:"frames_cut"`           // given up, wholly or in part
	Dropped    uint64   `json:"packets_dropped"`      // of these frames
	Refused    uint64   `json:"refused"`              // answers that nobody listens there
	Errors     uint64   `json:"errors"`               // of the system's calls
	LastError  string   `json:"last_error,omitempty"` // while frames are cut
	SendBuffer int      `json:"send_buffer"`          // bytes of socket buffer that the kernel granted
	Reports    []Report `json:"reports,omitempty"`    // of the receivers
}

// Stats reads the counters of the destinations.
func (x *transmitter) Stats() []DestinationStats {
	dests := *x.dests.Load()
	out := make([]DestinationStats, len(dests))
	for i, d := range dests {
		out[i] = d.stats()
	}
	return out
}

func (d *destination) stats() DestinationStats {
	st := d.counters.stats()
	st.Address, st.Reader, st.SendBuffer = d.name, d.reader, d.socket.buffer
	return st
}

// LastReport is the newest of the receivers' reports.
func (d DestinationStats) LastReport() (r Report, ok bool) {
	for _, x := range d.Reports {
		if !ok || x.At.After(r.At) {
			r, ok = x, true
		}
	}
	return r, ok
}

// String is one line: what was sent, what went wrong here, and what the receiver last said.
func (d DestinationStats) String() string {
	s := d.Address
	if d.Reader != "" {
		s += " (" + d.Reader + ")"
	}
	s += fmt.Sprintf(": frames %d, cut %d, refused %d", d.Frames, d.Cut, d.Refused)
	if r, ok := d.LastReport(); ok {
		s += fmt.Sprintf(", receiver lost %.1f %%, %d in all, jitter %.3f ms", 100*r.FractionLost, r.Lost, float64(r.Jitter)/1e6)
	}
	if d.LastError != "" {
		s += ": " + d.LastError
	}
	return s
}
