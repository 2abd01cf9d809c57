// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cudahost/cufile/hangtest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record/mp4"
)

// Parameter sets of pictures of 1920x1080 pixels.
var (
	testSPS = []byte{
		0x67, 0x42, 0xc0, 0x28, 0xd9, 0x00, 0x78, 0x02, 0x27, 0xe5, 0x84, 0x00, 0x00, 0x03, 0x00, 0x04, 0x00, 0x00, 0x03, 0x00, 0xf0, 0x3c, 0x60, 0xc9, 0x20,
	}
	testPPS = []byte{0x68, 0xce, 0x38, 0x80}
)

const (
	testGroup  = 10                    // pictures from one key frame to the next
	testPeriod = 40 * time.Millisecond // of the pictures
)

var testBegin = time.Date(2026, 11, 24, 6, 33, 2, 933e6, time.UTC)

// testUnit returns an access unit whose slice contains n, which an encoder could not have made but a recorder keeps.
func testUnit(n uint64, key bool) []byte {
	start := []byte{0, 0, 0, 1}
	slice := append([]byte{0x41, 0x9a}, bytes.Repeat([]byte{byte(n) | 1}, 1000)...)
	if !key {
		return append(start, slice...)
	}
	slice[0] = 0x65
	return bytes.Join([][]byte{nil, testSPS, testPPS, slice}, start)
}

// offer offers picture n to v, as the encoder's nth.
func offer(v *Video, n uint64) {
	f := &pipeline.Frame{Sequence: 1000 + n}
	f.Times.Captured = testBegin.Add(time.Duration(n) * testPeriod)
	f.Results = []pipeline.Result{{Stage: "motion", Numbers: map[string]float64{"moving": float64(n)}}}
	key := n%testGroup == 0
	v.Take(f, testUnit(n, key), key)
}

func startVideo(t *testing.T, c VideoConfig) *Video {
	t.Helper()
	c.Name, c.Width, c.Height = "rec", 1920, 1080
	if c.Sync == 0 {
		c.Sync = 5 * testPeriod
	}
	v := NewVideo(c)
	t.Cleanup(func() { _ = v.Close() })
	return v
}

// videoFiles returns the frame numbers of each file, after checking that the file begins with a key frame, and that
// pictures, times and notes belong together.
func videoFiles(t *testing.T, dir string) (all [][]uint64) {
	t.Helper()
	paths, err := filesOf(dir, "rec", VideoExtension)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := mp4.Read(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		var numbers []uint64
		for i := range f.Len() {
			var n Note
			text, err := f.Note(i)
			if err == nil {
				err = json.Unmarshal(text, &n)
			}
			if err != nil {
				t.Fatalf("%s: picture %d: %v", path, i, err)
			}
			numbers = append(numbers, n.Frame)
			info := f.Info(i)
			at := testBegin.Add(time.Duration(n.Frame-1000) * testPeriod)
			if info.Key != (n.Frame%testGroup == 0) || info.At.Sub(at).Abs() > time.Millisecond || n.Results[0].Numbers["moving"] != float64(n.Frame-1000) {
				t.Errorf("%s: picture %d: %+v, note %+v", path, i, info, n)
			}
		}
		if len(numbers) == 0 || numbers[0]%testGroup != 0 {
			t.Errorf("%s begins with frame %v", path, numbers)
		}
		all = append(all, numbers)
	}
	return all
}

// sequence reports whether list contains the numbers from first to last.
func sequence(list []uint64, first, last uint64) bool {
	for i, n := range list {
		if n != first+uint64(i) {
			return false
		}
	}
	return uint64(len(list)) == last-first+1
}

