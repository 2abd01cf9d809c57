// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

const slicePeersYAML = `
memory: host
web: {listen: none}
sources:
  - name: camera
    model: {width: %d, height: %d, rate: %d, readout: 15ms}
isp: [{name: isp, white_balance: {red: 1.5, green: 1.0, blue: 1.1}}]
outputs:
  - {name: raw, latency: slice, rtp: {payload: raw, destinations: ["127.0.0.1:%d", "127.0.0.1:%d", "127.0.0.1:%d"]}}
`

// TestPeersReceiveSlices checks that ffmpeg, GStreamer and a strict receiver accept a stream sent in slices without
// complaint, and get every frame of it, with the isp's own pixels. In make test-long it lasts a minute.
func TestPeersReceiveSlices(t *testing.T) {
	programtest.NotShort(t)
	programtest.Quiet(t, peersReceiveSlices)
}

func peersReceiveSlices(t *testing.T) error {
	const width, height, rate = 960, 120, 60 // two packets per line, and few enough per second for a busy machine
	seconds := 4
	if longRun {
		seconds = 60
	}
	dir, p := t.TempDir(), rtptest.EvenPorts(t, 3)
	judge := newStrict(t, p[0], width, height, rate)
	programtest.Program(t) // otherwise its build time would count as the stream's silence
	verdict := make(chan error, 1)
	go func() { verdict <- judge.receive() }()
	text := fmt.Sprintf(slicePeersYAML, width, height, rate, p[0], p[1], p[2])
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "slices.yaml", text), "--sdp-dir", dir)
	sdp := filepath.Join(dir, "raw.sdp")
	programtest.Await(t, sdp)
	retarget(t, sdp, filepath.Join(dir, "ffmpeg.sdp"), p[0], p[1])
	n := seconds * rate
	peers := []*writer{
		startWriter(t, p[1], 2*width*height, "ffmpeg", "-v", "warning", "-nostdin", "-protocol_whitelist", "file,udp,rtp", "-buffer_size", "8388608",
			"-reorder_queue_size", "0", "-fflags", "nobuffer", "-fpsprobesize", "0", "-analyzeduration", "200000", "-i", filepath.Join(dir, "ffmpeg.sdp"),
			"-fps_mode", "passthrough", "-frames:v", fmt.Sprint(n), "-f", "rawvideo", "-pix_fmt", "uyvy422", "pipe:3"),
		startWriter(t, p[2], 2*width*height, "gst-launch-1.0", strings.Fields(fmt.Sprintf(
			"-q rtpbin name=b latency=1000 udpsrc address=127.0.0.1 port=%d buffer-size=8388608 caps=application/x-rtp,media=video,payload=96,"+
				"clock-rate=90000,encoding-name=RAW,sampling=YCbCr-4:2:2,depth=(string)8,width=(string)%d,height=(string)%d,colorimetry=BT709 ! "+
				"b.recv_rtp_sink_0 udpsrc address=127.0.0.1 port=%d ! b.recv_rtcp_sink_0 b. ! rtpvrawdepay ! identity eos-after=%d ! fdsink fd=3",
			p[2], width, height, p[2]+1, n+1))...),
	}
	var errs []error
	for _, w := range peers {
		errs = append(errs, w.wait(t, time.Duration(seconds+30)*time.Second))
	}
	serve.Stop(t)
	err := <-verdict
	if late := errors.Join(errs...); late != nil || errors.Is(err, errLossy) {
		return errors.Join(late, err)
	}
	if err != nil {
		t.Errorf("the strict receiver: %v\n%s", err, serve.Out.String())
		return nil
	}
	books := books(t, serve.Out.String())["raw"]
	known := knownPictures(t, width, height, int(judge.periods)+2*rate) // the first one is within the first second
	sent := known.order(t, "the strict receiver", judge.frames)
	t.Logf("%d packets, %d frames in %d periods, %d reports", judge.packets, len(sent), judge.periods, judge.reports)
	for _, w := range peers {
		errs = append(errs, w.check(t, known, sent, n))
	}
	if books[1] != len(sent) {
		t.Errorf("%d frames were received, the books say:\n%s", len(sent), serve.Out.String())
	}
	if least := n * 95 / 100; len(sent) < least {
		errs = append(errs, fmt.Errorf("%d frames were sent, want %d", len(sent), least))
	}
	return errors.Join(errs...)
}

