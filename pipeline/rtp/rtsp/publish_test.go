// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/auth"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/bluenviron/gortsplib/v5/pkg/liberrors"
	packets "github.com/pion/rtp"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// TestPublish publishes each payload to ffmpeg, which listens as a server does and starts later; for raw video it
// starts twice.
func TestPublish(t *testing.T) {
	t.Parallel()
	for _, p := range append(payloads(t), h264(t)) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			src := rtptest.NewSource(t, p.format, 0)
			sink, _ := serve(t, Config{}, p.name, p.config, src)
			to := fmt.Sprintf("rtsp://127.0.0.1:%d/%s", rtptest.EvenPorts(t, 1)[0], p.name)
			publisher, err := Publish(sink, Remote{URL: to, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer publisher.Close()
			server := p.peers["ffmpeg"]
			reads := server.args
			server.args = func(url, transport, out string, frames int) []string {
				return append([]string{"-rtsp_flags", "listen"}, reads(url, transport, out, frames)...)
			}
			rounds := 1
			if p.name == "raw" {
				rounds = 2
			}
			for range rounds {
				const frames = 20
				got, err := server.read(t, to, "tcp", frames)
				if err != nil {
					t.Fatal(err)
				}
				all, good := rtptest.Right(got, p.size, func(b []byte) bool {
					return slices.ContainsFunc(src.Fill, func(f *pipeline.Frame) bool { return p.same(f, b) })
				})
				if all < frames || good < all {
					t.Errorf("%d frames, %d of them right", all, good)
				}
			}
		})
	}
}

// taker is a server that accepts streams with the right password.
type taker struct {
	server  *gortsplib.Server
	packets chan *packets.Packet
}

// OnAnnounce implements gortsplib.ServerHandlerOnAnnounce.
func (x *taker) OnAnnounce(c *gortsplib.ServerHandlerOnAnnounceCtx) (*base.Response, error) {
	if !c.Conn.VerifyCredentials(c.Request, "board", "a word") {
		return &base.Response{StatusCode: base.StatusUnauthorized}, liberrors.ErrServerAuth{}
	}
	return &base.Response{StatusCode: base.StatusOK}, nil
}

// OnSetup implements gortsplib.ServerHandlerOnSetup.
func (x *taker) OnSetup(*gortsplib.ServerHandlerOnSetupCtx) (*base.Response, *gortsplib.ServerStream, error) {
	return &base.Response{StatusCode: base.StatusOK}, nil, nil
}

// OnRecord implements gortsplib.ServerHandlerOnRecord.
func (x *taker) OnRecord(c *gortsplib.ServerHandlerOnRecordCtx) (*base.Response, error) {
	c.Session.OnPacketRTPAny(func(_ *description.Media, _ format.Format, p *packets.Packet) {
		select {
		case x.packets <- p:
		default:
		}
	})
	return &base.Response{StatusCode: base.StatusOK}, nil
}

// TestPublishPassword checks that a server with a password accepts the stream only with the right one, and that a server
// that wants it in clear text gets the stream with one warning.
func TestPublishPassword(t *testing.T) {
	for name, c := range map[string]struct {
		method   auth.VerifyMethod
		warnings int
	}{"digest": {auth.VerifyMethodDigestMD5, 0}, "basic": {auth.VerifyMethodBasic, 1}} {
		t.Run(name, func(t *testing.T) { publishWithPassword(t, c.method, c.warnings) })
	}
}

func publishWithPassword(t *testing.T, method auth.VerifyMethod, warnings int) {
	src := rtptest.NewSource(t, rtptest.Format(t, pipeline.UYVY, 64, 48, 30), 0)
	sink, _ := serve(t, Config{}, "camera", send.Config{Stream: rtp.Stream{Payload: rtp.Raw}}, src)
	x := &taker{packets: make(chan *packets.Packet, 1)}
	at := fmt.Sprintf("127.0.0.1:%d", rtptest.EvenPorts(t, 1)[0])
	x.server = &gortsplib.Server{RTSPAddress: at, Handler: x, AuthMethods: []auth.VerifyMethod{method}}
	if err := x.server.Start(); err != nil {
		t.Fatal(err)
	}
	defer x.server.Close()
	for _, password := range []string{"another", "a word"} { // in this order, because packets of the right one may arrive late
		taken := password == "a word"
		var said bytes.Buffer
		p, err := Publish(sink, Remote{URL: "rtsp://" + at + "/camera", User: "board", Password: password, Logger: slog.New(slog.NewTextHandler(&said, nil))})
		if err != nil {
			t.Fatal(err)
		}
		limit := time.Minute
		if !taken {
			limit = time.Second / 2
		}
		select {
		case <-x.packets:
			if !taken {
				t.Errorf("password %q: the stream is taken", password)
			}
		case <-time.After(limit):
			if taken {
				t.Errorf("no packet in %v", limit)
			}
		}
		p.Close()
		if n := strings.Count(said.String(), "in clear text"); n != warnings {
			t.Errorf("%d warnings of a password in clear text instead of %d:\n%s", n, warnings, said.String())
		}
		for len(x.packets) > 0 {
			<-x.packets
		}
	}
}

func TestCheckURL(t *testing.T) {
	for _, bad := range []string{
		"", "camera", "http://h/x", "rtsps://h/x", "rtsp:///x", "rtsp://h", "rtsp://h/", "rtsp://u:p@h/x", "rtsp://h/x?a=b", "rtsp://h/x#y", "rtsp://[::1/x",
	} {
		if err := CheckURL(bad); !errors.Is(err, ErrURL) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, good := range []string{"rtsp://h/x", "rtsp://192.0.2.1:8554/a/b", "rtsp://[2001:db8::1]:8554/x"} {
		if err := CheckURL(good); err != nil {
			t.Error(err)
		}
	}
}
