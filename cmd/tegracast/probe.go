package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/receive"
)

const probeUsage = `Usage: tegracast probe --sdp FILE [--duration D] [--json] [--save FILE]

Receives a stream and checks it: packets, losses, reordering, jitter, complete
frames, the pixels' CRC against the sender's (checksum: true), and the latency
from capture to complete frame, which needs synchronised clocks when the sender
is another machine. Status 0 when clean, 1 after loss, damage, silence, or when
no pixels could be verified although the sender promises checksums.
`

func probe(ctx context.Context, e env, args []string) error {
	f := e.flags("probe", probeUsage)
	sdp := f.String("sdp", "", "session description `FILE` of the stream")
	duration := f.Duration("duration", 10*time.Second, "how long to receive, such as 30s")
	asJSON := f.Bool("json", false, "print the result as JSON")
	save := f.String("save", "", "write the pictures received, one after the other, to `FILE` (raw: UYVY, JPEG: JFIF)")
	nic := f.String("interface", "", "network `NAME` on which multicast is received")
	if err := parse(f, args); err != nil {
		return err
	}
	if *duration <= 0 {
		return usageError{fmt.Errorf("--duration %v: must be more than nothing", *duration)}
	}
	media, err := readSDP(*sdp)
	if err != nil {
		return usageError{err}
	}
	cfg := receive.Config{Media: media, Interface: *nic, Logger: e.log}
	finish, err := saveTo(*save, &cfg)
	if err != nil {
		return usageError{err}
	}
	r, err := receive.New(cfg)
	if err != nil {
		return errors.Join(err, finish())
	}
	st, err := receiveFor(ctx, e, r, *duration)
	if err := errors.Join(err, finish()); err != nil {
		return err
	}
	if err := report(e, media, st, *asJSON); err != nil {
		return err
	}
	if ok, _ := judge(media, st); !ok {
		return errChecked
	}
	return nil
}

// readSDP returns the first stream that the file describes.
func readSDP(path string) (rtp.Media, error) {
	if path == "" {
		return rtp.Media{}, errors.New("name the stream's description with --sdp FILE: tegracast serve writes one for each output")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return rtp.Media{}, err
	}
	media, err := rtp.ParseSDP(b)
	if err != nil {
		return rtp.Media{}, fmt.Errorf("%s: %w", path, err)
	}
	return media[0], nil
}

// saveTo makes cfg write every picture to a file; finish closes it.
func saveTo(path string, cfg *receive.Config) (finish func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	out := bufio.NewWriterSize(file, 1<<20)
	var failed error
	cfg.OnFrame = func(picture []byte, _ receive.FrameInfo) {
		if failed == nil {
			_, failed = out.Write(picture)
		}
	}
	return func() error { return errors.Join(failed, out.Flush(), file.Close()) }, nil
}

// receiveFor runs the receiver for the given time, with a sign of life on a terminal.
func receiveFor(ctx context.Context, e env, r *receive.Receiver, d time.Duration) (receive.Stats, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if isTerminal(e.err) {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					st := r.Stats()
					fmt.Fprintf(e.err, "%d frames, %d packets, %d lost\n", st.Frames, st.Packets, st.Lost)
				}
			}
		}()
	}
	err := r.Run(ctx)
	return r.Stats(), err
}

// silenceLimit is how long a stream may say nothing: three frame periods, but at least a second.
func silenceLimit(m rtp.Media) time.Duration { return max(time.Second, 3*m.Rate.Period()) }

// judge says whether everything that the stream promised has arrived, in words, too.
func judge(m rtp.Media, st receive.Stats) (clean bool, verdict string) {
	switch {
	case st.Packets == 0:
		return false, fmt.Sprintf("silence: no packet came to port %d; is the sender running, and is this its destination?", m.Port)
	case st.Frames == 0 || st.Lost > 0 || st.Damaged > 0 || st.Mismatched > 0 || st.Malformed > 0:
		return false, "NOT clean"
	case !st.Ended && st.Silence > silenceLimit(m):
		return false, fmt.Sprintf("NOT clean: silent for the last %.1f s, without BYE: has the sender died, or the network?", st.Silence.Seconds())
	case m.Checksum && st.Matched == 0:
		return false, fmt.Sprintf("NOT clean: the sender promises checksums, and no frame's has come by RTCP: is port %d open?", m.RTCPPort)
	case st.Matched == 0:
		return true, "clean, pixels not verified"
	}
	return true, "clean"
}

func report(e env, m rtp.Media, st receive.Stats, asJSON bool) error {
	clean, verdict := judge(m, st)
	if asJSON {
		out := json.NewEncoder(e.out)
		out.SetIndent("", "  ")
		return out.Encode(struct {
			Clean    bool   `json:"clean"`
			Verdict  string `json:"verdict"`
			Promised bool   `json:"checksum_promised"`
			receive.Stats
		}{clean, verdict, m.Checksum, st})
	}
	jitter, latency, last := notMeasured, notMeasured, "never"
	if st.Packets > 1 {
		jitter = fmt.Sprintf("%.3f ms", st.Jitter)
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
	fmt.Fprintf(e.out, `%s from %s, port %d: %s
packets     %d, lost %d, reordered %d, duplicate %d, late %d, malformed %d, foreign %d
last packet %s
frames      %d complete, %d damaged
pixels      CRC right in %d frames, wrong in %d, not checked in %d
jitter      %s
latency     %s
buffer      %d bytes
`, m.Payload, m.Address, m.Port, verdict, st.Packets, st.Lost, st.Reordered, st.Duplicates, st.Late, st.Malformed, st.Foreign,
		last, st.Frames, st.Damaged, st.Matched, st.Mismatched, st.Unverified, jitter, latency, st.Buffer)
	return nil
}

const notMeasured = "not measured"
