// SPDX-License-Identifier: Apache-2.0

package send

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/bitrate"
)

// adaptation adjusts the encoder's bit rate to the receivers' reports.
type adaptation struct {
	control *bitrate.Control // nil if the encoder's bit rate is fixed
	encoder rtp.H264Encoder
	log     *slog.Logger
	most    int
	bits    atomic.Int64 // current bit rate of the encoder in bits per second; 0 if it is fixed
	logged  time.Time    // when a reduced bit rate was last logged
	refused bool         // the encoder has refused the latest change, and this was logged
	again   time.Time    // earliest time of the next attempt
}

// nearly limits the changes that are passed to the encoder to those of at least 1/nearly of the current bit rate, and
// those to the maximum.
const nearly = 20

// refusedFor is the pause after the encoder has refused a change.
const refusedFor = time.Second

func newAdaptation(c Config) *adaptation {
	a := &adaptation{}
	if c.Payload == rtp.H264 && c.MostBits > 0 {
		a.control, a.encoder, a.log, a.most = bitrate.New(c.LeastBits, c.MostBits), c.H264, c.Logger, c.MostBits
		a.bits.Store(int64(c.MostBits))
	}
	return a
}

// follow sets the encoder's bit rate to what the receivers currently allow, unless the two are nearly equal, or the
// encoder has refused a change less than refusedFor ago.
func (a *adaptation) follow(now time.Time) {
	if a.control == nil || now.Before(a.again) {
		return
	}
	bits, is := a.control.Bits(now), int(a.bits.Load())
	if far := is / nearly; bits == is || bits > is-far && bits < is+far && bits != a.most {
		return
	}
	if err := a.encoder.SetBitrate(bits); err != nil {
		if !a.refused {
			a.log.Warn("rtp: the encoder's bit rate cannot be changed", "bits_per_second", bits, "error", err)
		}
		a.refused, a.again = true, now.Add(refusedFor)
		return
	}
	a.refused = false
	if a.bits.Store(int64(bits)); is == a.most && now.Sub(a.logged) > logEvery {
		a.logged = now
		a.log.Info("rtp: receivers report losses or too little bandwidth: lowering the bit rate of the picture", "bits_per_second", bits)
	}
}

// sent records the bytes of a picture that is being sent.
func (a *adaptation) sent(bytes int, now time.Time) {
	if a.control != nil {
		a.control.Sent(8*bytes, now)
	}
}

// lost records the losses that receivers report.
func (a *adaptation) lost(reports []Report) {
	if a.control == nil {
		return
	}
	for _, r := range reports {
		a.control.Lost(r.FractionLost, r.At)
	}
}

// Lost records the share of packets, from 0 to 1, lost by a receiver that gets the stream from the caller of Watch.
func (s *Sink) Lost(share float64) {
	s.sender.adaptation.lost([]Report{{FractionLost: share, At: time.Now()}})
}

// Estimate records the bandwidth to a receiver, in bits per second, as reported by that receiver, which gets the stream
// from the caller of Watch. receiver is any name that identifies it.
func (s *Sink) Estimate(receiver string, bits float64) {
	if c := s.sender.adaptation.control; c != nil {
		c.Estimate(receiver, bits, time.Now())
	}
}
