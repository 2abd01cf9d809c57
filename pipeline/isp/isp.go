// Package isp makes pictures out of Bayer frames: black level, white balance, demosaic, gamma and Y'CbCr in one pass
// over the frame, in integer arithmetic that docs/isp.md writes down bit by bit.
//
// A pass cuts the frame into horizontal bands, which persistent workers take one after the other; the result does not
// depend on how many there are. Within a band every two lines of the sensor go through the same steps: linearise
// (tables.go), demosaic into packed R'G'B' pixels (demosaic.go), and one writer for each output (write.go).
package isp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"tegracast/pipeline"
)

// Gains are the white balance: each sensor colour is multiplied with its gain. The zero value of a gain is 1.
// Gains below 1 tint clipped highlights.
type Gains struct {
	R, G, B float64 // from 1/4096 up to 16, used in steps of 1/4096
}

// Config is what the sensor and the eye need.
type Config struct {
	BlackLevel int     // what the sensor delivers without light, in its own units: 0 to 1022 at 10 bits
	Gains      Gains   // white balance
	Gamma      float64 // 0 is the BT.709 OETF (§1.2); else V = L^(1/Gamma), Gamma 1 to 4 in steps of 1/100
	Workers    int     // bands in work at the same time; 0 is one for each CPU that Go uses
}

// The errors of this package, for errors.Is.
var (
	ErrConfig      = errors.New("isp: impossible configuration")
	ErrUnsupported = errors.New("isp: unsupported format")
	ErrMismatch    = errors.New("isp: frame is not of the planned format")
	ErrClosed      = errors.New("isp: stage is closed")
)

const maxWorkers = 256

// Validate returns an error that wraps ErrConfig and names the field, its value and the rule.
func (c Config) Validate() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, a...))
	}
	if c.BlackLevel < 0 || c.BlackLevel >= sensorMax {
		return bad("black level %d: must be from 0 to %d", c.BlackLevel, sensorMax-1)
	}
	for _, g := range []struct {
		name string
		gain float64
	}{{"red", c.Gains.R}, {"green", c.Gains.G}, {"blue", c.Gains.B}} {
		if g.gain != 0 && !(g.gain >= 1.0/gainOne && g.gain <= maxGain) {
			return bad("%s gain %v: must be from 1/%d to %d, or 0 for 1", g.name, g.gain, gainOne, maxGain)
		}
	}
	if c.Gamma != 0 && !(c.Gamma >= 1 && c.Gamma <= 4) {
		return bad("gamma %v: must be from 1 to 4, or 0 for the BT.709 transfer function", c.Gamma)
	}
	if c.Workers < 0 || c.Workers > maxWorkers {
		return bad("%d workers: must be from 1 to %d, or 0 for one per CPU", c.Workers, maxWorkers)
	}
	return nil
}

// fixed is a gain in units of 1/gainOne, rounded half up.
func fixed(gain float64) int {
	if gain == 0 {
		return gainOne
	}
	return int(math.Floor(gain*gainOne + 0.5))
}

// A Stage is a pipeline.Stage on the CPU. Its methods may be called from any goroutine; they take turns.
type Stage struct {
	config Config
	gamma  *[1 << 16]uint8

	mu      sync.Mutex
	plan    *plan
	workers []*worker // the first runs in the goroutine that calls Process
	done    sync.WaitGroup
	closed  bool
	pass    pass
}

// New builds the gamma table and starts the workers, which Close ends.
func New(c Config) (*Stage, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	n := c.Workers
	if n == 0 {
		n = min(runtime.GOMAXPROCS(0), maxWorkers)
	}
	s := &Stage{config: c, gamma: gammaTable(c.Gamma)}
	s.pass.bandLines = bandLines
	for i := range n {
		w := &worker{start: make(chan *pass, 1), end: &s.pass.end}
		s.workers = append(s.workers, w)
		if i > 0 {
			s.done.Go(w.run)
		}
	}
	return s, nil
}

// Plan accepts in as pipeline.RGGB10 in memory that the CPU may read, and any of UYVY (BT.709 limited) and I420
// (BT.601 full range) at full size and at half size, in any order and number. Errors wrap ErrUnsupported or
// pipeline.ErrFormat and name what was asked and what can be made.
func (s *Stage) Plan(in pipeline.Format, want []pipeline.Format) error {
	p, err := newPlan(s.config, in, want)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.plan = p
	for _, w := range s.workers {
		w.resize(in.Width)
	}
	return nil
}

// Process makes outs out of in, both of the formats of the last Plan, and copies Sequence, Times and Flags to them.
// It returns when all bytes are written, and allocates nothing. It fails before it writes anything, with an error that
// wraps ErrMismatch, ErrClosed or ctx.Err().
func (s *Stage) Process(ctx context.Context, in *pipeline.Frame, outs []*pipeline.Frame) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if err := s.plan.check(in, outs); err != nil {
		return err
	}
	s.pass.run(s, in, outs)
	now := time.Now()
	for _, out := range outs {
		if out != nil {
			out.Sequence, out.Times, out.Flags = in.Sequence, in.Times, in.Flags
			out.Times.Processed = now
		}
	}
	return nil
}

// Close ends the workers. It may be called twice.
func (s *Stage) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	for _, w := range s.workers {
		close(w.start)
	}
	s.done.Wait()
	return nil
}
