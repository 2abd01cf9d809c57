// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestReceiverTakesWhatHasCome checks that packets in its sockets at the end count as received in time.
func TestReceiverTakesWhatHasCome(t *testing.T) {
	port := rtptest.EvenPorts(t, 1)[0]
	r, err := New(Config{Media: rtp.Media{Address: netip.MustParseAddr("127.0.0.1"), Port: port, RTCPPort: port + 1, Payload: rtp.JPEG, PayloadType: 26}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("udp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("no RTP at all")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if st := r.Stats(); st.Malformed != 1 {
		t.Errorf("%+v", st)
	}
}

// TestReceiverAwaitsTheLastChecksum checks that a receiver waits for a checksum if the end comes between a frame and
// its checksum.
func TestReceiverAwaitsTheLastChecksum(t *testing.T) {
	for try := 1; ; try++ {
		st := endBetween(t)
		if st.Frames == 1 && st.Matched == 1 {
			return
		}
		if try == 5 { // at that time the machine may have stood still, so several tries are needed
			t.Fatalf("%+v", st)
		}
	}
}

// endBetween returns the counts of a receiver that is stopped when a frame has arrived, 5 ms before its checksum.
func endBetween(t *testing.T) Stats {
	port := rtptest.EvenPorts(t, 1)[0]
	x := newFeed(t, rtp.JPEG, 1)
	x.media.Address, x.media.Port, x.media.RTCPPort, x.media.Checksum = netip.MustParseAddr("127.0.0.1"), port, port+1, true
	send := func(port int, b []byte) {
		c, err := net.Dial("udp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_, err = c.Write(b)
		}
		if err != nil {
			t.Error(err)
			return
		}
		c.Close()
	}
	var checksum []byte
	sent := make(chan struct{})
	r, err := New(Config{Media: x.media, Logger: slog.New(slog.DiscardHandler), OnFrame: func([]byte, FrameInfo) {
		time.AfterFunc(5*time.Millisecond, func() { send(port+1, checksum); close(sent) })
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range packets(t, x.sink, x.frames[0]) {
		send(port, b)
	}
	c := x.sink.compounds
	checksum = c.Checksum(c.SenderReport(x.now, 0, 0), x.sink.train.Checksum())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	st := r.Stats()
	if st.Frames > 0 {
		<-sent
	}
	return st
}

func TestReceiverErrors(t *testing.T) {
	port := rtptest.EvenPorts(t, 1)[0]
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port + 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	media := func(sdp string) rtp.Media {
		m, err := rtp.ParseSDP([]byte(sdp))
		if err != nil {
			t.Fatal(err)
		}
		return m[0]
	}
	f := rtptest.Format(t, pipeline.UYVY, 64, 48, 30)
	sdp := func(dest string) rtp.Media {
		b, err := rtp.Describe(rtp.Stream{}, f, rtp.Path{From: netip.MustParseAddr("127.0.0.1"), To: netip.MustParseAddrPort(dest)})
		if err != nil {
			t.Fatal(err)
		}
		return media(string(b))
	}
	for _, tt := range []struct {
		c    Config
		is   error
		want string
	}{
		{Config{Media: sdp(fmt.Sprintf("127.0.0.1:%d", port))}, unix.EADDRINUSE, fmt.Sprintf("port %d is in use", port+1)},
		{Config{Media: sdp("192.0.2.77:5004")}, unix.EADDRNOTAVAIL, "another machine"},
		{Config{Media: sdp("239.1.1.1:5004"), Interface: "none0"}, nil, "interface none0"},
		{Config{Media: rtp.Media{}}, pipeline.ErrFormat, "width"},
	} {
		_, err := New(tt.c)
		if !errors.Is(err, ErrReceive) || (tt.is != nil && !errors.Is(err, tt.is)) || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}

// TestTheBufferHoldsAFrame checks that the buffer can hold a frame, within the limits.
func TestTheBufferHoldsAFrame(t *testing.T) {
	for _, tt := range []struct{ width, height, want int }{
		{640, 480, leastReceiveBuffer}, {3840, 2160, 2 * 3840 * 2160}, {7680, 4320, 2 * 7680 * 4320}, {16384, 16384, mostReceiveBuffer},
	} {
		port := rtptest.EvenPorts(t, 1)[0]
		media := rtp.Media{
			Address: netip.MustParseAddr("127.0.0.1"), Port: port, RTCPPort: port + 1, Payload: rtp.Raw, PayloadType: 96, Width: tt.width, Height: tt.height,
		}
		var log bytes.Buffer
		r, err := New(Config{Media: media, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if granted := r.buffer; granted != tt.want && !strings.Contains(log.String(), fmt.Sprintf("net.core.rmem_max=%d", tt.want)) {
			t.Errorf("%dx%d: the buffer has %d bytes, want %d; the log: %s", tt.width, tt.height, granted, tt.want, &log)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
