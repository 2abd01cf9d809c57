// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"context"
	"log/slog"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/resolve/resolvetest"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// TestBooksDoNotWaitForLookups checks that the counters can be read while a client's destination is resolved, and that
// the client can give up.
func TestBooksDoNotWaitForLookups(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	s := New(log)
	defer s.Close()
	sink, err := send.New(send.Config{Stream: rtp.Stream{Payload: rtp.Raw}, Logger: log},
		pipeline.Format{Width: 16, Height: 4, Pixel: pipeline.UYVY, Stride: 32, Color: pipeline.BT709Limited, Rate: pipeline.Rate{Num: 30, Den: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	if err := s.Add("raw", sink, nil, log); err != nil {
		t.Fatal(err)
	}
	asked := resolvetest.Silence(t)
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan error, 1)
	go func() {
		_, err := s.Send(ctx, "raw", "viewer:5004")
		sent <- err
	}()
	<-asked
	s.URL("raw")
	s.Report("raw", "")
	s.Guests("raw")
	s.Receivers()
	select {
	case err := <-sent:
		t.Errorf("the look-up ended before the books were read: %v", err)
	default:
	}
	cancel()
	if err := <-sent; err == nil {
		t.Error("a look-up without an answer gave an address")
	}
}
