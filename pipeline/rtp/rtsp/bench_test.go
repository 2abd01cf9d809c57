// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	pion "github.com/pion/rtp"
	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

const (
	benchReaders = 20
	benchFrames  = 20
	benchRate    = 10 // frames per second
)

// peerServer is plain gortsplib: ServerStream.WritePacketRTP for each packet.
type peerServer struct{ stream *gortsplib.ServerStream }

func (p *peerServer) OnSetup(*gortsplib.ServerHandlerOnSetupCtx) (*base.Response, *gortsplib.ServerStream, error) {
	return status(base.StatusOK), p.stream, nil
}

func (p *peerServer) OnPlay(*gortsplib.ServerHandlerOnPlayCtx) (*base.Response, error) {
	return status(base.StatusOK), nil
}

// sinks opens sockets that are not read, one pair for each reader: the cost of receiving is then the same whichever
// program sends.
func sinks(b *testing.B) (ports []int) {
	ports = rtptest.EvenPorts(b, benchReaders)
	for _, p := range ports {
		for _, port := range []int{p, p + 1} {
			c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
			if err != nil {
				b.Fatal(err)
			}
			_ = c.SetReadBuffer(1)
			b.Cleanup(func() { c.Close() })
		}
	}
	return ports
}

// cpu returns the processor time used by the process.
func cpu() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// startPeer starts gortsplib's readers, and returns a function that sends a frame to them.
func startPeer(b *testing.B, ports []int) func(packets []*pion.Packet) {
	h := &peerServer{}
	var at net.Addr
	server := &gortsplib.Server{
		Handler: h, RTSPAddress: "127.0.0.1:0", UDPRTPAddress: "127.0.0.1:0", UDPRTCPAddress: "127.0.0.1:1", WriteQueueSize: 1 << 12,
		ListenPacket: func(string, string) (net.PacketConn, error) { return net.ListenPacket("udp4", "127.0.0.1:0") },
		Listen: func(n, a string) (net.Listener, error) {
			l, err := net.Listen(n, a)
			at = l.Addr()
			return l, err
		},
	}
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(server.Close)
	media := &description.Media{Type: description.MediaTypeVideo, Formats: []format.Format{&format.Generic{PayloadTyp: 96, RTPMa: "raw/90000", ClockRat: 90000}}}
	h.stream = &gortsplib.ServerStream{Server: server, Desc: &description.Session{Medias: []*description.Media{media}}}
	if err := h.stream.Initialize(); err != nil {
		b.Fatal(err)
	}
	for _, p := range ports {
		c := dial(b, &Server{addr: at}, "raw")
		c.play(b, fmt.Sprintf("RTP/AVP;unicast;client_port=%d-%d", p, p+1))
	}
	return func(packets []*pion.Packet) {
		for _, p := range packets {
			if err := h.stream.WritePacketRTP(media, p); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkReaders compares the CPU time for 20 UDP readers of raw 640x360 video at 10 frames per second, paced as in
// an output, with that of gortsplib's ServerStream, which gets the same packets at once. Both alternate.
func BenchmarkReaders(b *testing.B) {
	f := rtptest.Format(b, pipeline.UYVY, 640, 360, benchRate)
	var ours, theirs []float64
	for b.Loop() {
		ours = append(ours, oursRound(b, f))
		theirs = append(theirs, theirsRound(b, f))
	}
	var ratios []float64
	for i := range ours {
		ratios = append(ratios, theirs[i]/ours[i])
	}
	for _, list := range [][]float64{ours, theirs, ratios} {
		slices.Sort(list)
	}
	b.ReportMetric(ours[len(ours)/2], "ms/frame")
	b.ReportMetric(theirs[len(theirs)/2], "gortsplib-ms/frame")
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(ratios[0], "least")
	b.ReportMetric(ratios[len(ratios)-1], "most")
}

func oursRound(b *testing.B, f pipeline.Format) float64 {
	src := rtptest.NewSource(b, f, 0)
	sink, server := serve(b, Config{}, "raw", send.Config{}, src)
	for _, p := range sinks(b) {
		dial(b, server, "raw").play(b, fmt.Sprintf("RTP/AVP;unicast;client_port=%d-%d", p, p+1))
	}
	from := sink.Stats().Frames
	began := cpu()
	for sink.Stats().Frames < from+benchFrames {
		time.Sleep(50 * time.Millisecond)
	}
	used, frames := cpu()-began, sink.Stats().Frames-from
	for _, d := range sink.Stats().Destinations {
		if d.Cut > 0 || d.Packets == 0 {
			b.Error(d)
		}
	}
	server.Remove("raw")
	server.Close()
	return float64(used) / 1e6 / float64(frames)
}

func theirsRound(b *testing.B, f pipeline.Format) float64 {
	write := startPeer(b, sinks(b))
	packer, err := rtp.NewPacketizer(rtp.Stream{}, f)
	if err != nil {
		b.Fatal(err)
	}
	train, err := packer.NewTrain()
	if err != nil {
		b.Fatal(err)
	}
	defer train.Close()
	frame := rtptest.Frame(f, 0)
	tick := time.NewTicker(time.Second / benchRate)
	defer tick.Stop()
	began := cpu()
	for range benchFrames {
		if err := packer.Packetize(train, frame); err != nil {
			b.Fatal(err)
		}
		packets := make([]*pion.Packet, train.Len())
		for i := range packets {
			_, payload := train.Packet(i)
			packets[i] = &pion.Packet{Header: pion.Header{Version: 2, PayloadType: 96, SequenceNumber: uint16(i)}, Payload: payload}
		}
		write(packets)
		<-tick.C
	}
	return float64(cpu()-began) / 1e6 / benchFrames
}
