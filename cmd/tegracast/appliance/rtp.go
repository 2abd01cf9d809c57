// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// openRTP opens an RTP stream.
func (a *Appliance) openRTP(f *flow, o *output, c *config.Output, k *config.RTP, own pipeline.Format) (pipeline.Sink, error) {
	cfg := k.Config(c.Name)
	cfg.Start = rtp.NewStart(f.timestamp)
	cfg.Logger = a.env.Log.With("output", c.Name)
	var free []func() error
	o.free = func() error {
		var errs []error
		for _, give := range free {
			errs = append(errs, give())
		}
		return errors.Join(errs...)
	}
	if cfg.Payload == rtp.JPEG {
		encoder, err := a.newJPEG(c.Name, cmp.Or(cfg.Quality, rtp.DefaultQuality))
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", c.Name, err)
		}
		if encoder != nil {
			cfg.Encoder, free = encoder, append(free, encoder.Close)
		}
	}
	sink, err := send.New(cfg, own)
	switch {
	case errors.Is(err, rtp.ErrConfig) || errors.Is(err, rtp.ErrFormat):
		return nil, errors.Join(c.OpenAt.Errorf("%w", err), o.close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("output %s: %w", c.Name, err), o.close())
	}
	free = append([]func() error{sink.Close}, free...) // before the encoder that it uses
	o.stream = &stream{c.Name, k, sink}
	return sink, nil
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
