// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
)

// busy is a core with five active channels: two cameras and three transfers.
type busy struct {
	bus     *bus
	device  *Device
	cameras []*camera
}

func newBusy(t *testing.T, msi int, options ...func(*Config)) *busy {
	t.Helper()
	return newBusyOf(t, model.SensorConfig{Width: 64, Height: 48, Period: 2 * time.Millisecond}, msi, 0, options...)
}

// newBusyOf uses sensors with the given geometry and times, the second one a millisecond slower, and rings with the
// given slices.
func newBusyOf(t *testing.T, sensor model.SensorConfig, msi, slice int, options ...func(*Config)) *busy {
	t.Helper()
	format := fpga.NewFourCC([4]byte{'R', 'G', '1', '0'})
	b := &busy{bus: newBus()}
	cfg := model.Config{
		Bus: b.bus, MSI: msi,
		H2C: []model.Interface{model.MemoryMapped, model.MemoryMapped},
		C2H: []model.Interface{model.MemoryMapped, model.Stream, model.Stream},
	}
	sensor.Format, sensor.Shift, sensor.Frames = format, 2, [][]byte{random(2 * sensor.Width * sensor.Height)}
	for range 2 {
		s, err := model.NewSensor(sensor)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Sensors = append(cfg.Sensors, s)
	}
	d, m, x := startModel(t, cfg, options...)
	b.device = d
	for i, s := range cfg.Sensors {
		c := &camera{sensor: s, bus: b.bus, device: d, model: m, tap: x}
		for range 3 {
			c.slots = append(c.slots, b.bus.memory(s.FrameBytes(), 960))
		}
		var err error
		if c.ring, err = d.NewRing(RingConfig{Channel: 1 + i, Slots: c.slots, Trailer: fpga.TrailerSize, Slice: slice}); err != nil {
			t.Fatal(err)
		}
		if c.Camera, err = fpga.OpenCameraBlock(m.BARs()[0].Registers, i); err != nil {
			t.Fatal(err)
		}
		period := sensor.Period + time.Duration(i)*time.Millisecond
		if err := c.Configure(fpga.CameraConfig{Width: sensor.Width, Height: sensor.Height, Format: format, Period: period}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(c.Stop(), c.ring.Stop(), c.ring.Close()); err != nil {
				t.Error(err)
			}
		})
		b.cameras = append(b.cameras, c)
	}
	return b
}

// transfer runs a transfer n times, each without waiting for the watchdog.
func (b *busy) transfer(t *testing.T, dir fpga.Direction, channel, n int) {
	tr, err := b.device.NewTransfer(dir, channel, b.bus.memory(8192, 4096), 0)
	if err != nil {
		t.Error(err)
		return
	}
	for range n {
		if r, err := tr.Run(t.Context()); err != nil || r.Elapsed > 20*time.Millisecond {
			t.Errorf("%v %d: %v, %v", dir, channel, r.Elapsed, err)
		}
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}

// TestSharedVectors has fewer vectors than channels. No channel may have to wait for the watchdog's tick, whether the
// others are slow or fast.
func TestSharedVectors(t *testing.T) {
	for _, msi := range []int{-1, 1, 2, 3, 5, 21} {
		t.Run(fmt.Sprint(msi), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBusy(t, msi)
				if b.device.cfg.Poll != (msi < 0) {
					t.Errorf("poll mode %t", b.device.cfg.Poll)
				}
				var all sync.WaitGroup
				for i, c := range b.cameras {
					c.start(t)
					all.Go(func() {
						for range 100 {
							slot, _ := c.next(t)
							time.Sleep(time.Duration(i) * 7 * time.Millisecond) // the second one is slow
							if err := c.ring.Free(slot); err != nil {
								t.Error(err)
							}
						}
					})
				}
				all.Go(func() { b.transfer(t, fpga.H2C, 0, 200) })
				all.Go(func() { b.transfer(t, fpga.H2C, 1, 200) })
				all.Go(func() { b.transfer(t, fpga.C2H, 0, 200) })
				all.Wait()
				for i, c := range b.cameras {
					if s := c.ring.Stats(); s.Missed != 0 || s.Frames != 100 {
						t.Errorf("camera %d: %+v", i, s)
					}
				}
			})
		})
	}
}

// TestSharedUserInterrupt checks a camera's events over a vector shared by all channels.
func TestSharedUserInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBusy(t, 1)
		c := b.cameras[0]
		if err := b.device.EnableUser(0); err != nil {
			t.Fatal(err)
		}
		c.EnableEvents(fpga.EventDropped)
		c.start(t) // no slot is freed
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var others sync.WaitGroup
		others.Go(func() {
			for ctx.Err() == nil {
				b.transfer(t, fpga.H2C, 0, 1)
				time.Sleep(300 * time.Microsecond)
			}
		})
		for range 50 {
			c.Events()
			begin := time.Now()
			if err := b.device.WaitUser(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); took > 10*time.Millisecond {
				t.Errorf("an event took %v", took)
			}
		}
		cancel()
		others.Wait()
	})
}
