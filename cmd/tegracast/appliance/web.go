// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/board"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/folders"
	"github.com/tegracast/tegracast/cmd/tegracast/lines"
	"github.com/tegracast/tegracast/cmd/tegracast/streams"
	"github.com/tegracast/tegracast/cmd/tegracast/telemetry"
	"github.com/tegracast/tegracast/cmd/tegracast/web"
	"github.com/tegracast/tegracast/pipeline/group"
	"github.com/tegracast/tegracast/pipeline/record"
)

// pageConfig returns the configuration of the HTTP server. This file converts the types of this package to those of
// package web.
func (a *Appliance) pageConfig() web.Config {
	own := []prometheus.Collector{
		a.sinks.streams, &a.sinks.ucx, &a.sinks.shares, a.env.Bus, &hardwareMetrics{a.sinks.cards, a.flows}, &recordingMetrics{&a.sinks.recordings},
		&storageMetrics{a.flows}, &groupMetrics{a.groups},
		&telemetry.Metrics{Root: os.DirFS("/")}, &lines.Metrics{Lines: a.lines},
	}
	socket := ""
	if dir := folders.Runtime(); dir != "" {
		socket = filepath.Join(dir, web.SocketFile)
	}
	return web.Config{
		Socket: socket, Access: web.Access{Guesses: &a.sinks.streams.Guesses}, Version: a.env.Version,
		Host: hostName(), Model: board.Identify(os.DirFS("/")).Model,
		Stats: a.reports.stats, Health: a.state, Outputs: func() []web.Output { return pageOutputs(a.reports.outputs()) },
		Board: pageSensors, Bus: func() *web.Bus { return pageBus(a.env.Bus) }, Lines: func() []web.Line { return pageLines(a.lines.Books()) },
		Clocks: func() []web.Clock { return pageClocks(a.sinks.cards.clocks()) },
		Groups: func() []web.Group { return pageGroups(a.groups.Books()) },
		View: func(output string) (web.View, error) {
			w, err := a.pictures.openView(output)
			if err != nil {
				return nil, pageError(err)
			}
			return w, nil
		},
		Still: func(ctx context.Context, output, kind string) (web.Still, error) {
			s, err := a.pictures.takeStill(ctx, output, kind)
			return web.Still(s), pageError(err)
		},
		SDP: func(output string) ([]byte, error) {
			sdp, err := a.announcer.describeStream(output)
			return sdp, pageError(err)
		},
		Trigger: func(output, cause string) (bool, error) {
			return a.sinks.recordings.Trigger(output, record.Trigger{Cause: cause})
		},
		Recordings: &a.sinks.recordings,
		Send: func(ctx context.Context, output, destination string) ([]byte, error) {
			sdp, err := a.sinks.streams.Send(ctx, output, destination)
			return sdp, pageError(err)
		},
		Unsend:   func(output, destination string) error { return pageError(a.sinks.streams.Unsend(output, destination)) },
		Settings: pageSettings{controlPanels(a.flows.panels)}, WHEP: a.sinks.streams.WHEP(),
		Metrics: append(own, a.env.Metrics...), Events: a.env.Events, Logger: a.env.Log,
		Switch: func(ctx context.Context, output string, on bool) error {
			return pageError(a.supervisor.switchOutput(ctx, output, on))
		},
		Configurator: pageConfiguration{a.editor},
	}
}

// hostName returns the name of this machine, or "" if it is not known.
func hostName() string {
	name, _ := os.Hostname()
	return name
}

// pageError converts the errors that the page distinguishes to those of package web, and returns other errors
// unchanged.
func pageError(err error) error {
	switch {
	case errors.Is(err, errNoOutput), errors.Is(err, streams.ErrNoStream):
		return web.ErrNoOutput
	case errors.Is(err, streams.ErrNotAsked):
		return web.ErrDestination
	case errors.Is(err, errNoControl):
		return web.ErrNoControl
	}
	return err
}

