// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"fmt"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/device"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
)

func init() { addSource((*Appliance).openFPGA) }

// openFPGA opens a camera of an FPGA, whose device file is opened for its first one. That it cannot be opened is no fault of the
// configuration.
func (a *Appliance) openFPGA(c *config.Source, k *config.FPGA) (source, error) {
	card, err := a.card(c)
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", c.Name, err)
	}
	pixel, _ := k.Sensor.Pixel()
	camera, err := capture.NewFPGACamera(capture.FPGAConfig{
		Reset: func(ctx context.Context) (bool, error) { return a.lines.Reset(ctx, c.Card.Name) },
		Card:  card, Number: k.Camera, Name: c.Name, Recorder: a.recorder, Width: k.Width, Height: k.Height, Pixel: pixel,
		Rate: k.Rate.V, Exposure: k.Exposure.V, Gain: k.Gain, Slots: c.Slots, Flags: memoryFlags(c), Logger: a.env.Log,
		Triggered: k.Triggered, Bare: c.Bare, Channel: k.Channel, FrameTimeout: k.Timeout.V, SliceLines: sliceOf(c),
		OnFrame: func(f *pipeline.Frame) { a.lines.Seen(c.Name, f) },
	})
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", c.Name, err)
	}
	return camera, nil
}

// memoryBeside is what an FPGA's memory is like: it is made where the outputs' is.
func (a *Appliance) memoryBeside() cudahost.Config {
	return cudahost.Config{Backend: a.memory.Backend(), Logger: a.env.Log, Beside: a.memory}
}

// card is the FPGA of a source, opened.
func (a *Appliance) card(c *config.Source) (*capture.Card, error) {
	if card := a.cards[c.Card.Name]; card != nil {
		return card, nil
	}
	if _, err := a.lines.Reset(context.Background(), c.Card.Name); err != nil {
		return nil, fmt.Errorf("gpio.reset: %w", err)
	}
	board, err := device.OpenBoard(a.memoryBeside(), c.Card.Name)
	if err != nil {
		return nil, err
	}
	if board.Poll = c.Card.Poll; board.Poll {
		a.env.Log.Info("completions of the FPGA are polled", "device", c.Card.Name)
	}
	card := capture.NewCard(board.Hardware)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cards[c.Card.Name], a.devices[c.Card.Name] = card, board.Close
	return card, nil
}

// memoryFlags are those of the memory of a source's frames.
func memoryFlags(c *config.Source) cudahost.Flags {
	if c.WriteCombined {
		return stageFlags(c) | cudahost.WriteCombined
	}
	return stageFlags(c)
}

// stageFlags are those of the memory of what stages make of a source's frames: the GPU has its address, too, and other processes
// can map it where an output wants that.
func stageFlags(c *config.Source) cudahost.Flags {
	if c.Shared {
		return cudahost.Mapped | cudahost.Shared
	}
	return cudahost.Mapped
}

// sliceLines is how many lines of a camera's frames are handed on at once, where an output wants slices.
const sliceLines = 16

// sliceOf is how many lines of a source's frames are handed on at once; 0: frames are handed on when they are complete.
func sliceOf(c *config.Source) int {
	if c.Slices {
		return sliceLines
	}
	return 0
}
