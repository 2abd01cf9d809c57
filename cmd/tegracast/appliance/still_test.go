// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"image/png"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestStills checks that a PNG has the picture at full size, even of an output that sends it smaller, and that a DNG has
// the samples, with the FPGA's CRC. No trace is left in the statistics, no frame is lost, and impossible requests are
// refused.
func TestStills(t *testing.T) {
	var to []string
	for _, p := range rtptest.EvenPorts(t, 3) {
		to = append(to, fmt.Sprint("127.0.0.1:", p))
	}
	s := startReloads(t, reloadConfig(t, to, 31, 1.5, 1400))
	s.streaming(t, "raw1")
	for _, name := range []string{"raw1", "raw3"} {
		file, err := s.pictures.takeStill(t.Context(), name, "png")
		if err != nil {
			t.Fatal(err)
		}
		picture, err := png.Decode(bytes.NewReader(file.File))
		if err != nil || picture.Bounds().Dx() != 64 || picture.Bounds().Dy() != 16 {
			t.Errorf("%s: %v", name, err)
		}
	}
	file, err := s.pictures.takeStill(t.Context(), "raw2", "dng")
	if err != nil {
		t.Fatal(err)
	}
	samples := file.File[len(file.File)-64*16*2:]
	said := regexp.MustCompile(`"crc32c":([0-9]+)`).FindSubmatch(file.File)
	if len(said) == 0 {
		t.Fatalf("%.500q", file.File)
	}
	if crc, _ := strconv.ParseUint(string(said[1]), 10, 32); crc32.Checksum(samples, crc32.MakeTable(crc32.Castagnoli)) != uint32(crc) {
		t.Error("the file's samples have another CRC than the FPGA's")
	}
	if _, err := s.pictures.takeStill(t.Context(), "raw9", "png"); !errors.Is(err, errNoOutput) {
		t.Error(err)
	}
	if err := s.supervisor.switchOutput(t.Context(), "raw3", false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.pictures.takeStill(t.Context(), "raw3", "dng"); !errors.Is(err, errNoOutput) {
		t.Errorf("of an output that is stopped: %v", err)
	}
	for _, o := range s.reports.stats().Outputs {
		if strings.HasSuffix(o.Name, "still") || o.Name == "raw1" && o.Drops() > 0 {
			t.Errorf("%s is in the books, with the losses %v", o.Name, o.Dropped)
		}
	}
	s.end(t)
}

// TestStillsBesideAFastSource checks that snapshots of the samples, one after the other, cost neither a source of 60
// frames per second nor its output a frame.
func TestStillsBesideAFastSource(t *testing.T) { programtest.Quiet(t, stillsBesideAFastSource) }

func stillsBesideAFastSource(t *testing.T) error {
	s := startReloads(t, fmt.Sprintf(`
web: {listen: none}
memory: host
sources: [{name: camera, slots: 64, model: {width: 640, height: 360, rate: 60}}]
isp: [{name: isp, from: camera, workers: 1}]
outputs: [{name: raw, queue: 32, rtp: {payload: raw, destinations: ["127.0.0.1:%d"], pacing: burst}}]
`, rtptest.EvenPorts(t, 1)[0]))
	s.streaming(t, "raw")
	last := uint64(0)
	for range 40 {
		file, err := s.pictures.takeStill(t.Context(), "raw", "dng")
		if err != nil || file.Sequence <= last {
			t.Fatalf("frame %d, after frame %d: %v", file.Sequence, last, err)
		}
		last = file.Sequence
	}
	s.streaming(t, "raw")
	books := s.end(t)
	source, output := books.Sources[0], books.Outputs[0]
	t.Logf("%d frames, 40 snapshots until frame %d", source.Captured, last)
	if source.Lost > 0 || output.Drops() > 0 || output.Delivered < 40 {
		return fmt.Errorf("lost at the source %d; %d delivered, dropped %v", source.Lost, output.Delivered, output.Dropped)
	}
	return nil
}

// TestStillOfABusySource checks that a source whose section gives no number of slots has enough of them for a snapshot
// of the samples in addition to everything that reads from it, and that one with a given number has no others.
func TestStillOfABusySource(t *testing.T) {
	for slots, want := range map[string]string{"": "", "slots: 17, ": "has 17 slots, and its consumers could hold so many that it needs 19"} {
		s := startReloads(t, fmt.Sprintf(`
web: {listen: none}
memory: host
sources: [{name: camera, %smodel: {width: 64, height: 16, rate: 30}}]
isp: [{name: isp, from: camera, workers: 1}]
outputs:
  - {name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:%d"], pacing: burst}}
  - {name: one, from: camera, record: {directory: %s}}
  - {name: two, from: camera, record: {directory: %s}}
`, slots, rtptest.EvenPorts(t, 1)[0], t.TempDir(), t.TempDir()))
		s.streaming(t, "raw")
		_, err := s.pictures.takeStill(t.Context(), "raw", "dng")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", slots, err)
		}
		s.end(t)
	}
}

// TestNoStill checks that a file of pictures has no samples, but a picture, and that a source that delivers nothing does
// not block for ever.
func TestNoStill(t *testing.T) {
	film := programtest.Write(t, "film.y4m", "YUV4MPEG2 W64 H16 F10:1 C422\nFRAME\n"+strings.Repeat("\x80", 64*16*2))
	slow := programtest.Write(t, "slow.raw", strings.Repeat("\x00\x01", 64*16))
	p := rtptest.EvenPorts(t, 2)
	s := startReloads(t, fmt.Sprintf(`
web: {listen: none}
memory: host
sources:
  - {name: film, file: {path: %s}}
  - {name: slow, file: {path: %s, width: 64, height: 16, rate: 1/20}}
isp: [{name: isp, from: slow, workers: 1}]
outputs:
  - {name: raw, from: film, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}
  - {name: lazy, from: isp, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}
`, film, slow, p[0], p[1]))
	if _, err := s.pictures.takeStill(t.Context(), "raw", "dng"); err == nil || !strings.Contains(err.Error(), "no sensor's samples") {
		t.Error(err)
	}
	if grey, err := s.pictures.takeStill(t.Context(), "raw", "png"); err != nil || !bytes.HasPrefix(grey.File, []byte("\x89PNG")) {
		t.Errorf("%d bytes: %v", len(grey.File), err)
	}
	for s.reports.stats().Outputs[1].Delivered == 0 { // the next frame comes 20 s later
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.pictures.takeStill(ctx, "lazy", "png"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	s.end(t)
}
