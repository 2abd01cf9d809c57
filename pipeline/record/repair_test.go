// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRepair cuts a recording everywhere. Repair gives it its end, loses no frame and changes no record, and a second
// time it changes nothing.
func TestRepair(t *testing.T) {
	d := disk(t)
	path, _ := smallRecording(t, d)
	b := read(t, path)
	for at := len(b) - 1; at >= page; at -= stride(397) {
		write(t, path, b[:at])
		want, _, _ := plays(path, d)
		r, err := Repair(t.Context(), path)
		if err != nil || r.Finished || r.Left > 0 {
			t.Fatalf("cut at %d: %+v, %v", at, r, err)
		}
		got, lost, _ := plays(path, d)
		after := read(t, path)
		if keep := at - int(r.Cut); !maps.Equal(got, want) || lost != nil || !bytes.Equal(after[:keep], b[:keep]) {
			t.Fatalf("cut at %d: %d frames of %d, %v", at, len(got), len(want), lost)
		}
		report, err := Inspect(t.Context(), path, true, func(float64) {})
		if err != nil || !report.Good() || !report.Finished || report.Frames != len(want) {
			t.Fatalf("cut at %d: %+v, %v", at, report, err)
		}
		if again, err := Repair(t.Context(), path); err != nil || !again.Finished || !bytes.Equal(read(t, path), after) {
			t.Fatalf("cut at %d: %+v, %v", at, again, err)
		}
	}
}

