// SPDX-License-Identifier: Apache-2.0

// Command benchpeers measures the cost of sending raw 1080p: with this project's methods, GStreamer, ffmpeg, pion/rtp
// with one write per packet, and a one-page C program, over separate paths in network namespaces. The figure is frames
// per CPU second of the sender; docs/results.md contains its output. It must be run as root.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
)

// The size of the frames, which are UYVY, and the RTP port.
const (
	width, height = 1920, 1080
	port          = 5004
)

type options struct {
	rounds, frames int
	seconds        int // for each pacing profile
	paths          []string
	out            string
	work           string // folder for the frame and the C program
}

func main() {
	if len(os.Args) > 1 { // this program also serves as sender and receiver
		switch os.Args[1] {
		case "send":
			exit(runSender(os.Args[2:]))
		case "drain":
			exit(drain())
		case "receive":
			exit(runReceiver())
		}
	}
	var o options
	f := pflag.NewFlagSet("benchpeers", pflag.ContinueOnError)
	f.IntVar(&o.rounds, "rounds", 5, "how often everything is measured, in turn")
	f.IntVar(&o.frames, "frames", 400, "frames a measurement, of fast senders 4 or 16 times as many")
	f.IntVar(&o.seconds, "seconds", 60, "how long each pacing profile is watched")
	f.StringSliceVar(&o.paths, "paths", []string{"S", "U", "60", "pace"}, "S: cut in software; U: cut by the (model of a) card; S1, U1: each sender on one processor; D: to a receiver on this machine; 60: D at 60 frames a second; pace: what each pacing profile does in a minute of that")
	f.StringVar(&o.out, "out", "", "put the tables into this file, between its lines for them")
	if err := f.Parse(os.Args[1:]); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return
		}
		exit(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, o))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchpeers:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "benchpeers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o.work = dir
	if err := prepare(ctx, dir); err != nil {
		return err
	}
	var report strings.Builder
	fmt.Fprintf(&report, "%s\n", machine())
	for _, name := range o.paths {
		if name == "pace" {
			t, err := measurePacing(ctx, o.seconds)
			if err != nil {
				return fmt.Errorf("pacing: %w", err)
			}
			fmt.Println(t)
			report.WriteString("\n" + t)
			continue
		}
		i := slices.IndexFunc(paths, func(p path) bool { return p.name == name })
		if i < 0 {
			return fmt.Errorf("path %q: want S, U, S1, U1, D, 60 or pace", name)
		}
		t, err := measurePath(ctx, o, paths[i])
		if err != nil {
			return fmt.Errorf("path %s: %w", name, err)
		}
		fmt.Println(t)
		report.WriteString("\n" + t)
	}
	if o.out == "" {
		return nil
	}
	return insert(o.out, report.String())
}

// begin and end are the lines of the file between which the tables are written.
const begin, end = "<!-- benchpeers -->\n", "<!-- end of benchpeers -->\n"

func insert(file, tables string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(b), begin)
	_, tail, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return fmt.Errorf("%s has no lines %q and %q", file, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(file, []byte(head+begin+tables+end+tail), 0o644)
}
