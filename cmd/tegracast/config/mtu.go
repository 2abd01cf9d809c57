// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// A packetSize is the maximum size of an IP packet in bytes; 0: what the paths to the destinations support.
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

// FindPaths determines, for each RTP output whose section gives no packet size, the size that the paths to its
// destinations support. It returns within resolve.Limit.
func (a *Appliance) FindPaths(ctx context.Context) {
	var all sync.WaitGroup
	for i := range a.Outputs {
		if k, is := a.Outputs[i].Kind.(*RTP); is && k.MTU.V == 0 {
			all.Go(func() { k.path = send.PathMTU(ctx, k.Destinations, k.Interface) })
		}
	}
	all.Wait()
}

// Narrow returns the packet size in bytes that the paths to the destinations support. It returns 0 if the configuration
// gives the size, if the paths support packets of the usual size, or if the size was not determined.
func (c *RTP) Narrow() int {
	if c.MTU.V != 0 {
		return 0
	}
	return c.path
}

// NewPaths lists the RTP outputs for which FindPaths found another packet size than in old. It leaves out those that
// old does not have.
func (a *Appliance) NewPaths(old *Appliance) (names []string) {
	for i := range a.Outputs {
		if o := &a.Outputs[i]; !o.samePath(old.Output(o.Name)) {
			names = append(names, o.Name)
		}
	}
	return names
}

// samePath reports whether FindPaths found the same packet size for two outputs. If other is nil, or one of them is not
// an RTP stream, it returns true.
func (o *Output) samePath(other *Output) bool {
	k, is := o.Kind.(*RTP)
	if !is || other == nil {
		return true
	}
	x, is := other.Kind.(*RTP)
	return !is || k.path == x.path
}
