// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"

	pionrtp "github.com/pion/rtp"
	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// runSender is the sending process. args are mode, segments, frames and rate.
func runSender(args []string) error {
	if len(args) != 4 {
		return errors.New("send: want MODE SEGMENTS FRAMES RATE")
	}
	var numbers [3]int
	for i := range numbers {
		var err error
		if numbers[i], err = strconv.Atoi(args[1+i]); err != nil {
			return err
		}
	}
	segments, frames, rate := numbers[0], numbers[1], numbers[2]
	switch args[0] {
	case "pion":
		return sendPion(frames, rate)
	case "pace":
		return sendPaced(segments, frames, rate)
	}
	c := send.Config{Way: send.Segments, Burst: segments, Pacing: send.PaceBurst, Logger: slog.New(slog.DiscardHandler), Destinations: []string{to(there, 0)}}
	ready, streams := false, 1
	switch args[0] {
	case "single":
		c.Way = send.Single
	case "messages":
		c.Way = send.Messages
	case "ready":
		ready = true
	case "zerocopy":
		c.Way, ready = send.ZeroCopy, true
	case "paced":
		c.Pacing = send.PaceFrame
	case "two":
		streams = 2
	case "eight":
		for i := range 7 {
			c.Destinations = append(c.Destinations, to(there, i+1))
		}
	case "group":
		c.Destinations, c.Interface = []string{to("239.1.2.3", 0)}, "x"
	}
	return stream(c, ready, streams, frames, rate, nil)
}

func to(host string, n int) string { return fmt.Sprintf("%s:%d", host, port+2*n) }

// stream sends through the graph, as the appliance does. Then it calls after, if that is not nil, with the first
// stream's counters.
func stream(c send.Config, ready bool, streams, frames, rate int, after func(send.Stats)) error {
	f, err := pipeline.NewFormat(pipeline.UYVY, width, height, pipeline.Rate{Num: 60, Den: 1})
	if err != nil {
		return err
	}
	if ready {
		f, _ = c.PacketReady(f)
	}
	src, err := newSource(f, frames, rate)
	if err != nil {
		return err
	}
	g := pipeline.NewGraph(pipeline.GraphConfig{Logger: slog.New(slog.DiscardHandler)})
	if err := g.AddSource("frames", src); err != nil {
		return err
	}
	var sinks []*send.Sink
	for i := range streams {
		c.Destinations[0] = to(there, i)
		sink, err := send.New(c, f)
		sinks = append(sinks, sink)
		if err != nil {
			return err
		}
		if _, err := g.Attach(pipeline.OutputConfig{Name: strconv.Itoa(i), From: "frames", Depth: slots, Sink: sink}); err != nil {
			return err
		}
	}
	err = errors.Join(g.Run(context.Background()), src.pool.Close())
	if after != nil {
		after(sinks[0].Stats())
	}
	return err
}

// sendPion sends in the straightforward way, with Pion's RTP package: it marshals and writes each packet.
func sendPion(frames, rate int) error {
	conn, err := net.Dial("udp", to(there, 0))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.(*net.UDPConn).SetWriteBuffer(8 << 20); err != nil {
		return err
	}
	const size = 1280
	pixels, payload := make([]byte, 2*width*height), make([]byte, 8+size)
	seq := uint32(0)
	pace := newTicker(rate)
	for n := range frames {
		pace.wait()
		for y := range height {
			for x := 0; x < 2*width; x += size {
				payload[0], payload[1] = byte(seq>>24), byte(seq>>16)
				payload[2], payload[3], payload[4], payload[5] = size>>8, size&255, byte(y>>8), byte(y)
				payload[6], payload[7] = byte(x/2>>8), byte(x/2)
				copy(payload[8:], pixels[y*2*width+x:][:size])
				p := pionrtp.Packet{Header: pionrtp.Header{
					Version: 2, PayloadType: 96, SSRC: 1, SequenceNumber: uint16(seq), Timestamp: uint32(n) * 1500,
					Marker: y == height-1 && x+size == 2*width,
				}, Payload: payload}
				b, err := p.Marshal()
				if err != nil {
					return err
				}
				if _, err := conn.Write(b); err != nil && !errors.Is(err, unix.ENOBUFS) {
					return err
				}
				seq++
			}
		}
	}
	return nil
}
