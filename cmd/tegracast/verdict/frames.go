// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"io"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/printable"
	"github.com/tegracast/tegracast/pipeline/ucx/frames"
)

// JudgeFrames reports whether every frame that a receiver requested has arrived correctly, and describes the result.
func JudgeFrames(f pipeline.Format, every int, st frames.ReceivedStats, cut Cut) (clean bool, verdict string) {
	return cut.judge(judgeFrames(f, every, st))
}

func judgeFrames(f pipeline.Format, every int, st frames.ReceivedStats) (clean bool, verdict string) {
	switch {
	case st.Frames == 0 && st.Trouble != "":
		return false, "silence: " + st.Trouble
	case st.Frames+st.Lost+st.Mismatched == 0:
		return false, "silence: no frame came: does the sender's camera run?"
	case st.Frames == 0 || st.Mismatched+st.Broken > 0:
		return false, "NOT clean"
	case st.Lost > 0:
		return false, "NOT clean: this machine, or the network to it, was too slow for the frames"
	case st.Connections > 1:
		return false, "NOT clean: the connection was lost, and made again"
	case !st.Connected && !st.Ended:
		return false, "NOT clean: the connection is lost: " + st.Trouble
	case !st.Ended && st.Silence > max(time.Second, 3*time.Duration(every)*f.Rate.Period()):
		return false, fmt.Sprintf("NOT clean: silent for the last %.1f s: does the sender's camera run?", st.Silence.Seconds())
	case st.Matched == 0:
		return true, "clean, pixels not verified"
	case st.Traced == 0:
		return true, "clean since the sender"
	}
	return true, "clean since the FPGA"
}

// Frames is the JSON that receive prints (docs/json.md).
type Frames struct {
	Clean       bool   `json:"clean"`                 // every frame came and is right
	Verdict     string `json:"verdict"`               // the same in words, with advice
	Interrupted bool   `json:"interrupted,omitempty"` // by a signal, before the duration had passed
	Format      string `json:"format"`                // pixels, size and rate
	frames.ReceivedStats
}

// PrintFrames prints a receiver's counters with the verdict.
func PrintFrames(w io.Writer, address string, f pipeline.Format, every int, st frames.ReceivedStats, cut Cut, asJSON bool) error {
	clean, verdict := JudgeFrames(f, every, st, cut)
	if asJSON {
		return terminal.WriteJSON(w, Frames{clean, verdict, cut != "", f.String(), st})
	}
	times := func(p pipeline.Percentiles) string {
		if p.Count == 0 {
			return notMeasured
		}
		return fmt.Sprintf("p50 %s, p99 %s, p99.9 %s, max %s", ms(p.P50), ms(p.P99), ms(p.P999), ms(p.Max))
	}
	ended := ""
	if st.Ended {
		ended = ", then the sender ended the stream"
	}
	_, err := fmt.Fprintf(w, `%s from %s: %s
format      %s
frames      %d, lost %d, cut off by a broken connection %d, damaged %d
camera      %d frames never came to the sender's output
pixels      CRC right in %d frames, of these by the FPGA's own in %d, not checked in %d
results     of %d frames
connections %d%s; UCX %s here, %s there, protocol %d
last frame  %.3f s before the end
latency     %s (what the frame shows to its last byte)
transfer    %s (sender's turn to the last byte)
`, printable.Text(st.Stream), address, printable.Text(verdict), f,
		st.Frames, st.Lost, st.Broken, st.Mismatched, st.Missing, st.Matched, st.Traced, st.Unverified,
		st.Results, st.Connections, ended, st.Release, printable.Text(st.SenderUCX),
		st.Version, st.Silence.Seconds(), times(st.Latency), times(st.Transfer))
	return err
}
