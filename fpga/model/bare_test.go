// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"errors"
	"testing"

	"github.com/tegracast/tegracast/fpga"
)

func bareSensor(t *testing.T) *Sensor {
	t.Helper()
	cfg := smallSensor(t, 64, 16).Config()
	cfg.Bare = true
	s, err := NewSensor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A bare sensor has no camera block, so the next sensor's block comes first.
func TestBareSensorHasNoCameraBlock(t *testing.T) {
	h := newHost(t, func(b Bus) Config { return Camera(b, bareSensor(t), smallSensor(t, 64, 16)) })
	user := h.d.BARs()[0].Registers
	if n, channel, magic := user.Read32(fpga.CamCount), user.Read32(fpga.CamChannel), user.Read32(fpga.CamMagic); n != 1 || channel != 1 || magic != fpga.CameraMagic {
		t.Errorf("%d blocks, channel %d, magic %#x", n, channel, magic)
	}
	if got := user.Read32(fpga.CameraBlock + fpga.CamMagic); got != 0 {
		t.Errorf("a second block: %#x", got)
	}
}

func TestUserBARWithoutCamera(t *testing.T) {
	h := newHost(t, Loopback)
	user := h.d.BARs()[0].Registers
	user.Write32(fpga.CamControl, 1)
	if _, err := fpga.OpenCameraBlock(user, 0); !errors.Is(err, fpga.ErrNoCamera) {
		t.Errorf("%v", err)
	}
}

// A packet continues where the channel stopped. Frames taken in the meantime are dropped as a whole.
func TestBareSensorTakesNoNoticeOfTheChannel(t *testing.T) {
	s, clock := bareSensor(t), virtual()
	h := newHost(t, func(b Bus) Config {
		cfg := Camera(b, s)
		cfg.Clock = clock
		return cfg
	}).startDevice()
	period := s.Config().Period
	mem, list, back := h.alloc(4*s.FrameBytes()), h.alloc(4096), h.alloc(4096)
	var got []byte
	receive := func(n int) (end bool) { // n bytes, with one descriptor
		h.writeMemory(back, make([]byte, 8))
		h.list(list, 0, []desc{{control: 3, length: uint32(n), src: back, dst: mem}})
		h.first(0x5000, list, 0)
		h.w(0x1004, logAll|1)
		h.eventually("a descriptor", func() bool { return h.r(0x1048) == 1 })
		h.w(0x100c, 1)
		h.idle(0x1000)
		got = append(got, h.bytes(mem, int(h.word(back+4)))...)
		return h.word(back)&1 == 1
	}
	for n := range uint64(5) { // two are kept, and three dropped
		clock.Advance(period)
		h.eventually("a frame", func() bool { return h.d.Counters(0).Sequence == n+1 })
	}
	if n := h.d.Counters(0); n.Dropped != 3 {
		t.Errorf("%+v, want three dropped", n)
	}
	for i, n := range []int{64, 1024, 4096} {
		if end := receive(n); end != (i == 2) {
			t.Errorf("after %d bytes: end of packet %t", n, end)
		}
	}
	want := make([]byte, s.FrameBytes())
	if s.Frame(0, want); !bytes.Equal(got, want) {
		t.Errorf("%d bytes came, and not those of frame 0", len(got))
	}
	if n := h.d.Counters(0); n.Sequence != 5 || n.Delivered != 1 || n.Lost != 0 {
		t.Errorf("%+v", n)
	}
	h.d.Reset()
	clock.Advance(period)
	h.eventually("frames after a reset", func() bool { return h.d.Counters(0).Sequence == 1 })
}
