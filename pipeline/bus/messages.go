// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// Version is that of the messages. It rises when a key goes, or gets another meaning or unit; new keys do not raise it.
const Version = 1

// Head is what every message begins with.
type Head struct {
	Version  int       `json:"version"`
	Board    string    `json:"board"`
	ID       string    `json:"id"`
	Epoch    uint64    `json:"epoch"`
	Sequence uint64    `json:"sequence"`
	At       time.Time `json:"at"`
}

// Results are those of a frame: a message of tegracast.BOARD.results.OUTPUT.
type Results struct {
	Head
	Output string `json:"output"`
	pipeline.Report
}

// Event is a message of tegracast.BOARD.events.
type Event struct {
	Head
	Happened
}

// Health is a message of tegracast.BOARD.health.
type Health struct {
	Head
	Condition
}

// Happened is what has happened.
type Happened struct {
	Kind   string `json:"kind"`             // KindFault, KindTrigger or KindRecording
	Output string `json:"output,omitempty"` // of a trigger and of a recording
	// Text and Fields are a fault, as the log has it.
	Level  string            `json:"level,omitempty"`
	Text   string            `json:"text,omitempty"`
	Fields map[string]string `json:"fields,omitempty"`
	// Cause, Moment and Frame are a trigger: who, when, and the number of the newest frame then.
	Cause  string     `json:"cause,omitempty"`
	Moment *time.Time `json:"moment,omitempty"`
	Frame  *uint64    `json:"frame,omitempty"`
	File   string     `json:"file,omitempty"` // the recording's, which is whole now
}

// Kinds of Happened.
const (
	KindFault     = "fault"
	KindTrigger   = "trigger"
	KindRecording = "recording"
)

// Condition is how a board is.
type Condition struct {
	Program string         `json:"program"`           // its version
	Model   string         `json:"model,omitempty"`   // of the board
	Started time.Time      `json:"started"`           // when the program was
	Every   time.Duration  `json:"every_ns"`          // from one of these messages to the next one, at most
	Ready   bool           `json:"ready"`             // every output is armed
	Stalled string         `json:"stalled,omitempty"` // what makes no progress
	Ended   bool           `json:"ended"`             // the program ends in order: no message comes until it starts again
	Sources []SourceHealth `json:"sources"`
	Outputs []OutputHealth `json:"outputs"`
	Sensors []SensorHealth `json:"sensors,omitempty"`
}

// SourceHealth are counters of a source, since the program or a reload began it.
type SourceHealth struct {
	Name     string `json:"name"`
	Captured uint64 `json:"captured"` // frames
	Lost     uint64 `json:"lost"`     // by the gaps in the camera's numbers
	Idle     bool   `json:"idle"`     // it waits for a trigger
}

// OutputHealth are counters of an output.
type OutputHealth struct {
	Name      string   `json:"name"`
	Sends     string   `json:"sends"`        // in words
	To        []string `json:"to,omitempty"` // destinations
	RTSP      string   `json:"rtsp,omitempty"`
	Delivered uint64   `json:"delivered"` // frames
	Dropped   uint64   `json:"dropped"`   // frames that it lost, without those that its rate leaves out
	Error     string   `json:"error,omitempty"`
}

// SensorHealth is what a sensor of the board says.
type SensorHealth struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"` // °C or W
	Alarm bool    `json:"alarm,omitempty"`
}

// Subjects of the messages, below prefix and the board.
const (
	prefix  = "tegracast."
	results = ".results."
	events  = ".events"
	health  = ".health"
)

// opening is what all messages begin with.
func opening(board string, id uint64) ([]byte, error) {
	name, err := json.Marshal(board)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"version":%d,"board":%s,"id":"%016x","epoch":`, Version, name, id), nil
}