// TestVideoFiles checks that files split at key frames when they are long enough, and together have every picture.
func TestVideoFiles(t *testing.T) {
	var told []News
	dir := t.TempDir()
	v := startVideo(t, VideoConfig{Directory: dir, Duration: 25 * testPeriod, Told: func(n News) { told = append(told, n) }})
	for n := range uint64(95) {
		offer(v, n)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	files := videoFiles(t, dir)
	if len(files) != 4 || !sequence(files[0], 1000, 1029) || !sequence(files[1], 1030, 1059) || !sequence(files[2], 1060, 1089) || !sequence(files[3], 1090, 1094) {
		t.Errorf("%v", files)
	}
	if len(told) != 4 || v.frames.Load() != 95 || v.missed.Load() != 0 {
		t.Errorf("told %v; %d recorded, %d missed", told, v.frames.Load(), v.missed.Load())
	}
}

// TestVideoSkipsWhatRefersToAMissingPicture checks that after a gap only a key frame is recorded, and that the note says
// how many are missing.
func TestVideoSkipsWhatRefersToAMissingPicture(t *testing.T) {
	dir := t.TempDir()
	v := startVideo(t, VideoConfig{Directory: dir})
	for n := uint64(3); n < 15; n++ { // the first ones refer to a picture before them
		offer(v, n)
	}
	v.mu.Lock()
	v.gap = true // picture 15
	v.mu.Unlock()
	for n := uint64(16); n < 25; n++ {
		offer(v, n)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	files := videoFiles(t, dir)
	want := []uint64{1010, 1011, 1012, 1013, 1014, 1020, 1021, 1022, 1023, 1024}
	if len(files) != 1 || len(files[0]) != len(want) || files[0][5] != 1020 || v.missed.Load() != 7+4 {
		t.Errorf("%v, %d missed", files, v.missed.Load())
	}
	if r, err := Inspect(t.Context(), onlyVideo(t, dir), true, func(float64) {}); err != nil || r.Lost != 5 || r.Frames != 10 || r.Checked != 10 {
		t.Errorf("%+v, %v", r, err)
	}
}

// onlyVideo returns the path of the only recording in a folder.
func onlyVideo(t *testing.T, dir string) string {
	t.Helper()
	paths, err := filesOf(dir, "rec", VideoExtension)
	if err != nil || len(paths) != 1 {
		t.Fatalf("%v, %v", paths, err)
	}
	return paths[0]
}

// TestVideoTriggers checks that a file has the pictures from before the trigger, from the key frame before them, to after
// it, and that a second trigger soon after leaves no gap.
func TestVideoTriggers(t *testing.T) {
	dir := t.TempDir()
	v := startVideo(t, VideoConfig{Directory: dir, Window: &Window{
		Before: 12 * testPeriod, After: 5 * testPeriod, Result: &Condition{Stage: "motion", Number: "moving", Above: 198.5},
	}})
	trigger := func(n uint64) {
		t.Helper()
		if err := v.Trigger(Trigger{Cause: "test", At: testBegin.Add(time.Duration(n) * testPeriod)}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range uint64(210) {
		switch n {
		case 50, 60, 120: // 50 is late by four pictures
			for v.queued.Load() > 0 { // what was offered has been taken
				time.Sleep(time.Millisecond)
			}
			trigger(min(n, n-4*(60-n)/10))
		}
		offer(v, n)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	files := videoFiles(t, dir)
	if len(files) != 4 {
		t.Fatalf("%v", files)
	}
	for i, want := range [][2]uint64{{1030, 1051}, {1050, 1065}, {1100, 1125}, {1180, 1209}} {
		if !sequence(files[i], want[0], want[1]) {
			t.Errorf("file %d has %v, want %v", i, files[i], want)
		}
	}
}

// taken waits until the recorder has taken what was offered.
func taken(t *testing.T, v *Video) {
	t.Helper()
	await(t, func() bool { return len(v.queue) == 0 })
}

// triggersIn returns the frame numbers of the triggers in a file, as record info has them.
func triggersIn(t *testing.T, path string) (list []uint64) {
	t.Helper()
	r, err := Inspect(t.Context(), path, false, func(float64) {})
	if err != nil || !r.Good() {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, n := range r.Triggers {
		list = append(list, n.Frame)
	}
	return list
}

// TestVideoTriggersThatComeLate checks that each file has the notes of its triggers, and that a further trigger that is
// late, whose pictures begin before those of the event, has all of them in a file, but none twice that an earlier event
// has.
func TestVideoTriggersThatComeLate(t *testing.T) {
	for _, format := range []string{VideoExtension, Extension} {
		var told []News
		dir := t.TempDir()
		v := startVideo(t, VideoConfig{
			Directory: dir, Source: "camera", MCAP: format == Extension, Told: func(n News) { told = append(told, n) },
			Window: &Window{Before: 12 * testPeriod, After: 5 * testPeriod},
		})
		trigger := func(n uint64) {
			t.Helper()
			taken(t, v)
			if err := v.Trigger(Trigger{Cause: "test", At: testBegin.Add(time.Duration(n) * testPeriod)}); err != nil {
				t.Fatal(err)
			}
		}
		for n := range uint64(120) {
			switch n {
			case 64: // 1050 to 1067, then 1030 to 1072
				trigger(62)
			case 67:
				trigger(47)
			case 90: // 1078, from the key frame 1070 on, to 1095; then from 1068, that is 1060, on, in a file of their own
				trigger(90)
			case 91:
				trigger(80)
			}
			offer(v, n)
		}
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
		paths, err := filesOf(dir, "rec", format)
		if err != nil || len(paths) != 4 {
			t.Fatalf("%v, %v", paths, err)
		}
		for i, want := range []struct {
			first, last uint64
			triggers    []uint64
		}{{1050, 1066, []uint64{1064}}, {1030, 1067, []uint64{1067, 1064}}, {1070, 1090, []uint64{1090}}, {1060, 1095, []uint64{1091, 1090}}} {
			if format == VideoExtension && !sequence(videoFiles(t, dir)[i], want.first, want.last) {
				t.Errorf("file %d has %v, want %d to %d", i, videoFiles(t, dir)[i], want.first, want.last)
			}
			if got := triggersIn(t, paths[i]); !slices.Equal(got, want.triggers) {
				t.Errorf("%s %d: triggers %v, want %v", format, i, got, want.triggers)
			}
		}
		reported := 0
		for _, n := range told {
			if n.Trigger != nil {
				reported++
			}
		}
		if reported != 4 {
			t.Errorf("%s: %d triggers were reported", format, reported)
		}
	}
}

// TestVideoKeepsALimitedNumberOfBytes checks that pictures before a trigger that are too many are dropped from the oldest
// on, and that this is logged once.
func TestVideoKeepsALimitedNumberOfBytes(t *testing.T) {
	dir, log := t.TempDir(), &lines{}
	v := startVideo(t, VideoConfig{
		Directory: dir, Window: &Window{Before: 100 * testPeriod}, limits: videoLimits{kept: 35_000}, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	for n := range uint64(98) {
		offer(v, n)
	}
	taken(t, v)
	if err := v.Trigger(Trigger{Cause: "test"}); err != nil {
		t.Fatal(err)
	}
	offer(v, 98)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if files := videoFiles(t, dir); len(files) != 1 || !sequence(files[0], 1070, 1098) && !sequence(files[0], 1060, 1098) {
		t.Errorf("%v", files)
	}
	if n := strings.Count(log.String(), "not all pictures before a trigger can be kept"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log)
	}
}

// TestVideoFilesHaveALimitedNumberOfPictures checks that the next file begins at a key frame when a file has as many
// pictures as a reader takes.
func TestVideoFilesHaveALimitedNumberOfPictures(t *testing.T) {
	dir := t.TempDir()
	v := startVideo(t, VideoConfig{Directory: dir, limits: videoLimits{pictures: 25}})
	for n := range uint64(95) {
		offer(v, n)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	files := videoFiles(t, dir)
	if len(files) != 4 || !sequence(files[0], 1000, 1029) || !sequence(files[3], 1090, 1094) || v.missed.Load() != 0 {
		t.Errorf("%v, %d missed", files, v.missed.Load())
	}
}

// TestVideoFragmentsHaveALimitedSize checks that pictures do not gather without a limit while a fragment is short in
// time.
func TestVideoFragmentsHaveALimitedSize(t *testing.T) {
	dir := t.TempDir()
	v := startVideo(t, VideoConfig{Directory: dir, Codec: mp4.JPEG, Sync: time.Hour})
	f, picture := &pipeline.Frame{}, make([]byte, maxFragment/4)
	for n := range uint64(9) {
		f.Sequence = n
		f.Times.Captured = testBegin.Add(time.Duration(n) * testPeriod)
		await(t, func() bool { return v.queued.Load() < maxQueued/2 })
		v.Take(f, picture, true)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(onlyVideo(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if f, err := mp4.Read(in, info.Size()); err != nil || f.Len() != 9 || f.Fragments() != 3 {
		t.Errorf("%d pictures in %d fragments, %v", f.Len(), f.Fragments(), err)
	}
}

// TestVideoOnAFullDisk checks that the file keeps its whole fragments, that the recording goes on when there is room,
// and that with DeleteOldest it never stops.
func TestVideoOnAFullDisk(t *testing.T) {
	dir := small(t, "size=100k")
	log := &lines{}
	v := startVideo(t, VideoConfig{Directory: dir, Logger: slog.New(slog.NewTextHandler(log, nil))})
	for n := range uint64(200) { // 200 kB
		offer(v, n)
	}
	await(t, func() bool { return strings.Contains(log.String(), ErrFull.Error()) })
	if st := v.State(); !strings.Contains(st.Error, ErrFull.Error()) {
		t.Errorf("%+v", st)
	}
	files := videoFiles(t, dir)
	if len(files) != 1 || len(files[0]) < 50 || len(files[0])%5 != 0 {
		t.Errorf("%v", files)
	}
	paths, _ := filesOf(dir, "rec", VideoExtension)
	if len(paths) != 1 {
		t.Errorf("a file without pictures has stayed: %v", paths)
	}
	if err := os.Remove(paths[0]); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { offer(v, 200); list, _ := filesOf(dir, "rec", VideoExtension); return len(list) == 1 })
	if err := v.Close(); err != nil && !errors.Is(err, ErrFull) {
		t.Error(err)
	}

	dir = small(t, "size=100k")
	v = startVideo(t, VideoConfig{Directory: dir, Duration: testGroup * testPeriod, DeleteOldest: true})
	for n := range uint64(500) {
		offer(v, n)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	files = videoFiles(t, dir)
	if len(files) < 5 || v.frames.Load() != 500 || files[len(files)-1][testGroup-1] != 1499 {
		t.Errorf("%d recorded, in %v", v.frames.Load(), files)
	}
}

// await waits until done returns true, at most a minute.
func await(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within a minute")
		}
	}
}

// TestVideoOnADiskThatHangs checks that a hanging disk delays neither Take nor Close for long, is reported, and costs
// only pictures that do not fit the queue.
func TestVideoOnADiskThatHangs(t *testing.T) {
	disk, disks, log := hangtest.Mount(t), &Disks{}, &lines{}
	v := startVideo(t, VideoConfig{Directory: disk.Dir, Disks: disks, Logger: slog.New(slog.NewTextHandler(log, nil))})
	offer(v, 0)
	await(t, func() bool { return v.files.Load() == 1 })
	disk.Hang(t)
	for n := uint64(1); n < 100; n++ {
		offer(v, n)
	}
	if err := v.Close(); !errors.Is(err, ErrHangs) {
		t.Errorf("Close: %v", err)
	}
	disk.Answer(t)
	<-v.ended
	if files := videoFiles(t, disk.Dir); len(files) != 1 || !sequence(files[0], 1000, 1099) {
		t.Errorf("%v\n%s", files, log)
	}
}

// TestVideoReportsADiskThatHangs checks that a disk that does not answer is in the log, the state and the list of hanging
// disks, and no longer when it answers again, with all pictures recorded.
func TestVideoReportsADiskThatHangs(t *testing.T) {
	disk, disks, log := hangtest.Mount(t), &Disks{}, &lines{}
	v := startVideo(t, VideoConfig{
		Directory: disk.Dir, Disks: disks, Logger: slog.New(slog.NewTextHandler(log, nil)), limits: videoLimits{patience: 200 * time.Millisecond},
	})
	offer(v, 0)
	await(t, func() bool { return v.files.Load() == 1 })
	disk.Hang(t)
	for n := uint64(1); n < 50; n++ {
		offer(v, n)
	}
	await(t, func() bool { return strings.Contains(log.String(), "the disk hangs") })
	if st := v.State(); st.Error != ErrHangs.Error() || !disks.Hanging() || !errors.Is(disks.Hang(disk.Dir), ErrHangs) {
		t.Errorf("%+v, %v", st, disks.Hang(disk.Dir))
	}
	disk.Answer(t)
	await(t, func() bool { return strings.Contains(log.String(), "the disk answers again") })
	if st := v.State(); st.Error != "" || disks.Hanging() {
		t.Errorf("%+v, %v", st, disks.Hang(disk.Dir))
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	if files := videoFiles(t, disk.Dir); len(files) != 1 || !sequence(files[0], 1000, 1049) || strings.Count(log.String(), "the disk hangs") != 1 {
		t.Errorf("%v\n%s", files, log)
	}
}

// TestVideoWaitsForTheOneBefore checks that a recording that begins while the disk hangs, and one of the same name is not
// closed, takes pictures, and begins its file when the other one has ended, so that both files are in the index.
func TestVideoWaitsForTheOneBefore(t *testing.T) {
	disk, disks := hangtest.Mount(t), &Disks{}
	first := startVideo(t, VideoConfig{Directory: disk.Dir, Disks: disks})
	offer(first, 0)
	await(t, func() bool { return first.files.Load() == 1 })
	disk.Hang(t)
	offer(first, testGroup)
	if err := first.Close(); !errors.Is(err, ErrHangs) {
		t.Errorf("Close: %v", err)
	}
	second := startVideo(t, VideoConfig{Directory: disk.Dir, Disks: disks})
	offer(second, 2*testGroup)
	await(t, func() bool { return strings.Contains(second.State().Error, "the recording rec waits") })
	second.index.mu.Lock()
	if second.files.Load() > 0 || second.index.ranks != nil {
		t.Errorf("%d files have begun, the index is %v", second.files.Load(), second.index.ranks)
	}
	second.index.mu.Unlock()
	disk.Answer(t)
	<-first.ended
	await(t, func() bool { return second.files.Load() == 1 })
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if files := videoFiles(t, disk.Dir); len(files) != 2 || len(files[0]) != 2 || len(files[1]) != 1 || disks.Hanging() {
		t.Errorf("%v", files)
	}
	if list, err := second.own(); err != nil || len(list) != 2 {
		t.Errorf("the index has %v, %v", list, err)
	}
}

// recordedVideo records the first pictures in a file, and returns its path and its content.
func recordedVideo(t *testing.T, pictures uint64) (path string, whole []byte, f *mp4.File) {
	t.Helper()
	dir := t.TempDir()
	v := startVideo(t, VideoConfig{Directory: dir})
	for n := range pictures {
		offer(v, n)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	path = onlyVideo(t, dir)
	whole, err := os.ReadFile(path)
	if err == nil {
		f, err = mp4.Read(bytes.NewReader(whole), int64(len(whole)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return path, whole, f
}

// TestVideoDamagedInsideIsNotRepaired checks that a repair does not cut off fragments behind a damaged one, nor behind the
// end of a finished file, nor touches an MP4 file of another program.
func TestVideoDamagedInsideIsNotRepaired(t *testing.T) {
	_, whole, f := recordedVideo(t, 40)
	damaged := bytes.Clone(whole)
	second := bytes.Index(damaged[f.Info(0).Offset:], []byte("moof")) + int(f.Info(0).Offset)
	copy(damaged[second-4:], "\xff\xff\xff\xff") // the size of the box
	first := bytes.Index(whole, []byte("moof"))
	for name, content := range map[string][]byte{
		"finished": damaged, "not finished": damaged[:f.Whole], "torn": damaged[:f.Whole-100],
		"another program's": bytes.ReplaceAll(whole[:f.Whole-100], []byte("emsg"), []byte("free")),
		"without a picture": whole[:first+2000], "empty": nil,
	} {
		path := filepath.Join(t.TempDir(), "x.mp4")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := Repair(t.Context(), path); err == nil {
			t.Errorf("%s: repaired: %+v", name, r)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, content) {
			t.Errorf("%s: the file has changed (%v)", name, err)
		}
	}
}

// TestVideoDamageIsReported checks what Inspect and Clip say of damaged files, and of files of other programs.
func TestVideoDamageIsReported(t *testing.T) {
	_, whole, f := recordedVideo(t, 40)
	second := bytes.Index(whole[f.Info(0).Offset:], []byte("moof")) + int(f.Info(0).Offset)
	note := bytes.Index(whole[f.Info(20).Offset:], []byte(`{"frame"`)) + int(f.Info(20).Offset)
	change := func(at int, text string) []byte {
		b := bytes.Clone(whole)
		copy(b[at:], text)
		return b
	}
	for name, c := range map[string]struct {
		content []byte
		says    string
		clip    bool // the clip has it, too
		hole    int64
	}{
		"a fragment without its table":    {change(second, "xoof"), "frames that were recorded between 1004 and 1010 cannot be found (5)", true, 0},
		"a table without end":             {change(second-4, "\xff\xff\xff\xff"), "from byte", false, 0},
		"one in a file that is not ended": {change(second-4, "\xff\xff\xff\xff")[:f.Whole], "from byte", false, 0},
		"a note":                          {change(note, "x"), "the note of picture 25 is damaged", true, 0},
		"another program's":               {bytes.ReplaceAll(whole, []byte("emsg"), []byte("free")), "it is not a recording", true, 0},
		"whole":                           {whole, "", true, 0},
		"cut":                             {whole[:len(whole)-2000], "", true, 0},
		"a hole behind it":                {whole, "from byte", false, 5 << 30},
	} {
		path := filepath.Join(t.TempDir(), "x.mp4")
		err := os.WriteFile(path, c.content, 0o600)
		if err == nil && c.hole > 0 {
			err = os.Truncate(path, c.hole)
		}
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		if r, err := Inspect(t.Context(), path, true, func(float64) {}); err != nil {
			said = append(said, err.Error())
		} else if said = r.Wrong; r.Trouble != "" {
			said = append(said, r.Trouble)
		}
		if text := strings.Join(said, "; "); (c.says == "") != (text == "") || !strings.Contains(text, c.says) || len(said) > 1 {
			t.Errorf("%s: Inspect: %s, want %q", name, text, c.says)
		}
		var missing []error
		if clip, err := OpenVideo(path, Position{}, Position{}); err != nil {
			missing = append(missing, err)
		} else {
			missing = clip.Missing()
			if err := clip.Close(); err != nil {
				t.Error(err)
			}
		}
		want := c.says
		if !c.clip {
			want = ""
		}
		if text := fmt.Sprint(missing); (want == "") != (len(missing) == 0) || !strings.Contains(text, want) || len(missing) > 1 {
			t.Errorf("%s: Clip: %s, want %q", name, text, want)
		}
	}
}

// TestVideoIsRepaired checks that a file of a process that was killed is the same, after the next recording has begun, as
// one that was ended after its last whole fragment, wherever it is cut.
func TestVideoIsRepaired(t *testing.T) {
	path, whole, f := recordedVideo(t, 20)
	dir := filepath.Dir(path)
	for _, c := range []struct {
		length int64
		frames int
	}{{f.Whole, 20}, {f.Whole + 3, 20}, {f.Whole - 1, 15}, {f.Whole / 2, 5}} {
		if err := os.WriteFile(path, whole[:c.length], 0o600); err != nil {
			t.Fatal(err)
		}
		v := startVideo(t, VideoConfig{Directory: dir})
		await(t, func() bool { return hasEnd(path) })
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
		if files := videoFiles(t, dir); len(files) != 1 || len(files[0]) != c.frames {
			t.Errorf("cut to %d bytes of %d: %v", c.length, len(whole), files)
		}
		repaired, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if c.frames == 20 && !bytes.Equal(repaired, whole) {
			t.Errorf("cut to %d bytes of %d: the repaired file is another one", c.length, len(whole))
		}
	}
}

// TestVideoWritesWhatHasComeOfAStreamThatStops checks that all pictures are in the file although none comes that would
// complete their fragment, and that the recording goes on with the next one.
func TestVideoWritesWhatHasComeOfAStreamThatStops(t *testing.T) {
	dir := t.TempDir()
	v := startVideo(t, VideoConfig{Directory: dir})
	for n := range uint64(3) {
		offer(v, n)
	}
	await(t, func() bool { return v.frames.Load() == 3 })
	for n := uint64(3); n < 20; n++ {
		offer(v, n)
	}
	await(t, func() bool { return v.frames.Load() == 20 })
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if files := videoFiles(t, dir); len(files) != 1 || !sequence(files[0], 1000, 1019) {
		t.Errorf("%v", files)
	}
}

// TestVideoWithoutAPictureIsDeleted checks that the next recording deletes a file whose first fragment is not whole, but not
// a file of the same kind that is in no list of its own.
func TestVideoWithoutAPictureIsDeleted(t *testing.T) {
	_, whole, _ := recordedVideo(t, 20)
	for _, n := range []int{0, bytes.Index(whole, []byte("moof")) + 2000} {
		mine, _, _ := recordedVideo(t, 20)
		other := filepath.Join(filepath.Dir(mine), "rec-20200101T000000000Z.mp4")
		for _, p := range []string{mine, other} {
			if err := os.WriteFile(p, whole[:n], 0o600); err != nil {
				t.Fatal(err)
			}
		}
		v := startVideo(t, VideoConfig{Directory: filepath.Dir(mine)})
		await(t, func() bool { _, err := os.Stat(mine); return errors.Is(err, fs.ErrNotExist) })
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(other); err != nil || !bytes.Equal(b, whole[:n]) {
			t.Errorf("a file of someone else with %d bytes: %v", n, err)
		}
	}
}
