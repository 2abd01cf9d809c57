// SPDX-License-Identifier: Apache-2.0

package send_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// still is a source of one frame.
type still struct {
	format pipeline.Format
	pool   *pipeline.Pool
}

func (s *still) Format() pipeline.Format { return s.format }

func (s *still) Status() pipeline.SourceStatus { return pipeline.SourceStatus{} }

func (s *still) Run(_ context.Context, emit func(*pipeline.Frame)) error {
	emit(s.pool.Get())
	return nil
}

// listen opens a UDP port of this machine for RTP, which must be even (RFC 3550 §11).
func listen() (*net.UDPConn, error) {
	for {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil || c.LocalAddr().(*net.UDPAddr).Port%2 == 0 {
			return c, err
		}
		defer c.Close() // only after an even port is found, so that the kernel does not choose this one again
	}
}

// A Sink sends each frame of an output to its destinations. This example sends one frame to this machine and counts the
// packets received.
func Example() {
	listener, err := listen()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	format, err := pipeline.NewFormat(pipeline.UYVY, 64, 48, pipeline.Rate{Num: 30, Den: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	sink, err := send.New(send.Config{
		Stream: rtp.Stream{Payload: rtp.Raw}, Destinations: []string{listener.LocalAddr().String()}, Logger: slog.New(slog.DiscardHandler),
	}, format)
	if err != nil {
		fmt.Println(err)
		return
	}

	source := &still{format: format, pool: pipeline.NewPool("still", format, []pipeline.Slot{{Bytes: make([]byte, format.Size())}}, nil)}
	graph := pipeline.NewGraph(pipeline.GraphConfig{Grace: time.Minute})
	if err := graph.AddSource("still", source); err != nil {
		fmt.Println(err)
		return
	}
	output, err := graph.Attach(pipeline.OutputConfig{Name: "raw", Sink: sink})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("run:", graph.Run(context.Background()))
	books := output.Stats()
	fmt.Println("captured", books.Captured, "delivered", books.Delivered, "dropped", books.Drops())

	if err := listener.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		fmt.Println(err)
		return
	}
	packet, packets, last := make([]byte, 1500), uint64(0), false
	for ; !last; packets++ {
		if _, err := listener.Read(packet); err != nil {
			fmt.Println(err)
			return
		}
		last = packet[1]>>7 == 1 // the marker bit is set in the last packet of a frame
	}
	fmt.Println("all packets have come:", packets == sink.Stats().Packets)
	// Output:
	// run: <nil>
	// captured 1 delivered 1 dropped 0
	// all packets have come: true
}
