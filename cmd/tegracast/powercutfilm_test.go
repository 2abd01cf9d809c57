// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/record/mp4"
)

// filmAfterCut checks the files of a film that a power cut has ended, of whose pictures a number were synced, and deletes
// them. These pictures must be there, without a gap in their numbers except for frames that the machine was too slow to
// record, as the notes say, and each file must open as it is. Only the newest may be unfinished, or empty if it was created
// within a fragment before the cut.
func filmAfterCut(t *testing.T, m *vjetson.Machine, synced int) {
	t.Helper()
	paths := takeOut(t, m, "/mnt", record.VideoExtension)
	pictures, lost, next := 0, uint64(0), uint64(0)
	for i, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		newest := i == len(paths)-1
		if newest && info.Size() == 0 {
			t.Logf("%s is empty", path)
			continue
		}
		notes, finished := notesIn(t, path)
		if !newest && !finished {
			t.Errorf("%s is not finished, and not the newest of %v", path, paths)
		}
		for _, n := range notes {
			if next > 0 && n.Frame != next+n.Lost {
				t.Errorf("%s: frame %d follows %d, and %d were not recorded", path, n.Frame, next-1, n.Lost)
			}
			next, lost = n.Frame+1, lost+n.Lost
		}
		filmOpens(t, path, len(notes), finished)
		pictures += len(notes)
	}
	if pictures < synced {
		t.Errorf("%d pictures were synced, %d are in %v", synced, pictures, paths)
	}
	t.Logf("%d pictures were synced, %d are there, in %d files; %d were not recorded", synced, pictures, len(paths), lost)
}

// notesIn returns the notes of the pictures in an MP4 file.
func notesIn(t *testing.T, path string) (notes []record.Note, finished bool) {
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
	f, err := mp4.Read(in, info.Size())
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for i := range f.Len() {
		var n record.Note
		text, err := f.Note(i)
		if err == nil {
			err = json.Unmarshal(text, &n)
		}
		if err != nil {
			t.Fatalf("%s: picture %d: %v", path, i, err)
		}
		notes = append(notes, n)
	}
	return notes, f.Finished
}

// filmOpens checks that FFmpeg and GStreamer decode at least n pictures of a file and, after its repair, exactly these.
func filmOpens(t *testing.T, path string, n int, finished bool) {
	t.Helper()
	if n == 0 {
		return // nothing is shown, and gst-launch-1.0 may hang after its error
	}
	if got := byFFprobe(t, path); got < n || finished && got > n {
		t.Errorf("%s: ffprobe decodes %d pictures, %d are whole", path, got, n)
	}
	out := filepath.Join(t.TempDir(), "gst")
	args := strings.Fields("-q filesrc location=" + path + " ! qtdemux ! jpegdec ! videoconvert ! video/x-raw,format=GRAY8 ! filesink location=" + out)
	if said, err := exec.CommandContext(t.Context(), "gst-launch-1.0", args...).CombinedOutput(); err != nil {
		t.Errorf("%s by GStreamer: %v: %s", path, err, said)
	}
	if b, err := os.ReadFile(out); err != nil || len(b) < n*160*120 || len(b)%(160*120) != 0 {
		t.Errorf("%s: GStreamer has decoded %d bytes, %d pictures are whole: %v", path, len(b), n, err)
	}
	if status, said, errw := runs(t, "record", "repair", path); status != exitOK || strings.Contains(said, "nothing to repair") != finished {
		t.Errorf("repair: status %d: %s%s", status, said, errw)
	}
	if notes, finished := notesIn(t, path); !finished || len(notes) != n || byFFprobe(t, path) != n {
		t.Errorf("%s, repaired: finished %v, %d pictures, want %d", path, finished, len(notes), n)
	}
}

// byFFprobe returns how many pictures of a file ffprobe decodes, for which any complaint is an error.
func byFFprobe(t *testing.T, path string) int {
	t.Helper()
	c := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-count_frames", "-of", "csv=p=0", "-show_entries", "stream=nb_read_frames", path)
	said, err := c.CombinedOutput()
	n, wrong := strconv.Atoi(strings.TrimSpace(string(said)))
	if err != nil || wrong != nil {
		t.Errorf("%v: %v: %s", c, err, said)
	}
	return n
}
