package main

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

	"github.com/tegracast/tegracast/fpga/model"
)

const serveUsage = `Usage: tegracast serve [--config FILE] [--sdp-dir DIR] [--fault ID:RATE]

Runs the appliance until SIGINT or SIGTERM. Without a configuration a model of
the FPGA camera replays a real sensor's test chart at 1920x1080, 30 frames a
second: raw RTP (UYVY) to 127.0.0.1:5004, JPEG RTP (half size, 10 frames a
second) to 127.0.0.1:5006. An SDP file for each stream, NAME.sdp, is written for
receivers. SIGHUP reads FILE again and makes anew what has changed. Metrics and
health are on http://127.0.0.1:8080 (web: in the configuration). A source with
"fpga: {device: /dev/tegra_p2p0, width: ..., height: ...}" in the configuration
is a camera of a real FPGA. "gpio: ..." has the board's lines: trigger, strobe,
the FPGA's reset, a status LED, trigger in, PPS (docs/operations.md).

Status 0 after SIGINT or SIGTERM; 1 when a source cannot be opened or does not
recover; 2 for usage or configuration; 3 when the GPU is lost to the process
(CUDA's sticky errors, a kernel of yours that hangs), which a new process mends.
`

func serve(ctx context.Context, e env, args []string) error {
	f := e.flags("serve", serveUsage)
	path := f.String("config", "", "configuration `FILE` (see tegracast config default)")
	dir := f.String("sdp-dir", sdpDir(), "where SDP files are written, `DIR`")
	faults := f.StringArray("fault", nil, "make the model fail: `ID:RATE` such as F3:0.01, once in a hundred frames (docs/faults.md); repeatable")
	if err := parse(f, args); err != nil {
		return err
	}
	d, err := readConfig(*path)
	if err != nil {
		return err
	}
	if err := d.addFaults(*faults); err != nil {
		return err
	}
	starts := newBackoff()
	if !starts.begin(ctx, e) {
		return nil
	}
	a, err := build(e, d)
	if err != nil {
		return err
	}
	r := &runner{appliance: a, doc: d, path: *path, dir: *dir}
	if len(*faults) > 0 {
		r.path = "" // --fault is not in the file
	}
	err = r.serve(ctx, starts)
	closing := a.end(err)
	err = errors.Join(a.cause(err), closing)
	if err == nil {
		starts.forget()
	}
	return err
}

// addFaults gives every model source the faults of --fault.
func (d *document) addFaults(faults []string) error {
	for _, text := range faults {
		id, rate, err := model.ParseFault(text)
		if err != nil {
			return usageError{fmt.Errorf("--fault: %w", err)}
		}
		found := false
		for i := range d.Sources {
			if m := d.Sources[i].Model; m != nil {
				if m.Faults == nil {
					m.Faults = map[string]float64{}
				}
				m.Faults[id.String()], found = rate, true
			}
		}
		if !found {
			return usageError{fmt.Errorf("--fault %s: the configuration has no model source that could fail", text)}
		}
	}
	return nil
}

// sdpDir is the service manager's runtime directory, else the working folder.
func sdpDir() string {
	if dir := os.Getenv("RUNTIME_DIRECTORY"); dir != "" {
		return dir
	}
	return "."
}

func (r *runner) serve(ctx context.Context, starts backoff) error {
	health, err := newHealth(r.appliance, starts.forget)
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	r.pins.health = health.state
	if err := r.announce(everything(r.doc).outputs); err != nil {
		return err
	}
	began, cpu := time.Now(), cpuTime()
	watch, stop := context.WithCancel(ctx)
	defer stop()
	r.web = &webRunner{health: health}
	if err := r.web.open(watch, r.appliance, r.doc.Web); err != nil {
		return err
	}
	var watching sync.WaitGroup
	watching.Go(func() { newStatus(r.appliance).run(watch) })
	watching.Go(func() { health.run(watch) })
	watching.Go(func() { watchBoard(watch, r.env.log, os.DirFS("/")) })
	err = r.run(ctx, hangup)
	stop()
	watching.Wait()
	r.web.close()
	if err != nil {
		err = errors.Join(err, r.dump(r.dir))
	}
	summary(r.env.out, r.stats())
	for _, c := range r.controllers() {
		fmt.Fprintf(r.env.out, "%v\n", c)
	}
	destinations(r.env.out, r.running())
	r.received()
	fmt.Fprintf(r.env.out, "cpu: %.1f s in %.1f s\n", (cpuTime() - cpu).Seconds(), time.Since(began).Seconds())
	return err
}

// received tells what the cards in software got by the fpga outputs.
func (a *appliance) received() {
	for name, d := range a.models {
		if r := d.device.Received(0); r.Good+r.Bad+r.OutOfOrder+r.Aborted > 0 {
			fmt.Fprintf(a.env.out, "%s's FPGA received: %d frames right, %d bad, %d out of order, %d aborted, %d sequence numbers missing\n",
				name, r.Good, r.Bad, r.OutOfOrder, r.Aborted, r.Missing)
		}
	}
}

// dump writes the flight recorder's events after a fault: into dir, or under the service manager's state directory, which
// outlives the service and is tidied by systemd-tmpfiles.
func (a *appliance) dump(dir string) error {
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
	a.env.log.Error("the last frame events were written", "file", file)
	return err
}
