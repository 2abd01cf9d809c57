// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/share"
)

const shareYAML = `
memory: host
web: {listen: %q}
rtsp: {listen: none}
sources: [{name: camera, model: {width: 320, height: 240, rate: 20}}]
isp: [{name: isp, white_balance: {red: 1.5, green: 1.0, blue: 1.1}}]
outputs:
  - {name: pictures, from: isp, scale: half, share: {socket: %q}}
`

// subscribes connects a client, waiting until the program listens.
func subscribes(t *testing.T, c share.ClientConfig) *share.Client {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		k, err := share.Dial(t.Context(), c)
		if err == nil {
			t.Cleanup(func() { _ = k.Close() })
			return k
		}
		if time.Since(begin) > time.Minute || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
	}
}

// TestShare checks that another process reads the camera's frames where the FPGA has put them, and the isp's pictures. A
// reload adds the output of samples, which moves the frames into shareable memory. The pictures' consumer is told of the
// end.
func TestShare(t *testing.T) {
	dir := t.TempDir()
	web, pictures, samples := freePort(t), filepath.Join(dir, "pictures"), filepath.Join(dir, "samples")
	text := fmt.Sprintf(shareYAML, web, pictures)
	path := programtest.Write(t, "share.yaml", text)
	serve := programtest.StartProgram(t, "serve", "--config", path)
	takes(t, subscribes(t, share.ClientConfig{Socket: pictures}), "UYVY 160x120", 10)
	text += fmt.Sprintf("  - {name: samples, from: camera, share: {socket: %q, mode: '0600', users: [%d]}}\n", samples, os.Getuid())
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := serve.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	k := subscribes(t, share.ClientConfig{Socket: samples, Policy: pipeline.Block})
	takes(t, k, "RG10 320x240", 30)
	takes(t, subscribes(t, share.ClientConfig{Socket: pictures, Every: 2}), "UYVY 160x120", 5)
	if _, text := fetch(t, "http://"+web+"/metrics"); !strings.Contains(text, `tegracast_share_consumers{output="samples"} 1`) {
		t.Error(text)
	}
	serve.Stop(t)
	var err error
	for err == nil { // frames on their way, and the end
		var f *share.SharedFrame
		if f, err = k.Next(t.Context()); err == nil {
			err = f.Release()
		}
	}
	if end := (*share.EndError)(nil); !errors.Is(err, share.ErrClosed) || errors.As(err, &end) && !strings.Contains(end.Reason, "the output samples ends") {
		t.Error(err)
	}
	for _, s := range []string{pictures, samples} {
		if _, err := os.Stat(s); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	if s := serve.Out.String(); !strings.Contains(s, "samples shared: ") || !strings.Contains(s, "lost") {
		t.Error(s)
	}
}

// takes receives count frames. Samples have the FPGA's CRC, which covers the number that the sensor writes into them.
func takes(t *testing.T, k *share.Client, format string, count int) {
	t.Helper()
	last := uint64(0)
	for range count {
		f, err := k.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(f.Format.String(), format) || f.Sequence <= last && last > 0 || f.Times.ExposureStart.IsZero() || f.Sent.Before(f.Times.Captured) {
			t.Errorf("frame %d behind %d: %+v, %+v", f.Sequence, last, f.Format, f.Times)
		}
		if last = f.Sequence; strings.HasPrefix(format, "RG10") {
			if !f.HasCRC || crc32.Checksum(f.Bytes, crc32.MakeTable(crc32.Castagnoli)) != f.CRC || f.Flags != 0 {
				t.Errorf("frame %d: CRC %08x, %+v", f.Sequence, f.CRC, f.Flags)
			}
			if stamp, err := model.ReadStamp(f.Bytes, fpga.FourCC(f.Format.Pixel)); err != nil || stamp != f.Sequence {
				t.Errorf("frame %d has number %d in its pixels: %v", f.Sequence, stamp, err)
			}
		}
		if err := f.Release(); err != nil {
			t.Fatal(err)
		}
	}
}
