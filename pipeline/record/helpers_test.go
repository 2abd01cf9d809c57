// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
)

// storage opens a driver of files for a test.
func storage(t testing.TB) *cufile.Driver {
	t.Helper()
	d, err := cufile.Open(cufile.Config{Settings: cufile.DefaultSettings(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// slots returns a pool of n frames. With 4, for which the queue in play has room, none is dropped.
func slots(t testing.TB, f pipeline.Format, n int) *pipeline.Pool {
	t.Helper()
	var list []pipeline.Slot
	for range n {
		list = append(list, pipeline.Slot{Bytes: memory(t, f.Size())})
	}
	return pipeline.NewPool("frames", f, list, nil)
}

// play records the frames that a source emits from a pool, and returns the output's statistics and the error that ended
// it.
func play(t testing.TB, src pipeline.Source, pool *pipeline.Pool, sink *Sink) (pipeline.OutputStats, error) {
	t.Helper()
	g := pipeline.NewGraph(pipeline.GraphConfig{Logger: slog.New(slog.DiscardHandler), Grace: time.Minute})
	if err := g.AddSource("camera", src); err != nil {
		t.Fatal(err)
	}
	o, err := g.Attach(pipeline.OutputConfig{Name: "rec", From: "camera", Sink: sink, Depth: 4, Policy: pipeline.Block})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.Run(t.Context()), pool.Close()); err != nil {
		t.Error(err)
	}
	return o.Stats(), o.Err()
}
