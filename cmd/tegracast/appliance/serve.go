// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/boardwatch"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/egress"
	"github.com/tegracast/tegracast/cmd/tegracast/ending"
	"github.com/tegracast/tegracast/cmd/tegracast/kept"
	"github.com/tegracast/tegracast/cmd/tegracast/live"
	"github.com/tegracast/tegracast/cmd/tegracast/progress"
	"github.com/tegracast/tegracast/cmd/tegracast/starts"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/kernel"
)

// Options are how Serve works.
type Options struct {
	Store kept.Store // of the configuration
	Kept  bool       // the configuration is what is kept there
	Fixed bool       // there is no file to reload: SIGHUP ends Serve
	Dir   string     // where SDP files are written
	// ExitAtEnd has Serve end when all sources have ended.
	ExitAtEnd bool
}

// Serve opens the appliance and runs it until ctx ends, one source has failed, or all have ended and Options say so. It answers SIGHUP, and tells
// the service manager how it goes (sd_notify(3)). After starts that failed it waits first.
//
// From the end of ctx, or a fault, to its return it takes little longer than ending.Limit: what has not ended then is named in the log, and left
// to the end of the process.
func Serve(ctx context.Context, e Env, c *config.Appliance, o Options) error {
	return ending.Within(ctx, e.Log, func(end *ending.End) error { return serve(ctx, end, e, c, o) })
}

func serve(ctx context.Context, end *ending.End, e Env, c *config.Appliance, o Options) error {
	failed := starts.In(stateDir())
	if !failed.Begin(ctx, e.Log) {
		return nil
	}
	e.interrupt, e.patient = ctx.Done(), !o.ExitAtEnd // else the end may come while an output waits
	a, err := openAlone(e, c)
	if err != nil && o.Kept && !errors.Is(err, cudahost.ErrInterrupted) && !pipeline.DeviceLost(err) {
		if c, err = o.Store.Instead(e.Log, err); err == nil {
			o.Kept = false
			a, err = openAlone(e, c)
		}
	}
	if errors.Is(err, cudahost.ErrInterrupted) {
		e.Log.Info("ended before the start", "reason", cudahost.ErrInterrupted)
		failed.Forget()
		return nil
	} else if err != nil {
		return err
	}
	a.ending = end
	end.Of(a.unended, func() error { return a.lines.Close(nil) })
	r := &runner{a: a, cfg: c, store: o.Store, fixed: o.Fixed, dir: o.Dir, exits: o.ExitAtEnd}
	r.show(o.Kept)
	err = r.serve(ctx, failed)
	if err = a.finish(err); err == nil || end.AskedFor(ctx) {
		failed.Forget()
	}
	return err
}

// openAlone opens an appliance that sends where no other program of this machine does.
func openAlone(e Env, c *config.Appliance) (*Appliance, error) {
	a, err := Open(e, c)
	if err == nil {
		if err = egress.Alone(c); err != nil {
			err = a.finish(err)
		}
	}
	return a, err
}

func (r *runner) serve(ctx context.Context, failed starts.Backoff) error {
	health, err := progress.New(r.a.started, r.a.stats, failed.Forget, r.a.env.Log)
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	if !r.fixed || !signal.Ignored(syscall.SIGHUP) { // it is, by nohup
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
	}
	if r.tells = health; !r.fixed {
		health.Reloads()
	}
	usr1 := make(chan os.Signal, 1)
	signal.Notify(usr1, syscall.SIGUSR1)
	defer signal.Stop(usr1)
	r.a.health = health.State
	began, cpu := time.Now(), live.CPUTime()
	watch, stop := context.WithCancel(ctx)
	defer stop()
	r.web = newWeb(r.a, health)
	r.web.Config.Switch, r.web.Config.Configurator = r.switchOutput, r
	if err := r.web.Open(watch, r.cfg.Web); err != nil {
		return err
	}
	defer r.web.Close()
	if err := r.a.egress.Listen(r.cfg.RTSP, r.a.env.Out, r.a.env.Log); err != nil {
		return err
	}
	defer r.a.ending.Step("RTSP, WebRTC and publishing", r.a.egress.Close)
	if err := r.announce(everything(r.cfg).outputs); err != nil {
		return err
	}
	var watching sync.WaitGroup
	watching.Go(func() { live.NewStatus(r.a.env.Out, r.a.env.Log, r.view).Run(watch) })
	watching.Go(func() { health.Run(watch) })
	watching.Go(func() { r.a.recordings.Answer(watch, usr1, r.a.env.Log) })
	watching.Go(func() { r.a.env.Bus.Watch(watch, r.a.told(health)) })
	watching.Go(func() { r.a.egress.Follow(watch, r.a.env.Log, r.a.redescribe(watch)) })
	watching.Go(func() { boardwatch.Watch(watch, r.a.env.Log, os.DirFS("/")) })
	r.a.ending.Step("the streams", func() { err = r.run(ctx, hangup) })
	r.a.ending.Begin(err)
	stop()
	r.a.ending.Step("the status and the board's health", watching.Wait)
	r.a.ending.Step("the page", r.web.Close)
	live.Summary(r.a.env.Out, r.a.stats())
	for _, c := range r.a.controllers() {
		fmt.Fprintf(r.a.env.Out, "%v\n", c)
	}
	r.a.egress.Print(r.a.env.Out)
	r.a.fanout.Print(r.a.env.Out)
	r.a.shares.Print(r.a.env.Out)
	r.a.env.Bus.Print(r.a.env.Out)
	r.a.received()
	fmt.Fprintf(r.a.env.Out, "cpu: %.1f s in %.1f s\n", (live.CPUTime() - cpu).Seconds(), time.Since(began).Seconds())
	if err != nil {
		r.a.ending.Step("the flight recorder's file", func() { err = errors.Join(err, r.a.dump(r.dir)) })
	}
	return err
}

// dump writes the flight recorder's events after a fault: into dir, or under the service manager's state directory, which
// outlives the service and is tidied by systemd-tmpfiles.
func (a *Appliance) dump(dir string) error {
	file := filepath.Join(dir, "flight-recorder.txt")
	if state := stateDir(); state != "" {
		dir = filepath.Join(state, "faults")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		file = filepath.Join(dir, time.Now().UTC().Format("20060102T150405.000Z")+".txt")
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	err = errors.Join(a.recorder.Dump(out), out.Close())
	a.env.Log.Error("the last frame events were written", "file", file)
	return err
}

// finish closes everything after err, and returns err with its cause, and what closing met.
func (a *Appliance) finish(err error) error {
	closing := a.end(err)
	return errors.Join(a.cause(err), closing)
}

// cause is err, with the kernel that has cost the process its GPU in front, whoever has met the fault first. All kernels must have
// been closed, or never will be.
func (a *Appliance) cause(err error) error {
	var named *kernel.FaultError
	if f := a.order.Fault(); f != nil && pipeline.DeviceLost(err) && !errors.As(err, &named) {
		return errors.Join(f, err)
	}
	return err
}

// lostTime is how long closing may take when the GPU is lost.
const lostTime = 3 * time.Second

// end closes everything after err. When the GPU is lost the driver fails, or waits for ever for a kernel that hangs: then lines
// are put back, and what is not closed in time is left to the end of the process.
func (a *Appliance) end(err error) error {
	if !pipeline.DeviceLost(err) {
		return a.Close()
	}
	lines := errors.Join(a.lines.Close(nil), a.env.Bus.Close())
	closed := make(chan error, 1)
	go func() { closed <- a.Close() }()
	select {
	case <-closed: // err says why
	case <-time.After(lostTime):
		a.env.Log.Warn("the GPU does not answer: what is still open is freed when the process ends")
	}
	return lines
}
