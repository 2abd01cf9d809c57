// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/streams"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// errNoOutput means that there is no output of that name.
var errNoOutput = errors.New("there is no output of that name")

// An outputReport describes an output and the operations that it allows.
type outputReport struct {
	Name      string
	From      string // the source or stage that it reads from
	Sends     string // description of the payload
	To        []string
	Added     []string          // those of To that clients have added
	Troubles  map[string]string // destinations of To that get no whole frames, and why
	RTSP      string            // URL for reading it; empty: none
	Readers   []streams.Reader  // those that receive it by RTSP or WHEP, and the server to which it is published
	SDP       bool              // it is a stream with destinations, which an SDP file describes
	WHEP      bool              // it can be watched by WebRTC
	Picture   bool              // it can be viewed
	Samples   bool              // its source is a sensor, whose samples can be downloaded
	Record    bool              // it is a recording
	Trigger   bool              // it is a recording with triggers
	Files     bool              // its recordings can be listed
	Stopped   bool              // a client has stopped it; a client or the next reload starts it again
	Recording *record.State     // of an open recording; nil for others
	pipeline.OutputStatus
}

var payloadNames = [...]string{
	rtp.Raw: "raw video (RFC 4175)", rtp.JPEG: "JPEG (RFC 2435)", rtp.H264: "H.264 (RFC 6184)", rtp.Results: "results as JSON",
}

// reportConfigured describes an output that is not open yet.
func reportConfigured(c *config.Output) outputReport {
	x := outputReport{Name: c.Name, From: c.From, Sends: "frames"}
	switch k := c.Kind.(type) {
	case *config.RTP:
		x.Sends, x.To = payloadNames[k.Payload.V], k.Destinations
	case *config.UCX:
		x.Sends = k.Sends()
	case *config.Record:
		x.Sends, x.Record = "a recording", true
	}
	return x
}
