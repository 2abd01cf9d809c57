// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// long skips a test that make test leaves out.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
}

// serve streams src under a name until the test ends, and returns the sink and the server.
func serve(t testing.TB, c Config, name string, s send.Config, src *rtptest.Source) (*send.Sink, *Server) {
	t.Helper()
	c.Listen, c.Logger = cmp.Or(c.Listen, "127.0.0.1:0"), cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	s.Logger = c.Logger
	server, err := Listen(c)
	if err != nil {
		t.Fatal(err)
	}
	sink, err := send.New(s, src.Format())
	if err != nil {
		t.Fatal(err)
	}
	server.Add(name, sink)
	g := pipeline.NewGraph(pipeline.GraphConfig{Logger: c.Logger})
	if err := g.AddSource("source", src); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Attach(pipeline.OutputConfig{Name: name, Sink: sink}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	close(src.Ready)
	t.Cleanup(func() {
		server.Close()
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return sink, server
}
