// SPDX-License-Identifier: Apache-2.0

package webrtc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pion/interceptor"
	packets "github.com/pion/rtp"
	pion "github.com/pion/webrtc/v4"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/codec"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// patience limits how long a test waits for events that are immediate on an idle machine.
const patience = time.Minute

// found is a source whose frames have results.
type found struct{ *rtptest.Source }

// Run implements pipeline.Source.
func (s found) Run(ctx context.Context, emit func(*pipeline.Frame)) error {
	return s.Source.Run(ctx, func(f *pipeline.Frame) {
		f.Results = []pipeline.Result{{Stage: "finder", Regions: []pipeline.Region{{X: int(f.Sequence), Width: 8, Height: 8, Label: "thing"}}}}
		emit(f)
	})
}

// serve offers an output named camera until the test ends, and returns the server, its sink and its URL.
func serve(t *testing.T, l limits) (server *Server, sink *send.Sink, base string) {
	t.Helper()
	return serveAt(t, l, "127.0.0.1:0")
}

func serveAt(t *testing.T, l limits, address string) (server *Server, sink *send.Sink, base string) {
	t.Helper()
	at, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	f := rtptest.Format(t, pipeline.I420, 320, 240, 30)
	f.Color = pipeline.BT709Limited
	h, err := codec.NewH264(f, 1e6)
	if err != nil {
		t.Fatal(err)
	}
	sink, err = send.New(send.Config{Stream: rtp.Stream{Payload: rtp.H264, H264: h}, MostBits: 1e6, LeastBits: 2e5, Logger: log}, f)
	if err != nil {
		t.Fatal(err)
	}
	server = New(log)
	server.limits = l
	server.Add("camera", sink)
	src := found{rtptest.NewSource(t, f, 0)}
	g := pipeline.NewGraph(pipeline.GraphConfig{Logger: log})
	if err := g.AddSource("source", src); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Attach(pipeline.OutputConfig{Name: "camera", Sink: sink}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	close(src.Ready)
	mux := http.NewServeMux()
	mux.Handle("/{name}/whep", server)
	mux.Handle("/{name}/whep/{session}", server)
	web := &httptest.Server{Listener: at, Config: &http.Server{Handler: mux}}
	web.Start()
	t.Cleanup(func() {
		web.Close()
		server.Close()
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := errors.Join(g.Close(), h.Close()); err != nil {
			t.Error(err)
		}
	})
	return server, sink, web.URL
}

// viewer is a client.
type viewer struct {
	peer     *pion.PeerConnection
	session  string // URL of the session
	state    chan pion.PeerConnectionState
	packets  chan *packets.Packet
	messages chan Message
	told     bool // a message has arrived
	ssrc     uint32
	capture  uint8 // ids of the extensions
	sent     uint8
}

// client returns a viewer that has not yet sent a request.
func client(t *testing.T, s pion.SettingEngine) *viewer {
	t.Helper()
	media := &pion.MediaEngine{}
	if err := media.RegisterDefaultCodecs(); err != nil {
		t.Fatal(err)
	}
	for _, uri := range []string{captureTime, playoutDelay, sendTime} {
		if err := media.RegisterHeaderExtension(pion.RTPHeaderExtensionCapability{URI: uri}, pion.RTPCodecTypeVideo); err != nil {
			t.Fatal(err)
		}
	}
	s.SetIncludeLoopbackCandidate(true)
	peer, err := pion.NewAPI(pion.WithMediaEngine(media), pion.WithInterceptorRegistry(&interceptor.Registry{}), pion.WithSettingEngine(s)).
		NewPeerConnection(pion.Configuration{})
	if err != nil {
		t.Fatal(err)
	}
	v := &viewer{
		peer: peer, state: make(chan pion.PeerConnectionState, 16), packets: make(chan *packets.Packet, 1<<16), messages: make(chan Message, 1<<12),
	}
	t.Cleanup(func() { _ = peer.GracefulClose() })
	peer.OnConnectionStateChange(func(s pion.PeerConnectionState) { v.state <- s })
	peer.OnTrack(func(track *pion.TrackRemote, receiver *pion.RTPReceiver) {
		for _, x := range receiver.GetParameters().HeaderExtensions {
			switch x.URI {
			case captureTime:
				v.capture = uint8(x.ID)
			case sendTime:
				v.sent = uint8(x.ID)
			}
		}
		v.ssrc = uint32(track.SSRC())
		for {
			p, _, err := track.ReadRTP()
			if err != nil {
				close(v.packets)
				return
			}
			v.packets <- p
		}
	})
	return v
}

// offer returns an offer like that of a browser that wants to receive video, sound if there is any, and results.
func (v *viewer) offer(t *testing.T) string {
	t.Helper()
	c, err := v.peer.CreateDataChannel("results", nil)
	if err != nil {
		t.Fatal(err)
	}
	c.OnMessage(func(m pion.DataChannelMessage) {
		var got Message
		if err := json.Unmarshal(m.Data, &got); err != nil || !m.IsString {
			t.Error(err)
		}
		v.messages <- got
	})
	for _, kind := range []pion.RTPCodecType{pion.RTPCodecTypeAudio, pion.RTPCodecTypeVideo} {
		receive := pion.RTPTransceiverInit{Direction: pion.RTPTransceiverDirectionRecvonly}
		if _, err := v.peer.AddTransceiverFromKind(kind, receive); err != nil {
			t.Fatal(err)
		}
	}
	o, err := v.peer.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	gathered := pion.GatheringCompletePromise(v.peer)
	if err := v.peer.SetLocalDescription(o); err != nil {
		t.Fatal(err)
	}
	<-gathered
	return v.peer.LocalDescription().SDP
}

// watch begins a session.
func watch(t *testing.T, base string, s pion.SettingEngine) *viewer {
	t.Helper()
	v := client(t, s)
	status, h, answer := ask(t, http.MethodPost, base+"/camera/whep", mediaType, v.offer(t))
	if status != http.StatusCreated || h.Get("Content-Type") != mediaType {
		t.Fatalf("%d %v %s", status, h, answer)
	}
	v.session = base + h.Get("Location")
	if err := v.peer.SetRemoteDescription(pion.SessionDescription{Type: pion.SDPTypeAnswer, SDP: answer}); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	v.until(t, pion.PeerConnectionStateConnected)
	return v
}

// until waits for a state of the connection.
func (v *viewer) until(t *testing.T, want pion.PeerConnectionState) {
	t.Helper()
	for limit := time.After(patience); ; {
		select {
		case s := <-v.state:
			if s == want {
				return
			}
		case <-limit:
			t.Fatalf("the connection does not become %v", want)
		}
	}
}

// ask sends a request and returns the answer.
func ask(t *testing.T, method, url, kind, body string) (status int, h http.Header, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, a.Header, string(b)
}

// frame is a frame as received by a viewer.
type frame struct {
	packets []*packets.Packet
	message Message
}

// frame waits for a frame. On loopback packets arrive in order.
func (v *viewer) frame(t *testing.T) (f frame) {
	t.Helper()
	limit := time.After(patience)
	for len(f.packets) == 0 || !f.packets[len(f.packets)-1].Marker {
		select {
		case p, more := <-v.packets:
			if !more {
				t.Fatal("the stream has ended")
			}
			f.packets = append(f.packets, p)
		case <-limit:
			t.Fatal("no frame arrives")
		}
	}
	return f
}

// next waits for a frame with its results. It skips frames sent before the channel for results was open.
func (v *viewer) next(t *testing.T) frame {
	t.Helper()
	f := v.frame(t)
	for limit := time.After(patience); ; {
		select {
		case f.message = <-v.messages:
		case <-limit:
			t.Fatalf("no message has the timestamp %d", f.packets[0].Timestamp)
		}
		for !v.told && int32(f.message.RTP-f.packets[0].Timestamp) > 0 {
			f.packets = v.frame(t).packets
		}
		v.told = true
		if f.message.RTP == f.packets[0].Timestamp {
			return f
		}
	}
}

// key reports whether the frame refers to no other.
func (f frame) key() bool {
	p, ok := rtp.ParseH264(f.packets[0].Payload)
	return ok && p.Type == rtp.UnitSPS
}

func (f frame) String() string {
	return fmt.Sprintf("frame %d: %d packets, timestamp %d", f.message.Frame, len(f.packets), f.message.RTP)
}
