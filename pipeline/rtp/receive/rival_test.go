// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"net/netip"
	"testing"

	"github.com/tegracast/tegracast/pipeline/rtp"
)

// TestTwoSenders checks that a second sender to the same port is named once packets of both alternate, with its address
// if it sends reports.
func TestTwoSenders(t *testing.T) {
	x := newFeed(t, rtp.Raw, 5)
	mine := x.sink
	other := testSender(t, rtp.Stream{Start: &rtp.Start{SSRC: 0x99}, Checksum: true}, mine.format)
	for n, want := range []string{"", "", "", "SSRC 00000099", "SSRC 00000099"} {
		if x.sink = mine; n%2 == 1 {
			x.sink = other
		}
		x.send(n, nil)
		if got := x.s.snapshot().OtherSender; got != want {
			t.Errorf("after packets %d: %q, want %q", n, got, want)
		}
	}
	c := other.compounds
	x.s.control(c.SenderReport(x.now, 0, 0), netip.MustParseAddrPort("192.0.2.7:4711"), x.now)
	if st := x.s.snapshot(); st.OtherSender != "SSRC 00000099, reports from 192.0.2.7:4711" || st.Frames != 3 || st.Foreign == 0 {
		t.Errorf("%+v", st)
	}
}
