// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPositionText(t *testing.T) {
	at := time.Date(2026, 11, 24, 7, 33, 2, 500_000_000, time.FixedZone("", 3600))
	for _, p := range []Position{At(0), At(90 * time.Second), AtFrame(0), AtFrame(1200), AfterFirst(0), AfterFirst(40), AtTime(at)} {
		text, err := p.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var q Position
		if err := q.UnmarshalText(text); err != nil || q != p {
			t.Errorf("%v becomes %q, and that %v: %v", p, text, q, err)
		}
	}
	for _, text := range []string{
		"", "+", "-1", "-1s", "soon", "1200 ", "99999999999999999999", "2026-11-24", "2026-11-24T06:33:02", "9999-11-24T06:33:02Z",
	} {
		var p Position
		if err := p.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q: write a frame's number", text)) {
			t.Errorf("%q: %v, %v", text, p, err)
		}
	}
}

// TestPositions plays parts of two files, whose first frame has number 4, and checks the numbers at both ends.
func TestPositions(t *testing.T) {
	dir := t.TempDir()
	c := Config{Directory: dir, Duration: 300 * time.Millisecond, Window: &Window{Before: 100 * time.Millisecond, After: time.Hour}}
	_, err := recordStepped(t, c, 50, func(*Sink) {}, func(s *Sink, n int) {
		if n == 14 {
			if err := s.Trigger(Trigger{Cause: "test", At: machine(n)}); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	paths, err := Files(dir, "rec")
	if err != nil || len(paths) != 2 {
		t.Fatal(paths, err)
	}
	next := uint64(4)
	for _, path := range paths {
		r, err := Inspect(t.Context(), path, false, func(float64) {})
		if err != nil || r.FirstFrame != next || r.LastFrame != next+uint64(r.Frames)-1 {
			t.Errorf("%+v, %v; want frames from %d on", r, err, next)
		}
		next = r.LastFrame + 1
	}
	place := func(text string) (p Position) {
		if text == "" {
			return p
		}
		if err := p.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	day := func(n int) string { return shown(moment(n)) }
	has := fmt.Sprintf(": the 2 files have frames 4 to 49, taken from %s to %s (%v)", day(4), day(49), moment(49).Sub(moment(4)))
	for _, tt := range []struct {
		from, to    string
		first, last int
		says        string
	}{
		{"", "", 4, 49, ""},
		{"4", "5", 4, 4, ""},
		{"+0", "+1", 4, 4, ""},
		{"+30", "+45", 34, 48, ""},
		{"28", "+29", 28, 32, ""},
		{"1", "+9", 4, 12, ""},
		{day(20), day(40), 20, 39, ""},
		{"2001-01-01T00:00:00Z", day(5), 4, 4, ""},
		{moment(21).Sub(moment(4)).String(), "", 21, 49, ""},
		{"+18446744073709551615", "", 0, 0, "from +18446744073709551615 on" + has},
		{"", "3", 0, 0, "before frame 3" + has},
		{"+46", "", 0, 0, "from +46 on" + has},
		{"20", "+10", 0, 0, "from frame 20 on and before +10" + has},
		{"2001-01-01T00:00:00Z", "2001-01-01T00:00:01Z", 0, 0, "from 2001-01-01T00:00:00Z on and before 2001-01-01T00:00:01Z" + has},
		{"1h", "2h", 0, 0, "from 1h0m0s on and before 2h0m0s" + has},
	} {
		p, err := NewPlayer(t.Context(), paths, place(tt.from), place(tt.to), nil)
		if tt.says != "" {
			if want := paths[0] + ": there is no frame " + tt.says; !errors.Is(err, ErrRange) || err.Error() != want {
				t.Errorf("from %q to %q: %v, want %s", tt.from, tt.to, err, want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		var f *Frame
		for f, err = p.Next(); err == nil; f, err = p.Next() {
			got = append(got, int(f.Note.Frame))
		}
		if !errors.Is(err, ErrEnd) || !slices.Equal(got, numbers(tt.first, tt.last+1)) {
			t.Errorf("from %q to %q: frames %d, %v", tt.from, tt.to, got, err)
		}
	}
}
