// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"math"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// headers is by how much RTP, UDP, IP and Ethernet lengthen raw video in packets of 1500 bytes.
const headers = 1.07

// sending estimates whether the processors can send the raw streams of the service's configuration.
func (p patient) sending() (list []finding) {
	processors := 0
	for line := range strings.Lines(p.text("proc/cpuinfo")) {
		if strings.HasPrefix(line, "processor") {
			processors++
		}
	}
	c, err := p.config()
	if err != nil || processors == 0 {
		return nil // recordings tells the error
	}
	bits := 0.0
	for i := range c.Outputs {
		bits += rawBits(c, &c.Outputs[i])
	}
	need := int(math.Ceil(bits / send.ProcessorBits))
	says := fmt.Sprintf("raw streams of %.1f Gb/s to all destinations need about %d", bits/1e9, need)
	switch {
	case bits == 0:
		return nil
	case need > processors:
		return []finding{{
			"sending", isWarning, fmt.Sprintf("%s processors, and this machine has %d: frames may be lost", says, processors),
			"send to fewer destinations or to a multicast group, or lower rate or size",
		}}
	}
	return []finding{{"sending", isGood, fmt.Sprintf("%s of this machine's %d processors", says, processors), ""}}
}

// rawBits returns the bits per second that an output sends to all its destinations, or 0 if it sends no raw video or its
// format is not known before its source is opened.
func rawBits(c *config.Appliance, o *config.Output) float64 {
	k, is := o.Kind.(*config.RTP)
	source := c.Source(o.Source)
	if !is || k.Payload.V != rtp.Raw || source == nil || !source.FormatKnown {
		return 0
	}
	_, own, err := o.Formats(source.Format)
	if err != nil || own.Rate.Num == 0 {
		return 0
	}
	return 8 * headers * float64(own.Size()) / own.Rate.Period().Seconds() * float64(len(k.Destinations))
}
