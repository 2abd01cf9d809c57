// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"errors"
	"fmt"
	"io"

	"github.com/tegracast/tegracast/cmd/tegracast/command"
	"github.com/tegracast/tegracast/pipeline"
)

// Result is what a validation run found.
type Result struct {
	Device string `json:"device"` // ModelName, or the device file
	Model  bool   `json:"model"`  // the FPGA was the one in software: rates and latencies are this processor's
	Memory string `json:"memory"` // of the surfaces: host or cuda
	Size   int    `json:"size_bytes"`

	Copies      int  `json:"copies"`
	Interrupted bool `json:"interrupted,omitempty"` // by a signal, before all copies were made

	Compared bool         `json:"compared"` // else the card has one direction only
	Wrong    int          `json:"wrong"`
	Mismatch string       `json:"first_mismatch,omitempty"`
	Lanes    []LaneResult `json:"directions"`

	Interrupts uint64 `json:"interrupts,omitempty"` // that the kernel module has passed on
}

// LaneResult is what was measured in one direction.
type LaneResult struct {
	Direction    string               `json:"direction"`
	Memory       string               `json:"memory,omitempty"` // the kind, where there are several
	Bytes        uint64               `json:"bytes"`
	Bandwidth    float64              `json:"bytes_per_second"`        // by this machine's clock, doorbell to completion
	Counted      bool                 `json:"engine_has_counters"`     // else what follows is 0
	EngineBytes  uint64               `json:"engine_bytes"`            // beats of the data path, a partial one whole
	EngineCycles uint64               `json:"engine_cycles"`           // of the data path's clock
	EngineRate   float64              `json:"engine_bytes_per_second"` // by those cycles and --clock
	Agree        bool                 `json:"counters_agree"`          // true also without counters
	Latency      pipeline.Percentiles `json:"latency"`                 // of a transfer
}

// name is the direction, and of which memory.
func (l LaneResult) name() string {
	if l.Memory == "" {
		return l.Direction
	}
	return l.Direction + ", " + l.Memory + " memory"
}

// engine is what the engine says itself.
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

// Print tells the result, and returns an error when it is not good.
func (r Result) Print(w io.Writer, o Options) error {
	agree := true
	for _, l := range r.Lanes {
		agree = agree && l.Agree
	}
	if o.JSON {
		if err := command.WriteJSON(w, r); err != nil {
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
