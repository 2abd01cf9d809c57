// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
)

// benchVideo returns 20 s of H.264 of 1080p30 at 6 Mbit/s, as access units.
func benchVideo(b *testing.B) (units [][]byte) {
	b.Helper()
	out, err := exec.Command("ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=1920x1080:r=30:d=20", "-c:v", "libx264",
		"-preset", "ultrafast", "-b:v", "6M", "-g", "60", "-bf", "0", "-bsf:v", "h264_metadata=aud=insert", "-f", "h264", "-").Output()
	if err != nil {
		b.Skipf("NEEDS ffmpeg with libx264: %v", err)
	}
	delimiter := []byte{0, 0, 0, 1, 9}
	for _, unit := range bytes.Split(out, delimiter)[1:] {
		units = append(units, append(delimiter, unit...))
	}
	return units
}

// BenchmarkVideo records 200 s of a stream, and has FFmpeg copy the same stream into fragmented MP4, in turn. It reports
// the CPU time of a second of the stream, and the ratio of both with minimum and maximum. -benchtime 10x means ten
// rounds.
func BenchmarkVideo(b *testing.B) {
	units := benchVideo(b)
	const repeats = 10
	seconds := float64(repeats*len(units)) / 30
	stream := bytes.Repeat(bytes.Join(units, nil), repeats)
	var own, peer []float64
	for b.Loop() {
		dir := b.TempDir()
		began := cpu(b)
		v := NewVideo(VideoConfig{Directory: dir, Name: "rec", Width: 1920, Height: 1080, Sync: time.Second})
		f := &pipeline.Frame{}
		for n := range repeats * len(units) {
			for v.queued.Load() > 8<<20 { // a stream has one picture there
				time.Sleep(5 * time.Millisecond)
			}
			f.Sequence, f.Times.Captured = uint64(n), testBegin.Add(time.Duration(n)*time.Second/30)
			v.Take(f, units[n%len(units)], n%60 == 0)
		}
		if err := v.Close(); err != nil || v.frames.Load() != uint64(repeats*len(units)) {
			b.Fatalf("%d recorded: %v", v.frames.Load(), err)
		}
		own = append(own, (cpu(b)-began).Seconds()/seconds*1e6)
		began = usage(b, unix.RUSAGE_CHILDREN) // without what it costs to fill the pipe
		c := exec.Command("ffmpeg", "-v", "error", "-f", "h264", "-framerate", "30", "-i", "-", "-c", "copy",
			"-movflags", "frag_keyframe+empty_moov+default_base_moof", filepath.Join(dir, "peer.mp4"))
		c.Stdin = bytes.NewReader(stream)
		if out, err := c.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		peer = append(peer, (usage(b, unix.RUSAGE_CHILDREN)-began).Seconds()/seconds*1e6)
	}
	b.Logf("CPU µs for a second of 1080p30 at 6 Mbit/s: record %s, ffmpeg -c copy %s; record: %s of it", spread(own), spread(peer), spread(shares(own, peer)))
	b.ReportMetric(median(shares(own, peer)), "of-ffmpeg")
}
