// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// stepped is a source of frames whose times are 10 ms apart, and which come as fast as they are taken. After each it
// calls then.
type stepped struct {
	source
	then func(n int)
}

// moment returns the exposure time of frame n, by the clock that the camera's follows.
func moment(n int) time.Time { return time.Unix(1700000000, int64(n)*1e7) }

// machine returns the same time by this machine's clock, which is wrong.
func machine(n int) time.Time { return moment(n).Add(-time.Hour) }

func (s *stepped) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	for n := range s.frames {
		f, err := s.pool.Wait(ctx)
		if err != nil {
			return nil
		}
		fill(f.Bytes, uint64(n))
		f.Times.ExposureStart, f.Times.Reference = machine(n), moment(n)
		f.Sequence, f.CRC = uint64(n), crc32.Checksum(f.Bytes, crc32.MakeTable(crc32.Castagnoli))
		if n%1000 >= 990 {
			f.Results = append(f.Results, pipeline.Result{Stage: "motion", Numbers: map[string]float64{"area": 0.5}})
		}
		emit(f)
		s.then(n)
	}
	return nil
}

// recordStepped records small frames of a stepped source. prepare may change the sink before it runs.
func recordStepped(t *testing.T, c Config, frames int, prepare func(*Sink), then func(s *Sink, n int)) (pipeline.OutputStats, error) {
	t.Helper()
	return recordSteps(t, c, format(t, pipeline.Grey, 64, 96), frames, prepare, then)
}

func recordSteps(
	t *testing.T, c Config, f pipeline.Format, frames int, prepare func(*Sink), then func(s *Sink, n int),
) (pipeline.OutputStats, error) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	d := storage(t)
	c.Name, c.Source, c.Library, c.Driver, c.Logger = "rec", "camera", "test", d, log
	sink, err := New(c, f)
	if err != nil {
		t.Fatal(err)
	}
	prepare(sink)
	src := &stepped{source{f, slots(t, f, 4), frames, 0}, func(n int) { then(sink, n) }}
	return play(t, src, src.pool, sink)
}

// contents returns the numbers of a file's frames, after comparing them bit for bit, and its triggers.
func contents(t *testing.T, path string) (frames []int, triggers []TriggerNote) {
	t.Helper()
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		t.Fatal(err)
	}
	f, err := mcap.Open(t.Context(), in, info.Size())
	if err != nil || f.Trouble != nil {
		t.Fatalf("%s: %v, %v", path, err, f.Trouble)
	}
	for i := range f.Chunks {
		if _, err := f.VerifyChunk(i); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		list, err := f.Messages(i)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, m := range list {
			b, err := f.Read(m)
			if err != nil {
				t.Fatal(err)
			}
			switch m.Channel {
			case imageChannel:
				image, err := ParseImage(b[:min(len(b), page)], len(b))
				if err != nil {
					t.Fatal(err)
				}
				want := make([]byte, image.Size)
				fill(want, uint64(m.Sequence))
				if !bytes.Equal(b[image.Pixels:], want) {
					t.Fatalf("%s: frame %d is not as it was", path, m.Sequence)
				}
				frames = append(frames, int(m.Sequence))
			case triggerChannel:
				var n TriggerNote
				if err := json.Unmarshal(b, &n); err != nil {
					t.Fatal(err)
				}
				triggers = append(triggers, n)
			}
		}
	}
	return frames, triggers
}

// window is the range of frames from from (inclusive) to to (exclusive).
type window struct{ from, to int }

// merged returns the files that triggers at the given frames should produce.
func merged(at []int, before, after, frames int) (list []window) {
	at = slices.Sorted(slices.Values(at))
	for _, n := range at {
		w := window{max(n-before, 0), min(n+after+1, frames)}
		if last := len(list) - 1; last >= 0 && w.from < list[last].to {
			list[last].to = max(list[last].to, w.to)
		} else {
			list = append(list, w)
		}
	}
	return list
}

// asked returns random trigger frames, most of them soon after another one.
func asked(r *rand.Rand, triggers, before, after int) (at []int, frames int) {
	n := 1
	for range triggers {
		at = append(at, n)
		switch r.IntN(4) {
		case 0:
			n += 1 + r.IntN(after)
		case 1:
			n += after + r.IntN(before+1)
		case 2:
			n += after + before + r.IntN(2*before)
		default:
			n += after + before + r.IntN(400)
		}
	}
	return at, n + after + before + 200
}

