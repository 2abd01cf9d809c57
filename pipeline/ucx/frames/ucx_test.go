// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/flood"
)

// serve opens a server on the loopback.
func serve(t testing.TB) *Server {
	t.Helper()
	return serveWith(t, quiet())
}

func serveWith(t testing.TB, log *slog.Logger) *Server {
	t.Helper()
	s, err := Listen(ServerConfig{Listen: "127.0.0.1:0", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestUCX sends frames between two workers of this process over UCX.
func TestUCX(t *testing.T) {
	server, f := serve(t), format(t, pipeline.UYVY, 640, 480)
	k, err := server.Stream(StreamConfig{Name: "front", Checksum: true, Receivers: 2}, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	s := newStudio(t, f, 16, k)
	c := ReceiverConfig{Address: server.Addr().String(), Logger: quiet()}
	whole, err := Connect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	c.Region = Region{X: 100, Y: 50, Width: 200, Height: 100}
	part, err := Connect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	all, cut := takeFrames(t, whole), takeFrames(t, part)
	await(t, "both streams", func() bool { return whole.Stats().Connected && part.Stats().Connected })
	const frames = 50
	for n := uint64(1); n <= frames; n++ {
		s.emit(1, func(f *pipeline.Frame) {
			f.Results = append(f.Results, pipeline.Result{Stage: "motion", Numbers: map[string]float64{"n": float64(n)}})
		})
		if x := next(t, all); x.sequence != n || len(x.results) != 1 || x.results[0].Numbers["n"] != float64(n) {
			t.Fatalf("frame %d came as %d with %v", n, x.sequence, x.results)
		}
		if x := next(t, cut); x.sequence != n || len(x.pixels) != 200*100*2 {
			t.Fatalf("region of frame %d came as %d with %d bytes", n, x.sequence, len(x.pixels))
		}
	}
	for _, r := range []*Receiver{whole, part} {
		if st := r.Stats(); st.Matched != frames || st.Frames != frames || st.Lost+st.Broken+st.Missing != 0 {
			t.Errorf("%+v", st)
		}
	}
}

// TestListenAgain checks that a server whose address is in use gets it once the other user has ended.
func TestListenAgain(t *testing.T) {
	first, err := Listen(ServerConfig{Listen: "127.0.0.1:0", Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	address := first.Addr()
	second, err := Listen(ServerConfig{Listen: address.String(), Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if second.Addr().IsValid() {
		t.Error("two listen at the same address")
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	await(t, "the address", func() bool { return second.Addr() == address })
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Listen(ServerConfig{Listen: "localhost"}); err == nil {
		t.Error("a server listens at a name without port")
	}
}

// TestStreams checks that two streams of one server have separate names, and can end separately.
func TestStreams(t *testing.T) {
	server, f := serve(t), format(t, pipeline.Grey, 64, 48)
	front, err := server.Stream(StreamConfig{Name: "front"}, f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Stream(StreamConfig{Name: "front"}, f); !errors.Is(err, ErrName) {
		t.Error(err)
	}
	packets := f
	packets.PacketPitch, packets.HeaderGap = 96, 32
	if _, err := server.Stream(StreamConfig{Name: "packets"}, packets); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
	if err := front.Close(); err != nil {
		t.Error(err)
	}
	rear, err := server.Stream(StreamConfig{Name: "front"}, f)
	if err != nil {
		t.Fatal(err)
	}
	if err := rear.Close(); err != nil {
		t.Error(err)
	}
}

// TestConnectionFlood checks that connections beyond a burst and a rate are refused, while existing ones stay, and that
// the log says so once.
func TestConnectionFlood(t *testing.T) {
	server, log := journaled(t)
	f := format(t, pipeline.UYVY, 64, 48)
	server.comes = flood.Limit{Burst: 2, Every: time.Hour}
	k, err := server.Stream(StreamConfig{Name: "front", Receivers: 4}, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	newStudio(t, f, 16, k)
	var there []*Receiver
	for i := range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		r, err := Connect(ctx, ReceiverConfig{Address: server.Addr().String(), Logger: quiet()})
		cancel()
		if (err == nil) != (i < 2) {
			t.Fatalf("receiver %d: %v", i, err)
		}
		if err == nil {
			there = append(there, r)
		}
	}
	if n := log.count("a receiver is refused"); n != 1 || log.count("more than 50 connections a second") != 1 {
		t.Errorf("%d refusals are logged", n)
	}
	for _, r := range there {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
