// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/live"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// A Stream is an RTP output of an appliance.
type Stream struct{ s *stream }

// SDP describes the stream.
func (s Stream) SDP() ([]byte, error) { return s.s.sink.SDP() }

// Pictures reports whether the stream has pictures. The others have results.
func (s Stream) Pictures() bool { return s.s.config.Payload.V != rtp.Results }

// Trial runs a configuration until ctx ends, and tells its books. begin gets the streams before anything is sent; end is
// called after the last packet was, before the books.
func Trial(ctx context.Context, e Env, c *config.Appliance, begin func([]Stream) error, end func()) error {
	a, err := Open(e, c)
	if err != nil {
		return err
	}
	r := &runner{a: a, cfg: c, exits: true}
	var list []Stream
	for _, s := range a.streams() {
		list = append(list, Stream{s})
	}
	if err = begin(list); err == nil {
		err = r.run(ctx, nil)
	}
	end()
	live.Summary(e.Out, a.stats())
	a.egress.Print(e.Out)
	return a.finish(err)
}