// TestTriggersGiveTheFramesAskedFor checks that 200 triggers at random frames, many with overlapping windows and some
// late, produce files with exactly the requested frames, whatever the file system supports.
func TestTriggersGiveTheFramesAskedFor(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: it takes several seconds: make test runs it")
	}
	const before, after = 60, 35
	for name, c := range map[string]struct {
		dir      string
		longest  int64
		triggers int
	}{"disk": {t.TempDir(), longest, 200}, "often another file": {t.TempDir(), 1 << 20, 50}, "memory": {sharedMemory(t), longest, 50}} {
		t.Run(name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			r := rand.New(rand.NewPCG(seed, 1))
			at, frames := asked(r, c.triggers, before, after)
			late, told := map[int][]int{}, 0 // triggers by the frame after which they are sent
			for _, n := range at {
				told = max(told, n+r.IntN(2)*r.IntN(50))
				late[told] = append(late[told], n)
			}
			config := Config{Directory: c.dir, Window: &Window{Before: before * 10 * time.Millisecond, After: after * 10 * time.Millisecond}}
			st, err := recordStepped(t, config, frames, func(s *Sink) { s.longest = c.longest }, func(s *Sink, n int) {
				for _, of := range late[n] {
					if err := s.Trigger(Trigger{Cause: fmt.Sprint(of), At: machine(of)}); err != nil {
						t.Error(err)
					}
				}
			})
			if err != nil || st.Delivered != uint64(frames) {
				t.Fatalf("seed %d: %+v, %v", seed, st, err)
			}
			checkWindows(t, c.dir, merged(at, before, after, frames), at)
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		})
	}
}

// TestALateTriggerConnects checks that a late trigger can join the windows of two earlier ones: no frame between them
// is missing or duplicated.
func TestALateTriggerConnects(t *testing.T) {
	dir := t.TempDir()
	c := Config{Directory: dir, Window: &Window{Before: 100 * time.Millisecond, After: 100 * time.Millisecond}}
	_, err := recordStepped(t, c, 400, func(*Sink) {}, func(s *Sink, n int) {
		for _, of := range map[int][]int{100: {100}, 125: {125}, 126: {112}}[n] {
			if err := s.Trigger(Trigger{Cause: fmt.Sprint(of), At: machine(of)}); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	checkWindows(t, dir, []window{{90, 111}, {111, 136}}, []int{100, 112, 125})
}

func sharedMemory(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "ring")
	if err != nil {
		t.Skipf("NEEDS a tmpfs at /dev/shm: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// checkWindows compares the files in a folder with the expected windows, and their triggers with those reported.
func checkWindows(t *testing.T, dir string, want []window, told []int) {
	t.Helper()
	files, err := Files(dir, "rec")
	if err != nil || len(files) != len(want) {
		t.Errorf("%d files, want %d: %v", len(files), len(want), err)
	}
	causes := map[string]bool{}
	for i, path := range files {
		frames, triggers := contents(t, path)
		for _, n := range triggers {
			causes[n.Cause] = true
		}
		if i >= len(want) {
			break
		}
		good := len(frames) == want[i].to-want[i].from && len(triggers) > 0
		for k, n := range frames {
			good = good && n == want[i].from+k
		}
		if !good {
			t.Errorf("%s: frames %v, %d triggers, want %d to %d", filepath.Base(path), ends(frames), len(triggers), want[i].from, want[i].to-1)
		}
	}
	for _, n := range told {
		if !causes[fmt.Sprint(n)] {
			t.Errorf("the trigger at frame %d is in no file", n)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "rec-ring.mcap")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the ring's own file is left: %v", err)
	}
}

func ends(frames []int) string {
	if len(frames) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d to %d, %d of them", frames[0], frames[len(frames)-1], len(frames))
}

// TestARingTakesNoMoreThanItsFrames checks that a ring uses no more disk space than its frames need, however long it
// runs.
func TestARingTakesNoMoreThanItsFrames(t *testing.T) {
	dir, most := t.TempDir(), int64(0)
	config := Config{Directory: dir, Window: &Window{Before: time.Second}}
	_, err := recordStepped(t, config, 8000, func(*Sink) {}, func(s *Sink, n int) {
		var st unix.Stat_t
		if n%500 == 499 && unix.Stat(filepath.Join(dir, "rec-ring.mcap"), &st) == nil {
			most = max(most, min(st.Blocks*512, st.Size))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if limit := int64(ahead + 500*5*page); most == 0 || most > limit {
		t.Errorf("%d bytes of the disk, at most %d are needed", most, limit)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("nobody has asked for %v, %v", list, err)
	}
}

// TestResultsTrigger checks that results trigger while they are above the limit, and that a long event has several
// files.
func TestResultsTrigger(t *testing.T) {
	dir := t.TempDir()
	config := Config{
		Directory: dir, Duration: 200 * time.Millisecond,
		Window: &Window{100 * time.Millisecond, 50 * time.Millisecond, &Condition{"motion", "area", 0.4}},
	}
	if _, err := recordStepped(t, config, 2100, func(*Sink) {}, func(*Sink, int) {}); err != nil {
		t.Fatal(err)
	}
	// Frames 990 to 999 and 1990 to 1999, with 10 before and 5 after: 25 each, of which a file holds 20.
	files, err := Files(dir, "rec")
	if err != nil || len(files) != 4 {
		t.Fatalf("%v, %v", files, err)
	}
	var all []int
	for _, path := range files {
		frames, _ := contents(t, path)
		all = append(all, frames...)
	}
	slices.Sort(all)
	var want []int
	for _, from := range []int{980, 1980} {
		for n := range 25 {
			want = append(want, from+n)
		}
	}
	if !slices.Equal(all, want) {
		t.Errorf("frames %v", all)
	}
}
