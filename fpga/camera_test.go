// SPDX-License-Identifier: Apache-2.0

package fpga

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// fakeRegisters holds what was written. It acts as a camera block if magic and version are correct.
type fakeRegisters map[uint32]uint32

func (r fakeRegisters) Read32(off uint32) uint32 {
	if _, gone := r[0xffffffff]; gone {
		return 0xffffffff
	}
	return r[off]
}

func (r fakeRegisters) Write32(off, v uint32) { r[off] = v }

func cameraBlock() fakeRegisters {
	return fakeRegisters{
		CamMagic: CameraMagic, CamVersion: 1<<16 | 3, CamTrailerBytes: TrailerSize, CamMaxGeometry: 480<<16 | 640,
		CamCapabilities: uint32(CapFreeRunning | CapGain), CamBuffers: 2, CamAlign: 32, CamMinPeriod: 1e6,
	}
}

func TestOpenCameraBlock(t *testing.T) {
	c, err := OpenCameraBlock(cameraBlock(), 0)
	if err != nil {
		t.Fatal(err)
	}
	want := CameraInfo{
		Major: 1, Minor: 3, Caps: CapFreeRunning | CapGain, MaxWidth: 640, MaxHeight: 480, Buffers: 2, Align: 32,
		MinPeriod: time.Millisecond, Cameras: 1,
	}
	if got := c.Info(); got != want {
		t.Errorf("%+v", got)
	}
	for name, x := range map[string]struct {
		off, value uint32
		want       error
		says       string
	}{
		"gone":    {0xffffffff, 0, ErrCameraGone, "has gone"},
		"magic":   {CamMagic, 0, ErrNoCamera, "wrong BAR"},
		"version": {CamVersion, 2 << 16, ErrNoCamera, "version 2.0"},
		"trailer": {CamTrailerBytes, 64, ErrNoCamera, "trailers of 64 bytes"},
	} {
		regs := cameraBlock()
		regs[x.off] = x.value
		if _, err := OpenCameraBlock(regs, 0); !errors.Is(err, x.want) || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCameraRegistersWritten(t *testing.T) {
	regs := cameraBlock()
	c, err := OpenCameraBlock(regs, 0)
	if err != nil {
		t.Fatal(err)
	}
	cfg := CameraConfig{Width: 640, Height: 480, Format: rg10(), Period: 20 * time.Millisecond, Gain: 1.5}
	if err := c.Configure(cfg); err != nil {
		t.Fatal(err)
	}
	for off, want := range map[uint32]uint32{
		CamControl: 0, CamWidth: 640, CamHeight: 480, CamFormat: uint32(rg10()), CamPeriod: 20e6, CamGain: 384,
	} {
		if regs[off] != want {
			t.Errorf("[%#x] = %d, want %d", off, regs[off], want)
		}
	}
	cfg.Triggered = true
	if err := c.Configure(cfg); !errors.Is(err, ErrCameraConfig) {
		t.Errorf("triggered mode is not among the capabilities: %v", err)
	}
	if err := c.Start(); err != nil || regs[CamControl] != CameraRun {
		t.Errorf("start: %v, control %#x", err, regs[CamControl])
	}
	if err := c.Stop(); err != nil || regs[CamControl] != 0 {
		t.Errorf("stop: %v, control %#x", err, regs[CamControl])
	}
	regs[CamTimeLow], regs[CamTimeHigh] = 5, 7
	if got := c.Timestamp(); got != 7<<32|5 {
		t.Errorf("timestamp %#x", got)
	}
}

// A frame whose trailer would start in the middle of a descriptor is rejected, whatever ALIGN says, and nothing is
// written.
func TestCameraRefusesABrokenDescriptor(t *testing.T) {
	regs := cameraBlock()
	c, err := OpenCameraBlock(regs, 0)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Configure(CameraConfig{Width: 328, Height: 242, Format: rg10(), Period: 20 * time.Millisecond})
	if !errors.Is(err, ErrCameraConfig) || !strings.Contains(err.Error(), "158752 bytes a frame, which must be a multiple of 64") {
		t.Errorf("%v", err)
	}
	if regs[CamWidth] != 0 {
		t.Errorf("WIDTH was written: %d", regs[CamWidth])
	}
}

func TestCameraGone(t *testing.T) {
	regs := cameraBlock()
	c, err := OpenCameraBlock(regs, 0)
	if err != nil {
		t.Fatal(err)
	}
	regs[0xffffffff] = 0
	_, counters := c.Counters()
	cfg := CameraConfig{Width: 640, Height: 480, Format: rg10(), Period: time.Second}
	for name, err := range map[string]error{
		"start": c.Start(), "stop": c.Stop(), "counters": counters, "configure": c.Configure(cfg),
	} {
		if !errors.Is(err, ErrCameraGone) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
