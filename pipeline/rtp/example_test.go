// SPDX-License-Identifier: Apache-2.0

package rtp_test

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// A sender describes its stream in an SDP. A receiver reads from it what will be sent, and where.
func ExampleDescribe() {
	format, err := pipeline.NewFormat(pipeline.UYVY, 1920, 1080, pipeline.Rate{Num: 30, Den: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	path := rtp.Path{From: netip.MustParseAddr("192.0.2.9"), To: netip.MustParseAddrPort("239.1.2.3:5004"), TTL: 4}
	text, err := rtp.Describe(rtp.Stream{Name: "camera", Checksum: true}, format, path)
	if err != nil {
		fmt.Println(err)
		return
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "m=") || strings.HasPrefix(line, "c=") || strings.HasPrefix(line, "a=rtpmap") {
			fmt.Println(strings.TrimSpace(line))
		}
	}

	media, err := rtp.ParseSDP(text)
	if err != nil {
		fmt.Println(err)
		return
	}
	m := media[0]
	fmt.Println(m.Payload, "to", m.Address, "port", m.Port, "with checksums:", m.Checksum)
	received, err := m.Format()
	fmt.Println(received == format, err)
	// Output:
	// m=video 5004 RTP/AVP 96
	// c=IN IP4 239.1.2.3/4
	// a=rtpmap:96 raw/90000
	// raw to 239.1.2.3 port 5004 with checksums: true
	// true <nil>
}

// A packetizer turns a frame into a train of packets. The payloads remain in the frame; only headers are written.
func ExamplePacketizer() {
	format, err := pipeline.NewFormat(pipeline.UYVY, 1280, 2, pipeline.Rate{Num: 30, Den: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	packetizer, err := rtp.NewPacketizer(rtp.Stream{Start: &rtp.Start{SSRC: 1, Sequence: 100}}, format)
	if err != nil {
		fmt.Println(err)
		return
	}
	train, err := packetizer.NewTrain()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer train.Close()
	frame := &pipeline.Frame{Format: format, Bytes: make([]byte, format.Size())}
	if err := packetizer.Packetize(train, frame); err != nil {
		fmt.Println(err)
		return
	}
	for i := range train.Len() {
		header, payload := train.Packet(i)
		last := header[1]>>7 == 1 // the marker bit of RFC 4175 §4.1
		fmt.Println("packet", int(header[2])<<8|int(header[3]), "with", len(payload), "bytes of the frame, the last one:", last)
	}
	// Output:
	// packet 100 with 1280 bytes of the frame, the last one: false
	// packet 101 with 1280 bytes of the frame, the last one: false
	// packet 102 with 1280 bytes of the frame, the last one: false
	// packet 103 with 1280 bytes of the frame, the last one: true
}
