// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	foxglove "github.com/foxglove/mcap/go/mcap"

	"github.com/tegracast/tegracast/pipeline"
)

// killFolder is the environment variable with which TestKilled runs itself as a process: the folder in which it records
// until it is killed.
const (
	killFolder  = "TEGRACAST_RECORD_UNTIL_KILLED"
	killTrigger = "TEGRACAST_RECORD_TRIGGER"
)

// untilKilled records, and prints after each frame how many frames are certainly written, because the slot of the frame
// four before is free again.
func untilKilled(t *testing.T, dir string) {
	c := Config{Directory: dir, Sync: 20 * time.Millisecond}
	if os.Getenv(killTrigger) != "" {
		c.Window = &Window{Before: 100 * time.Millisecond, After: time.Hour}
	}
	_, err := recordSteps(t, c, format(t, pipeline.RGGB10, 640, 480), 1<<30, func(*Sink) {}, func(s *Sink, n int) {
		if c.Window != nil && n == triggerAt {
			if err := s.Trigger(Trigger{Cause: "test", At: machine(n)}); err != nil {
				t.Error(err)
			}
		}
		fmt.Println("written", n-4)
	})
	t.Error("the recording has ended", err)
}

const triggerAt = 40

// TestKilled kills a recording process at random moments. Two readers find every frame that was written before, and
// verify reports at most the frames that were being written.
func TestKilled(t *testing.T) {
	if dir := os.Getenv(killFolder); dir != "" {
		untilKilled(t, dir)
	}
	times := 3
	if os.Getenv("TEGRACAST_LONG") != "" {
		times = 50
	}
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range times {
		dir, trigger := t.TempDir(), i%3 == 2
		written := killed(t, dir, trigger, 8+r.IntN(150), time.Duration(r.IntN(5000))*time.Microsecond)
		files, err := Files(dir, "rec")
		if err == nil && len(files) == 0 && trigger { // before the trigger
			files = []string{filepath.Join(dir, "rec-ring.mcap")}
		}
		if err != nil || len(files) != 1 {
			t.Fatalf("seed %d: files %v, %v", seed, files, err)
		}
		path, first := files[0], 0
		if trigger && written > triggerAt {
			first = triggerAt - 10
		}
		if n := played(t, path, first, written); n < written {
			t.Errorf("seed %d, file %d: the format's own reader has frames up to %d, %d were written", seed, i, n, written)
		}
		report, err := Inspect(t.Context(), path, true, func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		if report.Finished || len(report.Wrong) > Holds || report.Readable > report.Bytes || report.Checked < written-first {
			t.Errorf("seed %d, file %d: %d frames were written: %+v", seed, i, written+1, report)
		}
		if _, err := Repair(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		if after, err := Inspect(t.Context(), path, true, func(float64) {}); err != nil || !after.Finished || after.Checked != report.Checked {
			t.Errorf("seed %d, file %d: after the repair: %+v, %v, before: %+v", seed, i, after, err, report)
		}
		t.Logf("killed at frame %d: %d frames, %d wrong, %d of %d bytes whole, %s",
			written, report.Frames, len(report.Wrong), report.Readable, report.Bytes, report.Trouble)
	}
}

// killed runs a recording process, and kills it some time after it has written frame at. It returns the number of the
// last written frame.
func killed(t *testing.T, dir string, trigger bool, at int, after time.Duration) (written int) {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run", "^TestKilled$")
	c.Env = append(os.Environ(), killFolder+"="+dir)
	if trigger {
		c.Env = append(c.Env, killTrigger+"=1")
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	dying := false
	for lines.Scan() {
		if _, err := fmt.Sscanf(lines.Text(), "written %d", &written); err == nil && written >= at && !dying {
			dying = true
			time.AfterFunc(after, func() { _ = c.Process.Kill() })
		}
	}
	if err := c.Wait(); err == nil || !dying {
		t.Fatalf("the process was not killed: %v", err)
	}
	return written
}

// played reads a file with the format's own reader, and returns the last frame of the sequence without gaps that begins
// with frame from, which must be there.
func played(t *testing.T, path string, from, atLeast int) (last int) {
	t.Helper()
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	lexer, err := foxglove.NewLexer(in, &foxglove.LexerOptions{ValidateChunkCRCs: true})
	if err != nil {
		t.Fatal(err)
	}
	defer lexer.Close()
	for last = -1; ; {
		token, content, err := lexer.Next(nil)
		if err != nil {
			if !errors.Is(err, io.EOF) && last < atLeast {
				t.Errorf("%s, behind frame %d: %v", path, last, err)
			}
			return last
		}
		if token != foxglove.TokenMessage {
			continue
		}
		m, err := foxglove.ParseMessage(content)
		if err != nil {
			t.Fatal(err)
		}
		if m.ChannelID != imageChannel {
			continue
		}
		if n := int(m.Sequence); last < 0 && n > from || last >= 0 && n != last+1 {
			t.Errorf("%s: frame %d behind frame %d", path, n, last)
		}
		last = int(m.Sequence)
	}
}
