// SPDX-License-Identifier: Apache-2.0

// Package appliance opens the parts that a configuration describes, runs them, and changes them when the configuration
// changes. It reports its state to users, the log, the service manager and a metrics server.
//
// Each kind of source, stage and output is opened in its own file, which adds it to a map in kinds.go. newAppliance
// connects types that know only what they use:
//
//   - opener and builder open and close the parts that a plan names; sourceOpener, stageOpener and sinkOpener open each
//     kind;
//   - runner has the main loop, which runs the flows and, one at a time, the functions that the others request;
//   - reloader and editor apply another configuration, when SIGHUP or the page asks for it;
//   - reopener and supervisor take care of outputs that have failed, that wait, or that a client starts and stops;
//   - reports, pictures, announcer and status describe the appliance for users, the page and the bus, and web.go
//     converts the descriptions for package web.
package appliance

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/folders"
	"github.com/tegracast/tegracast/cmd/tegracast/lines"
	"github.com/tegracast/tegracast/cmd/tegracast/streams"
	"github.com/tegracast/tegracast/cmd/tegracast/telemetry"
	"github.com/tegracast/tegracast/cmd/tegracast/web"
	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/group"
	"github.com/tegracast/tegracast/pipeline/kernel"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// Env is the environment of an appliance.
type Env struct {
	Version string    // version of the program
	Out     io.Writer // output for users: how to watch, the status line, the statistics
	Log     *slog.Logger
	Board   lines.Board            // nil: the machine's own lines
	Metrics []prometheus.Collector // metrics of the program
	Events  *web.Events            // the log's recent records, for the page; nil: not shown
	Bus     *telemetry.Bus         // publishes messages; for faults, Log must include its Handler; nil: a new Bus, which gets no faults
	// Processors is the number of processors to use for computing, and for sending; 0: runtime.GOMAXPROCS(0).
	Processors int
	interrupt  <-chan struct{} // set by Serve: aborts the compilation of kernels when closed
	patient    bool            // set by Serve: outputs that cannot be opened at the start may be opened later
	ending     *shutdown       // set by Serve; nil: the shutdown is not watched
}

// Options are the options of an appliance.
type Options struct {
	Store ConfigStore // storage of the configuration
	Kept  bool        // the configuration comes from the state folder
	Fixed bool        // the configuration cannot be reloaded: SIGHUP ends the appliance
	Dir   string      // folder of SDP files, and of the flight recorder's file if there is no state folder
	// ExitAtEnd ends the appliance when all sources have ended.
	ExitAtEnd bool
}

// Appliance holds the parts of an open configuration, and the values that open, run, change and describe them.
type Appliance struct {
	env      Env
	recorder *pipeline.Recorder
	order    *kernel.Order
	lines    *lines.Lines
	groups   *group.Set
	sinks    *sinkOpener
	flows    *flows
	opener   *opener

	reports   *reports
	pictures  *pictures
	announcer *announcer
	status    *status
	site      *web.Site
	health    func() (ready bool, stalled error) // nil: health is not watched

	requests   requests
	reopener   *reopener
	reloader   *reloader
	supervisor *supervisor
	editor     *editor
	runner     *runner
}

// Open opens the parts that a configuration describes, except the page and RTSP, without running them. On an error it
// closes what it has opened.
func Open(e Env, c *config.Appliance, o Options) (*Appliance, error) {
	a := newAppliance(e, o)
	c.FindPaths(context.Background())
	a.reloader.cfg = c
	p := everything(c)
	p.patient = e.patient
	if err := a.opener.openParts(c, p); err != nil {
		return nil, errors.Join(err, a.opener.closeAll())
	}
	return a, nil
}

// flightEvents is the number of frame events that the flight recorder keeps: more than half a minute at 30 frames per
// second with two outputs.
const flightEvents = 4096

// newAppliance returns an appliance that has nothing open.
func newAppliance(e Env, o Options) *Appliance {
	if e.Bus == nil {
		e.Bus = telemetry.New()
	}
	e.Processors = cmp.Or(e.Processors, runtime.GOMAXPROCS(0))
	a := &Appliance{
		env: e, recorder: pipeline.NewRecorder(flightEvents), order: kernel.NewOrder(), flows: &flows{}, requests: make(requests),
		site: &web.Site{Out: e.Out, State: folders.StateOrUser()},
	}
	closed := &closedOutputs{log: e.Log, stopped: map[string]outputReport{}, waiting: map[string]*waiting{}}
	a.addOpeners(closed)
	a.addReports(closed, o.Dir)
	a.addControl(closed, o)
	return a
}

