// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// TestCameraReportsMissedTriggers checks that the camera reports a trigger during an exposure, which makes no frame and
// is otherwise unnoticed. It reports it by its user interrupt, both with interrupts and with polling, and also after a
// reset of the device.
func TestCameraReportsMissedTriggers(t *testing.T) {
	for _, poll := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { missesTriggers(t, newBench(t, 64, 16, faultyRate), poll, time.Second) })
	}
}

// missesTriggers triggers a camera too early, and then waits for a while.
func missesTriggers(t *testing.T, b *bench, poll bool, wait time.Duration) {
	hw := b.card.Hardware
	hw.Poll = poll
	var log lockedBuffer
	c, err := NewFPGACamera(FPGAConfig{
		Card: NewCard(hw), Width: 64, Height: 16, Pixel: pipeline.RGGB10, Triggered: true, Exposure: 5 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	frames := 0
	go func() { ended <- c.Run(ctx, func(f *pipeline.Frame) { frames++; f.Release() }) }()
	time.Sleep(wait)
	trigger := func(apart time.Duration) {
		trigger(c)
		time.Sleep(apart)
		trigger(c)
		time.Sleep(wait)
	}
	trigger(100 * time.Millisecond)
	if n := c.Status().Counters["missed_trigger"]; n != 0 {
		t.Errorf("poll %t: %d missed of those that were far apart", poll, n)
	}
	trigger(time.Millisecond)
	trigger(time.Millisecond)
	b.device.Reset()
	time.Sleep(time.Second)
	trigger(time.Millisecond)
	cancel()
	if err := <-ended; err != nil || frames != 5 {
		t.Errorf("poll %t: %d frames, %v", poll, frames, err)
	}
	said := strings.Count(log.String(), "a trigger came while a frame was being exposed, and was missed")
	if n := c.Status().Counters["missed_trigger"]; n != 3 || said != 2 { // one log line for each opening
		t.Errorf("poll %t: %d missed, logged %d times: %s", poll, n, said, log.String())
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
