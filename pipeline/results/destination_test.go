// SPDX-License-Identifier: Apache-2.0

package results

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/resolve/resolvetest"
)

// TestNameLeadsElsewhere checks that lines go to the current address of the destination's name, and that nothing
// changes while the name cannot be resolved.
func TestNameLeadsElsewhere(t *testing.T) {
	var at [2]*net.UDPConn
	var addrs [2]netip.Addr
	port := 0
	for i := range at {
		addrs[i] = netip.AddrFrom4([4]byte{127, 0, 0, byte(2 + i)})
		var err error
		if at[i], err = net.ListenUDP("udp4", &net.UDPAddr{IP: addrs[i].AsSlice(), Port: port}); err != nil {
			t.Fatal(err)
		}
		defer at[i].Close()
		port = at[i].LocalAddr().(*net.UDPAddr).Port
	}
	var code atomic.Uint32
	var leads atomic.Pointer[netip.Addr]
	leads.Store(&addrs[0])
	resolvetest.Answer(t, func() (dnsmessage.RCode, []netip.Addr) {
		return dnsmessage.RCode(code.Load()), []netip.Addr{*leads.Load()}
	})
	s, err := New(Config{UDP: []string{net.JoinHostPort("viewer.example", fmt.Sprint(port))}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	next, _ := startGraph(t, s, pipeline.Block)
	line := func(want int) {
		t.Helper()
		next <- nil
		if err := at[want].SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := at[want].ReadFrom(make([]byte, maxDatagram)); err != nil {
			t.Fatalf("address %d: %v", want, err)
		}
	}
	look := func() { s.udp[0].lookAgain(t.Context(), s.log) }
	line(0)
	look()
	line(0)
	leads.Store(&addrs[1])
	code.Store(uint32(dnsmessage.RCodeServerFailure))
	look()
	line(0)
	code.Store(uint32(dnsmessage.RCodeSuccess))
	look()
	line(1)
}
