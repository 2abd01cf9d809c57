// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline/printable"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

const sendUsage = `Usage: tegracast send OUTPUT HOST:PORT [--stop] [--config FILE]

Has the serve that runs on this machine send the RTP stream OUTPUT to one more
receiver, until --stop, or until serve ends or restarts the output. Prints the
stream's description (SDP), which the receiver needs:

  tegracast send raw 192.0.2.7:5004 > raw.sdp

On 192.0.2.7, with that file: ffplay -protocol_whitelist file,udp,rtp raw.sdp
To keep a destination, write it into the configuration. PORT is even; RTCP takes
the next one. docs/watch.md has other players, and what a firewall must let in.

Status 1 when no serve answers, or when it refuses.
`

func sendCommand(ctx context.Context, e env, args []string) error {
	f := e.flags("send", sendUsage)
	stop := f.Bool("stop", false, "stop sending the stream to HOST:PORT")
	path := configOption(f)
	if err := parseOptions(f, args); err != nil {
		return err
	}
	if f.NArg() != 2 {
		return terminal.UsageError{Err: errors.New("name an output and a receiver, such as raw 192.0.2.7:5004: try tegracast send --help")}
	}
	name, to := f.Arg(0), f.Arg(1)
	if err := send.CheckDestination(to); err != nil {
		return terminal.UsageError{Err: err}
	}
	ask, err := askerFor(*path)
	if err != nil {
		return err
	}
	method := http.MethodPut
	if *stop {
		method = http.MethodDelete
	}
	sdp, err := ask.askOutput(ctx, method, "/api/v1/outputs/", name, "/destinations/"+url.PathEscape(to))
	if err != nil {
		return err
	}
	if !*stop {
		_, err = io.WriteString(e.Out, printable.Lines(string(sdp)))
	}
	return err
}
