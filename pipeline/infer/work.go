// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/onnxruntime"
	"github.com/tegracast/tegracast/pipeline/infer/postprocess"
	"github.com/tegracast/tegracast/pipeline/infer/sandbox"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
	"github.com/tegracast/tegracast/pipeline/share"
)

const (
	// longest limits the work of a model on a frame. One that does not end when it is told to ends with its process,
	// after grace.
	longest = 20 * time.Second
	grace   = 5 * time.Second
	// longestLoad limits the loading of a model. TensorRT builds engines meanwhile.
	longestLoad     = 2 * time.Minute
	longestTensorRT = time.Hour
	// interval is the time between two reports of the steps.
	interval = time.Second
	// mostFailures is the number of frames in a row for which the model may fail on a GPU; then its process ends.
	mostFailures = 3
)

// A worker runs a model in the process that a Stage has started.
type worker struct {
	task    Task
	plan    *Plan
	runtime *onnxruntime.Runtime
	reports reporter
	log     *slog.Logger
	engine  engine
	out     *postprocess.Postprocessor

	failures int // frames in a row for which the model failed

	mu    sync.Mutex
	steps Steps
}

// Work is the process: it runs the model on frames that come over a connection until that or ctx ends. It enters the
// sandbox before it reads the model. Its log and its reports go to the program that has started it.
func Work(ctx context.Context, t Task, frames *os.File, reports io.Writer, log *slog.Logger) error {
	w := &worker{task: t, reports: reporter{to: reports}, log: log}
	err := w.load(ctx)
	if err == nil {
		err = w.serve(ctx, frames)
	}
	if w.engine != nil {
		err = errors.Join(err, w.engine.close())
	}
	if ctx.Err() != nil {
		return nil // the stage ends
	}
	return err
}

// load loads the model. Only an error of the provider itself is reported as one.
func (w *worker) load(ctx context.Context) (err error) {
	if err := sandbox.Enter(sandbox.Limits{Memory: w.task.Config.Memory, Tasks: tasks, Device: w.task.device()}); err != nil {
		return err
	}
	if w.runtime, err = onnxruntime.Open(w.task.Config.Library); err != nil {
		return err
	}
	if w.plan, err = NewPlan(w.task.Config); err != nil {
		return err
	}
	if _, err := w.plan.Preprocessor(w.task.Format); err != nil {
		return err
	}
	if w.out, err = w.plan.Postprocessor(w.task.Format); err != nil {
		return err
	}
	if err := w.reports.send(report{State: Loading, Runtime: w.runtime.Version()}); err != nil {
		return err
	}
	most := longestLoad
	if w.task.Provider == onnxruntime.TensorRT {
		most = longestTensorRT
	}
	hangs := time.AfterFunc(most, func() {
		w.log.Error("loading the model hangs: its process ends")
		os.Exit(1)
	})
	defer hangs.Stop()
	if w.engine, err = w.newEngine(ctx); err == nil {
		err = w.engine.start(w.task.Format)
	}
	if err != nil && ctx.Err() == nil {
		err = errors.Join(err, w.reports.send(report{Failed: err.Error()}))
	}
	return err
}

// serve runs the model on frames until the connection or ctx ends.
func (w *worker) serve(ctx context.Context, frames *os.File) (err error) {
	client, err := share.Dial(ctx, share.ClientConfig{Conn: frames, Every: w.task.Config.Every, Answers: true, Register: w.engine.register()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := w.reports.send(report{State: Running, Runtime: w.runtime.Version()}); err != nil {
		return err
	}
	defer w.reportSteps(ctx)()
	for {
		f, err := client.Next(ctx)
		if errors.Is(err, share.ErrClosed) {
			return nil // the stage ends
		}
		if err != nil {
			return err
		}
		if err := w.answer(ctx, f); err != nil {
			return fmt.Errorf("frame %d: %w", f.Sequence, err)
		}
	}
}

// reportSteps reports the steps at intervals if they change, and at the end.
func (w *worker) reportSteps(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var last Steps
	report := func() {
		w.mu.Lock()
		now := w.steps
		w.mu.Unlock()
		if now != last && w.reports.send(report{Steps: &now}) == nil {
			last = now
		}
	}
	var reporting sync.WaitGroup
	reporting.Go(func() {
		t := time.NewTicker(interval)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				report()
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		reporting.Wait()
		report()
	}
}

// answer returns the results of a frame, or gives it back without any if the model fails. An error ends the process.
func (w *worker) answer(ctx context.Context, f *share.SharedFrame) error {
	hangs := time.AfterFunc(longest+grace, func() {
		w.log.Error("the model hangs: its process ends", "frame", f.Sequence)
		os.Exit(1)
	})
	defer hangs.Stop()
	r, err := w.infer(ctx, f)
	if ctx.Err() != nil {
		return nil // the stage ends
	}
	if err == nil {
		w.failures = 0
		err = f.Respond(fit(r))
	}
	if errors.Is(err, share.ErrClosed) {
		return nil // Next says so, too
	}
	if err != nil {
		w.count(func(s *Steps) { s.Failed++ })
		if w.failures >= mostFailures && w.task.Provider != onnxruntime.CPU { // a GPU may be lost to the process
			return err
		}
		if err := w.reports.send(report{Frame: fmt.Sprintf("frame %d: %v", f.Sequence, err)}); err != nil {
			return err
		}
	}
	if err := f.Release(); !errors.Is(err, share.ErrClosed) {
		return err
	}
	return nil
}

// count changes the steps.
func (w *worker) count(change func(*Steps)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.steps)
}

// infer makes the model's input of a frame, runs the model, and makes results of its outputs.
func (w *worker) infer(ctx context.Context, f *share.SharedFrame) (r pipeline.Result, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("it took longer than %v", longest))
	defer cancel()
	r.Began = time.Now()
	w.count(func(s *Steps) { s.Frames, s.Lost = s.Frames+1, f.Lost })
	outputs, err := w.run(ctx, f)
	if err != nil {
		w.failures++
		return r, err
	}
	ran := time.Now()
	err = w.out.Process(outputs, w.engine.placement(), &r)
	r.Ended = time.Now()
	w.count(func(s *Steps) { s.Postprocess += r.Ended.Sub(ran) })
	return r, err
}

// run makes the model's input of a frame and runs the model.
func (w *worker) run(ctx context.Context, f *share.SharedFrame) ([]tensor.Tensor, error) {
	began := time.Now()
	if err := w.engine.preprocess(f); err != nil {
		return nil, err
	}
	prepared := time.Now()
	outputs, err := w.engine.run(ctx)
	w.count(func(s *Steps) { s.Preprocess, s.Run = s.Preprocess+prepared.Sub(began), s.Run+time.Since(prepared) })
	return outputs, err
}
