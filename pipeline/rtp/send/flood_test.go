// SPDX-License-Identifier: Apache-2.0

package send

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/rtcp"
	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/rtp/udp"
)

// TestRTCPFlood floods the RTCP socket of a destination from the receiver's own address, and checks that about as many
// packets are read as the limit allows in that time. From another address none are read, unless the destination is a
// group.
func TestRTCPFlood(t *testing.T) {
	report, err := (&rtcp.ReceiverReport{SSRC: 9, Reports: []rtcp.ReceptionReport{{SSRC: 1}}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		to, from string
		packet   []byte
		heard    bool
	}{
		"the receiver":     {"127.0.0.2:5004", "127.0.0.2", report, true},
		"a stranger":       {"127.0.0.2:5004", "127.0.0.3", report, false},
		"no RTCP":          {"127.0.0.2:5004", "127.0.0.2", make([]byte, 1000), false},
		"a group's member": {"239.255.42.1:5004", "127.0.0.3", report, true},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := newDestination(at(tt.to), Config{Interface: "lo"}.withDefaults(), 1<<16, false)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			var heard atomic.Int64
			var hearing sync.WaitGroup
			hearing.Go(func() {
				d.hear(func(*destination, []byte, netip.AddrPort, time.Time) { heard.Add(1) })
			})
			const sent = 20000
			to := d.socket.conn.LocalAddr().(*net.UDPAddr)
			inundate(t, tt.from, to, tt.packet, sent)
			closing := time.Now()
			if err := d.close(); err != nil {
				t.Error(err)
			}
			hearing.Wait()
			took := time.Since(began)
			t.Logf("%d of %d packets were read in %v", heard.Load(), sent, took)
			if most := int64(took/hearEvery) + 2*hearBurst; heard.Load() > most {
				t.Errorf("%d packets were read in %v, want %d at most", heard.Load(), took, most)
			}
			if (heard.Load() > 0) != tt.heard {
				t.Errorf("%d packets were read, want some: %v", heard.Load(), tt.heard)
			}
			if ended := time.Since(closing); tt.heard && ended > hearBurst*hearEvery {
				t.Errorf("the reader ended %v after its socket", ended)
			}
		})
	}
}

// TestRTPSocketTakesNothing checks that packets sent to the source port of RTP are discarded, so that they cannot fill
// the buffer and keep ICMP answers out.
func TestRTPSocketTakesNothing(t *testing.T) {
	peer, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = peer.Close() }()
	d, err := newDestination(at(peer.LocalAddr().String()), Config{}.withDefaults(), 1<<16, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.close() }()
	local, err := unix.Getsockname(d.socket.fd)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := peer.WriteToUDPAddrPort(make([]byte, 100), udp.AddrPort(local)); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.IoctlGetInt(d.socket.fd, unix.TIOCINQ); n != 0 || err != nil {
		t.Errorf("%d bytes wait, %v", n, err)
	}
}

// inundate sends packets from an address as fast as a reader on a slow machine could read them.
func inundate(t *testing.T, from string, to *net.UDPAddr, packet []byte, count int) {
	t.Helper()
	c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from)}, to)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for i := range count {
		if _, err := c.Write(packet); err != nil {
			t.Fatal(err)
		}
		if i%100 == 99 {
			time.Sleep(time.Millisecond)
		}
	}
}
