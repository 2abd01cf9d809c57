// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

const replayedYAML = `
memory: host
web: {listen: none}
sources: [{name: camera, %s}]
isp: [{name: isp, statistics: true}]
outputs:
  - {name: raw, latency: frame, queue: 8, rtp: {payload: raw, checksum: true, destinations: ["127.0.0.1:%d"]}}
  - {name: samples, from: camera, policy: block, queue: 8, record: {directory: %q}}
`

// streamed runs a source with an isp and a raw stream until done, and returns the stream's packets.
func streamed(t *testing.T, source, dir string, done func(p *programtest.Process)) (packets [][]byte) {
	t.Helper()
	port := rtptest.EvenPorts(t, 1)[0]
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadBuffer(32 << 20) // root may exceed the usual limit
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			b := make([]byte, 2000)
			n, err := c.Read(b)
			if err != nil {
				return
			}
			packets = append(packets, b[:n])
		}
	}()
	yaml := fmt.Sprintf(replayedYAML, source, port, dir)
	done(programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "replay.yaml", yaml), "--sdp-dir", t.TempDir(), "--exit-at-end"))
	time.Sleep(100 * time.Millisecond) // for packets on their way
	c.Close()
	<-ended
	return packets
}

// plain returns a packet without the values that are random for each stream: the first sequence number and timestamp, and
// the SSRC.
func plain(p, first []byte) []byte {
	be := binary.BigEndian
	b := bytes.Clone(p)
	be.PutUint32(b[4:], be.Uint32(p[4:])-be.Uint32(first[4:]))
	clear(b[8:12])
	at := 12
	if p[0]&0x10 != 0 { // the header extension has the time of the frame
		at += 4 + 4*int(be.Uint16(p[14:]))
	}
	// The upper half of the sequence number is in the payload header (RFC 4175 §4.2).
	number := func(p []byte) uint32 { return uint32(be.Uint16(p[at:]))<<16 | uint32(be.Uint16(p[2:])) }
	n := number(p) - number(first)
	be.PutUint16(b[2:], uint16(n))
	be.PutUint16(b[at:], uint16(n>>16))
	return b
}

// TestAReplayedStreamIsTheCameras records the model camera while it streams, and plays the recording with the same isp
// and stream, at the recorded pace and as fast as the outputs take it. The packets must be the same, and so must another
// recording of it.
func TestAReplayedStreamIsTheCameras(t *testing.T) { programtest.Quiet(t, replayedStream) }

func replayedStream(t *testing.T) error {
	first, again := t.TempDir(), t.TempDir()
	live := streamed(t, "model: {width: 96, height: 64, rate: 50}", first, func(p *programtest.Process) {
		awaitFiles(t, first, "samples", 1)
		time.Sleep(time.Second) // some frames
		p.Stop(t)
	})
	files, _ := record.Files(first, "samples")
	recording := func(more string) string {
		return fmt.Sprintf("recording: {files: [%q]%s}", filepath.Join(first, "*.mcap"), more)
	}
	for _, more := range []string{"", ", pace: outputs"} {
		var out *programtest.Process
		replayed := streamed(t, recording(more), again, func(p *programtest.Process) {
			p.Need(t, time.Minute) // it ends by itself
			out = p
		})
		recorded := books(t, out.Out.String())["samples"]
		r, err := record.Inspect(t.Context(), files[0], true, func(float64) {})
		if err != nil || !r.Good() || recorded[1] != r.Frames || r.Frames < 20 {
			return fmt.Errorf("%+v, %w; played and recorded again: %v", r, err, recorded)
		}
		n := min(len(live), len(replayed))
		if n < 20 || len(live) != len(replayed) {
			t.Logf("%d packets, %d replayed: the first %d are compared", len(live), len(replayed), n)
		}
		for i := range n {
			if a, b := plain(live[i], live[0]), plain(replayed[i], replayed[0]); !bytes.Equal(a, b) {
				return fmt.Errorf("%q: packet %d differs:\n%x\n%x", more, i, a[:40], b[:40])
			}
		}
		if n < 20*r.Image.Height/10 {
			t.Errorf("%d packets were compared", n)
		}
	}
	list, err := record.Files(again, "samples")
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	for _, path := range list {
		if err := sameFrames(path, files[0]); err != nil {
			return err
		}
	}
	return nil
}

// sameFrames compares notes and frames of two recordings.
func sameFrames(path, want string) error {
	a, err := contentOf(path)
	if err != nil {
		return err
	}
	b, err := contentOf(want)
	if err != nil {
		return err
	}
	if len(a) != len(b) {
		return fmt.Errorf("%s has %d messages, %s %d", path, len(a), want, len(b))
	}
	for i := range a {
		if a[i] != b[i] {
			return fmt.Errorf("message %d of %s differs", i, path)
		}
	}
	return nil
}

// contentOf returns the frames and the notes of a recording.
func contentOf(path string) (all []string, err error) {
	r, err := record.OpenReader(context.Background(), path, nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for i := range r.Chunks {
		list, err := r.Messages(i)
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			if r.Channels[m.Channel].Topic == "/camera/settings" { // only a camera has settings
				continue
			}
			b, err := r.Read(m)
			if err != nil {
				return nil, err
			}
			all = append(all, string(b))
		}
	}
	return all, nil
}
