// SPDX-License-Identifier: Apache-2.0

// Package verdict judges received streams.
package verdict

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline/printable"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/receive"
)

// silenceLimit returns how long a stream may be silent: three frame periods, but at least a second.
func silenceLimit(m rtp.Media) time.Duration { return max(time.Second, 3*m.Rate.Period()) }

// A Cut describes how a signal ended a reception early, and is empty if none did. What was received until then is not
// what was asked for, so it is never clean.
type Cut string

// CutOff returns the Cut of a reception that ended after part of its duration because ctx has ended.
func CutOff(ctx context.Context, after, duration time.Duration) Cut {
	if ctx.Err() == nil {
		return ""
	}
	return Cut(fmt.Sprintf("interrupted after %.1f s of %v", after.Seconds(), duration))
}

// judge returns the verdict on the whole reception, given that on what was received.
func (c Cut) judge(clean bool, verdict string) (bool, string) {
	if c == "" {
		return clean, verdict
	}
	return false, string(c) + "; until then " + verdict
}

// Judge reports whether the reception was clean: everything that was promised has arrived, unchanged and in time, and
// nothing else came. It also describes the result in words.
func Judge(m rtp.Media, st receive.Stats, cut Cut) (clean bool, verdict string) {
	return cut.judge(judge(m, st))
}

func judge(m rtp.Media, st receive.Stats) (clean bool, verdict string) {
	switch {
	case st.Packets == 0:
		return false, fmt.Sprintf("silence: no packet arrived at port %d: is the sender running, and does it send to this host?", m.Port)
	case st.OtherSender != "":
		return false, fmt.Sprintf("NOT clean: another sender (%s) sends to this port, too: %d packets: stop it, or give it another port",
			st.OtherSender, st.Foreign)
	case st.Frames == 0 || st.Lost > 0 || st.Damaged > 0 || st.Mismatched > 0 || st.Malformed > 0 || st.Late > 0:
		return false, "NOT clean" + whose(st)
	case !st.Ended && st.Silence > silenceLimit(m):
		return false, fmt.Sprintf("NOT clean: silent for the last %.1f s, without BYE: did the sender or the network fail?", st.Silence.Seconds())
	case m.Checksum && st.Matched == 0:
		return false, fmt.Sprintf("NOT clean: the sender promises checksums, but none came by RTCP: is port %d open?", m.RTCPPort)
	case st.Matched == 0:
		return true, "clean, pixels not verified"
	case st.SourceUnverified > 0:
		return true, "clean since the sender; its camera's stream has no checksums"
	}
	return true, "clean"
}

// whose describes where packets were lost, or what else went wrong, as far as the counters tell; "" if they do not.
func whose(st receive.Stats) string {
	switch {
	case st.Lost == 0 && st.SourceDamaged > 0:
		return fmt.Sprintf(": %d frames were damaged before they were sent: the sender's log says why", st.SourceDamaged)
	case st.Lost == 0 && st.Damaged == 0 && st.Late > 0:
		return fmt.Sprintf(": %d packets came after their frame had been given up: does the sender repeat timestamps, or send frames in another order?", st.Late)
	case st.Lost == 0 || st.Drops < 0:
		return ""
	case st.Drops == 0:
		return ": none of the lost packets was dropped at this socket: look at the sender, the network and this machine's network card (ethtool -S)"
	}
	more := ""
	if st.Lost > uint64(st.Drops)*receive.MaxSegments {
		more = ", and other packets were lost on their way here"
	}
	return fmt.Sprintf(": this machine was too slow and dropped %d datagrams%s: give the receiver processors, and a larger buffer (sysctl net.core.rmem_max)",
		st.Drops, more)
}

// Stream is the JSON that probe prints about a stream (docs/json.md).
type Stream struct {
	Name        string `json:"stream,omitempty"`      // path of its description's file, then `#2` for the second stream
	Clean       bool   `json:"clean"`                 // all that was promised came
	Verdict     string `json:"verdict"`               // the same in words, with advice
	Interrupted bool   `json:"interrupted,omitempty"` // by a signal, before the duration had passed
	Promised    bool   `json:"checksum_promised"`     // the description promises checksums
	receive.Stats
}

// Print prints a receiver's counters with the verdict. name distinguishes several streams, and may be empty.
func Print(w io.Writer, name string, m rtp.Media, st receive.Stats, cut Cut, asJSON bool) error {
	clean, verdict := Judge(m, st, cut)
	if asJSON {
		return terminal.WriteJSON(w, Stream{name, clean, verdict, cut != "", m.Checksum, st})
	}
	jitter, latency, last := notMeasured, notMeasured, "never"
	if st.Packets > 1 {
		jitter = fmt.Sprintf("%.3f ms", float64(st.Jitter)/1e6)
	}
	if l := st.Latency; l.Count > 0 {
		latency = fmt.Sprintf("p50 %s, p99 %s, p99.9 %s, max %s (capture to complete frame)", ms(l.P50), ms(l.P99), ms(l.P999), ms(l.Max))
	}
	if st.Packets > 0 {
		last = fmt.Sprintf("%s, %.3f s before the end", st.LastPacket.Format("15:04:05.000"), st.Silence.Seconds())
	}
	if st.Ended {
		last += ", then BYE"
	}
	here := "not known"
	if st.Drops >= 0 {
		here = fmt.Sprint(st.Drops)
	}
	if name != "" {
		name += ": "
	}
	results := ""
	if m.Payload == rtp.Results {
		results = fmt.Sprintf("results     in %d frames, with %d regions\n", st.Results, st.Regions)
	}
	interlaced := ""
	if st.Interlaced {
		interlaced = " (interlaced video is not received)"
	}
	fmt.Fprintf(w, `%s%s from %s, port %d: %s
packets     %d, lost %d, reordered %d, duplicate %d, late %d, malformed %d%s, foreign %d
last packet %s
frames      %d complete, %d damaged, %d of them at the source
pixels      CRC right in %d frames, wrong in %d, not checked in %d
jitter      %s
latency     %s
buffer      %d bytes, datagrams dropped here %s
%s`, printable.Text(name), m.Payload, m.Address, m.Port, printable.Text(verdict),
		st.Packets, st.Lost, st.Reordered, st.Duplicates, st.Late, st.Malformed, interlaced, st.Foreign,
		last, st.Frames, st.Damaged, st.SourceDamaged, st.Matched, st.Mismatched, st.Unverified, jitter, latency, st.Buffer, here, results)
	return nil
}

const notMeasured = "not measured"

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }
