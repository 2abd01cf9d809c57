// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"errors"
	"fmt"
	"io"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline"
)

// Result is the result of a validation run.
type Result struct {
	Device string `json:"device"`     // `model` or the device file
	Model  bool   `json:"model"`      // the FPGA model was measured, not a card: rates and latencies are this processor's
	Memory string `json:"memory"`     // of the surfaces: `host` or `cuda`
	Size   int    `json:"size_bytes"` // of a surface

	Copies      int  `json:"copies"`                // copies made
	Interrupted bool `json:"interrupted,omitempty"` // by a signal, before all copies were made

	Compared bool         `json:"compared"`                 // bytes were compared; false if the card has one direction
	Wrong    int          `json:"wrong"`                    // copies with a wrong byte
	Mismatch string       `json:"first_mismatch,omitempty"` // describes the first wrong byte
	Lanes    []LaneResult `json:"directions"`               // by direction and kind of CUDA memory

	Interrupts uint64 `json:"interrupts,omitempty"` // passed on by the kernel module
}

// LaneResult holds the measurements of one direction and, with CUDA, of one kind of memory.
type LaneResult struct {
	Direction    string               `json:"direction"`               // `h2c` to the card, `c2h` from it
	Memory       string               `json:"memory,omitempty"`        // `default` or `write-combined`, of CUDA
	Bytes        uint64               `json:"bytes"`                   // bytes moved
	Bandwidth    float64              `json:"bytes_per_second"`        // by this machine's clock, from doorbell to completion
	Counted      bool                 `json:"engine_has_counters"`     // if not, the next three are 0
	EngineBytes  uint64               `json:"engine_bytes"`            // bytes by the engine's count of beats, where a partial beat counts as whole
	EngineCycles uint64               `json:"engine_cycles"`           // of the data path's clock
	EngineRate   float64              `json:"engine_bytes_per_second"` // by cycles and `--clock`
	Agree        bool                 `json:"counters_agree"`          // counters fit what was moved; true without any
	Latency      pipeline.Percentiles `json:"latency"`                 // of a transfer
}

// name returns the direction, and the kind of memory if there are several.
func (l LaneResult) name() string {
	if l.Memory == "" {
		return l.Direction
	}
	return l.Direction + ", " + l.Memory + " memory"
}

// engine describes the engine's own counters.
func (l LaneResult) engine() string {
	note := "agrees"
	switch {
	case !l.Counted:
		return "no counters"
	case !l.Agree:
		note = "DOES NOT AGREE"
	}
	return fmt.Sprintf("%d bytes, %.3f GB/s, %s", l.EngineBytes, l.EngineRate/1e9, note)
}

// Print prints the result, and returns an error if the run was interrupted or its result is not good.
func (r Result) Print(w io.Writer, o Options) error {
	agree := true
	for _, l := range r.Lanes {
		agree = agree && l.Agree
	}
	if o.JSON {
		if err := terminal.WriteJSON(w, r); err != nil {
			return err
		}
	} else {
		if r.Compared || r.Copies == 0 {
			fmt.Fprintf(w, "%d of %d copies of %d bytes right\n", r.Copies-r.Wrong, r.Copies, o.Size)
		} else {
			fmt.Fprintf(w, "%d copies of %d bytes, compared with nothing: the card has one direction\n", r.Copies, o.Size)
		}
		if r.Model {
			fmt.Fprintf(w, "measured: the FPGA model in this program, not a card: the rates are those of this processor; memory %s\n", r.Memory)
		} else {
			fmt.Fprintf(w, "measured: %s, memory %s\n", r.Device, r.Memory)
		}
		for _, l := range r.Lanes {
			fmt.Fprintf(w, "%s: %.3f GB/s; engine: %s; transfer p50 %v p99 %v max %v\n",
				l.name(), l.Bandwidth/1e9, l.engine(), l.Latency.P50, l.Latency.P99, l.Latency.Max)
		}
	}
	switch {
	case r.Interrupted && r.Wrong == 0:
		return fmt.Errorf("interrupted after %d of %d copies", r.Copies, o.Count)
	case r.Wrong > 0:
		return fmt.Errorf("%d of %d copies are wrong, first: %s", r.Wrong, r.Copies, r.Mismatch)
	case !agree:
		return errors.New("the engine's counters do not agree with what was transferred")
	}
	return nil
}
