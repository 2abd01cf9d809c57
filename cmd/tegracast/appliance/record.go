// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/web"
)

func init() { addSink((*Appliance).openRecord) }

// openRecord opens a recording.
func (a *Appliance) openRecord(_ *flow, o *output, c *config.Output, k *config.Record, own pipeline.Format) (pipeline.Sink, error) {
	if a.storage == nil {
		driver, err := cufile.Open(cufile.Config{Logger: a.env.Log})
		if err != nil {
			return nil, fmt.Errorf("output %s: %w", c.Name, err)
		}
		a.storage = driver
	}
	sink, err := record.New(record.Config{
		Directory: k.Directory, Name: c.Name, Source: c.Source, Library: "tegracast", Driver: a.storage,
		Duration: k.Duration.V, Size: int64(k.Size.V), Keep: int64(k.Keep.V), Sync: k.Sync.V,
		Configuration: a.text, Window: recordWindow(k.Trigger), Logger: a.env.Log.With("output", c.Name),
	}, own)
	if err != nil {
		return nil, c.OpenAt.Errorf("%w", err)
	}
	o.record, o.free = sink, sink.Close
	return sink, nil
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

// trigger triggers a recording.
func (a *Appliance) trigger(name string, t record.Trigger) error {
	s := a.recordings()[name]
	if s == nil {
		return web.ErrNoRecording
	}
	return s.Trigger(t)
}

// triggerLine is a GPIO line that triggers a recording.
func (a *Appliance) triggerLine(name string, at time.Time) {
	if err := a.trigger(name, record.Trigger{Cause: "gpio", At: at}); err != nil {
		a.env.Log.Warn("an edge of a GPIO line triggers no recording", "output", name, "error", err)
	}
}

// triggerAll triggers all recordings that can be triggered.
func (a *Appliance) triggerAll(cause string) {
	for name, s := range a.recordings() {
		if err := s.Trigger(record.Trigger{Cause: cause}); err != nil && !errors.Is(err, record.ErrNoTrigger) {
			a.env.Log.Warn("a signal triggers no recording", "output", name, "error", err)
		}
	}
}

// answer triggers at each signal, until ctx ends.
func (a *Appliance) answer(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-signals:
			a.triggerAll("SIGUSR1")
		case <-ctx.Done():
			return
		}
	}
}

// recordings are the outputs that record, by name.
func (a *Appliance) recordings() map[string]*record.Sink {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string]*record.Sink{}
	for _, f := range a.flows {
		for _, o := range f.outputs {
			if o.record != nil {
				all[o.name] = o.record
			}
		}
	}
	return all
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
