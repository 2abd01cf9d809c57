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
	Packets      uint64               `json:"packets"`        // sent to the current destinations
	Bytes        uint64               `json:"bytes"`          // UDP payload of these packets
	Bits         int                  `json:"bits,omitempty"` // current bits per second of an adaptive encoder; else 0
	Bucket       Occupancy            `json:"bucket"`         // computed level of a receiver's buffer in packets
	Gap          pipeline.Percentiles `json:"gap"`            // between bursts
	First        pipeline.Percentiles `json:"first_packet"`   // from the end of a frame's DMA until the kernel gets its first packet; negative: before
	Last         pipeline.Percentiles `json:"last_packet"`    // from the end of a frame's DMA until the kernel gets its last packet or is to send it, whichever is later
	Destinations []DestinationStats   `json:"destinations"`
}

// DestinationStats are the counters of one destination.
type DestinationStats struct {
	Address    string   `json:"address"`              // as configured, or the address of a reader
	Reader     string   `json:"reader,omitempty"`     // protocol by which a reader requested the stream; empty if configured
	Session    string   `json:"session,omitempty"`    // last element of the URL of a viewer's WHEP session
	Packets    uint64   `json:"packets"`              // accepted by the kernel
	Bytes      uint64   `json:"bytes"`                // UDP payload of these packets
	Frames     uint64   `json:"frames"`               // sent completely
	Cut        uint64   `json:"frames_cut"`           // given up, wholly or in part
	Dropped    uint64   `json:"packets_dropped"`      // packets of these frames that were not sent
	Refused    uint64   `json:"refused"`              // answers that no program listens there
	Errors     uint64   `json:"errors"`               // failed system calls, and RTCP packets that were not sent
	LastError  string   `json:"last_error,omitempty"` // why the last frame was not sent completely, and the remedy; empty if it was
	Trouble    string   `json:"trouble,omitempty"`    // why it gets no whole frames, and the remedy, for as long as that lasts; empty if it gets some
	SendBuffer int      `json:"send_buffer"`          // bytes of socket buffer granted by the kernel
	Reports    []Report `json:"reports,omitempty"`    // the receivers' latest reports
}

// Stats returns the counters of the destinations.
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
	st.Address, st.Reader, st.SendBuffer, st.Trouble = d.name, d.reader, d.socket.buffer, d.trouble()
	return st
}

// LastReport returns the newest report of a receiver, or false if there is none.
func (d DestinationStats) LastReport() (r Report, ok bool) {
	for _, x := range d.Reports {
		if !ok || x.At.After(r.At) {
			r, ok = x, true
		}
	}
	return r, ok
}

// String returns one line: what was sent, what went wrong here, and the latest report of a receiver.
func (d DestinationStats) String() string {
	s := d.Address
	if d.Reader != "" {
		s += " (" + d.Reader + ")"
	}
	s += fmt.Sprintf(": frames sent %d, incomplete %d, packets refused %d", d.Frames, d.Cut, d.Refused)
	if r, ok := d.LastReport(); ok {
		s += fmt.Sprintf(", receiver lost %.1f %%, %d in all, jitter %.3f ms", 100*r.FractionLost, r.Lost, float64(r.Jitter)/1e6)
	}
	if d.LastError != "" {
		s += ": " + d.LastError
	}
	return s
}
