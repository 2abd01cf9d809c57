// SPDX-License-Identifier: Apache-2.0

package capture_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/tegra/tegrasim"
)

// newCard returns a card without hardware: the FPGA model, with a sensor that replays a test chart, behind a simulated
// SMMU. On a board, a tegra.Device provides the registers and interrupts and pins the memory.
func newCard(ctx context.Context) (*capture.Card, *tegrasim.Sim, error) {
	sim, err := tegrasim.New(tegrasim.Config{})
	if err != nil {
		return nil, nil, err
	}
	memory, err := cudahost.Open(cudahost.Config{Backend: "host", Invalidator: sim})
	if err != nil {
		return nil, nil, err
	}
	chart, err := model.TestChartSensor().Crop(640, 480)
	if err != nil {
		return nil, nil, err
	}
	sensor, err := model.NewSensor(chart)
	if err != nil {
		return nil, nil, err
	}
	fpga, err := model.New(model.Camera(sim, sensor))
	if err != nil {
		return nil, nil, err
	}
	go func() { _ = fpga.Run(ctx) }()
	return capture.NewCard(capture.Hardware{BARs: fpga.BARs(), Interrupts: fpga.Interrupts(), Pinner: sim, Memory: memory}), sim, nil
}

// A camera emits three frames. The FPGA writes each frame by DMA into a slot of pinned memory, and the camera emits it
// if its length, number and CRC are correct. A frame lost on a slow machine shows as a gap in the numbers.
func ExampleFPGACamera() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	card, sim, err := newCard(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	camera, err := capture.NewFPGACamera(capture.FPGAConfig{
		Card: card, Width: 640, Height: 480, Pixel: pipeline.RGGB10, Rate: pipeline.Rate{Num: 50, Den: 1}, Slots: 4,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(camera.Format())

	running, stop := context.WithCancel(ctx)
	defer stop()
	taken, next := 0, uint64(0)
	err = camera.Run(running, func(f *pipeline.Frame) {
		defer f.Release() // the FPGA may then reuse the slot
		if taken == 3 {
			return // it was already on its way
		}
		taken++
		fmt.Println("frame", taken, "has", len(f.Bytes), "bytes and a higher number:", f.Sequence >= next)
		if next = f.Sequence + 1; taken == 3 {
			stop()
		}
	})
	fmt.Println("run:", err)
	fmt.Println("close:", camera.Close(), sim.Close())
	// Output:
	// RG10 640x480 stride 1280 none 50/s in host memory
	// frame 1 has 614400 bytes and a higher number: true
	// frame 2 has 614400 bytes and a higher number: true
	// frame 3 has 614400 bytes and a higher number: true
	// run: <nil>
	// close: <nil> <nil>
}
