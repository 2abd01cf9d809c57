// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/cmd/tegracast/verdict"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record/export"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/receive"
)

const probeUsage = `Usage: tegracast probe FILE.sdp [FILE.sdp ...] [--duration D] [--json]
                       [--save FILE]

Receives streams and checks them: packets, losses, reordering, jitter, complete
frames, the CRC of the pixels against the sender's (checksum: true), of results
(payload: results) the frames that have some and the regions in them, and the
latency from the frame's timestamp (the start of its exposure, if the camera
tells it) to the complete frame. If the sender is another machine, the latency
is right only when both clocks are synchronised. Several streams, of several
files or of one file, are received at the same time, and each gets a report of
its own. Packets that are under way at the end of the duration are awaited for
0.2 s. Packets that this machine's kernel dropped, because the receiver was too
slow, are counted beside the lost ones. Status 0 when every stream is clean; 1
after loss, damage, silence or ctrl-C, or when a sender promises checksums and
no pixels could be verified.
`

func probe(ctx context.Context, e env, args []string) error {
	f := e.flags("probe", probeUsage)
	sdp := f.StringArray("sdp", nil, "read the description of one or more streams from `FILE`, as the argument is; may be given several times")
	duration := f.Duration("duration", 10*time.Second, "receive for the duration `D`, such as 30s")
	asJSON := f.Bool("json", false, "print the result as JSON: an object for each stream")
	save := f.String("save", "", "write the received pictures of the only stream, one after the other, to `FILE` "+
		"(raw: Y4M if its name ends in .y4m, else bare pixels; JPEG: MJPEG; H.264: byte stream)")
	nic := f.String("interface", "", "receive multicast, or link-local IPv6, on the network interface `NAME`")
	if err := parseOptions(f, args); err != nil {
		return err
	}
	if *duration <= 0 {
		return terminal.UsageError{Err: fmt.Errorf("--duration %v: must be more than 0", *duration)}
	}
	streams, err := readSDPs(append(*sdp, f.Args()...))
	if err != nil {
		return terminal.UsageError{Err: err}
	}
	filmed := slices.DeleteFunc(slices.Clone(streams), func(s *probed) bool { return s.media.Payload == rtp.Results })
	if *save != "" && len(filmed) != 1 {
		return terminal.UsageError{Err: fmt.Errorf("--save %s: saves the pictures of one stream, and there are %d: run one probe for each",
			*save, len(filmed))}
	}
	if *nic != "" && !slices.ContainsFunc(streams, func(s *probed) bool { return s.media.Address.IsMulticast() || s.media.Address.IsLinkLocalUnicast() }) {
		return terminal.UsageError{Err: fmt.Errorf("--interface %s: no stream is multicast or link-local: leave --interface out", *nic)}
	}
	cfg := receive.Config{Interface: *nic, Logger: e.Log}
	finish, err := func() error { return nil }, error(nil)
	if *save != "" {
		finish, err = saveTo(*save, filmed[0].media, &cfg)
	}
	if err != nil {
		return terminal.UsageError{Err: err}
	}
	began := time.Now()
	err = receiveAll(ctx, e, cfg, streams, *duration)
	cut := verdict.CutOff(ctx, time.Since(began), *duration)
	if err := errors.Join(err, finish()); err != nil {
		return err
	}
	return judge(e, streams, cut, *asJSON)
}

// judge prints the result for every stream. It returns terminal.ErrChecked if one is not clean.
func judge(e env, streams []*probed, cut verdict.Cut, asJSON bool) error {
	allClean := true
	for i, s := range streams {
		name := s.name
		if len(streams) == 1 {
			name = ""
		} else if i > 0 && !asJSON {
			fmt.Fprintln(e.Out)
		}
		st := s.receiver.Stats()
		if err := verdict.Print(e.Out, name, s.media, st, cut, asJSON); err != nil {
			return err
		}
		clean, _ := verdict.Judge(s.media, st, cut)
		allClean = allClean && clean
	}
	if !allClean {
		return terminal.ErrChecked
	}
	return nil
}

// saveTo makes cfg write every picture of the stream to a file. finish must be called at the end: it closes the file
// and returns the first error of writing.
func saveTo(path string, m rtp.Media, cfg *receive.Config) (finish func() error, err error) {
	if filepath.Ext(path) == ".y4m" {
		return saveY4M(path, m, cfg)
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("--save: %w: name a file that can be written", err)
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

// saveY4M makes cfg write every picture of a raw stream in UYVY as Y4M, which players can open. It refuses other
// streams. finish closes the file, and removes it if it has no picture.
func saveY4M(path string, m rtp.Media, cfg *receive.Config) (finish func() error, err error) {
	if m.Payload != rtp.Raw {
		return nil, fmt.Errorf("--save %s: Y4M has raw pictures, the stream is %s: give the file another ending", path, m.Payload)
	}
	format, err := m.Format()
	if err != nil {
		return nil, err
	}
	if format.Pixel != pipeline.UYVY {
		return nil, fmt.Errorf("--save %s: Y4M has pictures of 4:2:2 with 8 bits, the stream is %s: give the file another ending", path, format.Pixel)
	}
	w, err := export.NewY4M(format, path)
	if err != nil {
		return nil, fmt.Errorf("--save: %w", err)
	}
	var failed error
	pictures := 0
	cfg.OnFrame = func(picture []byte, _ receive.FrameInfo) {
		if pictures++; failed == nil {
			failed = w.Add(picture)
		}
	}
	return func() error {
		err := errors.Join(failed, w.End())
		if pictures == 0 { // otherwise the next attempt would find the file
			err = errors.Join(err, os.Remove(path))
		}
		return err
	}, nil
}

// receiveAll receives all streams until d has passed, ctx ends or one of them fails, and shows progress on a terminal.
// Each stream starts as soon as it is open, because its socket's buffer may hold only a few milliseconds of it.
func receiveAll(ctx context.Context, e env, cfg receive.Config, streams []*probed, d time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	failed := make([]error, len(streams))
	for i, s := range streams {
		own := cfg
		if own.Media = s.media; own.Media.Payload == rtp.Results {
			own.OnFrame = nil // it has no pictures
		}
		if s.receiver, failed[i] = receive.New(own); failed[i] != nil {
			cancel()
			break
		}
		running.Go(func() {
			if failed[i] = s.receiver.Run(ctx); failed[i] != nil {
				cancel()
			}
		})
	}
	end := time.AfterFunc(d, cancel)
	defer end.Stop()
	if terminal.Is(e.Err) && ctx.Err() == nil {
		go showCounts(ctx, e, streams)
	}
	running.Wait()
	return errors.Join(failed...)
}

// showCounts prints each stream's received frames and packets, and lost packets, every second until ctx ends.
func showCounts(ctx context.Context, e env, streams []*probed) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			var all []string
			for _, s := range streams {
				st := s.receiver.Stats()
				all = append(all, fmt.Sprintf("%d frames, %d packets, %d lost", st.Frames, st.Packets, st.Lost))
			}
			fmt.Fprintln(e.Err, strings.Join(all, " | "))
		}
	}
}
