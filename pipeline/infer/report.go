// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// A State of the process that runs a model.
type State string

const (
	Starting State = "starting" // the process starts, or waits to be started again
	Loading  State = "loading"  // the model is being loaded with a provider
	Running  State = "running"
)

// A report goes from the process to the program that has started it, as a line of JSON.
type report struct {
	State   State  `json:"state,omitempty"`
	Runtime string `json:"runtime,omitempty"` // release of ONNX Runtime
	Failed  string `json:"failed,omitempty"`  // why the provider cannot load the model; the process ends
	Frame   string `json:"frame,omitempty"`   // why a frame goes on without results
	Steps   *Steps `json:"steps,omitempty"`
}

// Steps count what a process has done, and how long it took.
type Steps struct {
	Frames      uint64        `json:"frames"`      // frames that the model got
	Failed      uint64        `json:"failed"`      // those of them without results, because the model or its outputs failed
	Lost        uint64        `json:"lost"`        // frames that came while the model worked, and that newer ones replaced
	Preprocess  time.Duration `json:"preprocess"`  // ns in all
	Run         time.Duration `json:"run"`         // likewise
	Postprocess time.Duration `json:"postprocess"` // likewise
}

// plus returns the sums.
func (s Steps) plus(o Steps) Steps {
	return Steps{
		s.Frames + o.Frames, s.Failed + o.Failed, s.Lost + o.Lost, s.Preprocess + o.Preprocess, s.Run + o.Run, s.Postprocess + o.Postprocess,
	}
}

// since reports whether the counters are those of an earlier moment or have grown since.
func (s Steps) since(o Steps) bool {
	return s.Frames >= o.Frames && s.Failed >= o.Failed && s.Lost >= o.Lost && s.Preprocess >= o.Preprocess && s.Run >= o.Run && s.Postprocess >= o.Postprocess
}

// maxReport is the longest line of a report.
const maxReport = 64 << 10

// A reporter writes reports.
type reporter struct {
	mu sync.Mutex
	to io.Writer
}

func (r *reporter) send(x report) error {
	line, err := json.Marshal(x)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err = r.to.Write(append(line, '\n'))
	return err
}

// readReports calls take with each report until the process ends. The process is not trusted: an error means that what
// it wrote is no report.
func readReports(from io.Reader, take func(report)) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxReport)
	for lines.Scan() {
		var r report
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("a report of the model's process: %w", err)
		}
		take(r)
	}
	return lines.Err()
}
