// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// warmUp is the number of frames of the run whose CPU time is subtracted from that of the measured run, so that the
// start of a program does not count.
const warmUp = 20

// result is the result of one sender on one path.
type result struct {
	sender  sender
	figures []float64 // frames per CPU second, one for each round
	short   int       // runs with missing packets, if there is a receiver that counts
}

// measurePath measures the senders that are measured on p, alternately, round by round, and returns a table of the
// results.
func measurePath(ctx context.Context, o options, p path) (string, error) {
	var results []result
	for _, s := range senders() {
		if s.on(p) {
			results = append(results, result{sender: s})
		}
	}
	for round := range o.rounds {
		for i := range results {
			r := &results[i]
			fmt.Fprintf(os.Stderr, "%s: round %d of %d: %s\n", p.name, round+1, o.rounds, r.sender.name)
			figure, whole, err := measure(ctx, o, p, r.sender)
			if err != nil {
				return "", fmt.Errorf("%s: %w", r.sender.name, err)
			}
			r.figures = append(r.figures, figure)
			if !whole {
				r.short++
			}
		}
	}
	return table(p, results), nil
}

// measure returns the frames per CPU second of a sender, and whether the receiver, if there is one, got every packet of
// the measured run.
func measure(ctx context.Context, o options, p path, s sender) (figure float64, whole bool, err error) {
	few, _, err := cpu(ctx, o, p, s, warmUp)
	if err != nil {
		return 0, false, err
	}
	frames := o.frames
	if p.rate == 0 {
		frames *= s.many
	}
	many, whole, err := cpu(ctx, o, p, s, warmUp+frames)
	return float64(frames) / (many - few).Seconds(), whole, err
}

// cpu returns the CPU time for sending the given number of frames, and whether the receiver, if there is one, got every
// packet.
func cpu(ctx context.Context, o options, p path, s sender, frames int) (used time.Duration, whole bool, err error) {
	n, err := newNetwork(ctx, p)
	if err != nil {
		return 0, false, err
	}
	defer n.close()
	drained := func() (drainCount, error) { return drainCount{frames: uint64(frames)}, nil } // nobody counts
	if p.receiver {
		if drained, err = startDrain(ctx, n); err != nil {
			return 0, false, err
		}
	}
	argv := s.args(o.work, frames, p.rate)
	if argv[0] == "/proc/self/exe" {
		if argv[0], err = os.Executable(); err != nil {
			return 0, false, err
		}
	}
	if p.pinned {
		argv = append([]string{"taskset", "--cpu-list", "0"}, argv...)
	}
	c := inside(ctx, n.near, argv...)
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	if err := c.Run(); err != nil {
		_, _ = drained()
		return 0, false, fmt.Errorf("%w: %.500s", err, &said)
	}
	count, err := drained()
	return c.ProcessState.UserTime() + c.ProcessState.SystemTime(), count.frames >= uint64(frames) && count.lost == 0, err
}

// startDrain starts the receiver. The returned function ends it and reads its counters.
func startDrain(ctx context.Context, n *network) (func() (drainCount, error), error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := inside(ctx, n.far, exe, "drain")
	var out bytes.Buffer
	c.Stderr = &out
	ready, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return nil, err
	}
	line := make([]byte, 256)
	if _, err := ready.Read(line); err != nil {
		return nil, errors.Join(err, c.Process.Kill(), c.Wait())
	}
	return func() (count drainCount, err error) {
		time.Sleep(50 * time.Millisecond) // for packets in flight
		_ = c.Process.Signal(syscall.SIGTERM)
		k, _ := ready.Read(line)
		var exit *exec.ExitError
		if err := c.Wait(); err != nil && !errors.As(err, &exit) {
			return count, err
		}
		_, err = fmt.Sscan(string(line[:k]), &count.frames, &count.lost)
		return count, err
	}, nil
}

type drainCount struct{ frames, lost uint64 }

// drain receives packets as cheaply as possible until SIGTERM. Then it prints the number of frames, counted by marker
// bits, and of missing packets, counted by sequence numbers.
func drain() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 256<<20)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20_000})
	if err := unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1); err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte(net.ParseIP(there).To4())}); err != nil {
		return err
	}
	end := make(chan os.Signal, 1)
	notify(end)
	fmt.Println("ready")
	var count drainCount
	b, control := make([]byte, 1<<16), make([]byte, 64)
	for last, begun := uint16(0), false; ; {
		n, k, _, _, err := unix.Recvmsg(fd, b, control, 0)
		if err != nil {
			select {
			case <-end:
				fmt.Println(count.frames, count.lost)
				return nil
			default:
				continue
			}
		}
		for rest, size := b[:n], segmentSize(control[:k], n); len(rest) >= 12; rest = rest[min(size, len(rest)):] {
			seq := binary.BigEndian.Uint16(rest[2:])
			if begun {
				count.lost += uint64(seq - last - 1)
			}
			last, begun = seq, true
			if rest[1]>>7 != 0 {
				count.frames++
			}
		}
	}
}

// segmentSize returns the size of the packets that UDP_GRO has merged into n bytes, or n if it has merged none.
func segmentSize(control []byte, n int) int {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) == 0 || len(messages[0].Data) < 4 {
		return n
	}
	return int(binary.NativeEndian.Uint32(messages[0].Data))
}

// table returns a table of medians, ranges, and ratios to the senders that all are compared with.
func table(p path, results []result) string {
	var b strings.Builder
	var others []result
	fmt.Fprintf(&b, "### %s\n\n|sender|frames / CPU-s|", p.title)
	for _, name := range p.against {
		i := slices.IndexFunc(results, func(r result) bool { return strings.HasPrefix(r.sender.name, name) })
		others = append(others, results[i])
		fmt.Fprintf(&b, "× %s|", name)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(others)) + "\n")
	for _, r := range results {
		low, high := slices.Min(r.figures), slices.Max(r.figures)
		m := median(r.figures)
		fmt.Fprintf(&b, "|%s|%.0f (%.0f–%.0f)|", r.sender.name, m, low, high)
		for _, other := range others {
			fmt.Fprintf(&b, "%.2f|", median(ratios(r.figures, other.figures)))
		}
		if r.short > 0 {
			fmt.Fprintf(&b, " lost packets in %d of %d runs", r.short, len(r.figures))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// ratios returns the ratios of a to b, round by round, so that a temporarily slower machine does not distort them.
func ratios(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] / b[i]
	}
	return out
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s) == 0 {
		return math.NaN()
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
