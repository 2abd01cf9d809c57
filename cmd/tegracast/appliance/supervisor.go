// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"log/slog"

	"github.com/tegracast/tegracast/pipeline"
)

// A supervisor opens the outputs that wait, and starts and stops outputs at a client's request. Open outputs, which may
// fail, are supervised in pipeline/supervision.go, cameras in capture/supervisor.go.
type supervisor struct {
	reloader *reloader
	requests requests
	flows    *flows
	closed   *closedOutputs
	reports  *reports
	log      *slog.Logger
}

// openWaiting tries to open the waiting outputs that are due. An error means that the appliance cannot go on.
func (s *supervisor) openWaiting(ctx context.Context) error {
	cfg := s.reloader.cfg
	for _, name := range s.closed.overdue() {
		if s.flows.find(cfg.Output(name).Source).ended() {
			s.closed.endWaiting(name)
			continue
		}
		p := emptyPlan()
		p.outputs[name] = true
		if err := s.reloader.applyPlan(ctx, cfg, p); pipeline.DeviceLost(err) {
			return err
		} else if err != nil {
			s.log.Error("output cannot be opened, for a reason that does not pass by itself", "output", name, "error", err)
			s.closed.trySeldom(name, err)
		}
	}
	return nil
}

// switchOutput starts or stops an output. A stopped output is closed, and nothing is made for it. An output that cannot
// be opened stays stopped. If an output waits for its next try, starting it only ends the pause before that try. If
// there is no output of that name, switchOutput returns errNoOutput.
func (s *supervisor) switchOutput(ctx context.Context, name string, on bool) error {
	return s.requests.run(ctx, func(ctx context.Context) (result, fatal error) {
		cfg := s.reloader.cfg
		if cfg.Output(name) == nil {
			return errNoOutput, nil
		}
		missed := on && s.closed.hasMissed(name)
		if on != s.closed.isStopped(name) && !missed { // it is in this state already
			if on {
				s.reloader.retryOutput(name)
			}
			return nil, nil
		}
		p := emptyPlan()
		p.outputs[name] = true
		stopAgain := func() {}
		switch {
		case missed:
			stopAgain = func() { s.closed.stop(name, nil) } // it waits, so its report is known
		case on:
			stopAgain = s.closed.start(name)
		default:
			f, o := s.flows.output(name)
			s.closed.stop(name, func() outputReport { return s.reports.output(f, o) })
		}
		s.reloader.replayEnded(p, cfg)
		err := s.reloader.applyPlan(ctx, cfg, p)
		if err != nil && on && !pipeline.DeviceLost(err) {
			stopAgain()
			if again := s.reloader.applyPlan(ctx, cfg, p); pipeline.DeviceLost(again) { // it may have been opened
				err = again
			}
		}
		if pipeline.DeviceLost(err) {
			return err, err
		}
		s.reloader.settleStreams()
		if err == nil {
			s.log.Info(map[bool]string{true: "an output was started", false: "an output was stopped"}[on], "output", name)
		}
		return err, nil
	})
}
