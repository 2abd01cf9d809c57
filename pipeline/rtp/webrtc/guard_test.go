// SPDX-License-Identifier: Apache-2.0

package webrtc

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/stun/v4"
	pion "github.com/pion/webrtc/v4"
)

// check returns a binding request with a wrong password.
func check(t *testing.T) []byte {
	t.Helper()
	m, err := stun.Build(stun.TransactionID, stun.BindingRequest, stun.NewUsername("a:b"), stun.NewShortTermIntegrity("wrong"), stun.Fingerprint)
	if err != nil {
		t.Fatal(err)
	}
	return m.Raw
}

// inundate sends a packet many times from an address, and returns how long that took.
func inundate(t *testing.T, from string, to *net.UDPAddr, packet []byte, count int) time.Duration {
	t.Helper()
	began := time.Now()
	c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from)}, to)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for i := range count {
		_, _ = c.Write(packet) // ICMP answers do not matter
		if i%100 == 99 {
			time.Sleep(time.Millisecond)
		}
	}
	return time.Since(began)
}

// TestGuard floods a session's socket from the session's own address and from others. Only a few of these packets reach
// pion, and the session's packets get through while strangers flood.
func TestGuard(t *testing.T) {
	n, err := newGuardedNet()
	if err != nil {
		t.Fatal(err)
	}
	c, err := n.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var own, strange atomic.Int64
	var reading sync.WaitGroup
	reading.Go(func() {
		for b := make([]byte, 1500); ; {
			_, from, err := c.ReadFrom(b)
			switch {
			case err != nil:
				return
			case from.(*net.UDPAddr).IP.Equal(net.IPv4(127, 0, 0, 2)):
				own.Add(1)
			default:
				strange.Add(1)
			}
		}
	})
	to, packet := c.LocalAddr().(*net.UDPAddr), check(t)
	n.connected(netip.MustParseAddr("127.0.0.2"))
	const sent = 20000
	took := inundate(t, "127.0.0.3", to, packet, sent)
	if most := int64(took/strangerEvery) + strangerBurst; strange.Load() > most || strange.Load() == 0 {
		t.Errorf("pion got %d of %d packets of a stranger in %v, want %d at most", strange.Load(), sent, took, most)
	}
	before := strange.Load()
	inundate(t, "127.0.0.2", to, packet, 100)
	for end := time.Now().Add(patience); own.Load() < 100; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("pion got %d of the session's 100 packets", own.Load())
		}
	}
	if inundate(t, "127.0.0.3", to, packet, 100); strange.Load() > before {
		t.Errorf("%d packets of a stranger are read from a deaf socket", strange.Load()-before)
	}
	took = inundate(t, "127.0.0.2", to, packet, sent)
	if most := int64(took/peerEvery) + 2*peerBurst; own.Load() > most {
		t.Errorf("pion got %d of %d packets of the session's address in %v, want %d at most", own.Load(), sent, took, most)
	}
	closing := time.Now()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	reading.Wait()
	t.Logf("%d of a stranger, %d of the session's address; the reader ended after %v", strange.Load(), own.Load(), time.Since(closing))
}

// TestFloodedViewer checks that a viewer keeps receiving while strangers flood its session with ICE checks.
func TestFloodedViewer(t *testing.T) {
	_, _, base := serve(t, usual)
	v := watch(t, base, pion.SettingEngine{})
	remote := v.peer.SCTP().Transport().ICETransport()
	pair, err := remote.GetSelectedCandidatePair()
	if err != nil {
		t.Fatal(err)
	}
	to := &net.UDPAddr{IP: net.ParseIP(pair.Remote.Address), Port: int(pair.Remote.Port)}
	var flooding sync.WaitGroup
	flooding.Go(func() { inundate(t, "127.0.0.3", to, check(t), 20000) })
	v.next(t)
	flooding.Wait()
	v.next(t)
}
