// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/streams"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

func init() { addSink((*sinkOpener).openRTP) }

// openRTP opens an RTP stream.
func (op *sinkOpener) openRTP(f *flow, o *output, c *config.Output, k *config.RTP, own pipeline.Format) (pipeline.Sink, error) {
	cfg := k.Config(c.Name)
	cfg.Slices, cfg.Threads = c.Slices, op.threads
	cfg.Start = rtp.NewStart(f.timestamp)
	if camera, is := f.source.(*capture.FPGACamera); is {
		cfg.Reference = camera.ClockReport
	}
	cfg.Logger = op.log.With("output", c.Name)
	encoder, err := op.newEncoder(c, k, &cfg, own)
	if err != nil {
		return nil, err
	}
	sink, err := send.New(cfg, own)
	switch {
	case errors.Is(err, rtp.ErrConfig) || errors.Is(err, rtp.ErrFormat):
		return nil, errors.Join(c.OpenAt.Errorf("%w", err), encoder.Close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("output %s: %w", c.Name, err), encoder.Close())
	}
	sayHow(&cfg, c, k)
	o.free = func() error {
		op.streams.Rest(c.Name)
		return errors.Join(sink.Close(), encoder.Close())
	}
	if err := op.streams.Add(c.Name, sink, k.Publish, cfg.Logger); err != nil {
		return nil, errors.Join(err, o.free())
	}
	o.stream = &stream{c.Name, k, sink}
	if c.Video != nil {
		op.openVideo(o, c, sink, own)
	}
	return sink, nil
}

// sayHow logs when the packets of a stream leave, and their size if the path limits it.
func sayHow(cfg *send.Config, c *config.Output, k *config.RTP) {
	switch {
	case cfg.Slices:
		cfg.Logger.Info("packets leave while their frame arrives (latency: slice)")
	case cfg.Payload == rtp.Raw:
		cfg.Logger.Info("packets leave when their frame is complete", "reason", c.Whole)
	}
	if n := k.Narrow(); n > 0 {
		cfg.Logger.Info("packets are as long as the path to the destinations takes (mtu: auto)", "bytes", n)
	}
}

// newEncoder sets the encoder for a stream's payload in cfg, and returns its closer, which does nothing if the payload
// needs no encoder.
func (op *sinkOpener) newEncoder(c *config.Output, k *config.RTP, cfg *send.Config, f pipeline.Format) (io.Closer, error) {
	switch cfg.Payload {
	case rtp.JPEG:
		encoder, err := streams.NewJPEG(op.memory.allocator, cmp.Or(cfg.Quality, rtp.DefaultQuality), op.log.With("output", c.Name))
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", c.Name, err)
		}
		cfg.Encoder = encoder
		return encoder, nil
	case rtp.H264:
		cfg.LeastBits, cfg.MostBits = k.Bits(f)
		encoder, err := streams.NewH264(k.Encoder, f, cfg.MostBits)
		if err != nil {
			return nil, c.OpenAt.Errorf("%w", err)
		}
		cfg.Logger.Info("H.264 is encoded", "by", cmp.Or(k.Encoder, "openh264, on the CPU"), "bits_per_second", cfg.MostBits)
		cfg.H264 = encoder
		return encoder, nil
	}
	return io.NopCloser(nil), nil
}
