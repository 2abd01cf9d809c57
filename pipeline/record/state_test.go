// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// TestState checks what a recording with a trigger tells: that it waits before and after an event, and during the event
// the file, which grows to its size.
func TestState(t *testing.T) {
	dir := t.TempDir()
	states := map[int]State{}
	c := Config{Directory: dir, Window: &Window{Before: 500 * time.Millisecond, After: 500 * time.Millisecond}}
	_, err := recordStepped(t, c, 400, func(*Sink) {}, func(s *Sink, n int) {
		states[n] = s.State()
		if n == 100 {
			if err := s.Trigger(Trigger{Cause: "test"}); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(dir + "/*.mcap")
	if len(files) != 1 {
		t.Fatalf("%v", files)
	}
	info, err := os.Stat(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{90, 300} {
		if x := states[n]; !x.Waiting || x.File != "" || x.Bytes != 0 || x.Folder != dir || x.Free <= 0 {
			t.Errorf("frame %d: %+v", n, x)
		}
	}
	early, late := states[120], states[145]
	if early.Waiting || early.File != files[0] || early.Bytes <= 0 || late.Bytes <= early.Bytes || late.Bytes > info.Size() || late.Bytes < info.Size()*3/4 {
		t.Errorf("early %+v, late %+v, in the end %d bytes", early, late, info.Size())
	}
}

// TestStateDoesNotWait checks that the state does not wait for a disk that does not answer, whose free space is then not
// known.
func TestStateDoesNotWait(t *testing.T) {
	disks := &Disks{}
	s, err := New(Config{Directory: t.TempDir(), Name: "rec", Driver: storage(t), Disks: disks, Logger: slog.New(slog.DiscardHandler)}, format(t, pipeline.Grey, 64, 96))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if st := s.State(); st.Free <= 0 || st.Waiting {
		t.Errorf("%+v", st)
	}
	answered := disks.add(s.config.Directory, "a test", time.Now())
	if st := s.State(); st.Free >= 0 {
		t.Errorf("the disk hangs: %+v", st)
	}
	answered()
	s.space.mu.Lock()
	s.space.looks, s.space.asked = true, time.Now().Add(-2*statPatience) // statfs hangs
	s.space.mu.Unlock()
	if st := s.State(); st.Free >= 0 {
		t.Errorf("the look at the free space hangs: %+v", st)
	}
	if got := fmt.Sprint((&Recordings{}).State("rec")); got != "<nil>" {
		t.Error(got)
	}
}
