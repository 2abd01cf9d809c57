// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/folders"
	"github.com/tegracast/tegracast/cmd/tegracast/streams"
	"github.com/tegracast/tegracast/cmd/tegracast/telemetry"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/files"
	"github.com/tegracast/tegracast/pipeline/kernel"
)

// Serve opens the appliance and runs it until ctx ends, a fault such as a failed source ends it, or, with ExitAtEnd,
// all sources have ended. On SIGHUP it reloads the configuration, or ends if o.Fixed is set. It notifies the service
// manager of its state (sd_notify(3)). If previous starts failed, it may wait first.
//
// After the end of ctx, or after a fault, it returns within little more than shutdownTime. Parts that have not ended by
// then are named in the log, and left to the end of the process.
func Serve(ctx context.Context, e Env, c *config.Appliance, o Options) error {
	return boundShutdown(ctx, e.Log, func(end *shutdown) error { return serve(ctx, end, e, c, o) })
}

func serve(ctx context.Context, end *shutdown, e Env, c *config.Appliance, o Options) (err error) {
	failed := startsIn(folders.State())
	if !failed.Begin(ctx, e.Log) {
		return nil
	}
	defer func() {
		if err != nil && !end.AskedFor(ctx) {
			failed.Failed(e.Log)
		}
	}()
	e.interrupt, e.patient, e.ending = ctx.Done(), !o.ExitAtEnd, end // with ExitAtEnd the sources may end while an output waits
	a, err := openAlone(e, c, o)
	if err != nil && o.Kept && !errors.Is(err, cudahost.ErrInterrupted) && !pipeline.DeviceLost(err) {
		if c, err = o.Store.Instead(e.Log, err); err == nil {
			o.Kept = false
			a, err = openAlone(e, c, o)
		}
	}
	if errors.Is(err, cudahost.ErrInterrupted) {
		e.Log.Info("ended before the start", "reason", cudahost.ErrInterrupted)
		failed.Forget()
		return nil
	} else if err != nil {
		return err
	}
	end.Of(a.flows.unended, func() error { return a.lines.Close(nil) })
	a.editor.showConfiguration(o.Kept)
	err = a.serve(ctx, failed)
	if err = a.finish(err); err == nil || end.AskedFor(ctx) {
		failed.Forget()
	}
	return err
}

// openAlone opens an appliance, and refuses destinations to which another program of this machine sends.
func openAlone(e Env, c *config.Appliance, o Options) (*Appliance, error) {
	a, err := Open(e, c, o)
	if err == nil {
		if err = streams.Alone(c); err != nil {
			err = a.finish(err)
		}
	}
	return a, err
}

// serve opens the page and RTSP, and runs the appliance together with the functions that watch it. It does not close
// the parts.
func (a *Appliance) serve(ctx context.Context, failed startBackoff) error {
	health, err := newHealthWatch(a.flows.started, a.reports.stats, failed.Forget, a.env.Log)
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	if a.runner.reload != nil || !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
	}
	if a.editor.notify = health.Reload; a.runner.reload != nil {
		health.Reloads()
	}
	usr1 := make(chan os.Signal, 1)
	signal.Notify(usr1, syscall.SIGUSR1)
	defer signal.Stop(usr1)
	a.health = health.State
	began, cpu := time.Now(), terminal.CPUTime()
	watch, stop := context.WithCancel(ctx)
	defer stop()
	a.site.Config = a.pageConfig()
	if err := a.site.Open(watch, a.reloader.cfg.Web); err != nil {
		return err
	}
	defer a.site.Close()
	if err := a.sinks.streams.Listen(a.reloader.cfg.RTSP, a.env.Log); err != nil {
		return err
	}
	defer a.env.ending.Step("RTSP, WebRTC and publishing", a.sinks.streams.Close)
	if err := a.announcer.announceStreams(everything(a.reloader.cfg).outputs); err != nil {
		return err
	}
	var watching sync.WaitGroup
	watching.Go(func() { terminal.NewStatus(a.env.Out, a.env.Log, a.status.view).Run(watch) })
	watching.Go(func() { health.Run(watch) })
	watching.Go(func() { a.groups.Watch(watch) })
	watching.Go(func() { a.sinks.recordings.Answer(watch, usr1, a.env.Log) })
	watching.Go(func() { a.env.Bus.Watch(watch, a.published()) })
	watching.Go(func() { a.reopener.followNames(watch) })
	watching.Go(func() { a.reopener.followClocks(watch) })
	watching.Go(func() { telemetry.WatchBoard(watch, a.env.Log, os.DirFS("/")) })
	a.env.ending.Step("the streams", func() { err = a.runner.run(ctx, hangup) })
	a.env.ending.Begin(err)
	stop()
	a.env.ending.Step("the status and the board's health", watching.Wait)
	a.env.ending.Step("the page", a.site.Close)
	a.printSummary()
	fmt.Fprintf(a.env.Out, "cpu: %.1f s in %.1f s\n", (terminal.CPUTime() - cpu).Seconds(), time.Since(began).Seconds())
	if err != nil {
		a.env.ending.Step("the flight recorder's file", func() { err = errors.Join(err, dump(a.recorder, a.announcer.dir, a.env.Log)) })
	}
	return err
}

// printSummary prints what has been captured, sent and received.
func (a *Appliance) printSummary() {
	terminal.Summary(a.env.Out, a.reports.stats())
	for _, b := range a.groups.Books() {
		b.Print(a.env.Out)
	}
	for _, l := range a.flows.loops() {
		fmt.Fprintf(a.env.Out, "%v\n", l)
	}
	for _, x := range a.flows.externals() {
		fmt.Fprintf(a.env.Out, "%v\n", x)
	}
	for _, x := range a.flows.models() {
		fmt.Fprintf(a.env.Out, "%v\n", x)
	}
	a.sinks.streams.Print(a.env.Out)
	a.sinks.ucx.Print(a.env.Out)
	a.sinks.shares.Print(a.env.Out)
	a.env.Bus.Print(a.env.Out)
	a.sinks.cards.print(a.env.Out)
}

// dump writes the flight recorder's events after a fault: into the folder faults of the service manager's state
// directory, which persists after the service and is cleaned by systemd-tmpfiles, or else into dir.
func dump(recorder *pipeline.Recorder, dir string, log *slog.Logger) error {
	file := filepath.Join(dir, "flight-recorder.txt")
	if state := folders.State(); state != "" {
		dir = filepath.Join(state, "faults")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		file = filepath.Join(dir, time.Now().UTC().Format("20060102T150405.000Z")+".txt")
	}
	if err := files.WriteWhole(file, 0o644, recorder.Dump); err != nil {
		return err
	}
	log.Error("the last frame events were written", "file", file)
	return nil
}

// finish closes everything after err, and returns err, its cause, and the errors of closing.
func (a *Appliance) finish(err error) error {
	closing := a.opener.closeAfter(err)
	return errors.Join(a.cause(err), closing)
}

// cause returns err. If err says that the GPU is lost, and a kernel has caused that, cause puts the kernel's fault in
// front, even if another part saw the loss first. It must be called after the kernels are closed or given up.
func (a *Appliance) cause(err error) error {
	var named *kernel.FaultError
	if f := a.order.Fault(); f != nil && pipeline.DeviceLost(err) && !errors.As(err, &named) {
		return errors.Join(f, err)
	}
	return err
}
