// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/onnxruntime"
	"github.com/tegracast/tegracast/pipeline/infer/postprocess"
	"github.com/tegracast/tegracast/pipeline/infer/sandbox"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
	"github.com/tegracast/tegracast/pipeline/share"
)

const (
	// longest is how long a model may work on a frame. One that does not end when it is told to ends with its process,
	// after grace.
	longest = 20 * time.Second
	grace   = 5 * time.Second
	// longestLoad is how long a provider may load a model. TensorRT builds engines meanwhile.
	longestLoad     = 2 * time.Minute
	longestTensorRT = time.Hour
	// interval is the time between two reports of the steps.
	interval = time.Second
)

// A worker runs a model in the process that a Stage has started.
type worker struct {
	config  Config
	plan    *Plan
	runtime *onnxruntime.Runtime
	reports reporter
	log     *slog.Logger

	provider string
	engine   engine
	out      *postprocess.Postprocessor
	steps    Steps
}

// Work is the process: it runs the model on frames that come over a connection until that or ctx ends. It enters the
// sandbox before it reads the model. Its log and its reports go to the program that has started it.
func Work(ctx context.Context, c Config, frames *os.File, reports io.Writer, log *slog.Logger) error {
	w := &worker{config: c, reports: reporter{to: reports}, log: log}
	err := w.load(ctx)
	if err == nil {
		err = w.serve(ctx, frames)
	}
	if w.engine != nil {
		err = errors.Join(err, w.engine.close())
	}
	return err
}

// load loads the model with the first provider that works.
func (w *worker) load(ctx context.Context) error {
	gpu := slices.ContainsFunc(w.config.Providers, func(p string) bool { return p != "cpu" })
	if err := sandbox.Enter(sandbox.Limits{Memory: w.config.Memory, Device: gpu}); err != nil {
		return err
	}
	var err error
	if w.runtime, err = onnxruntime.Open(w.config.Library); err != nil {
		return err
	}
	if w.plan, err = NewPlan(w.config); err != nil {
		return err
	}
	for _, p := range w.config.Providers {
		if err := w.reports.send(report{State: Loading, Provider: p, Runtime: w.runtime.Version()}); err != nil {
			return err
		}
		if err = w.loadWith(ctx, p); err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := w.reports.send(report{Failed: &failed{p, err.Error()}}); err != nil {
			return err
		}
	}
	return fmt.Errorf("no provider runs the model: %w", err)
}

// loadWith loads the model with a provider. If that hangs, the process ends.
func (w *worker) loadWith(ctx context.Context, provider string) (err error) {
	most := longestLoad
	if provider == onnxruntime.TensorRT {
		most = longestTensorRT
	}
	hangs := time.AfterFunc(most, func() {
		w.log.Error("loading the model hangs: its process ends", "provider", provider)
		os.Exit(1)
	})
	defer hangs.Stop()
	w.provider = provider
	w.engine, err = w.newEngine(ctx, provider)
	return err
}

// serve runs the model on frames until the connection or ctx ends.
func (w *worker) serve(ctx context.Context, frames *os.File) (err error) {
	client, err := share.Dial(ctx, share.ClientConfig{Conn: frames, Every: w.config.Every, Answers: true, Register: w.engine.register()})
	if err != nil {
		return err
	}
	defer func() {
		if closed := client.Close(); err == nil {
			err = closed
		}
	}()
	if err := w.engine.start(client.Format()); err != nil {
		return err
	}
	if w.out, err = w.plan.Postprocessor(client.Format()); err != nil {
		return err
	}
	if err := w.reports.send(report{State: Running, Provider: w.provider, Runtime: w.runtime.Version()}); err != nil {
		return err
	}
	for reported := time.Now(); ; {
		f, err := client.Next(ctx)
		if err != nil {
			if errors.Is(err, share.ErrClosed) || ctx.Err() != nil {
				return nil // the stage ends
			}
			return err
		}
		w.steps.Lost = f.Lost
		if err := w.answer(ctx, f); err != nil {
			return err
		}
		if time.Since(reported) >= interval {
			steps := w.steps
			if err := w.reports.send(report{Steps: &steps}); err != nil {
				return err
			}
			reported = time.Now()
		}
	}
}

// answer returns the results of a frame. An error ends the process.
func (w *worker) answer(ctx context.Context, f *share.SharedFrame) error {
	limited, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	hangs := time.AfterFunc(longest+grace, func() {
		w.log.Error("the model hangs: its process ends", "frame", f.Sequence, "provider", w.provider)
		os.Exit(1)
	})
	defer hangs.Stop()
	r := pipeline.Result{Began: time.Now()}
	outputs, err := w.run(limited, f)
	w.steps.Frames++
	if ctx.Err() != nil {
		return nil // the stage ends
	}
	if err != nil {
		_ = w.reports.send(report{Failed: &failed{w.provider, err.Error()}}) // the process ends in any case
		return fmt.Errorf("frame %d: %w", f.Sequence, err)
	}
	ran := time.Now()
	err = w.out.Process(outputs, w.engine.placement(), &r)
	r.Ended = time.Now()
	w.steps.Postprocess += r.Ended.Sub(ran)
	if err == nil {
		err = f.Respond(r)
	}
	if err != nil && !errors.Is(err, share.ErrClosed) { // the frame goes on without results
		w.steps.Failed++
		err = w.reports.send(report{Failed: &failed{Error: fmt.Sprintf("results of frame %d: %v", f.Sequence, err)}})
	}
	return errors.Join(err, f.Release())
}

// run makes the model's input of a frame and runs the model.
func (w *worker) run(ctx context.Context, f *share.SharedFrame) ([]tensor.Tensor, error) {
	began := time.Now()
	if err := w.engine.preprocess(f); err != nil {
		return nil, err
	}
	prepared := time.Now()
	outputs, err := w.engine.run(ctx)
	w.steps.Preprocess += prepared.Sub(began)
	w.steps.Run += time.Since(prepared)
	return outputs, err
}