func pageOutputs(all []outputReport) (list []web.Output) {
	for _, o := range all {
		x := web.Output{
			Name: o.Name, From: o.From, Sends: o.Sends, To: o.To, Added: o.Added, RTSP: o.RTSP, SDP: o.SDP, WHEP: o.WHEP,
			Picture: o.Picture, Samples: o.Samples, Record: o.Record, Trigger: o.Trigger, Files: o.Files, Stopped: o.Stopped, OutputStatus: o.OutputStatus,
			Troubles: o.Troubles,
		}
		if r := o.Recording; r != nil {
			x.Recording = &web.Recording{Waiting: r.Waiting, File: r.File, Bytes: r.Bytes, Folder: r.Folder, Error: r.Error}
			if r.Free >= 0 {
				x.Recording.Free = &r.Free
			}
		}
		for _, r := range o.Readers {
			x.Readers = append(x.Readers, web.Reader(r))
		}
		list = append(list, x)
	}
	return list
}

func pageSensors() (list []web.Reading) {
	for _, r := range board.Readings(os.DirFS("/")) {
		list = append(list, web.Reading(r))
	}
	return list
}

func pageLines(all map[string]lines.Books) (list []web.Line) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b := all[name]
		x := web.Line{
			Name: name, Where: b.Where, Output: b.Output, On: b.On, Pulses: b.Pulses, Missed: b.Missed, Errors: b.Errors,
			Edges: b.Match.Edges, Lost: b.Lost, Matched: b.Match.Matched,
		}
		if name == config.PPSLine {
			x.Offset = b.PPS.Nanoseconds()
		}
		list = append(list, x)
	}
	return list
}

func pageClocks(all []cardClock) (list []web.Clock) {
	for _, c := range all {
		list = append(list, web.Clock(c))
	}
	return list
}

func pageGroups(all []group.Books) (list []web.Group) {
	for _, b := range all {
		x := web.Group{Name: b.Group, Complete: b.Complete, Incomplete: b.Incomplete, Open: b.Open, Missed: b.Missed, Refused: b.Refused}
		for _, m := range b.Members {
			x.Members = append(x.Members, web.GroupMember(m))
		}
		for _, g := range b.Recent {
			x.Recent = append(x.Recent, web.GroupGap(g))
		}
		list = append(list, x)
	}
	return list
}

// pageBus returns the state of the message bus, or nil if none is open.
func pageBus(b *telemetry.Bus) *web.Bus {
	st, open := b.Stats()
	if !open {
		return nil
	}
	return &web.Bus{
		Server: st.Server, Connected: st.Connected, Trouble: st.Trouble,
		Published: st.Published, Waiting: st.Waiting, Stored: st.Stored, Lost: st.Lost(),
	}
}

// pageSettings implements web.Settings.
type pageSettings struct{ controlPanels }

func (s pageSettings) Exposures() (list []web.Exposure) {
	for _, e := range s.controlPanels.Exposures() {
		list = append(list, web.Exposure(e))
	}
	return list
}

func (s pageSettings) WhiteBalances() (list []web.WhiteBalance) {
	for _, w := range s.controlPanels.WhiteBalances() {
		list = append(list, web.WhiteBalance(w))
	}
	return list
}

func (s pageSettings) SetExposure(source string, e web.ExposureSetting) error {
	return pageError(s.controlPanels.SetExposure(source, exposureSetting(e)))
}

func (s pageSettings) SetWhiteBalance(isp string, w web.WhiteBalanceSetting) error {
	return pageError(s.controlPanels.SetWhiteBalance(isp, whiteBalanceSetting(w)))
}

// pageConfiguration implements web.Configurator.
type pageConfiguration struct{ *editor }

func (c pageConfiguration) Configuration() web.Configuration {
	return web.Configuration(c.editor.Configuration())
}

func (c pageConfiguration) Check(text []byte) web.Check { return web.Check(c.editor.Check(text)) }

func (c pageConfiguration) Configure(ctx context.Context, text []byte) (web.Check, error) {
	check, err := c.editor.Configure(ctx, text)
	return web.Check(check), err
}

func (c pageConfiguration) Reset(ctx context.Context) (web.Check, error) {
	check, err := c.editor.Reset(ctx)
	return web.Check(check), err
}
