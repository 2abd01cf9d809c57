// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/preview"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// watched opens a view and waits until it shows a picture.
func (s *reloads) watched(t *testing.T, name string) *preview.Watcher {
	t.Helper()
	v, err := s.pictures.openView(name)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := v.Next(t.Context(), nil); err != nil || len(p.JPEG) == 0 {
		t.Fatalf("%+v %v", p, err)
	}
	return v
}

// looks returns the number of outputs for views.
func (s *reloads) looks() (n int) {
	for _, o := range s.reports.stats().Outputs {
		if strings.HasSuffix(o.Name, " view") {
			n++
		}
	}
	return n
}

// TestViewsAndReloads checks that a view of an output that a reload reopens ends and can be opened again, that other
// views go on, and that no pictures are made without viewers.
func TestViewsAndReloads(t *testing.T) {
	var to []string
	for _, p := range rtptest.EvenPorts(t, 3) {
		to = append(to, fmt.Sprintf("127.0.0.1:%d", p))
	}
	s := startReloads(t, reloadConfig(t, to, 10, 1.5, 1500))
	one, other, third := s.watched(t, "raw1"), s.watched(t, "raw1"), s.watched(t, "raw3")
	if n := s.looks(); n != 2 {
		t.Errorf("%d outputs are looked at, want 2", n)
	}
	if _, err := s.pictures.openView("raw9"); !errors.Is(err, errNoOutput) {
		t.Error(err)
	}
	s.put(t, reloadConfig(t, to, 10, 1.5, 1400)) // raw3 is reopened
	last, err := one.Next(t.Context(), nil)
	for range 2 {
		if err != nil {
			t.Fatal(err)
		}
		last, err = one.Next(t.Context(), last)
	}
	for err = nil; err == nil; {
		_, err = third.Next(t.Context(), nil)
	}
	if !errors.Is(err, preview.ErrEnded) {
		t.Error(err)
	}
	third.Close()
	s.watched(t, "raw3").Close()
	one.Close()
	one.Close() // a second Close does nothing
	if n := s.looks(); n == 0 {
		t.Error("somebody looks still")
	}
	other.Close()
	for began := time.Now(); s.looks() > 0; time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("nobody looks, and pictures are made")
		}
	}
	s.watched(t, "raw2")
	s.end(t)
}
