// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pion/rtcp"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/codec"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestLossesCostBits checks that the encoder's bit rate falls while a receiver reports losses, down to the configured
// minimum, and then slowly rises again. Without losses, or with losses of another stream, it stays the same.
func TestLossesCostBits(t *testing.T) {
	const most, least, fps = 240_000, 48_000, 15
	f := rtptest.Format(t, pipeline.I420, 160, 96, fps)
	from := netip.MustParseAddrPort("192.0.2.1:5005")
	for name, tt := range map[string]struct {
		about       uint32    // SSRC of the stream in the reports
		lost        [14]uint8 // lost packets of 256, for each second
		after, ends int       // approximate bits in the last second; bit rate last told to the encoder
	}{
		"no losses":         {rtptest.SSRC, [14]uint8{}, most, most},
		"of another stream": {77, [14]uint8{1: 255, 2: 255, 3: 255, 4: 255, 5: 255, 6: 255}, most, most},
		"losses":            {rtptest.SSRC, [14]uint8{5: 255, 6: 255, 7: 255, 8: 255, 9: 255, 10: 255, 11: 255, 12: 255, 13: 255}, least, least},
		"losses at first":   {rtptest.SSRC, [14]uint8{0: 255, 1: 255, 2: 255}, 64_000, 64_000},
	} {
		h, err := codec.NewH264(f, most)
		if err != nil {
			t.Fatal(err)
		}
		s := testSink(t, Config{Stream: rtp.Stream{Payload: rtp.H264, H264: h, Start: testStart()}, MostBits: most, LeastBits: least}, f)
		bits, now := 0, time.Unix(1700000000, 0)
		for n := range len(tt.lost) * fps {
			if second := n / fps; n%fps == 0 {
				bits = 0
				report, err := (&rtcp.ReceiverReport{SSRC: 7, Reports: []rtcp.ReceptionReport{{SSRC: tt.about, FractionLost: tt.lost[second]}}}).Marshal()
				if err != nil {
					t.Fatal(err)
				}
				s.sender.listen(&destination{}, report, from, now)
			}
			s.sender.adaptation.follow(now)
			for _, p := range packets(t, s, rtptest.Frame(f, n%2)) {
				bits += 8 * len(p)
			}
			now = now.Add(time.Second / fps)
		}
		told := s.Stats().Bits
		t.Logf("%s: %d bits, the encoder was told %d", name, bits, told)
		if told < tt.ends*9/10 || told > tt.ends*12/10 || bits < tt.after*7/10 || bits > tt.after*13/10 {
			t.Errorf("%s: %d bits, not about %d; the encoder was told %d, not about %d", name, bits, tt.after, told, tt.ends)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// stubborn is an encoder that refuses another bit rate until may is set.
type stubborn struct {
	rtp.H264Encoder
	may  bool
	told int
}

func (s *stubborn) SetBitrate(int) error {
	if s.told++; s.may {
		return nil
	}
	return errors.New("no")
}

// TestAdaptRefused checks that the reported bit rate is that of the encoder. An encoder that refuses a change is told
// again later, and the refusal is logged once.
func TestAdaptRefused(t *testing.T) {
	const most = 240_000
	var log bytes.Buffer
	e := &stubborn{}
	a := newAdaptation(Config{
		Stream: rtp.Stream{Payload: rtp.H264, H264: e}, MostBits: most, LeastBits: most / 4, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	now := time.Unix(1700000000, 0)
	a.lost([]Report{{FractionLost: 0.5, At: now}})
	for range 4 * 15 { // frames in 4 s
		a.follow(now)
		now = now.Add(time.Second / 15)
	}
	if got := a.bits.Load(); got != most || e.told != 4 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("%d bits after %d refusals; the log: %s", got, e.told, &log)
	}
	e.may = true
	if a.follow(now.Add(refusedFor)); a.bits.Load() != most*3/4 {
		t.Errorf("%d bits when the encoder takes them", a.bits.Load())
	}
}
