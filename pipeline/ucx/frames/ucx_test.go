// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"errors"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
)

// serve opens a server on the loopback.
func serve(t testing.TB) *Server {
	t.Helper()
	s, err := Listen(ServerConfig{Listen: "127.0.0.1:0", Logger: quiet()})
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

// TestUCX: frames between two workers of this process, by UCX.
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
	all, cut := take(t, whole), take(t, part)
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

// TestListenAgain: a server whose address somebody else has gets it when that one ends.
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

// TestStreams: two streams of one server have names of their own, and end one by one.
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