// TestDamageInsideIsNotRepaired checks that a file that is damaged before its end stays as it is: by a hole, or by one
// wrong bit that turns a chunk into the end of the data.
func TestDamageInsideIsNotRepaired(t *testing.T) {
	path, _ := smallRecording(t, disk(t))
	b := read(t, path)
	r, err := OpenReader(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	second, last := r.Chunks[2], r.Chunks[len(r.Chunks)-1]
	hole, ended, footed := bytes.Clone(b[:last.Offset]), bytes.Clone(b[:last.Offset]), bytes.Clone(b[:last.Offset])
	clear(hole[second.Offset : second.Offset+100])
	ended[second.Offset], footed[second.Offset] = byte(mcap.OpDataEnd), byte(mcap.OpFooter)
	short := bytes.Clone(b[:r.Chunks[4].Offset])
	clear(short[r.Chunks[0].Offset/2 : r.Chunks[0].Offset/2+100]) // among schemas, channels and attachments
	for name, b := range map[string][]byte{"a hole": hole, "an end": ended, "a footer": footed, "a head": short} {
		write(t, path, b)
		if did, err := Repair(t.Context(), path); !errors.Is(err, mcap.ErrDamaged) {
			t.Errorf("%s: %+v, %v", name, did, err)
		}
		if !bytes.Equal(read(t, path), b) {
			t.Errorf("%s: the file was changed", name)
		}
		if report, err := Inspect(t.Context(), path, true, func(float64) {}); err != nil || report.Good() || report.Frames < len(r.Chunks)-4 && name != "a head" {
			t.Errorf("%s: %+v, %v", name, report, err)
		}
	}
	write(t, path, nil)
	if did, err := Repair(t.Context(), path); !errors.Is(err, errNothing) {
		t.Errorf("an empty file: %+v, %v", did, err)
	}
}

// TestOthersReadARepairedRecording checks that @mcap/core reads it by its index and from its beginning, also if there
// was a frame with a wrong checksum, and gets the messages that this package has.
func TestOthersReadARepairedRecording(t *testing.T) {
	if _, err := os.Stat("testdata/core/node_modules/@mcap/core"); err != nil {
		t.Skip("NEEDS @mcap/core, which make setup-test installs")
	}
	path, _ := smallRecording(t, disk(t))
	b := read(t, path)
	r, err := OpenReader(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	second, last := r.Chunks[2], r.Chunks[len(r.Chunks)-1]
	wrong := bytes.Clone(b)
	wrong[second.Offset+second.Length-200] ^= 1
	third := r.Chunks[len(r.Chunks)-3] // written at the same time as the last two, of which one may have been done first
	torn := bytes.Clone(b[:last.Offset+last.Length])
	clear(torn[third.Offset : third.Offset+4096])
	headless := bytes.Clone(b[:last.Offset+last.Length])
	clear(headless[last.Offset : last.Offset+4096])
	for name, test := range map[string]struct {
		b    []byte
		want Repaired
	}{
		"within a frame":            {b[:last.Offset+100], Repaired{Chunks: len(r.Chunks) - 1, Cut: 100}},
		"behind a frame":            {b[:last.Offset+last.Length], Repaired{Chunks: len(r.Chunks)}},
		"within a message index":    {b[:last.Offset+last.Length+40], Repaired{Chunks: len(r.Chunks)}},
		"with a wrong frame":        {wrong[:last.Offset], Repaired{Chunks: len(r.Chunks) - 2, Left: 1}},
		"with a torn frame before":  {torn, Repaired{Chunks: len(r.Chunks) - 1, Skipped: r.Chunks[len(r.Chunks)-2].Offset - third.Offset}},
		"with a headless frame":     {headless, Repaired{Chunks: len(r.Chunks) - 1, Cut: last.Length}},
		"with trailing zeros":       {append(bytes.Clone(b[:last.Offset]), make([]byte, 9000)...), Repaired{Chunks: len(r.Chunks) - 1, Cut: 9000}},
		"with an index of its own":  {b[:len(b)-len(mcap.Magic)], Repaired{}},
		"with a damaged own index ": {append(bytes.Clone(b[:len(b)-9]), append([]byte{b[len(b)-9] ^ 1}, b[len(b)-8:]...)...), Repaired{}},
	} {
		write(t, path, test.b)
		did, err := Repair(t.Context(), path)
		if test.want.Chunks == 0 {
			test.want.Chunks, test.want.Cut = len(r.Chunks), did.Cut
		}
		if name == "within a message index" {
			test.want.Cut = did.Cut
		}
		if err != nil || did != test.want {
			t.Errorf("%s: %+v, %v", name, did, err)
		}
		want, chunks := ours(t, path)
		got := core(t, path)
		if got.Indexed == nil || len(got.Warnings) > 0 || got.Indexed.Chunks != chunks || chunks != test.want.Chunks || got.Indexed.Statistics != len(want) {
			t.Errorf("%s: %+v of %d", name, got, chunks)
			continue
		}
		slices.Sort(got.Indexed.Messages)
		slices.Sort(got.Streamed.Messages)
		if !slices.Equal(got.Indexed.Messages, want) || did.Left == 0 && (!slices.Equal(got.Streamed.Messages, want) || !got.Streamed.Done) {
			t.Errorf("%s: %d and %d messages of %d", name, len(got.Indexed.Messages), len(got.Streamed.Messages), len(want))
		}
		if list := goReader(t, path, true); !slices.Equal(list, want) {
			t.Errorf("%s: Go reads %d messages of %d", name, len(list), len(want))
		}
	}
}

// TestAFileBeingWrittenIsNotRepaired checks files that a recording or another program has open.
func TestAFileBeingWrittenIsNotRepaired(t *testing.T) {
	path, _ := smallRecording(t, disk(t))
	b := read(t, path)
	b = b[:len(b)-1]
	write(t, path, b)
	foreign, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Repair(t.Context(), path); !errors.Is(err, ErrWritten) {
		t.Errorf("open for writing: %v", err)
	}
	if err := foreign.Close(); err != nil {
		t.Fatal(err)
	}
	locked, err := os.Open(path)
	if err == nil {
		err = unix.Flock(int(locked.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Repair(t.Context(), path); !errors.Is(err, ErrWritten) {
		t.Errorf("locked: %v", err)
	}
	if err := locked.Close(); err != nil || !bytes.Equal(read(t, path), b) {
		t.Errorf("the file was changed, %v", err)
	}
	own, err := create(filepath.Join(t.TempDir(), "own.mcap"))
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	again, err := os.Open(own.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := unix.Flock(int(again.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("a recording does not lock its file: %v", err)
	}
}

// TestARepairOnAFullDiskChangesNothing fills the disk.
func TestARepairOnAFullDiskChangesNothing(t *testing.T) {
	recorded := t.TempDir()
	if _, err := record(t, Config{Directory: recorded}, format(t, pipeline.Grey, 32, 16), 60, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	paths, err := Files(recorded, "rec")
	if err != nil || len(paths) != 1 {
		t.Fatal(paths, err)
	}
	path := paths[0]
	b := read(t, path)
	write(t, path, b[:len(b)-1])
	report, err := Inspect(t.Context(), path, false, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	b = append(b[:report.Readable], bytes.Repeat([]byte{0xff}, 100)...) // a torn record
	dir := small(t, "size=2m")
	there := filepath.Join(dir, "x.mcap")
	write(t, there, b)
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for err == nil {
		_, err = filler.Write(make([]byte, page))
	}
	info, err := filler.Stat()
	if err == nil {
		err = filler.Truncate(info.Size() - page) // a page is free, the end needs more
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Repair(t.Context(), there); !errors.Is(err, unix.ENOSPC) || !bytes.Equal(read(t, there), b) {
		t.Errorf("%v, %d bytes of %d", err, len(read(t, there)), len(b))
	}
	if err := os.Remove(filler.Name()); err != nil {
		t.Fatal(err)
	}
	if err := filler.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if r, err := Repair(t.Context(), there); err != nil || r.Finished {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestTheNextRecordingEndsEarlierFiles checks that a recording repairs the files of its name that nobody writes.
func TestTheNextRecordingEndsEarlierFiles(t *testing.T) {
	path, want := smallRecording(t, disk(t))
	dir, b := filepath.Dir(path), read(t, path)
	b = b[:len(b)-1]
	other, written := filepath.Join(dir, "other-20261124T063302933Z.mcap"), filepath.Join(dir, "rec-20201124T063302933Z.mcap")
	for _, p := range []string{path, other, written} {
		write(t, p, b)
	}
	writer, err := os.OpenFile(written, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if _, err := record(t, Config{Directory: dir}, format(t, pipeline.Grey, 32, 16), 400, 5*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	report, err := Inspect(t.Context(), path, true, func(float64) {})
	if err != nil || !report.Finished || report.Frames != len(want) || !report.Good() {
		t.Errorf("%+v, %v", report, err)
	}
	if !bytes.Equal(read(t, other), b) || !bytes.Equal(read(t, written), b) {
		t.Error("a file of another output, or one that is being written, was changed")
	}
}
