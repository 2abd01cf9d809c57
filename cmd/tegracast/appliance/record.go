// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/record/cuda"
)

func init() { addSink((*Appliance).openRecord) }

// openRecord opens a recording.
func (a *Appliance) openRecord(f *flow, o *output, c *config.Output, k *config.Record, own pipeline.Format) (pipeline.Sink, error) {
	driver, err := a.files()
	if err != nil {
		return nil, fmt.Errorf("output %s: %w", c.Name, err)
	}
	settings := record.Config{
		Directory: k.Directory, Name: c.Name, Source: c.Source, Library: "tegracast", Driver: driver,
		Duration: k.Duration.V, Size: int64(k.Size.V), Keep: int64(k.Keep.V), Sync: k.Sync.V,
		DeleteOldest: k.WhenFull == "delete_oldest", Pack: k.Pack,
		Configuration: a.text, Window: recordWindow(k.Trigger), Settings: cameraSettings(f.source), Logger: a.env.Log.With("output", c.Name),
	}
	packer, err := a.newPacker(c, k, own)
	if packer != nil {
		settings.Packer = packer
	}
	var sink *record.Sink
	if err == nil {
		sink, err = record.New(settings, own)
	}
	if err != nil {
		return nil, c.OpenAt.Errorf("%w", errors.Join(err, packer.Close()))
	}
	a.recordings.Add(sink)
	o.free = func() error { return errors.Join(a.recordings.Remove(sink), packer.Close()) }
	return sink, nil
}

// newPacker opens what packs a recording's frames on the GPU, when they are in CUDA's memory; nil: the CPU packs them, or nobody does.
func (a *Appliance) newPacker(c *config.Output, k *config.Record, f pipeline.Format) (*cuda.Packer, error) {
	gpu, ok := a.memory.(*cudahost.CUDA)
	samples, are := f.Pixel.Samples()
	if !k.Pack || !ok || !are {
		return nil, nil
	}
	p, err := cuda.NewPacker(gpu, samples, kernelCache())
	if err == nil {
		a.env.Log.Info("a recording is packed on the GPU", "output", c.Name, "device", gpu.Device.String())
	}
	if errors.Is(err, cudahost.ErrNoCUDA) {
		a.env.Log.Warn("a recording is packed on the CPU", "output", c.Name, "reason", err)
		return nil, nil
	}
	return p, err
}

// cameraSettings says how a camera is set; nil: the source is none.
func cameraSettings(s source) func() (record.Settings, bool) {
	camera, is := s.(adjustable)
	if !is {
		return nil
	}
	return func() (record.Settings, bool) {
		exposure, gain, err := camera.Exposure()
		return record.Settings{Exposure: exposure, Gain: gain}, err == nil
	}
}

func recordWindow(t *config.RecordTrigger) *record.Window {
	if t == nil {
		return nil
	}
	w := &record.Window{Before: t.Before.V, After: t.After.V}
	if r := t.Result; r != nil {
		w.Result = &record.Condition{Stage: r.Stage, Number: r.Number, Above: r.Above}
	}
	return w
}

// dropStorage closes the files' driver; no output uses it any more.
func (a *Appliance) dropStorage() error {
	if a.storage == nil {
		return nil
	}
	err := a.storage.Close()
	a.storage = nil
	return err
}
