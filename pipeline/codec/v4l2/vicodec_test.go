// SPDX-License-Identifier: Apache-2.0

package v4l2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"log/slog"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"

	"github.com/tegracast/tegracast/pipeline/videodev"
)

var device = flag.String("device", "", "device file of an encoder of FWHT")

// TestVicodec runs TestDevice in the virtual Jetson, with the kernel's vicodec, through both interfaces.
func TestVicodec(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("NEEDS TEGRACAST_LONG=1: it fetches the kernel's source, once, and boots a machine")
	}
	tests := vjetson.BuildTests(t, "arm64", ".")
	k, err := vjetson.Fetch(t.Context(), "arm64", slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	module, err := vjetson.BuildFromSource(t.Context(), k, "drivers/media/test-drivers/vicodec", "vicodec",
		"obj-m := vicodec.o\nvicodec-y := vicodec-core.o codec-fwht.o codec-v4l2-fwht.o\n", slog.Default())
	if errors.Is(err, vjetson.ErrUnreachable) {
		t.Skipf("NEEDS the source of the kernel, once, from Debian's archive: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	m := vjetson.StartTest(t, vjetson.Config{Modules: []string{"v4l2_mem2mem", "videobuf2_vmalloc"}, Files: map[string]string{"/usr/bin/encodertests": tests}})
	for _, planes := range []string{"multiplanar=0", "multiplanar=1"} {
		if err := m.LoadModule(t.Context(), module, planes); err != nil {
			t.Fatal(err)
		}
		out, err := m.Shell(t.Context(), "for d in /sys/class/video4linux/*; do if grep -q 'stateful-encoder' $d/name; then "+
			"encodertests -test.run TestDevice -test.v -device /dev/${d##*/} 2>&1; fi; done; rmmod vicodec")
		if err != nil || !strings.Contains(out, "--- PASS: TestDevice") {
			t.Fatalf("%s: %v\n%s", planes, err, out)
		}
		t.Logf("%s:\n%s", planes, out)
	}
}

// TestDevice encodes with a device that produces FWHT, whose frames have a header (codec-fwht.h of the kernel). It
// checks formats, queues, encoding one picture at a time, the drain, and that a device can be reopened.
func TestDevice(t *testing.T) {
	if *device == "" {
		t.Skip("NEEDS the virtual Jetson: TestVicodec runs it there")
	}
	const w, h, count = 640, 360, 4
	f := rtptest.Format(t, pipeline.I420, w, h, 30)
	for round := range 3 {
		n, err := open(*device)
		if err != nil {
			t.Fatal(err)
		}
		e, err := newEncoder(n, *device, f, videodev.Code("FWHT"), 0)
		if err == nil {
			err = e.start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("pictures are %s, several planes: %v", videodev.Letters(e.pictures.pixels), e.multi)
		last := 0
		for i := range count * round { // none in the first round: the encoder is closed at once
			picture := rtptest.Frame(f, i)
			if i%2 == 1 {
				clear(picture.Bytes)
			}
			unit, err := e.Encode(make([]byte, 0, 4*f.Size()), picture, false)
			if err != nil {
				t.Fatal(err)
			}
			begins := []byte{0x4f, 0x4f, 0x4f, 0x4f, 0xff, 0xff, 0xff, 0xff}
			if len(unit) < 48 || !bytes.HasPrefix(unit, begins) || binary.BigEndian.Uint32(unit[12:]) != w || binary.BigEndian.Uint32(unit[16:]) != h {
				t.Fatalf("picture %d: %d bytes: % x", i, len(unit), unit[:min(len(unit), 48)])
			}
			if i%2 == 1 && len(unit) > last/2 {
				t.Errorf("picture %d, which is empty, has %d bytes, the one before %d", i, len(unit), last)
			}
			last = len(unit)
		}
		if err := e.SetBitrate(1_000_000); !errors.Is(err, unix.EINVAL) {
			t.Errorf("bit rate of FWHT: %v", err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	small := rtptest.Format(t, pipeline.I420, w/2, h/2, 30)
	for want, refused := range map[string]func(n node) (*Encoder, error){
		"it makes or takes FWHT and no H264": func(n node) (*Encoder, error) { return newEncoder(n, *device, f, videodev.Code("H264"), 0) },
		"it codes 640x368 instead of 320x18": func(n node) (*Encoder, error) { return newEncoder(n, *device, small, videodev.Code("FWHT"), 0) },
	} {
		n, err := open(*device)
		if err != nil {
			t.Fatal(err)
		}
		e, err := refused(n)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
