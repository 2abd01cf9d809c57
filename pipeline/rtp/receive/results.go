// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"encoding/binary"
	"encoding/json"

	"github.com/tegracast/tegracast/pipeline/rtp"
)

// resultsDepacketizer implements the private format for results (docs/results-output.md, "RTP").
type resultsDepacketizer struct{}

func (d *resultsDepacketizer) sequence(low uint16, _ []byte) (uint32, error) { return uint32(low), nil }

func (d *resultsDepacketizer) beginFrame(a *assembly, timestamp uint32, joined bool) {
	a.beginFrame(timestamp, joined, -1)
}

func (d *resultsDepacketizer) addPayload(a *assembly, _ uint64, payload []byte, marker bool) error {
	if len(payload) <= 4 {
		return errMalformed
	}
	at, part := binary.BigEndian.Uint32(payload), payload[4:]
	if at > rtp.MaxResults || len(part) > rtp.MaxResults-int(at) {
		return errMalformed
	}
	end := int(at) + len(part)
	if a.total >= 0 && (end > a.total || marker && end != a.total) {
		return errMalformed
	}
	if marker {
		a.total = end
	}
	if end > len(a.mem) {
		a.mem = append(a.mem, make([]byte, max(end, 2*len(a.mem), 4<<10)-len(a.mem))...)
	}
	if a.got.add(int(at), end) {
		copy(a.mem[at:], part)
	}
	return nil
}

func (d *resultsDepacketizer) complete(a *assembly) bool { return a.got.covers(a.total) }

// frame returns the text. The checksum covers it.
func (d *resultsDepacketizer) frame(a *assembly) (text []byte, crc, bytes uint32) {
	text = a.mem[:a.total]
	return text, rtp.CRC(text), uint32(len(text))
}

// count counts what is in the text of a frame's results. A text that is no JSON counts as malformed.
func (s *stream) count(text []byte) {
	var report struct {
		Results []struct {
			Regions []json.RawMessage `json:"regions"`
		} `json:"results"`
	}
	if json.Unmarshal(text, &report) != nil {
		s.stats.Malformed++
		return
	}
	if len(report.Results) > 0 {
		s.stats.Results++
	}
	for _, r := range report.Results {
		s.stats.Regions += uint64(len(r.Regions))
	}
}
