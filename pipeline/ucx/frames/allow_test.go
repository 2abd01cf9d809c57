// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

func prefixes(list ...string) (all []netip.Prefix) {
	for _, p := range list {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

// TestAllow checks that a stream exists only for the addresses that may take it, and that an address that may take none
// is refused on connecting.
func TestAllow(t *testing.T) {
	h, f := newTestHub(t), format(t, pipeline.Grey, 32, 16)
	newTestSink(t, h, StreamConfig{Name: "near", Allow: prefixes("192.0.2.0/24", "2001:db8::/32")}, f)
	newTestSink(t, h, StreamConfig{Name: "one", Allow: prefixes("192.0.2.7/32")}, f)
	for from, want := range map[string]string{
		"192.0.2.7:1": "near one", "192.0.2.8:1": "near", "[2001:db8::9]:1": "near", "[::ffff:192.0.2.8]:1": "near",
		"192.0.3.7:1": "", "[fe80::1%eth0]:1": "", "nobody knows": "",
	} {
		own, s := call(h, from)
		if (s != nil) != (want != "") {
			t.Errorf("%s: connected %v, may take %q", from, s != nil, want)
		}
		if s == nil {
			at, _ := netip.ParseAddrPort(from)
			if why := h.objection(plain(at)); !contains(why, "ucx.allow") {
				t.Errorf("%s is refused because %q", from, why)
			}
			continue
		}
		names := ""
		h.mu.Lock()
		for _, x := range h.streams(s.address) {
			names += " " + x.name
		}
		h.mu.Unlock()
		if names != " "+want {
			t.Errorf("%s is told of%s, may take %q", from, names, want)
		}
		said := ear(own)
		speak(t, own, idHello, (&hello{oldest, newest, "1.13.1"}).append(nil))
		speak(t, own, idSubscribe, (&subscribe{stream: "one", every: 1}).append(nil))
		if want == "near" {
			if y := <-said; y.code != CodeStream || contains(y.reason, ", one") {
				t.Errorf("%s: %+v", from, y)
			}
		}
		h.drop(s, bye{CodeEnd, "the test"}, "here")
	}
}

// TestOneAddressCannotHaveAllPlaces checks that the connections of one machine are limited, so that another one still
// has room.
func TestOneAddressCannotHaveAllPlaces(t *testing.T) {
	h, f := newTestHub(t), format(t, pipeline.Grey, 32, 16)
	newTestSink(t, h, StreamConfig{Name: "front"}, f)
	var last *session
	for _, form := range []string{"192.0.2.7:%d", "[2001:db8::%x]:1"} {
		open := 0
		for n := range maxSessions {
			if _, s := call(h, fmt.Sprintf(form, n+1)); s != nil {
				open, last = open+1, s
			}
		}
		if open != maxOfAddress {
			t.Errorf("%s has %d connections", form, open)
		}
	}
	if _, s := call(h, "192.0.2.8:1"); s == nil {
		t.Error("another machine has no room")
	}
	h.drop(last, bye{CodeEnd, "the test"}, "here")
	await(t, "room", func() bool { return h.objection(last.address) == "" })
	h.dropAll(bye{CodeEnd, "the test"})
	await(t, "the books to be empty", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.of) == 0 })
}

// TestStrangersDoNotReachUCX checks that a client that may receive no stream gets no connection, as soon as the streams
// exclude it.
func TestStrangersDoNotReachUCX(t *testing.T) {
	server, f := serve(t), format(t, pipeline.Grey, 32, 16)
	reached := func() bool {
		c, err := net.DialTimeout("tcp", server.Addr().String(), 200*time.Millisecond)
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	add := func(name string, allow ...string) *Sink {
		k, err := server.Stream(StreamConfig{Name: name, Allow: prefixes(allow...)}, f)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	remove := func(k *Sink) {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
	if reached() {
		t.Error("there is no stream, and somebody connects")
	}
	others := add("others", "192.0.2.0/24", "2001:db8::/32")
	if reached() {
		t.Error("nothing is for this machine, and it connects")
	}
	own := add("own", "127.0.0.0/8")
	if !reached() {
		t.Error("a stream is for this machine, and it does not connect")
	}
	remove(own)
	if reached() {
		t.Error("the stream for this machine is gone, and it connects")
	}
	all := add("all")
	if !reached() {
		t.Error("a stream is for everyone, and this machine does not connect")
	}
	remove(all)
	remove(others)
	many := make([]netip.Prefix, 3000)
	for i := range many {
		many[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
	}
	if _, err := server.Stream(StreamConfig{Name: "many", Allow: many}, f); err == nil || !contains(err.Error(), "use fewer") {
		t.Errorf("%d address ranges: %v", len(many), err)
	}
	remove(add("many")) // the name is free
}
