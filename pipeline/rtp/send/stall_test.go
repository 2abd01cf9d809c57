// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// stalledStream streams frames at a real rate to a destination, next to one that accepts no data if stalled is true,
// and returns the median latency.
func stalledStream(t *testing.T, frames, fps int, stalled bool) (time.Duration, error) {
	t.Helper()
	_, healthy := listener(t) // need not be read: packets that do not fit into its socket are lost there
	_, addr := listener(t)
	dests := []string{healthy}
	if stalled {
		dests = append(dests, addr)
	}
	f := rtptest.Format(t, pipeline.UYVY, 320, 240, fps)
	s := testSink(t, Config{Destinations: dests}, f)
	if stalled {
		stall(t, (*s.sender.dests.Load())[1])
	}
	src := rtptest.NewSource(t, f, frames)
	close(src.Ready)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	books := rtptest.Run(t, ctx, src, s)
	got := s.Stats().Destinations
	if books.Delivered != uint64(frames) || got[0].Frames != uint64(frames) || got[0].Cut != 0 {
		return 0, fmt.Errorf("stalled %v: delivered %d of %d, %v, dropped %v", stalled, books.Delivered, frames, got[0], books.Dropped)
	}
	if stalled && got[1].Cut != uint64(frames) {
		return 0, fmt.Errorf("the stalled destination: %v", got[1])
	}
	return books.Latency.P50, nil
}

// A destination that accepts no data costs the other one no frames and hardly any time. Other load on the machine slows
// down both, and then the test is repeated.
func TestAStalledDestinationDelaysNobody(t *testing.T) {
	const frames, fps = 100, 60
	rtptest.Need(t, rtptest.Tries(t, func() error {
		alone, err := stalledStream(t, frames, fps, false)
		if err != nil {
			return err
		}
		beside, err := stalledStream(t, frames, fps, true)
		if err == nil && beside > alone+time.Second/fps/4 {
			err = fmt.Errorf("median latency %v beside a stalled destination, %v alone", beside, alone)
		}
		return err
	}))
}

// When all destinations that are late were already late in the previous frame, the frame ends with its schedule. The
// quickest of several frames is decisive, because a busy machine makes them longer, never shorter.
func TestNobodyWaitsForTheLaggard(t *testing.T) {
	const fps = 20
	for name, tt := range map[string]struct {
		pacing Pacing
		alone  bool
		limit  float64 // maximum duration of the quickest Send, in frame periods
	}{
		"paced":        {PaceFrame, false, paced + 0.03},
		"burst":        {PaceBurst, false, 0.5},
		"nobody waits": {PaceBurst, true, 1}, // it delays only itself, and gets all the patience there is
	} {
		_, healthy := listener(t)
		_, addr := listener(t)
		dests := []string{addr, healthy}
		if tt.alone {
			dests = dests[:1]
		}
		f := rtptest.Format(t, pipeline.UYVY, 320, 240, fps)
		s := testSink(t, Config{Destinations: dests, Pacing: tt.pacing, Burst: defaultBurst}, f) // more messages than a stalled socket takes
		stall(t, (*s.sender.dests.Load())[0])
		if err := s.packer.Packetize(s.trains[0].Train, rtptest.Frame(f, 0)); err != nil {
			t.Fatal(err)
		}
		rtptest.Need(t, rtptest.Tries(t, func() error {
			quickest := time.Hour
			for range 5 {
				start := time.Now()
				sendTrain(s, s.trains[0])
				quickest = min(quickest, time.Since(start))
			}
			periods := quickest.Seconds() * fps
			if tt.alone && periods < 0.9 {
				t.Errorf("%s: a frame took %.2f periods", name, periods)
			}
			if periods > tt.limit {
				return fmt.Errorf("%s: a frame took %.2f periods, limit %.2f", name, periods, tt.limit)
			}
			return nil
		}))
	}
}