// addOpeners adds the values that open and close parts.
func (a *Appliance) addOpeners(closed *closedOutputs) {
	memory := &memory{interrupt: a.env.interrupt, log: a.env.Log}
	storage := &storage{memory: memory, log: a.env.Log, drivers: map[place]*cufile.Driver{}}
	cards := &cards{memory: memory, log: a.env.Log, logHeld: storage.logHeld, list: map[string]openCard{}}
	a.sinks = &sinkOpener{
		memory: memory, cards: cards, storage: storage, threads: send.NewThreads(a.env.Processors), streams: streams.New(a.env.Log), bus: a.env.Bus,
		text: func() []byte { return a.reloader.cfg.Text }, log: a.env.Log,
	}
	a.lines = lines.New(lines.Config{
		Board: a.env.Board, Cameras: a.flows.cameras, Health: a.state, Logger: a.env.Log,
		Record: func(output string, at time.Time) { a.sinks.recordings.Edge(output, at, a.env.Log) },
	})
	cards.lines = a.lines
	a.groups = group.NewSet(group.SetConfig{Trigger: a.flows.trigger, Logger: a.env.Log})
	a.pictures = &pictures{flows: a.flows, memory: memory, log: a.env.Log}
	a.opener = &opener{
		memory: memory, cards: cards, storage: storage, lines: a.lines, groups: a.groups, bus: a.env.Bus, closed: closed,
		changing: &a.pictures.changing,
		ending:   a.env.ending, log: a.env.Log,
		builder: &builder{
			sources: &sourceOpener{memory: memory, cards: cards, storage: storage, lines: a.lines, recorder: a.recorder, groups: a.groups, log: a.env.Log},
			stages: &stageOpener{
				memory: memory, quarantine: kernel.NewQuarantine(quarantineFolder()), order: a.order, processors: a.env.Processors, log: a.env.Log,
			},
			sinks: a.sinks, flows: a.flows, views: &a.pictures.views, ending: a.env.ending, books: map[string]*pipeline.Books{},
			reopen: func(ctx context.Context, f *flow, o *output, own pipeline.Format) (pipeline.Sink, error) {
				return a.reopener.reopenOutput(ctx, f, o, own)
			},
		},
	}
}

// addReports adds the values that describe the parts.
func (a *Appliance) addReports(closed *closedOutputs, dir string) {
	a.reports = &reports{flows: a.flows, closed: closed, streams: a.sinks.streams, recordings: &a.sinks.recordings}
	a.announcer = &announcer{dir: dir, out: a.env.Out, flows: a.flows, streams: a.sinks.streams, log: a.env.Log}
	a.status = &status{
		stats: a.reports.stats, page: a.site.Page.Load, flows: a.flows, streams: a.sinks.streams,
		ucx: &a.sinks.ucx, shares: &a.sinks.shares, bus: a.env.Bus, lines: a.lines, clocks: a.sinks.cards.clocks, groups: a.groups,
	}
}

// addControl adds the values that run the parts and change them.
func (a *Appliance) addControl(closed *closedOutputs, o Options) {
	a.reopener = &reopener{requests: a.requests, sinks: a.sinks, announcer: a.announcer, log: a.env.Log}
	a.runner = &runner{
		flows: a.flows, lines: a.lines, groups: a.groups, requests: a.requests, due: closed.due, exits: o.ExitAtEnd, ending: a.env.ending, log: a.env.Log,
		ended: make(chan *flow), over: make(chan struct{}),
	}
	a.reloader = &reloader{
		opener: a.opener, flows: a.flows, closed: closed, streams: a.sinks.streams, recordings: &a.sinks.recordings, announcer: a.announcer,
		start: a.runner.startFlows, openPage: a.site.Open, out: a.env.Out, log: a.env.Log,
	}
	a.supervisor = &supervisor{
		reloader: a.reloader, requests: a.requests, flows: a.flows, closed: closed, reports: a.reports, log: a.env.Log,
	}
	a.editor = &editor{reloader: a.reloader, requests: a.requests, store: o.Store, page: a.site.Now, log: a.env.Log}
	a.runner.openWaiting = a.supervisor.openWaiting
	if !o.Fixed {
		a.runner.reload = a.editor.reloadFile
	}
}

// state reports whether every output is armed, and returns an error if a part is stalled. While health is not watched,
// it returns true and nil.
func (a *Appliance) state() (ready bool, stalled error) {
	if a.health == nil {
		return true, nil
	}
	return a.health()
}
