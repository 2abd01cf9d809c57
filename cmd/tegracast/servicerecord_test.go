// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/foxglove/mcap/go/mcap"

	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline/record"
)

// records makes the service record to the machine's disk, under all of the unit's restrictions. Its exports on this host
// must be the frames that the camera has sent, by number and bit by bit. Its files survive the service and purge.
func (a *installed) records(t *testing.T) {
	const file, dir = "/etc/tegracast/tegracast.yaml", "/var/lib/tegracast"
	a.must(t, "cp "+file+" /root/kept; echo '  - {name: kept, from: camera, policy: block, record: {directory: "+dir+"}}' >> "+file+"; systemctl reload tegracast")
	for began := time.Now(); deliveredTo("kept", a.metrics(t)) < 20; time.Sleep(200 * time.Millisecond) {
		if time.Since(began) > 2*time.Minute {
			log, _ := a.Shell(t.Context(), "journalctl -q -b -u tegracast -n 20 -o cat")
			t.Fatalf("no 20 frames were recorded\n%s", log)
		}
	}
	// The unit's filter permits io_uring.
	a.is(t, "ls -l /proc/$(systemctl show -P MainPID tegracast)/fd | grep -c io_uring", "1\n")
	a.must(t, "cp /root/kept "+file+"; systemctl reload tegracast; "+
		"for i in $(seq 100); do tegracast record info "+dir+"/kept-*.mcap | grep -q ': finished$' && exit 0; sleep .1; done; exit 1")
	name, err := a.Shell(t.Context(), "cd "+dir+"; echo -n kept-*.mcap; stat -c ' %U:%G %a' kept-*.mcap")
	name, owner, _ := strings.Cut(name, " ")
	if err != nil || owner != "tegracast:tegracast 640\n" {
		t.Errorf("%v: %s of %s", err, name, owner)
	}
	recorded, exported := filepath.Join(t.TempDir(), name), filepath.Join(t.TempDir(), "exported.mcap")
	if err := a.CopyOut(t.Context(), dir+"/"+name, recorded); err != nil {
		t.Fatal(err)
	}
	if status, out, errw := runs(t, "record", "export", recorded, "-o", exported); status != exitOK {
		t.Errorf("export: status %d\n%s%s", status, out, errw)
	}
	for _, path := range []string{recorded, exported} {
		status, out, errw := runs(t, "record", "verify", path)
		frames, err := asSent(t, path, newSensor(t, 320, 240, false))
		if err != nil {
			t.Error(err)
		}
		if want := fmt.Sprintf("checksums %d of %[1]d frames right, %[1]d by the FPGA's own\n", len(frames)); status != exitOK || len(frames) < 20 || !strings.Contains(out, want) {
			t.Errorf("%d frames; verify: status %d, want %q\n%s%s", len(frames), status, want, out, errw)
		}
	}
}

// deliveredTo returns the number of frames that an output has delivered, or 0 if there is no such output.
func deliveredTo(output, metrics string) int {
	m := regexp.MustCompile(`(?m)^tegracast_output_frames_total\{output="` + output + `"\} (\d+)`).FindStringSubmatch(metrics)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // cannot fail: digits
	return n
}

// asSent reads a recording with the format's own reader and compares each frame with what the camera has sent. It returns
// the frames' numbers, up to an error.
func asSent(t *testing.T, path string, camera *model.Sensor) (frames []int, err error) {
	t.Helper()
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	lexer, err := mcap.NewLexer(in, &mcap.LexerOptions{ValidateChunkCRCs: true})
	if err != nil {
		return nil, err
	}
	defer lexer.Close()
	images, want := uint16(0), make([]byte, camera.FrameBytes())
	for {
		token, content, err := lexer.Next(nil)
		if errors.Is(err, io.EOF) {
			return frames, nil
		} else if err != nil {
			return frames, fmt.Errorf("%s: %w", path, err)
		}
		switch token {
		case mcap.TokenChannel:
			if c, err := mcap.ParseChannel(content); err == nil && c.Topic == "/camera/image" {
				images = c.ID
			}
		case mcap.TokenMessage:
			m, err := mcap.ParseMessage(content)
			if err != nil {
				return frames, err
			}
			if m.ChannelID != images {
				continue
			}
			image, err := record.ParseImage(m.Data, len(m.Data))
			if err != nil {
				return frames, err
			}
			camera.Frame(uint64(m.Sequence), want)
			if !bytes.Equal(m.Data[image.Pixels:], want) {
				t.Errorf("%s: frame %d is not what the camera has sent", path, m.Sequence)
			}
			frames = append(frames, int(m.Sequence))
		}
	}
}
