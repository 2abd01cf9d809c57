// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// noteSchema is the JSON Schema of a Note.
const noteSchema = `{"title":"tegracast/Frame","type":"object","required":["frame","captured","lost"],"properties":{` +
	`"frame":{"type":"integer","description":"sequence number, counted by the FPGA"},` +
	`"group":{"type":"integer","description":"number of the frames of several sources that belong together; 0: none"},` +
	`"exposure_start":{"type":"integer","description":"ns since 1970, a 64-bit integer, which a double cannot hold; 0: not known"},` +
	`"exposure_start_us":{"type":"integer","description":"the same in µs, which a double holds"},` +
	`"exposure_end":{"type":"integer","description":"ns since 1970, like exposure_start; 0: not known"},` +
	`"exposure_end_us":{"type":"integer","description":"the same in µs"},` +
	`"uncertainty":{"type":"integer","description":"of both, in ns"},` +
	`"captured":{"type":"integer","description":"end of the DMA, ns since 1970, like exposure_start; 0: not known"},` +
	`"captured_us":{"type":"integer","description":"the same in µs"},` +
	`"padded":{"type":"boolean","description":"the sensor delivered less than a frame, and the FPGA filled the rest"},` +
	`"unverified":{"type":"boolean","description":"the camera's stream has no checksums"},` +
	`"crc32c":{"type":"integer","description":"CRC-32C of the pixels, by the FPGA's trailer; 0: not known"},` +
	`"lost":{"type":"integer","description":"frames that are missing before this one"},` +
	`"triggers":{"type":"array","description":"triggers that came until then, in a recording of encoded pictures",` +
	`"items":` + triggerSchema + `},` +
	`"results":{"type":"array","description":"what the stages found"}}}`

// A Note contains the data about a frame besides its pixels; noteSchema describes its fields. Times are in nanoseconds
// since 1970, and again in microseconds: programs whose numbers are doubles, such as JavaScript's, read only the latter
// exactly.
type Note struct {
	Frame           uint64            `json:"frame"`
	Group           uint64            `json:"group,omitempty"`
	ExposureStart   int64             `json:"exposure_start"`
	ExposureStartUS int64             `json:"exposure_start_us"`
	ExposureEnd     int64             `json:"exposure_end"`
	ExposureEndUS   int64             `json:"exposure_end_us"`
	Uncertainty     int64             `json:"uncertainty"`
	Captured        int64             `json:"captured"`
	CapturedUS      int64             `json:"captured_us"`
	Padded          bool              `json:"padded,omitempty"`
	Unverified      bool              `json:"unverified,omitempty"`
	CRC             uint32            `json:"crc32c,omitempty"`
	Lost            uint64            `json:"lost"`
	Triggers        []TriggerNote     `json:"triggers,omitempty"`
	Results         []pipeline.Result `json:"results,omitempty"`
}

// nano returns a time in ns since 1970, or 0 for an unknown time.
func nano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// maxNote is the maximum size of a note in bytes. If the results make it longer they are omitted.
const maxNote = 48 << 10

// NoteOf returns the note of f, without the number of frames missing before it.
func NoteOf(f *pipeline.Frame) Note {
	t := f.Times.Absolute()
	start, end, captured := nano(t.ExposureStart), nano(t.ExposureEnd), nano(t.Captured)
	return Note{
		Frame: f.Sequence, Group: f.Group, ExposureStart: start, ExposureStartUS: start / 1000, ExposureEnd: end, ExposureEndUS: end / 1000,
		Uncertainty: int64(f.Times.Uncertainty), Captured: captured, CapturedUS: captured / 1000, Padded: f.Flags&pipeline.FlagPadded != 0,
		Unverified: f.Flags&pipeline.FlagUnverified != 0, CRC: f.CRC, Results: f.Results,
	}
}

// note returns the note of f as JSON; lost is the number of frames missing before it. An error means that the results
// are omitted.
func note(f *pipeline.Frame, lost uint64) ([]byte, error) {
	n := NoteOf(f)
	n.Lost = lost
	b, err := json.Marshal(&n)
	if err == nil && len(b) <= maxNote {
		return b, nil
	}
	if err == nil {
		err = fmt.Errorf("the results of frame %d have %d bytes, at most %d are recorded", f.Sequence, len(b), maxNote)
	}
	n.Results = nil
	b, _ = json.Marshal(&n) // contains only numbers and booleans
	return b, err
}
