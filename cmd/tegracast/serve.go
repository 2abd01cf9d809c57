// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/cmd/tegracast/appliance"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/folders"
	"github.com/tegracast/tegracast/cmd/tegracast/memlock"
	"github.com/tegracast/tegracast/cmd/tegracast/telemetry"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/cmd/tegracast/web"
	"github.com/tegracast/tegracast/fpga/model"
)

const serveUsage = `Usage: tegracast serve [--config FILE] [--sdp-dir DIR] [OPTIONS]

Runs the appliance until SIGINT or SIGTERM. Without --config it reads
/etc/tegracast/tegracast.yaml. If that does not exist either, a model of the
FPGA camera replays a real sensor's test chart at 1920x1080, 30 frames a second:
raw RTP (UYVY) to 127.0.0.1:5004, JPEG RTP (half size, 10 frames a second) to
127.0.0.1:5006. For a camera of a real FPGA, configure a source with "fpga:
{device: /dev/tegra_p2p0, width: ..., height: ...}". "gpio: ..." configures the
board's lines: trigger, strobe, the FPGA's reset, a status LED, trigger input,
PPS (docs/operations.md).

For receivers, serve writes one SDP file per stream, NAME.sdp. It refuses to
start if another program of this machine already sends to one of its
destinations. A page with live pictures (docs/watch.md), metrics and health are
at http://127.0.0.1:8080 (web: in the configuration). On a terminal the last
lines show, each second, where to look and how each part is doing; NO_COLOR=1
removes the colours.

SIGHUP reloads FILE and restarts only what changed. If the terminal has closed,
if there is no FILE, or with --fault, serve ends instead. SIGUSR1 triggers the
recordings that wait for a trigger (docs/recording.md).

Status 0 after SIGINT or SIGTERM, or at the end of all sources with
--exit-at-end; 1 when an FPGA or a GPIO line cannot be opened, or a camera does
not recover; 2 after a mistake in usage or configuration; 3 when this process
has lost the GPU (a sticky CUDA error, or a hanging kernel of yours) and must be
restarted.
`

func serve(ctx context.Context, e env, args []string) error {
	ctx, stop := e.whileThereIsATerminal(ctx)
	defer stop()
	if screen := terminal.On(e.Out, e.Err); screen != nil {
		e.Out, e.Err = screen, screen
	}
	f := e.flags("serve", serveUsage)
	path := f.String("config", "", "read the configuration from `FILE` (default \"/etc/tegracast/tegracast.yaml\", if it exists)")
	dir := f.String("sdp-dir", sdpDir(), "write the SDP files to `DIR`")
	faults := f.StringArray("fault", nil, "inject a fault into the model as `ID:RATE`: F3:0.01 is once in a hundred frames (docs/faults.md); repeatable")
	exit := f.Bool("exit-at-end", false, "end with status 0 when all sources have been played to their end: files and recordings that do not repeat")
	quiet := f.Bool("quiet", false, "print nothing but warnings and errors")
	logger := e.logFlags(f)
	if err := parse(f, args); err != nil {
		return err
	}
	if *quiet {
		e.Out = io.Discard
	}
	if *quiet && !f.Changed("log-level") {
		if err := f.Set("log-level", "warn"); err != nil {
			return err
		}
	}
	var err error
	if e.Log, err = logger(); err != nil {
		return err
	}
	// The reader of the output may end, as head does. Then writes fail with EPIPE, and the stream goes on. The handler
	// stays until the process ends, because the last message comes after serve returns.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if *path == "" && there(installedConfig) {
		*path = installedConfig
		e.Log.Info("without --config the installed configuration is used; tegracast config default prints one with a model", "file", installedConfig)
	}
	store := appliance.ConfigStore{Installed: *path, Folder: folders.State(), Limit: memlock.Own(folders.State() != "")}
	o := appliance.Options{Store: store, Dir: *dir, Fixed: *path == "" || len(*faults) > 0, ExitAtEnd: *exit}
	if o.Fixed {
		o.Store = o.Store.Alone(e.Log) // --fault is in no file
	}
	var c *config.Appliance
	if c, o.Kept, err = o.Store.Load(e.Log); err != nil {
		return err
	}
	if err := addFaults(c, *faults); err != nil {
		return err
	}
	env := e.appliance()
	env.Processors = runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(env.Processors + spare)
	return appliance.Serve(ctx, env, c, o)
}

// installedConfig is the path of the configuration of the installed service.
const installedConfig = "/etc/tegracast/tegracast.yaml"

// there reports whether a file exists. It also returns true if that is unknown, as for a file that this user may not
// inspect.
func there(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// spare is the number of goroutines that may run in addition to those that compute on every processor. Otherwise a
// thread that wakes to send, or to take a frame, would wait up to 10 ms for Go's scheduler. The kernel runs such a
// thread at once because of its priority.
const spare = 2

// whileThereIsATerminal returns a context that also ends when the program's terminal closes, if it has one: the SIGHUP
// that follows does not mean a reload.
func (e env) whileThereIsATerminal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	shown := e.Out
	if !terminal.Is(shown) {
		shown = e.Err
	}
	if !terminal.Is(shown) {
		return ctx, cancel
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hangup)
		for {
			select {
			case <-hangup:
				if !terminal.Is(shown) {
					cancel()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}

// appliance returns the environment of an appliance. Its log also goes to the events of the page and to the message
// bus.
func (e env) appliance() appliance.Env {
	events, bus := web.NewEvents(), telemetry.New()
	log := slog.New(slog.NewMultiHandler(e.Log.Handler(), jsonHandler(events, slog.LevelInfo), bus.Handler()))
	return appliance.Env{
		Version: versionName(), Out: e.Out, Log: log, Metrics: []prometheus.Collector{buildInfo()}, Events: events, Bus: bus,
	}
}

// addFaults adds the faults of --fault to every model source. It returns an error if a fault is invalid, or if there
// are faults but no model source.
func addFaults(c *config.Appliance, faults []string) error {
	for _, text := range faults {
		id, rate, err := model.ParseFault(text)
		if err != nil {
			return terminal.UsageError{Err: fmt.Errorf("--fault: %w", err)}
		}
		found := false
		for i := range c.Sources {
			if m, ok := c.Sources[i].Kind.(*config.Model); ok {
				if m.Faults == nil {
					m.Faults = map[string]float64{}
				}
				m.Faults[id.String()], found = rate, true
			}
		}
		if !found {
			return terminal.UsageError{Err: fmt.Errorf("--fault %s: the configuration has no source with model: use one, or leave --fault out", text)}
		}
	}
	return nil
}

// sdpDir returns the runtime directory that the service manager assigned, or "." if there is none.
func sdpDir() string {
	return cmp.Or(folders.Runtime(), ".")
}