// sums maps the CRC-32C of a camera's pictures to their numbers.
type sums map[uint32]int

func knownPictures(t *testing.T, width, height, n int) sums {
	t.Helper()
	known := sums{}
	eachPicture(t, width, height, n, []picture{{pipeline.UYVY, 1}}, func(outs []*pipeline.Frame) {
		known[crc32.Checksum(outs[0].Bytes, castagnoli)] = len(known)
	})
	if len(known) != n {
		t.Fatalf("%d of %d pictures differ", len(known), n)
	}
	return known
}

// order returns the numbers of the received pictures, which must rise.
func (s sums) order(t *testing.T, name string, got []uint32) (numbers []int) {
	t.Helper()
	for i, crc := range got {
		n, ok := s[crc]
		if !ok || i > 0 && n <= numbers[i-1] {
			t.Errorf("%s: frame %d of %d is not the isp's picture of a frame after the last one (%d, %t)", name, i, len(got), n, ok)
			return numbers
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// A writer is a receiver that writes its frames to descriptor 3.
type writer struct {
	*programtest.Process
	name   string
	begun  atomic.Bool   // it has written a frame
	frames chan []uint32 // CRC-32C of each frame, sent at the end
	drops  chan uint64   // drops at its socket since it has begun, sent at the end
	ended  chan struct{}
}

func startWriter(t *testing.T, port, size int, name string, args ...string) *writer {
	t.Helper()
	r, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), "GST_DEBUG=2", "GST_DEBUG_NO_COLOR=1")
	c.ExtraFiles = []*os.File{pipe}
	w := &writer{name: name, frames: make(chan []uint32, 1), drops: make(chan uint64, 1), ended: make(chan struct{})}
	w.Process = programtest.StartCommand(t, c)
	_ = pipe.Close()
	go func() {
		defer r.Close()
		var list []uint32
		for b, from := make([]byte, size), bufio.NewReaderSize(r, 1<<20); ; list = append(list, crc32.Checksum(b, castagnoli)) {
			w.begun.Store(len(list) > 0)
			if _, err := io.ReadFull(from, b); err != nil {
				w.frames <- list
				return
			}
		}
	}()
	go func() {
		before, drops := uint64(0), uint64(0)
		for {
			select {
			case <-w.ended:
				w.drops <- drops - before
				return
			case <-time.After(50 * time.Millisecond):
			}
			if drops = max(drops, socketDrops(port)); !w.begun.Load() {
				before = drops
			}
		}
	}()
	return w
}

// wait waits for the receiver. On a machine that loses packets the receiver waits for frames that do not come, which is
// an error.
func (w *writer) wait(t *testing.T, bound time.Duration) error {
	t.Helper()
	defer close(w.ended)
	if err := w.Within(bound); err != nil {
		return err
	}
	if s := w.ProcessState.ExitCode(); s != 0 {
		t.Fatalf("%s: status %d\nstderr: %s", w.name, s, w.Err.String())
	}
	return nil
}

// socketDrops returns how many datagrams for a port the kernel had no room for (proc(5), /proc/net/udp).
func socketDrops(port int) (drops uint64) {
	b, _ := os.ReadFile("/proc/net/udp")
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 13 || !strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
			continue
		}
		n := uint64(0)
		_, _ = fmt.Sscan(f[12], &n)
		drops += n
	}
	return drops
}

// check compares the peer's frames with those that were sent. Its first two frames may have begun before it was ready.
func (w *writer) check(t *testing.T, known sums, sent []int, want int) error {
	t.Helper()
	frames, drops := <-w.frames, <-w.drops
	if drops > 0 {
		return fmt.Errorf("%s: %w: %d", w.name, errLossy, drops)
	}
	if said := strings.TrimSpace(w.Err.String()); said != "" {
		t.Errorf("%s complains:\n%.2000s", w.name, said)
	}
	if len(frames) != want {
		t.Fatalf("%s: %d frames, want %d", w.name, len(frames), want)
	}
	got := known.order(t, w.name, frames[2:])
	at := 0
	for at < len(sent) && len(got) > 0 && sent[at] != got[0] {
		at++
	}
	for i, n := range got {
		if at+i >= len(sent) || sent[at+i] != n {
			t.Errorf("%s: frame %d of %d was not the next one that was sent", w.name, i+2, len(frames))
			break
		}
	}
	return nil
}
