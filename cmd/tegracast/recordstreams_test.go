// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// recordStreams starts an appliance that records numbered pictures as H.264, in files of a key frame's group, and as JPEG, until
// the former has n files.
func recordStreams(t *testing.T, n int) (appliance *programtest.Process, dir string) {
	t.Helper()
	dir = t.TempDir()
	text := fmt.Sprintf(`
web: {listen: none}
rtsp: {listen: none}
sources: [{name: camera, model: {replay: %s, width: %d, height: %d, shift: %d, exposure: 10ms, readout: 15ms}}]
isp: [{name: isp, workers: 1, statistics: true}]
outputs:
  - {name: live, rtp: {payload: h264, bitrate: 4000, bitrate_min: 4000}, record: {directory: %[5]q, duration: 1s, sync: 300ms}}
  - {name: still, rtp: {payload: jpeg, destinations: ["127.0.0.1:%d"]}, record: {directory: %[5]q}}
`, numbered(t), stampWidth, stampHeight, stampBlock, dir, rtptest.EvenPorts(t, 1)[0])
	appliance = programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "config.yaml", text), "--sdp-dir", t.TempDir())
	for deadline := time.Now().Add(time.Minute); len(recordedStreams(t, dir, "live")) < n; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not %d files:\n%s", n, appliance.Err.String())
		}
	}
	return appliance, dir
}

func recordedStreams(t *testing.T, dir, name string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, name+"-*.mp4"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// recordedNumbers returns the frame numbers in the notes of an MP4 file, after checking that the pictures that FFmpeg
// decodes have the same numbers in their pixels.
func recordedNumbers(t *testing.T, path string) (numbers []uint64, finished bool) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() == 0 { // it was just created
		return nil, false
	}
	notes, finished := notesIn(t, path)
	if len(notes) == 0 { // it has just begun
		return nil, finished
	}
	pictures := greyPictures(t, path)
	if len(pictures) != len(notes) {
		t.Fatalf("%s: ffmpeg decodes %d pictures of %d", path, len(pictures), len(notes))
	}
	for i, n := range notes {
		moving, fixed := stampsOf(pictures[i])
		if int(n.Frame%stampBlocks) != moving || int(n.Frame%stampFrames) != fixed || len(n.Results) == 0 {
			t.Errorf("%s: picture %d is frame %d (%d and %d), its pixels have %d and %d; results %v", path, i, n.Frame,
				n.Frame%stampBlocks, n.Frame%stampFrames, moving, fixed, n.Results)
		}
		numbers = append(numbers, n.Frame)
	}
	return numbers, finished
}

// greyPictures returns the pictures of a file as ffmpeg decodes them.
func greyPictures(t *testing.T, path string) (list [][]byte) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-xerror", "-i", path,
		"-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "gray", "-").Output()
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return slices.Collect(slices.Chunk(out, stampWidth*stampHeight))
}

// stampsOf returns the two numbers in a grey picture.
func stampsOf(grey []byte) (moving, fixed int) {
	number := func(from, bits int) (n int) {
		for i := range bits {
			if y := stampTop + (from+i)*stampBar + stampBar/2; grey[y*stampWidth+stampBlock/2] > 127 {
				n |= 1 << i
			}
		}
		return n
	}
	return number(0, stampMoving), number(stampMoving, stampFixed)
}

// TestServeRecordsStreams checks that each picture of a file shows the frame that its note names, that the files follow
// each other without a gap, and that a file can be read while it grows.
func TestServeRecordsStreams(t *testing.T) {
	appliance, dir := recordStreams(t, 2)
	live := recordedStreams(t, dir, "live")
	growing, err := os.ReadFile(live[len(live)-1])
	if err != nil {
		t.Fatal(err)
	}
	if numbers, finished := recordedNumbers(t, programtest.Write(t, "growing.mp4", string(growing))); finished {
		t.Errorf("a growing file is finished, with %v", numbers)
	}
	appliance.Stop(t)
	counted := books(t, appliance.Out.String())
	numbers, _ := recordedNumbers(t, live[0])
	recordCommands(t, live[0], numbers)
	for _, name := range []string{"live", "still"} {
		var all []uint64
		for _, path := range recordedStreams(t, dir, name) {
			numbers, finished := recordedNumbers(t, path)
			if !finished {
				t.Errorf("%s is not finished", path)
			}
			all = append(all, numbers...)
		}
		for i := 1; i < len(all); i++ {
			if all[i] <= all[i-1] {
				t.Errorf("%s: frame %d after frame %d", name, all[i], all[i-1])
			}
		}
		if want := counted[name][1]; len(all) != int(want) || want < 30 {
			t.Errorf("%s: %d pictures are recorded, the books have %v", name, len(all), want)
		}
	}
}

