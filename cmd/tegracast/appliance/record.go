// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/record/mp4"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

func init() { addSink((*sinkOpener).openRecord) }

// openRecord opens a recording.
func (op *sinkOpener) openRecord(f *flow, o *output, c *config.Output, k *config.Record, own pipeline.Format) (pipeline.Sink, error) {
	at := place{k.Directory, k.Storage}
	driver, err := op.storage.openDriver(at)
	if err != nil {
		return nil, fmt.Errorf("output %s: %w", c.Name, err)
	}
	sink, err := record.New(record.Config{
		Directory: k.Directory, Name: c.Name, Source: c.Source, Library: "tegracast", Driver: driver,
		Duration: k.Duration.V, Size: int64(k.Size.V), Keep: retention(k), Sync: k.Sync.V,
		DeleteOldest: k.WhenFull == "delete_oldest", Pack: k.Pack, Memory: op.memory.allocator, Kernels: kernelCache(),
		Configuration: op.text(), Window: recordWindow(k.Trigger), Settings: f.panel.Shot,
		Told: op.bus.Recording, Disks: &op.storage.disks, Logger: op.log.With("output", c.Name),
	}, own)
	if err != nil {
		return nil, c.OpenAt.Errorf("%w", at.explain(err))
	}
	m := driver.Mode()
	op.log.Info("the recording is written", "output", c.Name, "folder", k.Directory, "storage", modeName(m), "reason", m.Why)
	op.recordings.Add(sink)
	o.files = driver
	o.free = func() error { return op.recordings.Remove(sink) }
	return sink, nil
}

// openVideo opens the recording of the pictures that sink sends. They have the size of own.
func (op *sinkOpener) openVideo(o *output, c *config.Output, sink *send.Sink, own pipeline.Format) {
	k, codec := c.Video, mp4.H264
	if sink.Payload() == rtp.JPEG {
		codec = mp4.JPEG
	}
	video := record.NewVideo(record.VideoConfig{
		Directory: k.Directory, Name: c.Name, Source: c.Source, Library: "tegracast", MCAP: k.Format == "mcap", Configuration: op.text(),
		Codec: codec, Width: own.Width, Height: own.Height,
		Duration: k.Duration.V, Size: int64(k.Size.V), Keep: retention(k), Sync: k.Sync.V, DeleteOldest: k.WhenFull == "delete_oldest",
		Window: recordWindow(k.Trigger), Told: op.bus.Recording, Disks: &op.storage.disks, Logger: op.log.With("output", c.Name),
	})
	op.recordings.Add(video)
	unwatch := sink.Watch(func(t *rtp.Train, f *pipeline.Frame) {
		picture, key := t.Picture()
		video.Take(f, picture, key)
	})
	free := o.free
	o.free = func() error {
		unwatch()
		return errors.Join(op.recordings.Remove(video), free())
	}
}

func retention(k *config.Record) record.Retention {
	return record.Retention{Size: int64(k.Keep.V), Age: k.KeepFor.V, Free: int64(k.KeepFree.V)}
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
