// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"math"

	"github.com/tegracast/tegracast/fpga"
)

// Bus is the road by which the device reaches host memory: PCI Express with an SMMU behind it. An access is done
// whole or, with an error, not at all. Calls may come concurrently.
type Bus interface {
	Read(addr uint64, p []byte) error
	Write(addr uint64, p []byte) error
}

// Interface is what stands on the card side of a DMA channel.
type Interface int

const (
	MemoryMapped Interface = iota // AXI4: the block RAM
	Stream                        // AXI4-Stream: a camera, a frame sink, or the stream channel of the other direction
)

// Sizes of the device.
const (
	BARSize        = 64 << 10 // each of the three BARs
	DefaultRAM     = 64 << 10 // block RAM
	MaxChannels    = 4        // each way
	BeatBytes      = 16       // width of the data path (128 bits)
	ClockHz        = 250e6    // of the data path: the cycle counters
	FrameBuffers   = 2        // frames that a camera's frame memory holds
	maxBlockRAM    = 256 << 20
	userInterrupts = 16
	maxPPM         = 10_000
)

// Config is a device. Loopback and Camera return the two usual ones.
type Config struct {
	Bus   Bus
	Clock Clock // nil is RealClock

	H2C, C2H []Interface // 1 to 4 channels each way

	// RAM is the block RAM's size in bytes, at card address 0 of every memory-mapped channel and behind the bypass
	// BAR; 0 is 64 KiB.
	RAM int

	// Sensors are the cameras: sensor n feeds the nth of the C2H stream channels. The nth that is not bare puts its camera
	// block at n * fpga.CameraBlock into the user BAR. A C2H stream channel without camera carries what the H2C stream channel
	// of the same number sends; a stream H2C channel without such a partner swallows its data.
	Sensors []*Sensor

	// Designs are cameras that are not the model's own, on the C2H stream channels after those of the sensors, with their blocks
	// behind those of the sensors. Their registers COUNT, INDEX and CHANNEL must say so.
	Designs []Design

	// Sinks puts a frame sink behind H2C stream channels, by their number: it checks the frames that the host sends
	// (Device.Received).
	Sinks map[int]SinkConfig

	// Faults is what goes wrong; the zero value is nothing.
	Faults FaultPlan

	// ClockPPM is how much faster than Clock the timestamp counter runs, in parts per million (Device.SetClockPPM).
	ClockPPM float64

	// MSI is the number of vectors of a core that has MSI instead of MSI-X: 1 to 32; less than 0 is a core whose messages
	// reach nobody; 0 is MSI-X with 32. A vector that several sources share has one message when the first of them rises,
	// and the next one when all have fallen in between; a message of a vector beyond is lost.
	MSI int

	// Broken is called with an error that wraps a Rule when the host breaks that rule. It must not call the device. nil: the
	// device panics, so that nobody overlooks it.
	Broken func(error)
}

// Loopback is a device with 64 KiB of block RAM behind one memory-mapped channel each way.
func Loopback(bus Bus) Config {
	return Config{Bus: bus, H2C: []Interface{MemoryMapped}, C2H: []Interface{MemoryMapped}}
}

// Camera is a device whose C2H stream channels deliver the sensors' frames, one each.
func Camera(bus Bus, sensors ...*Sensor) Config {
	c := Config{Bus: bus, H2C: []Interface{Stream}, Sensors: sensors}
	for range sensors {
		c.C2H = append(c.C2H, Stream)
	}
	return c
}

// Full is a device with everything: block RAM behind one memory-mapped channel each way, then a stream to the device, and
// one from it for each sensor.
func Full(bus Bus, sensors ...*Sensor) Config {
	c := Camera(bus, sensors...)
	c.H2C = append([]Interface{MemoryMapped}, c.H2C...)
	c.C2H = append([]Interface{MemoryMapped}, c.C2H...)
	return c
}

func (c *Config) check() error {
	if c.Bus == nil {
		return fmt.Errorf("model: Config.Bus is nil: give it the memory that the device reaches")
	}
	if c.Clock == nil {
		c.Clock = RealClock()
	}
	if c.RAM == 0 {
		c.RAM = DefaultRAM
	}
	if c.RAM < BeatBytes || c.RAM > maxBlockRAM || c.RAM%BeatBytes != 0 {
		return fmt.Errorf("model: block RAM of %d bytes, want a multiple of %d up to %d", c.RAM, BeatBytes, maxBlockRAM)
	}
	if math.IsNaN(c.ClockPPM) || math.Abs(c.ClockPPM) > maxPPM {
		return fmt.Errorf("model: a clock that is off by %g ppm, want up to %d either way", c.ClockPPM, maxPPM)
	}
	if c.MSI > msixVectors {
		return fmt.Errorf("model: %d vectors of MSI, want up to %d", c.MSI, msixVectors)
	}
	if err := c.Faults.check(); err != nil {
		return err
	}
	return c.checkChannels()
}

func (c *Config) checkChannels() error {
	streams := 0
	for dir, list := range map[fpga.Direction][]Interface{fpga.H2C: c.H2C, fpga.C2H: c.C2H} {
		if len(list) < 1 || len(list) > MaxChannels {
			return fmt.Errorf("model: %d %v channels, want 1 to %d", len(list), dir, MaxChannels)
		}
		for i, kind := range list {
			if kind != MemoryMapped && kind != Stream {
				return fmt.Errorf("model: %v channel %d: unknown interface %d", dir, i, kind)
			}
			if dir == fpga.C2H && kind == Stream {
				streams++
			}
		}
	}
	if n := len(c.Sensors) + len(c.Designs); n > streams {
		return fmt.Errorf("model: %d sensors need as many C2H stream channels, C2H has %d", n, streams)
	}
	for i, s := range c.Sensors {
		if s == nil {
			return fmt.Errorf("model: sensor %d is nil", i)
		}
	}
	for i, s := range c.Sinks {
		if i < 0 || i >= len(c.H2C) || c.H2C[i] != Stream {
			return fmt.Errorf("model: a frame sink on H2C channel %d, which is no stream channel", i)
		}
		if err := s.check(); err != nil {
			return err
		}
	}
	return nil
}
