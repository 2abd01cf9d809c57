// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record/mp4"
)

// readVideo returns a recording and the frame numbers in it, after checking that it can be read as a whole and that each
// picture has the time that at returns for its number.
func readVideo(t *testing.T, path string, at func(n uint64) time.Time) (f *mp4.File, numbers []uint64) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		f, err = mp4.Read(bytes.NewReader(data), int64(len(data)))
	}
	if err != nil || !f.Finished {
		t.Fatalf("%s: %v", path, err)
	}
	for i := range f.Len() {
		var n Note
		text, err := f.Note(i)
		if err == nil {
			err = json.Unmarshal(text, &n)
		}
		if err != nil {
			t.Fatalf("%s: picture %d: %v", path, i, err)
		}
		if got := f.Info(i).At; got.Sub(at(n.Frame)).Abs() > time.Millisecond {
			t.Errorf("%s: frame %d has time %v, want %v", path, n.Frame, got, at(n.Frame))
		}
		if _, err := f.Data(i); err != nil {
			t.Error(err)
		}
		numbers = append(numbers, n.Frame)
	}
	return f, numbers
}

// recordUnits records pictures 0 to count-1, which unit and at return, and returns the files.
func recordUnits(t *testing.T, c VideoConfig, count uint64, at func(n uint64) time.Time, unit func(n uint64, key bool) []byte) []string {
	t.Helper()
	c.Directory = t.TempDir()
	v := startVideo(t, c)
	f := &pipeline.Frame{}
	for n := range count {
		f.Sequence, f.Times.Captured = n, at(n)
		key := n%testGroup == 0
		if n == c.triggerAt() {
			taken(t, v)
			if err := v.Trigger(Trigger{Cause: "test"}); err != nil {
				t.Fatal(err)
			}
		}
		v.Take(f, unit(n, key), key)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if v.missed.Load() > 0 {
		t.Errorf("%d pictures are missing", v.missed.Load())
	}
	paths, err := filesOf(c.Directory, "rec", VideoExtension)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// triggerAt is the picture before which recordUnits triggers, if there is a window.
func (c *VideoConfig) triggerAt() uint64 {
	if c.Window == nil {
		return 1 << 63
	}
	return 45
}

// TestVideoOfAnotherEncoder checks that a key frame with other parameter sets begins another file, whose head has these,
// and that a key frame with the same ones, as of an encoder that was restarted, does not.
func TestVideoOfAnotherEncoder(t *testing.T) {
	at := func(n uint64) time.Time { return testBegin.Add(time.Duration(n) * testPeriod) }
	for name, change := range map[string]func(sps, pps []byte) ([]byte, []byte){
		"another SPS": func(sps, pps []byte) ([]byte, []byte) { sps[3] = 0x1f; return sps, pps }, // another level
		"another PPS": func(sps, pps []byte) ([]byte, []byte) { return sps, append(pps, 0x40) },
	} {
		sps, pps := change(bytes.Clone(testSPS), bytes.Clone(testPPS))
		paths := recordUnits(t, VideoConfig{}, 60, at, func(n uint64, key bool) []byte {
			unit := testUnit(n, key)
			if n >= 30 && key {
				unit = bytes.Replace(bytes.Replace(unit, testSPS, sps, 1), testPPS, pps, 1)
			}
			return unit
		})
		if len(paths) != 2 {
			t.Fatalf("%s: %v", name, paths)
		}
		first, a := readVideo(t, paths[0], at)
		second, b := readVideo(t, paths[1], at)
		if !sequence(a, 0, 29) || !sequence(b, 30, 59) || !bytes.Equal(first.Track.SPS, testSPS) || !bytes.Equal(first.Track.PPS, testPPS) ||
			!bytes.Equal(second.Track.SPS, sps) || !bytes.Equal(second.Track.PPS, pps) {
			t.Errorf("%s: %v and %v, %+v and %+v", name, a, b, first.Track, second.Track)
		}
	}
}

// TestVideoWhoseClockJumps checks that each picture has its time when the clock goes back by an hour or forward by a day,
// that another file begins at the next key frame, and that a recording with triggers ends its event.
func TestVideoWhoseClockJumps(t *testing.T) {
	for jump, want := range map[time.Duration][2][][2]uint64{
		// without triggers, and with one at picture 45
		-time.Hour:     {{{0, 59}, {60, 89}}, {{40, 54}}},
		24 * time.Hour: {{{0, 59}, {60, 89}}, {{40, 54}}},
	} {
		at := func(n uint64) time.Time {
			t := testBegin.Add(time.Duration(n) * testPeriod)
			if n >= 55 {
				t = t.Add(jump)
			}
			return t
		}
		for i, w := range []*Window{nil, {Before: 5 * testPeriod, After: time.Hour / 2}} {
			paths := recordUnits(t, VideoConfig{Duration: 10 * time.Minute, Window: w}, 90, at, testUnit)
			var got [][2]uint64
			for _, path := range paths {
				_, numbers := readVideo(t, path, at)
				got = append(got, [2]uint64{numbers[0], numbers[len(numbers)-1]})
				if !sequence(numbers, numbers[0], numbers[len(numbers)-1]) {
					t.Errorf("%v: %v", jump, numbers)
				}
			}
			if !slices.Equal(got, want[i]) {
				t.Errorf("jump by %v, window %+v: files have %v, want %v", jump, w, got, want[i])
			}
		}
	}
}
