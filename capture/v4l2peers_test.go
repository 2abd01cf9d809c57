// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/pipeline"
)

var (
	readFrames   = flag.Int("read-frames", 0, "TestReadFrames reads so many frames of /dev/video0")
	comparePeers = flag.Bool("compare-peers", false, "TestComparePeers compares what a frame costs")
)

// BenchmarkV4L2Peers compares the processor time of a frame of vivid, UYVY of 640x360, in a virtual machine: of a camera
// whose frames are released at once, of GStreamer's v4l2src before a fakesink, and of ffmpeg's input before the null muxer.
// Each figure is the difference between a long and a short run of a process.
func BenchmarkV4L2Peers(b *testing.B) {
	tests := vjetson.BuildTests(b, "amd64", ".")
	files := map[string]string{"/usr/bin/capturetests": tests}
	const plugins = "/usr/lib/x86_64-linux-gnu/gstreamer-1.0/libgst"
	for _, name := range []string{"ffmpeg", "gst-launch-1.0", plugins + "coreelements.so", plugins + "video4linux2.so"} {
		maps.Copy(files, closure(b, name))
	}
	// As on a board, reading the clock needs no system call.
	m := vjetson.StartTest(b, vjetson.Config{Arch: "amd64", Memory: 2048, Modules: []string{"vivid"}, Files: files, Append: "tsc=reliable"})
	for range b.N {
		out, err := m.Shell(b.Context(), "L=/lib/x86_64-linux-gnu; export HOME=/tmp GST_PLUGIN_PATH=/usr$L/gstreamer-1.0 GST_REGISTRY_FORK=no; "+
			"export LD_LIBRARY_PATH=$L:/usr$L:/usr$L/pulseaudio; capturetests -test.run TestComparePeers -test.v -compare-peers 2>&1")
		if err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		fmt.Println(out)
	}
}

// closure returns a program or a library of this machine with the libraries that it loads, by path.
func closure(b *testing.B, name string) map[string]string {
	b.Helper()
	path := name
	if !filepath.IsAbs(name) {
		var err error
		if path, err = exec.LookPath(name); err != nil {
			b.Fatalf("%v (make setup-test)", err)
		}
	}
	out, err := exec.CommandContext(b.Context(), "ldd", path).Output()
	if err != nil {
		b.Fatal(err)
	}
	files := map[string]string{path: path}
	for _, m := range regexp.MustCompile(`(?m)(/\S+) \(0x`).FindAllStringSubmatch(string(out), -1) {
		if files[m[1]], err = filepath.EvalSymlinks(m[1]); err != nil {
			b.Fatal(err)
		}
	}
	return files
}

// TestReadFrames is a process that reads frames.
func TestReadFrames(t *testing.T) {
	if *readFrames == 0 {
		t.Skip("NEEDS the virtual machine: BenchmarkV4L2Peers runs it there")
	}
	c, err := NewV4L2Camera(V4L2Config{Device: "/dev/video0", Width: 640, Height: 360, Rate: pipeline.Rate{Num: 30, Den: 1}, Pixel: pipeline.UYVY, Memory: hostMemory(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	n := 0
	err = c.Run(ctx, func(f *pipeline.Frame) {
		f.Release()
		if n++; n == *readFrames {
			stop()
		}
	})
	if err = errors.Join(err, c.Close()); err != nil || n < *readFrames {
		t.Errorf("%d frames: %v", n, err)
	}
}

// TestComparePeers prints what a frame costs.
func TestComparePeers(t *testing.T) {
	if !*comparePeers {
		t.Skip("NEEDS the virtual machine: BenchmarkV4L2Peers runs it there")
	}
	const short, long, rounds = 30, 630, 3
	peers := map[string]func(frames string) []string{
		"tegracast": func(n string) []string {
			return []string{"capturetests", "-test.run", "TestReadFrames", "-read-frames", n}
		},
		"GStreamer": func(n string) []string {
			return []string{
				"gst-launch-1.0", "-q", "v4l2src", "device=/dev/video0", "num-buffers=" + n, "!",
				"video/x-raw,format=UYVY,width=640,height=360,framerate=30/1", "!", "fakesink",
			}
		},
		"ffmpeg": func(n string) []string {
			return []string{
				"ffmpeg", "-v", "error", "-f", "v4l2", "-input_format", "uyvy422", "-video_size", "640x360", "-framerate", "30", "-i", "/dev/video0",
				"-frames:v", n, "-c", "copy", "-f", "null", "-",
			}
		},
	}
	cost := map[string][]time.Duration{}
	for range rounds {
		for _, name := range slices.Sorted(maps.Keys(peers)) {
			spent := func(frames int) time.Duration {
				argv := peers[name](strconv.Itoa(frames))
				c := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
				if out, err := c.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, out)
				}
				return c.ProcessState.UserTime() + c.ProcessState.SystemTime()
			}
			cost[name] = append(cost[name], (spent(long)-spent(short))/(long-short))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cost)) {
		ratios := ""
		for i, c := range cost[name] {
			ratios += fmt.Sprintf(" %.2f", float64(cost["tegracast"][i])/float64(c))
		}
		t.Logf("%-10s %v a frame; tegracast's share of it:%s", name, cost[name], ratios)
	}
}