// recordCommands checks what the commands say about a recording of a stream, and that an exported span, which begins
// between key frames, shows the frames from number first+5 to first+7.
func recordCommands(t *testing.T, path string, numbers []uint64) {
	t.Helper()
	frames := len(numbers)
	if frames < 9 {
		t.Fatalf("%s has the frames %v", path, numbers)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"info", path}, fmt.Sprintf("frames    %d (%d to %d)", frames, numbers[0], numbers[frames-1])},
		{[]string{"verify", path}, fmt.Sprintf("whole     %d of %[1]d pictures", frames)},
		{[]string{"ls", filepath.Dir(path)}, fmt.Sprintf("%d", frames)},
		{[]string{"repair", path}, "nothing to repair"},
	} {
		status, out, errw := runs(t, append([]string{"record"}, c.args...)...)
		if status != exitOK || !strings.Contains(out, c.says) {
			t.Errorf("record %v: status %d, %q not in\n%s%s", c.args, status, c.says, out, errw)
		}
	}
	span := filepath.Join(t.TempDir(), "span.mp4")
	status, out, errw := runs(t, "record", "export", path, "--from", "+5", "--to", fmt.Sprint(numbers[8]), "-o", span)
	if status != exitOK || !strings.Contains(out, "3 frames, 0 left out") {
		t.Fatalf("export: status %d\n%s%s", status, out, errw)
	}
	grey := greyPictures(t, span)
	if len(grey) != 3 {
		t.Fatalf("the span has %d pictures", len(grey))
	}
	for i, picture := range grey {
		moving, fixed := stampsOf(picture)
		if n := int(numbers[5+i]); n%stampBlocks != moving || n%stampFrames != fixed {
			t.Errorf("picture %d of the span shows %d and %d, frame %d has %d and %d", i, moving, fixed, n, n%stampBlocks, n%stampFrames)
		}
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--from", "1000000", "-o", span + ".mp4"}, "there is no frame from frame 1000000 on: the file has frames"},
		{[]string{"-o", span + ".y4m"}, "are encoded already: export mp4"},
		{[]string{"-o", span}, "the file exists already"},
	} {
		if status, out, errw := runs(t, append([]string{"record", "export", path}, c.args...)...); status == exitOK || !strings.Contains(errw, c.says) {
			t.Errorf("export %v: status %d\n%s%s", c.args, status, out, errw)
		}
	}
}

// TestAKilledServeLosesOneFragment checks that a file of a process that was killed has all pictures but those of the
// last fragment.
func TestAKilledServeLosesOneFragment(t *testing.T) {
	appliance, dir := recordStreams(t, 1)
	for len(growingNumbers(t, dir, "still")) < 10 {
		time.Sleep(50 * time.Millisecond)
	}
	if err := appliance.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	appliance.Wait(t, time.Minute)
	still := recordedStreams(t, dir, "still") // one file, while those of the other recording follow one another
	if numbers, finished := recordedNumbers(t, still[0]); finished || len(numbers) < 10 {
		t.Errorf("finished %v, %v", finished, numbers)
	}
}

// growingNumbers returns the numbers in a copy of the newest file.
func growingNumbers(t *testing.T, dir, name string) []uint64 {
	t.Helper()
	all := recordedStreams(t, dir, name)
	if len(all) == 0 {
		return nil
	}
	b, err := os.ReadFile(all[len(all)-1])
	if err != nil {
		t.Fatal(err)
	}
	numbers, _ := recordedNumbers(t, programtest.Write(t, "growing.mp4", string(b)))
	return numbers
}
