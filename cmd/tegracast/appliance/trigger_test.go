// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline/group"
)

// triggered counts its triggers.
type triggered struct {
	source
	triggers int
}

func (s *triggered) Trigger() error { s.triggers++; return nil }

// TestATriggerThatWaits checks that a trigger that had to wait for the flow's lock is omitted if that took too long.
func TestATriggerThatWaits(t *testing.T) {
	camera := &triggered{}
	f := &flow{name: "camera", source: camera}
	fs := &flows{list: []*flow{f}}
	if err := fs.trigger("camera", time.Now().Add(time.Hour)); err != nil || camera.triggers != 1 {
		t.Errorf("%v, %d triggers", err, camera.triggers)
	}
	f.mu.Lock()
	latest, ended := time.Now().Add(time.Millisecond), make(chan error)
	go func() { ended <- fs.trigger("camera", latest) }()
	for !time.Now().After(latest) {
		time.Sleep(time.Millisecond)
	}
	f.mu.Unlock()
	if err := <-ended; !errors.Is(err, group.ErrLate) || camera.triggers != 1 {
		t.Errorf("%v, %d triggers", err, camera.triggers)
	}
}
