// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// sliced copies a range of frames of recordings to a new recording, and inspects that.
func sliced(t *testing.T, files []string, from, to int) *Report {
	t.Helper()
	d := storage(t)
	path := filepath.Join(t.TempDir(), "slice.mcap")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	place := func(n int) (p Position) {
		if err := p.UnmarshalText([]byte(fmt.Sprint(n))); err != nil {
			t.Fatal(err)
		}
		return p
	}
	p, err := NewPlayer(t.Context(), files, place(from), place(to), d)
	if err != nil {
		t.Fatal(err)
	}
	var s *Slice
	pixels := memory(t, p.Format.Size())
	for {
		f, err := p.Next()
		if errors.Is(err, ErrEnd) {
			break
		}
		if err == nil {
			err = f.Pixels(pixels)
		}
		if err == nil && s == nil {
			s, err = NewSlice(out, f)
		}
		if err == nil {
			err = s.Add(f, pixels)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.End(), out.Close(), p.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := Inspect(t.Context(), path, true, func(float64) {})
	if err != nil || !r.Good() || !r.Finished {
		t.Fatalf("%+v, %v", r, err)
	}
	return r
}

// TestASliceHasItsSettingsAndTriggers checks that a slice contains the settings that apply to its first frame, and the
// events between its first and last frames, also after the last frame of a file and at the beginning of the next.
func TestASliceHasItsSettingsAndTriggers(t *testing.T) {
	dir := t.TempDir()
	var exposure atomic.Int64
	c := Config{
		Directory: dir, Duration: 300 * time.Millisecond, Window: &Window{Before: 100 * time.Millisecond, After: time.Hour},
		Settings: func() (Settings, bool) { return Settings{Exposure: time.Duration(exposure.Load()), Gain: 1}, true },
	}
	_, err := recordStepped(t, c, 75, func(*Sink) {}, func(s *Sink, n int) {
		if n == 14 || n == 20 || n == 50 {
			if err := s.Trigger(Trigger{Cause: fmt.Sprint(n), At: machine(n)}); err != nil {
				t.Error(err)
			}
		}
		if n == 19 {
			exposure.Store(1)
			time.Sleep(looks + looks/10) // so that the settings are read again at frame 20
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	files, err := Files(dir, "rec") // they begin at frames 4, 30 and 60
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, tt := range []struct {
		from, to           int
		settings, triggers string
	}{
		{4, 75, "0 1 1 1 ", "14 20 50 "},
		{14, 18, "0 ", "14 "},
		{15, 18, "0 ", ""},
		{18, 20, "0 ", ""},
		{25, 40, "1 1 ", ""},
		{50, 51, "1 ", "50 "},
	} {
		r := sliced(t, files, tt.from, tt.to)
		var settings, triggers string
		for _, s := range r.Settings {
			settings += fmt.Sprint(int(s.Exposure), " ")
		}
		for _, n := range r.Triggers {
			triggers += n.Cause + " "
		}
		if settings != tt.settings || triggers != tt.triggers || r.Frames != tt.to-tt.from {
			t.Errorf("frames %d to %d: %d frames, settings %s, triggers %s", tt.from, tt.to, r.Frames, settings, triggers)
		}
	}
}
