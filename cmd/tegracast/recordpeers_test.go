// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/pion/rtp"
	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// A streamRecorder reads the stream of a URL by RTSP over TCP, and records it in a folder, or drops it if that is "".
type streamRecorder struct {
	name string
	of   func(b *testing.B, url, folder string) *exec.Cmd
}

// BenchmarkRecordedStream has several programs record a stream of H.264, 1080p30 at 6 Mbit/s, as fragmented MP4 on the
// same disk at the same time, and as many read it without recording. It prints what recording costs: the difference
// between the CPU times of the two processes, for a second of the stream, with the spread of the rounds. Beside it stands
// the whole process of a peer, the cost of recording with a program that does not record. Ours is a process that
// gives the pictures to the recorder of serve, because encoding them as serve does would cost a hundred times as much. It
// forces each second of the stream to the disk; the others force nothing.
//
//	go test -run '^$' -bench RecordedStream -benchtime 5x ./cmd/tegracast
func BenchmarkRecordedStream(b *testing.B) {
	const begin, window = 5 * time.Second, 20 * time.Second
	url := serveH264(b)
	mediamtx := rtptest.NewMediaMTX(b)
	recorders := []streamRecorder{
		{"record", ownRecorder},
		{"MediaMTX", func(b *testing.B, url, folder string) *exec.Cmd { return mediamtx.Record(b, url, folder) }},
		{"ffmpeg -c copy", ffmpegRecorder},
	}
	costs, wholes := make([][]float64, len(recorders)), make([][]float64, len(recorders))
	for b.Loop() {
		var processes []*exec.Cmd
		folder := b.TempDir()
		for i, r := range recorders {
			own := filepath.Join(folder, fmt.Sprint(i))
			if err := os.Mkdir(own, 0o700); err != nil {
				b.Fatal(err)
			}
			for _, to := range []string{own, ""} {
				c := r.of(b, url, to)
				c.Stderr = b.Output()
				if err := c.Start(); err != nil {
					b.Fatal(err)
				}
				defer func() { _, _ = c.Process.Kill(), c.Wait() }()
				processes = append(processes, c)
			}
		}
		time.Sleep(begin)
		used := func() (list []time.Duration) {
			for _, c := range processes {
				list = append(list, cpuOf(b, c.Process.Pid))
			}
			return list
		}
		before := used()
		time.Sleep(window)
		for i, after := range used() {
			used := float64((after - before[i]).Microseconds()) / window.Seconds()
			if i%2 == 0 {
				costs[i/2], wholes[i/2] = append(costs[i/2], used), append(wholes[i/2], used)
			} else {
				costs[i/2][len(costs[i/2])-1] -= used
			}
		}
		for _, c := range processes {
			_, _ = c.Process.Kill(), c.Wait()
		}
		for i, r := range recorders {
			if n := bytesIn(b, filepath.Join(folder, fmt.Sprint(i))); n < 8<<20 {
				b.Fatalf("%s has recorded %d bytes", r.name, n)
			}
		}
	}
	for i, r := range recorders {
		b.Logf("%s: %s µs for a second", r.name, spreadOf(costs[i]))
		if i == 0 {
			continue
		}
		for what, of := range map[string][]float64{"what recording costs": costs[i], "the whole process": wholes[i]} {
			var shares []float64
			for n := range of {
				shares = append(shares, costs[0][n]/of[n])
			}
			b.Logf("record: %s of %s of %s", spreadOf(shares), what, r.name)
		}
	}
}

// cpuOf returns the CPU time that a process has used (clock_getcpuclockid(3)).
func cpuOf(b *testing.B, pid int) time.Duration {
	b.Helper()
	const scheduler = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduler), &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}

