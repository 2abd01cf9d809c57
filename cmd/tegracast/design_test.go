// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/device"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/rtl/rtltest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
	"github.com/tegracast/tegracast/tegra/tegrasim"
)

// designRate has a period slightly longer than the design's readout of 1920 x 1080 samples at one sample per cycle.
var designRate = pipeline.Rate{Num: 10, Den: 22}

// TestDesignFrames sends frames of 1920 x 1080 samples of 10 bits from the simulated FPGA design through the DMA engine,
// the driver, the isp and RTP to probe. All checksums and each byte of each picture must be right.
func TestDesignFrames(t *testing.T) {
	if !longRun {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	const frames = 3
	programtest.Quiet(t, func(t *testing.T) error {
		design := rtltest.Open(t, "../../fpga/rtl", true)
		sensor := rtltest.Sensor(t, rtltest.MaxWidth, rtltest.MaxHeight, fpga.FourCC(pipeline.RGGB10), designRate.Period())
		port, saved := rtptest.EvenPorts(t, 1)[0], t.TempDir()+"/saved"
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		g, sink := designStream(t, design, fmt.Sprintf("127.0.0.1:%d", port), frames, cancel)
		sdp, err := sink.SDP()
		if err != nil {
			t.Fatal(err)
		}
		probe := programtest.StartProgram(t, "probe", "--sdp", programtest.Write(t, "design.sdp", string(sdp)), "--duration", "1h", "--save", saved, "--json")
		programtest.Listening(t, probe.Process.Pid, port)
		began := time.Now()
		if err := g.Run(ctx); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d frames in %v", frames, time.Since(began).Round(time.Millisecond))
		v, _ := probe.Received(t, port)
		if v.Mismatched > 0 || v.Matched < v.Frames || v.SourceDamaged > 0 {
			t.Fatalf("%+v\n%+v", v, g.Stats())
		}
		if v.Lost > 0 || v.Damaged > 0 || v.Frames < frames { // of a probe that was ended early nothing is clean
			return fmt.Errorf("%+v\n%+v", v, g.Stats())
		}
		compare(t, sensor, saved, frames)
		return nil
	})
}

// designCard is a card whose camera is a design.
func designCard(bus model.Bus, design model.Design) model.Config {
	cfg := model.Camera(bus)
	cfg.C2H, cfg.Designs = []model.Interface{model.Stream}, []model.Design{design}
	return cfg
}

// designStream returns the graph from the design to a receiver. It ends after the given number of frames.
func designStream(t *testing.T, design model.Design, to string, frames int, end func()) (*pipeline.Graph, *send.Sink) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	m, err := device.NewModel(cudahost.Config{Backend: "host", Logger: log}, 1, func(sim *tegrasim.Sim) model.Config { return designCard(sim, design) })
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	camera, err := capture.NewFPGACamera(capture.FPGAConfig{
		Card: m.Card, Width: rtltest.MaxWidth, Height: rtltest.MaxHeight, Pixel: pipeline.RGGB10, Rate: designRate, Logger: log,
		OnFrame: func(*pipeline.Frame) {
			if seen++; seen == frames {
				end()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	stage, err := isp.New(defaultISP())
	if err != nil {
		t.Fatal(err)
	}
	picture, err := pipeline.NewFormat(pipeline.UYVY, rtltest.MaxWidth, rtltest.MaxHeight, designRate)
	if err != nil {
		t.Fatal(err)
	}
	sink, err := send.New(send.Config{Stream: rtp.Stream{Payload: rtp.Raw, Checksum: true}, Destinations: []string{to}, Logger: log}, picture)
	if err != nil {
		t.Fatal(err)
	}
	g := pipeline.NewGraph(pipeline.GraphConfig{Allocator: slots{m.Card.Memory}, Logger: log, Grace: time.Minute})
	if err := errors.Join(g.AddSource("camera", camera), g.AddStage("isp", stage, "camera", frames)); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Attach(pipeline.OutputConfig{Name: "raw", Sink: sink, From: "isp", Format: picture, Depth: frames}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Close(), camera.Close(), m.Close()); err != nil {
			t.Error(err)
		}
	})
	return g, sink
}

// slots allocates a graph's slots.
type slots struct{ cudahost.Allocator }

func (s slots) AllocSlot(f pipeline.Format) (pipeline.Slot, error) {
	b, err := s.AllocHost(f.Size(), cudahost.Default)
	if err != nil {
		return pipeline.Slot{}, err
	}
	return pipeline.Slot{Bytes: b.Bytes(), Close: b.Close}, nil
}

// compare compares received pictures with those that the isp makes from the model's frames.
func compare(t *testing.T, sensor *model.Sensor, saved string, frames int) {
	t.Helper()
	got, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	eachPictureOf(t, sensor, frames, []picture{{pipeline.UYVY, 1}}, func(outs []*pipeline.Frame) {
		want := outs[0].Bytes
		if len(got) < len(want) || !bytes.Equal(got[:len(want)], want) {
			t.Errorf("picture %d is not what the isp makes of the model's frame", n)
		}
		got, n = got[min(len(want), len(got)):], n+1
	})
}
