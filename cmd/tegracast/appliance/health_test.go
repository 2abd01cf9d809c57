// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// TestBooksThatCannotBeRead checks that health is reported, as a stall, even while the statistics cannot be read.
func TestBooksThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free, reads := make(chan struct{}), 0
		h, err := newHealthWatch(func(context.Context) bool { return true }, func() pipeline.Stats {
			if reads++; reads == 3 {
				<-free
			}
			return pipeline.Stats{}
		}, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.Run(ctx)
		}()
		time.Sleep(5 * time.Second)
		if ready, stalled := h.State(); !ready || stalled != nil {
			t.Errorf("books not read for 3 s: ready %t, %v", ready, stalled)
		}
		time.Sleep(defaultPatience)
		if _, stalled := h.State(); !errors.Is(stalled, errStalled) || !strings.Contains(stalled.Error(), "been read for 2") {
			t.Errorf("books not read for more than 20 s: %v", stalled)
		}
		close(free)
		synctest.Wait()
		if _, stalled := h.State(); stalled != nil {
			t.Error(stalled)
		}
		cancel()
		<-ended
	})
}
