// SPDX-License-Identifier: Apache-2.0

package send

import (
	"net/netip"
	"testing"
	"time"

	"github.com/pion/rtcp"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/codec"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestKeyFrameWhenAsked checks that PLI and FIR for the stream, and a new destination, cause a key frame, and that
// other RTCP packets and requests for another stream do not.
func TestKeyFrameWhenAsked(t *testing.T) {
	const ssrc, other = rtptest.SSRC, 77
	f := rtptest.Format(t, pipeline.I420, 160, 96, 2) // at this rate two successive frames may be key frames
	from := netip.MustParseAddrPort("192.0.2.1:5005")
	for name, tt := range map[string]struct {
		packet rtcp.Packet // nil: a destination is added instead
		key    bool
	}{
		"PLI":               {&rtcp.PictureLossIndication{SenderSSRC: other, MediaSSRC: ssrc}, true},
		"FIR":               {&rtcp.FullIntraRequest{SenderSSRC: other, FIR: []rtcp.FIREntry{{SSRC: other}, {SSRC: ssrc}}}, true},
		"PLI of another":    {&rtcp.PictureLossIndication{SenderSSRC: 1, MediaSSRC: other}, false},
		"FIR of another":    {&rtcp.FullIntraRequest{SenderSSRC: 1, FIR: []rtcp.FIREntry{{SSRC: other}}}, false},
		"report":            {&rtcp.ReceiverReport{SSRC: other, Reports: []rtcp.ReceptionReport{{SSRC: ssrc}}}, false},
		"a new destination": {nil, true},
	} {
		h, err := codec.NewH264(f, 1e6)
		if err != nil {
			t.Fatal(err)
		}
		s := testSink(t, Config{Stream: rtp.Stream{Payload: rtp.H264, H264: h, Start: testStart()}}, f)
		isKey := func(n int) bool { return packets(t, s, rtptest.Frame(f, n))[0][12]&31 == rtp.UnitSPS }
		if !isKey(0) || isKey(1) {
			t.Fatalf("%s: the first frame alone must be a key frame", name)
		}
		if tt.packet == nil {
			if err := s.Add(at("127.0.0.1:5004")); err != nil {
				t.Fatal(err)
			}
		} else {
			b, err := tt.packet.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			s.sender.listen(&destination{}, b, from, time.Now())
		}
		if got := isKey(2); got != tt.key {
			t.Errorf("%s: a key frame comes: %v", name, got)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}
