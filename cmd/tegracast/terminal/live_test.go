// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// emulator is a terminal with the controls that a Screen uses: line feed, carriage return, cursor up, and clearing below
// the cursor (ECMA-48, CUU and ED).
type emulator struct {
	width int
	lines []string // all lines ever written
	wraps []bool   // whether a line continues in the next one
	at    int      // the cursor's line
}

// resize changes the width and reflows all lines, as most terminals do.
func (e *emulator) resize(width int) {
	var text strings.Builder
	for i, line := range e.lines {
		text.WriteString(line)
		if !e.wraps[i] {
			text.WriteByte('\n')
		}
	}
	*e = emulator{width: width}
	_, _ = e.Write([]byte(text.String()))
}

func (e *emulator) Write(p []byte) (int, error) {
	text := strings.NewReplacer("\x1b[31m", "", "\x1b[0m", "", "\r", "").Replace(string(p))
	for text != "" {
		up := 0
		if n, _ := fmt.Sscanf(text, "\x1b[%dA", &up); n == 1 {
			e.at -= up
			text = text[strings.IndexByte(text, 'A')+1:]
			continue
		}
		if after, is := strings.CutPrefix(text, "\x1b[J"); is {
			e.lines, e.wraps, text = e.lines[:e.at], e.wraps[:e.at], after
			continue
		}
		line, rest, _ := strings.Cut(text, "\n")
		for r := []rune(line); ; {
			n := min(len(r), e.width)
			e.lines, e.wraps = append(e.lines[:e.at], string(r[:n])), append(e.wraps[:e.at], n < len(r))
			e.at++
			if r = r[n:]; len(r) == 0 {
				break
			}
		}
		text = rest
	}
	return len(p), nil
}

// TestScreen checks that output scrolls above the block, and that only the last block remains, also after the terminal's
// width has changed.
func TestScreen(t *testing.T) {
	e := &emulator{width: 20}
	s := &Screen{out: e, colour: true, size: func() (int, int) { return e.width, 8 }}
	is := func(want ...string) {
		t.Helper()
		if got := strings.Join(e.lines, "\n"); got != strings.Join(want, "\n") {
			t.Fatalf("the terminal has\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
	}
	show := func(block ...Line) {
		t.Helper()
		if err := s.Show(block); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprintln(s, "begin")
	show(Line{Text: "one"}, Line{Text: "bad", Bad: true})
	is("begin", "one", "bad")
	fmt.Fprint(s, "half")
	is("begin", "one", "bad")
	fmt.Fprint(s, " whole\nnext")
	is("begin", "half whole", "one", "bad")
	long := strings.Repeat("x", 25)
	show(Line{Text: long}, Line{Text: long, Whole: true})
	is("begin", "half whole", strings.Repeat("x", 18)+"…", strings.Repeat("x", 20), "xxxxx")
	show(Line{Text: "1"}, Line{Text: "2"}, Line{Text: "3"}, Line{Text: "4"}, Line{Text: "5"}, Line{Text: "6"}, Line{Text: "7"})
	is("begin", "half whole", "1", "2", "3", "4", "5", "6", "7")
	show(Line{Text: "1"}, Line{Text: "2"}, Line{Text: "3"}, Line{Text: "4"}, Line{Text: "5"}, Line{Text: "6"}, Line{Text: "7"}, Line{Text: "8"})
	is("begin", "half whole", "1", "2", "3", "4", "5", "6", "… 2 lines more")
	show(Line{Text: long}, Line{Text: long, Whole: true}, Line{Text: "last"})
	e.resize(10)
	is("begin", "half whole", "xxxxxxxxxx", "xxxxxxxx…", "xxxxxxxxxx", "xxxxxxxxxx", "xxxxx", "last")
	show(Line{Text: long}, Line{Text: long, Whole: true}, Line{Text: "last"})
	is("begin", "half whole", "xxxxxxxx…", "xxxxxxxxxx", "xxxxxxxxxx", "xxxxx", "last")
	e.resize(30)
	show(Line{Text: long}, Line{Text: long, Whole: true}, Line{Text: "last"})
	is("begin", "half whole", long, long, "last")
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	is("begin", "half whole", "next")
}

// TestBlock checks that the block shows where to watch, rates, losses, and receivers that do not get a stream.
func TestBlock(t *testing.T) {
	v := View{
		Addresses: []string{"page: http://127.0.0.1:8080"},
		Stats: pipeline.Stats{
			Sources: []pipeline.SourceStats{{Name: "camera", Captured: 60}},
			Outputs: []pipeline.OutputStats{
				{Name: "raw", Captured: 60, Delivered: 60, Latency: pipeline.Percentiles{P50: time.Millisecond, P99: 2 * time.Millisecond}},
				{Name: "taken", Captured: 60, Delivered: 60},
				{Name: "rec", OutputStatus: pipeline.OutputStatus{State: pipeline.Retrying, Error: "the disk is full"}},
				{Name: "small", Captured: 60, Delivered: 30, Dropped: map[string]uint64{"small/queue": 3}},
			},
		},
		Receivers: map[string][]send.DestinationStats{
			"raw":   {{Address: "10.0.0.1:5004", Cut: 60, Refused: 60, Trouble: send.NobodyListens}},
			"small": {{Address: "10.0.0.1:5006", Frames: 30}, {Address: "10.0.0.2:1", Reader: "RTSP over TCP", Cut: 7}},
		},
		Takers:     map[string]string{"taken": "2 receivers, lost 0"},
		Quarantine: []string{"mine"},
	}
	s := &Status{begun: time.Unix(100, 0)}
	var text []string
	bad := map[string]bool{}
	for _, l := range s.block(v, since{time.Unix(102, 0), 2, 35}) {
		text = append(text, l.Text)
		bad[strings.Fields(l.Text)[0]] = l.Bad
	}
	want := `page: http://127.0.0.1:8080
        frames/s     lost  latency p50, p99   receivers
camera      30.0        0
raw         30.0        0     1.0,    2.0 ms  10.0.0.1:5004: nobody listens
taken       30.0        0     0.0,    0.0 ms  2 receivers, lost 0
rec          0.0        0     0.0,    0.0 ms  failed; will retry: the disk is full
small       15.0        3     0.0,    0.0 ms  10.0.0.1:5006; 1 reader, lost 7
mine is in quarantine
2s since the start, 35 % of a processor; ctrl-C ends`
	if got := strings.Join(text, "\n"); got != want {
		t.Errorf("it has\n%s\nwant\n%s", got, want)
	}
	if bad["camera"] || !bad["raw"] || !bad["small"] || !bad["rec"] || !bad["mine"] {
		t.Errorf("bad: %v", bad)
	}
	if line := s.line(v, since{time.Unix(104, 0), 2, 35}); !strings.Contains(line, "camera 0.0/s lost 0  | raw 0.0/s dropped 0 latency 1.0 ms p99 2.0 ms") ||
		!strings.HasSuffix(line, "mine in quarantine  | cpu 35 %") {
		t.Error(line)
	}
}

// TestForeignTextInTheBlock checks that a receiver's name or a peer's error cannot move the cursor.
func TestForeignTextInTheBlock(t *testing.T) {
	var out strings.Builder
	s := &Screen{out: &out, size: func() (int, int) { return 80, 8 }}
	if err := s.Show([]Line{{Text: "to \x1b[2Jx\nbegin"}}); err != nil || out.String() != "to ?[2Jx?begin\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
