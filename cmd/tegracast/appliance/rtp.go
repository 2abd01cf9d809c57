// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/egress"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

func init() { addSink((*Appliance).openRTP) }

// openRTP opens an RTP stream.
func (a *Appliance) openRTP(f *flow, o *output, c *config.Output, k *config.RTP, own pipeline.Format) (pipeline.Sink, error) {
	cfg := k.Config(c.Name)
	cfg.Slices, cfg.Threads = c.Slices, a.threads
	cfg.Start = rtp.NewStart(f.timestamp)
	cfg.Logger = a.env.Log.With("output", c.Name)
	encoder, err := a.newEncoder(c, k, &cfg, own)
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
		a.egress.Rest(c.Name)
		return errors.Join(sink.Close(), encoder.Close())
	}
	if err := a.egress.Add(c.Name, sink, k.Publish, cfg.Logger); err != nil {
		return nil, errors.Join(err, o.free())
	}
	o.stream = &stream{c.Name, k, sink}
	return sink, nil
}

// sayHow tells the log how the packets of a stream leave.
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

// newEncoder gives a stream the encoder that its payload needs, and returns what closes it.
func (a *Appliance) newEncoder(c *config.Output, k *config.RTP, cfg *send.Config, f pipeline.Format) (io.Closer, error) {
	switch cfg.Payload {
	case rtp.JPEG:
		encoder, err := egress.NewJPEG(a.memory, cmp.Or(cfg.Quality, rtp.DefaultQuality), a.env.Log.With("output", c.Name))
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", c.Name, err)
		}
		cfg.Encoder = encoder
		return encoder, nil
	case rtp.H264:
		cfg.LeastBits, cfg.MostBits = k.Bits(f)
		encoder, err := egress.NewH264(k.Encoder, f, cfg.MostBits)
		if err != nil {
			return nil, c.OpenAt.Errorf("%w", err)
		}
		cfg.Logger.Info("H.264 is encoded", "by", cmp.Or(k.Encoder, "openh264, on the CPU"), "bits_per_second", cfg.MostBits)
		cfg.H264 = encoder
		return encoder, nil
	}
	return io.NopCloser(nil), nil
}

// redirect gives the RTP streams of these names the destinations that c says.
func (a *Appliance) redirect(ctx context.Context, c *config.Appliance, names map[string]bool) error {
	for _, f := range a.flows {
		for _, o := range f.outputs {
			if !names[o.name] || o.stream == nil {
				continue
			}
			next := c.Output(o.name)
			k := next.Kind.(*config.RTP)
			if err := a.egress.Redirect(ctx, o.name, o.stream.config.Destinations, k.Destinations); err != nil {
				return next.OpenAt.Errorf("%w", err)
			}
			a.mu.Lock()
			o.stream = &stream{o.name, k, o.stream.sink}
			a.mu.Unlock()
		}
	}
	return nil
}

// streams are the RTP streams that run.
func (a *Appliance) streams() []*stream {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*stream
	for _, f := range a.flows {
		for _, o := range f.outputs {
			if o.stream != nil {
				list = append(list, o.stream)
			}
		}
	}
	return list
}
