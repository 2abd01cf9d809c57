// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tegracast/tegracast/pipeline/report"
)

// Version is the version of the messages. It rises when a key is removed or changes its meaning or unit; new keys do
// not raise it.
const Version = 1

// Head holds the fields that every message begins with.
type Head struct {
	Version  int       `json:"version"`  // of the messages, now 1
	Board    string    `json:"board"`    // name of the board
	ID       string    `json:"id"`       // of the store, 16 hexadecimal digits
	Epoch    uint64    `json:"epoch"`    // rises after a crash
	Sequence uint64    `json:"sequence"` // number of the message
	At       time.Time `json:"at"`       // of the message, by the board's clock
}

// Results are the results of one frame, published as tegracast.BOARD.results.OUTPUT.
type Results struct {
	Head
	Output string `json:"output"` // name of the output
	report.Report
}

// Event is a message published as tegracast.BOARD.events.
type Event struct {
	Head
	Happened
}

// Health is a message published as tegracast.BOARD.health.
type Health struct {
	Head
	Condition
}

// Happened describes an event.
type Happened struct {
	Kind   string `json:"kind"`             // `fault`: a warning or error; `trigger`: of a recording; `recording`, `deleted`: a file is whole, was deleted
	Output string `json:"output,omitempty"` // name of the recording
	// Level, Text and Fields describe a fault as it was logged.
	Level  string            `json:"level,omitempty"`  // `warn` or `error`, of a fault
	Text   string            `json:"text,omitempty"`   // message, of a fault
	Fields map[string]string `json:"fields,omitempty"` // attributes of a fault
	// Cause, Moment and Frame describe a trigger: its source, its time, and the number of the newest frame at that
	// time.
	Cause  string     `json:"cause,omitempty"`  // of a trigger
	Moment *time.Time `json:"moment,omitempty"` // of a trigger, by the frames' clock
	Frame  *uint64    `json:"frame,omitempty"`  // number of the newest frame at a trigger
	File   string     `json:"file,omitempty"`   // path of a recording
}

// Values of Happened.Kind.
const (
	KindFault     = "fault"
	KindTrigger   = "trigger"
	KindRecording = "recording"
	KindDeleted   = "deleted"
)

// Condition describes the state of a board.
type Condition struct {
	Program string         `json:"program"`           // version of tegracast
	Model   string         `json:"model,omitempty"`   // model of the board, from its device tree
	Started time.Time      `json:"started"`           // when streaming began
	Every   time.Duration  `json:"every_ns"`          // maximum interval between two of these messages
	Ready   bool           `json:"ready"`             // every output is armed
	Stalled string         `json:"stalled,omitempty"` // what makes no progress
	Ended   bool           `json:"ended"`             // the program has shut down without a crash: no further message until it starts again
	Sources []SourceHealth `json:"sources"`           // with counters since the start or a reload
	Outputs []OutputHealth `json:"outputs"`           // with counters
	Sensors []SensorHealth `json:"sensors,omitempty"` // of the board
	Others  []string       `json:"others,omitempty"`  // `id` of other boards that publish under this board's name
}

// SourceHealth holds the counters of a source since the program or a reload started it.
type SourceHealth struct {
	Name     string `json:"name"`     // of the source
	Captured uint64 `json:"captured"` // frames that came
	Lost     uint64 `json:"lost"`     // frames missing, by their numbers
	Idle     bool   `json:"idle"`     // nothing to deliver, and no fault
}

// OutputHealth holds the counters of an output.
type OutputHealth struct {
	Name      string   `json:"name"`            // of the output
	Sends     string   `json:"sends"`           // what it sends, in words
	To        []string `json:"to,omitempty"`    // destinations, texts
	RTSP      string   `json:"rtsp,omitempty"`  // RTSP address
	Delivered uint64   `json:"delivered"`       // frames delivered
	Dropped   uint64   `json:"dropped"`         // frames lost, not counting those that its rate skips
	Error     string   `json:"error,omitempty"` // why it is not running, or the error with which it ended
}

// SensorHealth is the reading of one of the board's sensors.
type SensorHealth struct {
	Name  string  `json:"name"`            // thermal zone or power rail
	Value float64 `json:"value"`           // in the unit
	Unit  string  `json:"unit"`            // `°C` or `W`
	Alarm bool    `json:"alarm,omitempty"` // the board is or was throttled
}

// Parts of the subjects: prefix, the board's name, then one of the others.
const (
	prefix  = "tegracast."
	results = ".results."
	events  = ".events"
	health  = ".health"
)

// opening returns the text that every message begins with.
func opening(board string, id uint64) ([]byte, error) {
	name, err := json.Marshal(board)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{"version":%d,"board":%s,"id":"%016x","epoch":`, Version, name, id), nil
}
