// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// A Stream is an RTP output of an appliance.
type Stream struct{ s *stream }

// SDP returns the description of the stream.
func (s Stream) SDP() ([]byte, error) { return s.s.sink.SDP() }

// Pictures reports whether the stream sends pictures. Other streams send results.
func (s Stream) Pictures() bool { return s.s.config.Payload.V != rtp.Results }

// Trial runs a configuration until ctx ends, a source fails or all have ended, and prints its statistics. It calls
// begin with the streams before anything is sent, and end after the last packet and before the statistics. If begin
// fails, nothing is sent.
func Trial(ctx context.Context, e Env, c *config.Appliance, begin func([]Stream) error, end func()) error {
	a, err := Open(e, c, Options{ExitAtEnd: true})
	if err != nil {
		return err
	}
	var list []Stream
	for _, s := range a.flows.streams() {
		list = append(list, Stream{s})
	}
	if err = begin(list); err == nil {
		err = a.runner.run(ctx, nil)
	}
	end()
	terminal.Summary(e.Out, a.reports.stats())
	a.sinks.streams.Print(e.Out)
	return a.finish(err)
}
