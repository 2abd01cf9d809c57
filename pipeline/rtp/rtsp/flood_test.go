// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5/pkg/headers"
	"github.com/pion/rtcp"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// TestRequestFlood checks that a client that sends endless requests gets only a few answers.
func TestRequestFlood(t *testing.T) {
	_, server := serve(t, Config{}, "raw", send.Config{}, small(t, 30))
	c := dial(t, server, "raw")
	began := time.Now()
	go func() {
		all := strings.Repeat("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n", 20)
		for err := error(nil); err == nil; {
			_, err = io.WriteString(c, all)
		}
	}()
	answers := 0
	for time.Since(began) < 3*time.Second {
		line, err := c.in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, "RTSP/1.0 200") {
			answers++
		}
	}
	took := time.Since(began)
	t.Logf("%d requests were answered in %v", answers, took)
	if most := int(took/saidEvery) + 2*saidBurst; answers > most {
		t.Errorf("%d requests were answered in %v, want %d at most", answers, took, most)
	}
}

// TestInterleavedFlood checks that a reader that sends endless packets is heard only a limited number of times, and
// that the server reads only a limited number of bytes from it. The reader still gets the stream.
func TestInterleavedFlood(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: it takes several seconds: make test runs it")
	}
	report, err := (&rtcp.ReceiverReport{SSRC: 9, Reports: []rtcp.ReceptionReport{{SSRC: 1}}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, packet := range map[string][]byte{"RTCP": report, "an empty packet": nil, "noise": bytes.Repeat([]byte{7}, 500)} {
		for _, channel := range []byte{1, 9} {
			t.Run(fmt.Sprintf("%s on channel %d", name, channel), func(t *testing.T) {
				_, server := serve(t, Config{}, "raw", send.Config{}, small(t, 30))
				c := dial(t, server, "raw")
				c.play(t, overTCP)
				began := time.Now()
				var sent atomic.Int64
				go func() {
					all := bytes.Repeat(append([]byte{'$', channel, byte(len(packet) >> 8), byte(len(packet))}, packet...), 20)
					for {
						n, err := c.Write(all)
						sent.Add(int64(n))
						if err != nil {
							return
						}
					}
				}()
				for time.Since(began) < 2*time.Second {
					if _, err := c.frames(1); err != nil {
						t.Fatal(err)
					}
				}
				took := time.Since(began)
				buffered := int64(8 << 20) // maximum, in the sockets of both ends
				if most := (int64(took/readEvery)+2*readBurst)*4096 + buffered; sent.Load() > most {
					t.Errorf("the server read %d bytes in %v, want %d at most", sent.Load(), took, most)
				}
				t.Logf("%d bytes in %v", sent.Load(), took)
			})
		}
	}
}

// FuzzTransport opens readers according to Transport headers of SETUP. A reader must have an even RTP port at the
// client's address, or channels.
func FuzzTransport(f *testing.F) {
	log := slog.New(slog.DiscardHandler)
	sink, err := send.New(send.Config{Logger: log}, rtptest.Format(f, pipeline.UYVY, 160, 120, 30))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := sink.Close(); err != nil {
			f.Error(err)
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	far, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		f.Fatal(err)
	}
	near, err := l.Accept()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _, _, _ = far.Close(), near.Close(), l.Close() })
	wire, err := send.NewConn(near.(*net.TCPConn))
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		overTCP, "RTP/AVP;unicast;client_port=5000-5001", "RTP/AVP;multicast",
		"RTP/AVP;unicast;client_port=5001-5002,RTP/AVP/TCP;interleaved=254-255",
		"RTP/SAVP;unicast;client_port=4588-4589;ssrc=1;mode=\"PLAY\"", "RTP/AVP/TCP;interleaved=-2--1",
		"RTP/AVP;destination=224.1.1.1;ttl=127;port=1-2",
	} {
		f.Add(seed)
	}
	server := &Server{}
	f.Fuzz(func(t *testing.T, header string) {
		r, used, err := (&conn{Conn: wire, server: server}).open(&stream{"raw", sink}, []string{header})
		if err != nil {
			return
		}
		to, from := r.packets.Stats().Address, near.RemoteAddr().String()
		if a, err := netip.ParseAddrPort(to); r.channel < 0 && (err != nil || a.Port()%2 != 0 || a.Addr().String() != "127.0.0.1") {
			t.Errorf("%q: to %s", header, to)
		} else if r.channel >= 0 && (to != from || r.channel > 254) {
			t.Errorf("%q: to %s on channel %d, not %s", header, to, r.channel, from)
		}
		var again headers.Transport
		if err := again.Unmarshal(used.Marshal()); err != nil {
			t.Errorf("%q: the answer is %q: %v", header, used.Marshal(), err)
		}
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
}

// lines counts those of a log.
type lines struct{ n atomic.Int64 }

func (l *lines) Write(b []byte) (int, error) {
	l.n.Add(int64(bytes.Count(b, []byte("\n"))))
	return len(b), nil
}

// TestReadersDoNotFillTheLog checks that few of very many short connections are logged.
func TestReadersDoNotFillTheLog(t *testing.T) {
	var log lines
	_, server := serve(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, "raw", send.Config{}, small(t, 30))
	for range 100 {
		c := dial(t, server, "raw")
		c.play(t, "RTP/AVP/TCP;unicast;interleaved=0-1")
		c.Close()
	}
	if n := log.n.Load(); n == 0 || n > 100 {
		t.Errorf("the log has %d lines", n)
	}
}