func bytesIn(b *testing.B, folder string) (n int64) {
	b.Helper()
	err := filepath.WalkDir(folder, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// spreadOf returns median, minimum and maximum.
func spreadOf(list []float64) string {
	s := slices.Sorted(slices.Values(list))
	return fmt.Sprintf("%.3g (%.3g to %.3g)", s[len(s)/2], s[0], s[len(s)-1])
}

func ffmpegRecorder(_ *testing.B, url, folder string) *exec.Cmd {
	args := []string{"-v", "error", "-rtsp_transport", "tcp", "-i", url, "-c", "copy"}
	if folder == "" {
		return exec.Command("ffmpeg", append(args, "-f", "null", "-")...)
	}
	return exec.Command("ffmpeg", append(args, "-movflags", "frag_keyframe+empty_moov+default_base_moof", filepath.Join(folder, "x.mp4"))...)
}

// Names of the environment of the process of ownRecorder.
const recordedURL, recordedFolder = "TEGRACAST_TEST_URL", "TEGRACAST_TEST_FOLDER"

// ownRecorder returns this program as a process that runs TestRecordedStream.
func ownRecorder(b *testing.B, url, folder string) *exec.Cmd {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	c := exec.Command(self, "-test.run", "^TestRecordedStream$")
	c.Env = append(os.Environ(), recordedURL+"="+url, recordedFolder+"="+folder)
	return c
}

// TestRecordedStream is the process of BenchmarkRecordedStream, and does nothing by itself.
func TestRecordedStream(t *testing.T) {
	text, folder := os.Getenv(recordedURL), os.Getenv(recordedFolder)
	if text == "" {
		return
	}
	url, err := base.ParseURL(text)
	if err != nil {
		t.Fatal(err)
	}
	transport := gortsplib.ProtocolTCP
	c := gortsplib.Client{Scheme: url.Scheme, Host: url.Host, Protocol: &transport}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	desc, _, err := c.Describe(url)
	if err != nil {
		t.Fatal(err)
	}
	var h264 *format.H264
	media := desc.FindFormat(&h264)
	decoder, err := h264.CreateDecoder()
	if err == nil {
		_, err = c.Setup(desc.BaseURL, media, 0, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	video := (*record.Video)(nil)
	if folder != "" {
		video = record.NewVideo(record.VideoConfig{
			Directory: folder, Name: "rec", Width: 1920, Height: 1080, Sync: time.Second, Logger: slog.New(slog.DiscardHandler),
		})
		defer func() { _ = video.Close() }()
	}
	f, picture := &pipeline.Frame{}, []byte(nil)
	c.OnPacketRTP(media, h264, func(p *rtp.Packet) {
		units, err := decoder.Decode(p)
		if err != nil { // more packets are needed
			return
		}
		key := false
		picture = picture[:0]
		for _, u := range units {
			key = key || u[0]&0x1f == 5
			picture = append(append(picture, 0, 0, 0, 1), u...)
		}
		f.Sequence++
		f.Times.Captured = time.Now()
		if video != nil {
			video.Take(f, picture, key)
		}
	})
	if _, err = c.Play(nil); err == nil {
		err = c.Wait() // until the process is killed
	}
	t.Fatal(err)
}

// An h264Server serves one stream.
type h264Server struct{ stream *gortsplib.ServerStream }

func (s *h264Server) OnDescribe(*gortsplib.ServerHandlerOnDescribeCtx) (*base.Response, *gortsplib.ServerStream, error) {
	return &base.Response{StatusCode: base.StatusOK}, s.stream, nil
}

func (s *h264Server) OnSetup(*gortsplib.ServerHandlerOnSetupCtx) (*base.Response, *gortsplib.ServerStream, error) {
	return &base.Response{StatusCode: base.StatusOK}, s.stream, nil
}

func (s *h264Server) OnPlay(*gortsplib.ServerHandlerOnPlayCtx) (*base.Response, error) {
	return &base.Response{StatusCode: base.StatusOK}, nil
}

// serveH264 serves 10 s of a test picture again and again, at 30 pictures a second, and returns its URL.
func serveH264(b *testing.B) string {
	b.Helper()
	out, err := exec.Command("ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=1920x1080:r=30:d=10", "-c:v", "libx264",
		"-preset", "ultrafast", "-b:v", "6M", "-g", "60", "-bf", "0", "-bsf:v", "h264_metadata=aud=insert", "-f", "h264", "-").Output()
	if err != nil {
		b.Skipf("NEEDS ffmpeg with libx264: %v", err)
	}
	var pictures [][][]byte
	h264 := &format.H264{PayloadTyp: 96, PacketizationMode: 1}
	for _, unit := range bytes.Split(out, []byte{0, 0, 1})[1:] {
		switch unit = bytes.TrimRight(unit, "\x00"); unit[0] & 0x1f {
		case 9: // an access unit begins
			pictures = append(pictures, nil)
			continue
		case 7:
			h264.SPS = unit
		case 8:
			h264.PPS = unit
		}
		pictures[len(pictures)-1] = append(pictures[len(pictures)-1], unit)
	}
	h := &h264Server{}
	address := fmt.Sprintf("127.0.0.1:%d", rtptest.EvenPorts(b, 1)[0])
	server := &gortsplib.Server{Handler: h, RTSPAddress: address}
	h.stream = &gortsplib.ServerStream{Server: server, Desc: &description.Session{Medias: []*description.Media{{
		Type: description.MediaTypeVideo, Formats: []format.Format{h264},
	}}}}
	encoder, err := h264.CreateEncoder()
	if err == nil {
		err = server.Start()
	}
	if err == nil {
		b.Cleanup(server.Close)
		err = h.stream.Initialize()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(h.stream.Close)
	done := make(chan struct{})
	b.Cleanup(func() { close(done) })
	go func() {
		tick := time.NewTicker(time.Second / 30)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			packets, _ := encoder.Encode(pictures[n%len(pictures)]) // cannot fail: no picture is empty
			for _, p := range packets {
				p.Timestamp = uint32(n) * 3000
				_ = h.stream.WritePacketRTP(h.stream.Desc.Medias[0], p) // fails after the end
			}
		}
	}()
	return "rtsp://" + address + "/camera"
}
