// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"fmt"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/control"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
)

func init() { addSink((*Appliance).openRecord) }

// openRecord opens a recording.
func (a *Appliance) openRecord(f *flow, o *output, c *config.Output, k *config.Record, own pipeline.Format) (pipeline.Sink, error) {
	driver, err := a.files()
	if err != nil {
		return nil, fmt.Errorf("output %s: %w", c.Name, err)
	}
	sink, err := record.New(record.Config{
		Directory: k.Directory, Name: c.Name, Source: c.Source, Library: "tegracast", Driver: driver,
		Duration: k.Duration.V, Size: int64(k.Size.V), Keep: int64(k.Keep.V), Sync: k.Sync.V,
		DeleteOldest: k.WhenFull == "delete_oldest", Pack: k.Pack, Memory: a.memory, Kernels: kernelCache(),
		Configuration: a.text, Window: recordWindow(k.Trigger), Settings: cameraSettings(f.source),
		Told: a.env.Bus.Recording, Disks: &a.disks, Logger: a.env.Log.With("output", c.Name),
	}, own)
	if err != nil {
		return nil, c.OpenAt.Errorf("%w", err)
	}
	a.recordings.Add(sink)
	o.records = true
	o.free = func() error { return a.recordings.Remove(sink) }
	return sink, nil
}

// cameraSettings says how a camera is set; nil: the source is none.
func cameraSettings(s source) func() (record.Settings, bool) {
	camera, is := s.(control.Camera)
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
	if a.storage == nil || a.disks.Hanging() { // it waits for what is being written
		return nil
	}
	err := a.storage.Close()
	a.storage = nil
	return err
}
