// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"math"

	"github.com/tegracast/tegracast/fpga"
)

// Bus is the device's access to host memory: PCI Express with an SMMU behind it. An access is carried out completely
// or, with an error, not at all. Calls may be concurrent.
type Bus interface {
	Read(addr uint64, p []byte) error
	Write(addr uint64, p []byte) error
}

// Interface is the kind of interface on the card side of a DMA channel.
type Interface int

const (
	MemoryMapped Interface = iota // AXI4: the block RAM
	Stream                        // AXI4-Stream: a camera, a frame sink, or the stream channel of the other direction
)

// Sizes and limits of the device, in bytes unless noted.
const (
	BARSize        = 64 << 10 // each of the three BARs
	DefaultRAM     = 64 << 10 // block RAM, if Config.RAM is 0
	MaxChannels    = 4        // number of channels in each direction
	BeatBytes      = 16       // width of the data path (128 bits)
	ClockHz        = 250e6    // clock of the data path in Hz, for the cycle counters
	FrameBuffers   = 2        // number of frames that a camera's frame memory can hold
	maxBlockRAM    = 256 << 20
	userInterrupts = 16     // number of user interrupts
	maxPPM         = 10_000 // for Config.ClockPPM, in either direction
)

// Config configures a Device. Loopback, Camera and Full return usual configurations.
type Config struct {
	Bus   Bus
	Clock Clock // nil: RealClock

	H2C, C2H []Interface // 1 to 4 channels in each direction

	// RAM is the size of the block RAM in bytes, a multiple of BeatBytes up to 256 MiB; 0 means DefaultRAM. The block
	// RAM is at card address 0 of every memory-mapped channel; the bypass BAR shows its first BARSize bytes.
	RAM int

	// Sensors are the cameras: sensor n feeds the nth of the C2H stream channels. The nth sensor that is not bare has
	// its camera block at n * fpga.CameraBlock in the user BAR. A C2H stream channel without a camera carries what the
	// H2C stream channel of the same number sends, unless that has a sink. An H2C stream channel with neither such a
	// partner nor a sink discards its data.
	Sensors []*Sensor

	// Designs are cameras outside the model. They feed the C2H stream channels after those of the sensors,
	// and their camera blocks follow those of the sensors. Their registers COUNT, INDEX and CHANNEL must agree with
	// that.
	Designs []Design

	// Sinks attaches frame sinks to H2C stream channels, by channel number. A sink checks the frames that the host
	// sends (Device.Received).
	Sinks map[int]SinkConfig

	// Faults are the faults to simulate; the zero value means none.
	Faults FaultPlan

	// ClockPPM is the excess of the timestamp counter's rate over Clock, in parts per million, at most 10,000 in either
	// direction (Device.SetClockPPM).
	ClockPPM float64

	// MSI is the number of vectors of a core with MSI instead of MSI-X: 1 to 32. If it is negative, neither is enabled,
	// and no message reaches the host; 0 means MSI-X with 32 vectors. An MSI vector shared by several sources sends one
	// message when the first of them rises, and no other until all have fallen. Messages for vectors beyond the last
	// are lost.
	MSI int

	// Broken is called with an error that wraps a Rule when the host breaks that rule. It must not call the device. If
	// it is nil, the device panics, so that a broken rule cannot go unnoticed.
	Broken func(error)
}

// Loopback returns the configuration of a device with 64 KiB of block RAM behind one memory-mapped channel in each
// direction.
func Loopback(bus Bus) Config {
	return Config{Bus: bus, H2C: []Interface{MemoryMapped}, C2H: []Interface{MemoryMapped}}
}

// Camera returns the configuration of a device with one H2C stream channel, and for each sensor a C2H stream channel
// that delivers its frames.
func Camera(bus Bus, sensors ...*Sensor) Config {
	c := Config{Bus: bus, H2C: []Interface{Stream}, Sensors: sensors}
	for range sensors {
		c.C2H = append(c.C2H, Stream)
	}
	return c
}

// Full returns the configuration of a device with everything: block RAM behind one memory-mapped channel in each
// direction, then a stream to the device, and one from it for each sensor.
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
