// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"fmt"
	"strconv"

	"github.com/tegracast/tegracast/pipeline/resolve"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// A packetSize is the size of the largest IP packet in bytes; 0: what the path takes.
type packetSize int

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *packetSize) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		*p = 0
		return nil
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n < rtp.MinMTU || n > rtp.MaxMTU {
		return fmt.Errorf("%q: must be auto, or a whole number from %d to %d", text, rtp.MinMTU, rtp.MaxMTU)
	}
	*p = packetSize(n)
	return nil
}

// FindPaths looks which packets the paths to the destinations take, for each output that does not say. It returns within
// resolve.Limit.
func (a *Appliance) FindPaths(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, resolve.Limit)
	defer cancel()
	for i := range a.Outputs {
		if k, is := a.Outputs[i].Kind.(*RTP); is && k.MTU.V == 0 {
			k.path = send.PathMTU(ctx, k.Destinations, k.Interface)
		}
	}
}

// Narrow is how many bytes the paths to the destinations take in a packet, where nobody has said it; 0: as many as usual.
func (c *RTP) Narrow() int {
	if c.MTU.V != 0 {
		return 0
	}
	return c.path
}

// NewPaths lists the outputs whose packets must have another size than in old, for want of a size in the configuration.
func (a *Appliance) NewPaths(old *Appliance) (names []string) {
	for i := range a.Outputs {
		if o := &a.Outputs[i]; !o.samePath(old.Output(o.Name)) {
			names = append(names, o.Name)
		}
	}
	return names
}

// samePath says whether the paths of two outputs take packets of the same size. nil is no output.
func (o *Output) samePath(other *Output) bool {
	k, is := o.Kind.(*RTP)
	if !is || other == nil {
		return true
	}
	x, is := other.Kind.(*RTP)
	return !is || k.path == x.path
}
