// SPDX-License-Identifier: Apache-2.0

package send

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/bitrate"
)

// adaptation has an encoder follow what receivers report.
type adaptation struct {
	control *bitrate.Control // nil: the encoder's bits stay
	encoder rtp.H264Encoder
	log     *slog.Logger
	most    int
	bits    atomic.Int64 // a second, that the encoder makes
	logged  time.Time    // when the log heard of fewer bits last
	refused bool         // the encoder has not taken the last change, as the log has heard,
	again   time.Time    // and is told no sooner
}

// nearly is the part of the rate by which it must differ for the encoder to hear of it.
const nearly = 20

// refusedFor is how long an encoder is left alone that has not taken a change.
const refusedFor = time.Second

func newAdaptation(c Config) *adaptation {
	a := &adaptation{}
	if c.Payload == rtp.H264 && c.MostBits > 0 {
		a.control, a.encoder, a.log, a.most = bitrate.New(c.LeastBits, c.MostBits), c.H264, c.Logger, c.MostBits
		a.bits.Store(int64(c.MostBits))
	}
	return a
}

// follow tells the encoder what it may make now.
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
	if a.bits.Store(int64(bits)); is == a.most && now.Sub(a.logged) > tellEvery {
		a.logged = now
		a.log.Info("rtp: receivers lose packets, or say that their network takes less: the picture gets fewer bits", "bits_per_second", bits)
	}
}

// sent takes the bytes of a picture that leaves.
func (a *adaptation) sent(bytes int, now time.Time) {
	if a.control != nil {
		a.control.Sent(8*bytes, now)
	}
}

// lost takes what a receiver reports.
func (a *adaptation) lost(reports []Report) {
	if a.control == nil {
		return
	}
	for _, r := range reports {
		a.control.Lost(r.FractionLost, r.At)
	}
}

// Lost takes the share of packets, 0 to 1, that a receiver has lost to which somebody else sends the stream (Watch).
func (s *Sink) Lost(share float64) {
	s.sender.adaptation.lost([]Report{{FractionLost: share, At: time.Now()}})
}

// Estimate takes the bits a second that the network of such a receiver takes, as it says itself.
func (s *Sink) Estimate(receiver string, bits float64) {
	if c := s.sender.adaptation.control; c != nil {
		c.Estimate(receiver, bits, time.Now())
	}
}
