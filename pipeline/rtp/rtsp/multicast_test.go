// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// TestPeersReadAGroup reads raw video, JPEG and H.264 with ffmpeg and GStreamer by multicast for 5 s at the same time,
// and checks that the stream is sent only once.
func TestPeersReadAGroup(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: it takes several seconds: make test runs it")
	}
	t.Parallel()
	readByGroups(t, 150)
}

// TestPeersReadAGroupAMinute is the same for a minute.
func TestPeersReadAGroupAMinute(t *testing.T) {
	long(t)
	readByGroups(t, 1800)
}

func readByGroups(t *testing.T, frames int) {
	if !rtptest.Apart(t) {
		return
	}
	for i, p := range append(payloads(t), h264(t)) {
		only := netip.PrefixFrom(netip.AddrFrom4([4]byte{239, 255, 42, byte(i)}), 32)
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			src := rtptest.NewSource(t, p.format, 0)
			sink, server := serve(t, Config{Listen: "10.9.0.1:0", User: "me", Password: "a word", Groups: only}, p.name, p.config, src)
			url := strings.Replace(server.URL(p.name), "rtsp://", "rtsp://me:a%20word@", 1)
			sure := frames - 10 // a reader may join a group in the middle of a frame, and waits for a key frame
			results := make(chan error, 2)
			read := func(peer, transport string) {
				results <- again(t, func() (int, error) {
					got, err := p.peers[peer].read(t, url, transport, frames)
					if err != nil {
						return 0, err
					}
					all, good := rtptest.Right(got[max(0, len(got)-sure*p.size):], p.size, func(b []byte) bool {
						return slices.ContainsFunc(src.Fill, func(f *pipeline.Frame) bool { return p.same(f, b) })
					})
					if all < sure || good < all {
						return good, fmt.Errorf("%s: %d frames at the end, %d of them right", peer, all, good)
					}
					return good, nil
				})
			}
			go read("gstreamer", "udp-mcast")
			go read("ffmpeg", "udp_multicast")
			eventually(t, "two readers never shared the group", func() bool {
				server.groups.mu.Lock()
				defer server.groups.mu.Unlock()
				return len(server.groups.open) == 1 && server.groups.open[0].members == 2 && server.groups.open[0].begun
			})
			if d := sink.Stats().Destinations; len(d) != 1 || d[0].Address != only.Addr().String()+":20000" || d[0].Reader != "RTSP by multicast" {
				t.Errorf("%+v", d)
			}
			need(t, results)
			eventually(t, "readers have left and are sent to", func() bool { return len(sink.Stats().Destinations) == 0 })
		})
	}
}

// TestGroups checks that readers of a stream share a group, that another stream uses another group, that a stream
// without readers is not sent, and that a reader is refused when all groups are in use.
func TestGroups(t *testing.T) {
	if !rtptest.Apart(t) {
		return
	}
	sink, server := serve(t, Config{Groups: netip.MustParsePrefix("239.255.42.8/31")}, "raw", send.Config{TTL: 3}, small(t, 30))
	for _, name := range []string{"other", "third"} {
		server.Add(name, sink)
	}
	ask := func(name string) (c *client, status, transport string) {
		c = dial(t, server, name)
		status, h, err := c.ask("SETUP", "/trackID=0", "Transport: RTP/AVP;multicast;mode=PLAY\r\n")
		if err != nil {
			t.Fatal(err)
		}
		c.session, _, _ = strings.Cut(h.Get("Session"), ";")
		return c, status, h.Get("Transport")
	}
	play := func(c *client) {
		if status, _, err := c.ask("PLAY", "/", ""); err != nil || status != "RTSP/1.0 200 OK" {
			t.Fatalf("%s %v", status, err)
		}
	}
	sent := func() (n int) { return len(sink.Stats().Destinations) }
	first, _, answer := ask("raw")
	if want := "RTP/AVP;multicast;destination=239.255.42.8;port=20000-20001;ttl=3;ssrc="; !strings.HasPrefix(answer, want) {
		t.Errorf("%s, want %s", answer, want)
	}
	if sent() != 0 {
		t.Error("the group is sent to before PLAY")
	}
	play(first)
	second, _, again := ask("raw")
	if again != answer {
		t.Errorf("a second reader: %s", again)
	}
	play(second)
	eventually(t, "the group is not sent to", func() bool { return sent() == 1 })
	other, _, answer := ask("other")
	if !strings.Contains(answer, "destination=239.255.42.9;port=20002-20003;") {
		t.Errorf("another stream: %s", answer)
	}
	if _, status, _ := ask("third"); status != "RTSP/1.0 461 Unsupported Transport" {
		t.Errorf("without a free group: %s", status)
	}
	other.Close()
	eventually(t, "the group of a reader that has left stays taken", func() bool {
		server.groups.mu.Lock()
		defer server.groups.mu.Unlock()
		return len(server.groups.open) == 1
	})
	first.Close()
	eventually(t, "the first reader does not leave", func() bool {
		server.mu.Lock()
		defer server.mu.Unlock()
		return len(server.sessions) == 1
	})
	if sent() != 1 {
		t.Error("the second reader is not sent to")
	}
	if status, _, err := second.ask("TEARDOWN", "/", ""); err != nil || status != "RTSP/1.0 200 OK" {
		t.Errorf("%s %v", status, err)
	}
	eventually(t, "nobody reads and it is sent", func() bool { return sent() == 0 })
}

// TestGroupFails checks that a group to which the output already sends is refused to all readers that requested it, and
// is then free again.
func TestGroupFails(t *testing.T) {
	if !rtptest.Apart(t) {
		return
	}
	c := send.Config{Destinations: []string{"239.255.42.8:20000"}, Interface: "x"}
	sink, server := serve(t, Config{Groups: netip.MustParsePrefix("239.255.42.8/32")}, "raw", c, small(t, 30))
	st, g := server.streams["raw"], &server.groups
	first, err := g.join(st, netip.MustParseAddr("127.0.0.1"), server.heardFrom)
	if err != nil {
		t.Fatal(err)
	}
	second, err := g.join(st, netip.MustParseAddr("10.9.0.1"), server.heardFrom)
	if err != nil || second != first {
		t.Fatalf("readers of two interfaces, whose packets leave by one, get two groups: %v", err)
	}
	for range 2 {
		if err := g.startGroup(first); !errors.Is(err, send.ErrDestination) {
			t.Errorf("a group that cannot be sent to: %v", err)
		}
	}
	third, err := g.join(st, netip.MustParseAddr("127.0.0.1"), server.heardFrom)
	if err != nil || third == first {
		t.Fatalf("the group is not free again: %v", err)
	}
	for _, x := range []*group{first, third, second} {
		if err := g.leave(x); err != nil {
			t.Error(err)
		}
	}
	if n := len(sink.Stats().Destinations); n != 1 || len(g.open) != 0 {
		t.Errorf("%d destinations, %d groups", n, len(g.open))
	}
}

func TestCheckGroups(t *testing.T) {
	for text, good := range map[string]bool{
		"239.255.42.0/24": true, "239.1.2.3/32": true, "239.0.0.0/8": true, "224.0.1.0/24": true,
		"239.255.42.1/24": false, "224.0.0.0/24": false, "224.0.0.0/4": false, "232.1.0.0/16": false, "192.0.2.0/24": false, "ff15::/64": false,
	} {
		if err := CheckGroups(netip.MustParsePrefix(text)); (err == nil) != good || err != nil && !errors.Is(err, ErrGroups) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
