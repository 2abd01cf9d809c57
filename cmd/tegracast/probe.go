// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/command"
	"github.com/tegracast/tegracast/cmd/tegracast/verdict"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/receive"
)

const probeUsage = `Usage: tegracast probe --sdp FILE [--duration D] [--json] [--save FILE]

Receives a stream and checks it: packets, losses, reordering, jitter, complete
frames, the CRC of the pixels against the sender's (checksum: true), and the
latency from capture to complete frame. If the sender is another machine, the
latency is right only when both clocks are synchronised. Packets that are under
way at the end of the duration are awaited for 0.2 s. Datagrams that this
machine's kernel dropped, because the receiver was too slow, are told apart from
packets that were lost on their way. Status 0 when the stream is clean; 1 after
loss, damage or silence, or when the sender promises checksums and no pixels could
be verified.
`

func probe(ctx context.Context, e env, args []string) error {
	f := e.flags("probe", probeUsage)
	sdp := f.String("sdp", "", "read the stream's session description from `FILE`")
	duration := f.Duration("duration", 10*time.Second, "receive for the duration `D`, such as 30s")
	asJSON := f.Bool("json", false, "print the result as JSON")
	save := f.String("save", "", "write the received pictures, one after the other, to `FILE` (raw: UYVY, JPEG: JFIF)")
	nic := f.String("interface", "", "receive multicast on the network interface `NAME`")
	if err := parse(f, args); err != nil {
		return err
	}
	if *duration <= 0 {
		return command.UsageError{Err: fmt.Errorf("--duration %v: must be more than 0", *duration)}
	}
	media, err := readSDP(*sdp)
	if err != nil {
		return command.UsageError{Err: err}
	}
	cfg := receive.Config{Media: media, Interface: *nic, Logger: e.Log}
	finish, err := saveTo(*save, &cfg)
	if err != nil {
		return command.UsageError{Err: err}
	}
	r, err := receive.New(cfg)
	if err != nil {
		return errors.Join(err, finish())
	}
	st, err := receiveFor(ctx, e, r, *duration)
	if err := errors.Join(err, finish()); err != nil {
		return err
	}
	if err := verdict.Print(e.Out, media, st, *asJSON); err != nil {
		return err
	}
	if ok, _ := verdict.Judge(media, st); !ok {
		return command.ErrChecked
	}
	return nil
}

// readSDP returns the first stream that the file describes.
func readSDP(path string) (rtp.Media, error) {
	if path == "" {
		return rtp.Media{}, errors.New("give the stream's description with --sdp FILE: tegracast serve writes one for each output")
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
	if command.Terminal(e.Err) {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					st := r.Stats()
					fmt.Fprintf(e.Err, "%d frames, %d packets, %d lost\n", st.Frames, st.Packets, st.Lost)
				}
			}
		}()
	}
	err := r.Run(ctx)
	return r.Stats(), err
}
