// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/receive"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

const pacedRate = 60

// measurePacing sends 1080p60 with each pacing profile to a receiver that checks every frame, and returns a table of
// the results.
func measurePacing(ctx context.Context, seconds int) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "### Pacing, %d frames due at %d a second: p50/p99/p99.9\n\n"+
		"|pacing|frames right|lost packets|receiver's buffer by the sender's model, and its maximum, packets|gap, ms|DMA done to first packet, ms|to last, ms|\n|---|---|---|---|---|---|---|\n",
		pacedRate*seconds, pacedRate)
	for p := send.PaceFrame; p <= send.PaceBurst; p++ {
		fmt.Fprintf(os.Stderr, "pacing %v for %d s\n", p, seconds)
		sent, got, err := pace(ctx, p, seconds)
		if err != nil {
			return "", fmt.Errorf("%v: %w", p, err)
		}
		fmt.Fprintf(&b, "|%v|%d of %d|%d|%d/%d/%d/%d|%s|%s|%s|\n", p, got.Matched, sent.Frames, got.Lost,
			sent.Bucket.P50, sent.Bucket.P99, sent.Bucket.P999, sent.Bucket.Max, times(sent.Gap), times(sent.First), times(sent.Last))
	}
	return b.String(), nil
}

func times(p pipeline.Percentiles) string {
	var s []string
	for _, d := range []time.Duration{p.P50, p.P99, p.P999} {
		s = append(s, fmt.Sprintf("%.3f", float64(d)/1e6))
	}
	return strings.Join(s, "/")
}

// pace runs a sender with a pacing profile and a receiver, and returns their counters.
func pace(ctx context.Context, p send.Pacing, seconds int) (sent send.Stats, got receive.Stats, err error) {
	n, err := newNetwork(ctx, paths[len(paths)-1])
	if err != nil {
		return sent, got, err
	}
	defer n.close()
	exe, err := os.Executable()
	if err != nil {
		return sent, got, err
	}
	receiver := inside(ctx, n.far, exe, "receive")
	receiver.Stderr = os.Stderr
	out, err := receiver.StdoutPipe()
	if err == nil {
		err = receiver.Start()
	}
	if err != nil {
		return sent, got, err
	}
	if _, err := out.Read(make([]byte, 16)); err != nil { // "ready"
		return sent, got, errors.Join(err, receiver.Process.Kill(), receiver.Wait())
	}
	sender := inside(ctx, n.near, exe, "send", "pace", strconv.Itoa(int(p)), strconv.Itoa(seconds*pacedRate), strconv.Itoa(pacedRate))
	sender.Stderr = os.Stderr
	text, serr := sender.Output()
	_ = receiver.Process.Signal(syscall.SIGTERM)
	answer, rerr := io.ReadAll(out)
	if err := errors.Join(serr, rerr, receiver.Wait()); err != nil {
		return sent, got, err
	}
	return sent, got, errors.Join(json.Unmarshal(text, &sent), json.Unmarshal(answer, &got))
}

// sendPaced is the sending process of pace. It prints its counters.
func sendPaced(profile, frames, rate int) error {
	c := send.Config{Stream: rtp.Stream{Checksum: true}, Pacing: send.Pacing(profile), Logger: slog.New(slog.DiscardHandler), Destinations: []string{to(there, 0)}}
	return stream(c, true, 1, frames, rate, func(st send.Stats) { _ = json.NewEncoder(os.Stdout).Encode(st) })
}

// runReceiver is the receiving process of pace. At SIGTERM it prints its counters.
func runReceiver() error {
	address := netip.MustParseAddr(there)
	r, err := receive.New(receive.Config{Logger: slog.New(slog.DiscardHandler), Media: rtp.Media{
		PayloadType: 96, Address: address, Port: port, RTCPPort: port + 1, Pixel: pipeline.UYVY, Width: width, Height: height,
		Rate: pipeline.Rate{Num: pacedRate, Den: 1}, Checksum: true,
	}})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Println("ready")
	if err := r.Run(ctx); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(r.Stats()); err != nil {
		return err
	}
	_, err = os.Stdout.Write(b.Bytes())
	return err
}
