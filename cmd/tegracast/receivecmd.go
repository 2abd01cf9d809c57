// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/cmd/tegracast/verdict"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx/frames"
)

const receiveUsage = `Usage: tegracast receive --ucx ADDRESS [--stream NAME] [--every N]
                         [--region WxH+X+Y] [--save FILE.mcap | FILE.y4m]
                         [--duration D] [--json] [--no-verify]

Takes frames, and what stages found in them, from an output with ucx, and checks
them: losses, the CRC of the pixels, and the latency from what a frame shows to
its last byte here. For frames as the FPGA's camera delivers them the CRC is the
one that the FPGA computed. The latency is right only when both clocks are
synchronised. Frames that are damaged are counted and not saved. When the
connection breaks it is made again. The wait for the first one, for the duration
or at least 10 s, is not part of the duration.

  tegracast receive --ucx 192.0.2.7:5020 --stream front --save front.mcap

A recording (FILE.mcap) has the frames' numbers, times and results; see
tegracast record. Y4M is for pictures, and for programs such as ffmpeg and mpv.

Status 0 when every frame that was asked for has come and is right; 1 after
loss, damage, silence, a broken connection, a refusal, or ctrl-C.
`

// buffers is the number of frames for which the receiver has memory: enough for a recording, which keeps several of
// them at a time.
const buffers = 8

// leastWait is the shortest wait for the first connection, which is not part of --duration.
const leastWait = 10 * time.Second

func receiveCommand(ctx context.Context, e env, args []string) error {
	f := e.flags("receive", receiveUsage)
	c := frames.ReceiverConfig{Buffers: buffers, Logger: e.Log}
	f.StringVar(&c.Address, "ucx", "", "the sender's `ADDRESS`: host:port")
	f.StringVar(&c.Stream, "stream", "", "the `NAME` of the sender's output (default: the only one)")
	f.IntVar(&c.Every, "every", 1, "take every `N`th frame")
	region := func(text string) error { return c.Region.UnmarshalText([]byte(text)) }
	f.Func("region", "take the rectangle `WxH+X+Y` of each frame, such as 640x480+0+120", region)
	save := f.String("save", "", "write the frames to `FILE`, which must not exist (.mcap or .y4m)")
	duration := f.Duration("duration", 10*time.Second, "receive for the duration `D`, such as 30s, after the first connection")
	asJSON := f.Bool("json", false, "print the result as JSON")
	f.BoolVar(&c.Unverified, "no-verify", false, "do not compute the CRC of the frames")
	if err := parse(f, args); err != nil {
		return err
	}
	if err := checkReceive(c, *duration); err != nil {
		return terminal.UsageError{Err: err}
	}
	take, err := saver(*save, e)
	if err != nil {
		return terminal.UsageError{Err: err}
	}
	connecting, cancel := context.WithTimeout(ctx, max(*duration, leastWait))
	defer cancel()
	r, err := frames.Connect(connecting, c)
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		return unreached(c.Address, err)
	case errors.Is(err, frames.ErrRegion):
		return terminal.UsageError{Err: err}
	case err != nil:
		return err
	}
	whole, began := ctx, time.Now()
	ctx, cancel = context.WithTimeout(whole, *duration)
	defer cancel()
	if terminal.Is(e.Err) {
		go receiveProgress(ctx, e, r)
	}
	err = take(ctx, r)
	cut := verdict.CutOff(whole, time.Since(began), *duration)
	st, format := r.Stats(), r.Format()
	if err := errors.Join(err, r.Close()); err != nil {
		return err
	}
	if err := verdict.PrintFrames(e.Out, c.Address, format, c.Every, st, cut, *asJSON); err != nil {
		return err
	}
	if clean, _ := verdict.JudgeFrames(format, c.Every, st, cut); !clean {
		return terminal.ErrChecked
	}
	return nil
}

// unreached returns an error with the reason why the last attempt to connect failed.
func unreached(address string, err error) error {
	lines := strings.Split(err.Error(), "\n")
	why := lines[len(lines)-1]
	if len(lines) == 1 {
		why = "it does not answer"
	}
	return fmt.Errorf("%s cannot be reached: %s: start the sender, correct --ucx, or add this machine to ucx.allow", address, why)
}

// checkReceive returns an error if an option is missing or invalid.
func checkReceive(c frames.ReceiverConfig, d time.Duration) error {
	switch {
	case c.Address == "":
		return errors.New("name the sender with --ucx: try tegracast receive --help")
	case d <= 0:
		return fmt.Errorf("--duration %v: must be more than 0", d)
	case c.Every < 1 || c.Every > math.MaxInt32:
		return fmt.Errorf("--every %d: must be from 1 to %d", c.Every, math.MaxInt32)
	}
	return frames.CheckRemote(c.Address)
}

// receiveProgress prints the numbers of received, lost and damaged frames every second until ctx ends.
func receiveProgress(ctx context.Context, e env, r *frames.Receiver) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			st := r.Stats()
			fmt.Fprintf(e.Err, "%d frames, %d lost, %d damaged\n", st.Frames, st.Lost+st.Broken, st.Mismatched)
		}
	}
}

// A taker consumes and releases the frames of r until ctx ends or an error occurs.
type taker func(ctx context.Context, r *frames.Receiver) error

// discard is a taker that releases all frames unused.
func discard(ctx context.Context, r *frames.Receiver) error {
	return r.Run(ctx, func(f *pipeline.Frame) { f.Release() })
}
