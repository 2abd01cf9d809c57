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

func init() { addSink((*Appliance).openRTP) }

// openRTP opens an RTP stream.
func (a *Appliance) openRTP(f *flow, o *output, c *config.Output, k *config.RTP, own pipeline.Format) (pipeline.Sink, error) {
	cfg := k.Config(c.Name)
	cfg.Start = rtp.NewStart(f.timestamp)
	cfg.Logger = a.env.Log.With("output", c.Name)
	var encoder *gpuJPEG
	if cfg.Payload == rtp.JPEG {
		var err error
		if encoder, err = a.newJPEG(c.Name, cmp.Or(cfg.Quality, rtp.DefaultQuality)); err != nil {
			return nil, fmt.Errorf("output %s: %w", c.Name, err)
		}
		if encoder != nil {
			cfg.Encoder = encoder
		}
	}
	sink, err := send.New(cfg, own)
	switch {
	case errors.Is(err, rtp.ErrConfig) || errors.Is(err, rtp.ErrFormat):
		return nil, errors.Join(c.OpenAt.Errorf("%w", err), encoder.Close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("output %s: %w", c.Name, err), encoder.Close())
	}
	o.free = func() error { return errors.Join(sink.Close(), encoder.Close()) }
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
