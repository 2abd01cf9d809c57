// SPDX-License-Identifier: Apache-2.0

package share

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// Limits of a StageConfig.
const (
	DefaultDeadline = 100 * time.Millisecond
	MaxDeadline     = 2 * time.Second
)

// StageConfig configures a Stage. Fields without a comment are as in Config.
type StageConfig struct {
	Name     string
	Pixels   pipeline.PixelFormat // what it takes of a stage before it; 0: it reads from a source
	Turned   bool                 // that stage exchanges width and height
	Socket   string
	Mode     fs.FileMode
	Users    []uint32
	Groups   []uint32
	Frames   int           // maximum number of frames that the process may hold; 0: 1
	Deadline time.Duration // how long a frame waits for its results; 0: DefaultDeadline
	Drop     bool          // frames without results are dropped, and not passed on without them
	Logger   *slog.Logger
}

// Holds returns how many frames of format f a stage with this configuration holds at most: those that wait for results,
// those of the process, and one that waits for it.
func (c *StageConfig) Holds(f pipeline.Format) int { return c.waiting(f.Rate) + max(c.Frames, 1) + 1 }

// waiting returns how many frames may wait for results: all that come until the deadline, and two more, because frames
// do not come at equal distances.
func (c *StageConfig) waiting(r pipeline.Rate) int {
	const most = 64
	period := r.Period()
	if period == 0 {
		return most
	}
	return min(int((cmp.Or(c.Deadline, DefaultDeadline)+period-1)/period)+2, most)
}

// A Stage is a pipeline.Stage whose work another process does: it passes frames on with the results that the process
// returns for them. A frame waits for its results until the deadline, and never if there is no process, or if that is
// busy with others. At most one process is connected.
type Stage struct {
	config StageConfig
	in     pipeline.Format
	sink   *Sink // nil before Plan

	counts  stageCounts
	latency pipeline.Histogram // from the offer of a frame until its results came
}

type stageCounts struct {
	answered, late, without atomic.Uint64
	waited                  atomic.Int64 // ns
}

// StageStats are the counters of a Stage.
type StageStats struct {
	Stats
	Answered uint64               // frames with results
	Without  uint64               // frames without
	Late     uint64               // results that came after the deadline, and were dropped
	Latency  pipeline.Percentiles // from the offer of a frame until its results came, also late
	Waited   time.Duration        // sum of these times
}

// NewStage returns a Stage, whose socket is created by Plan. The caller must close it.
func NewStage(c StageConfig) (*Stage, error) {
	c.Logger, c.Deadline = cmp.Or(c.Logger, slog.Default()), cmp.Or(c.Deadline, DefaultDeadline)
	if c.Deadline < 0 || c.Deadline > MaxDeadline {
		return nil, fmt.Errorf("share: deadline %v: must be at most %v", c.Deadline, MaxDeadline)
	}
	return &Stage{config: c}, CheckSocket(c.Socket)
}

// Needs implements pipeline.Stage.
func (s *Stage) Needs(in pipeline.Format) (pipeline.StageNeeds, error) {
	from, err := s.config.Input(in)
	return pipeline.StageNeeds{From: from, Holds: s.config.Holds(from), Passes: true}, err
}

// Input returns the format of the stage's frames if the source delivers frames of format in.
func (c *StageConfig) Input(in pipeline.Format) (pipeline.Format, error) {
	return in.As(c.Pixels, c.Turned)
}

// Plan implements pipeline.Stage. Its first call creates the socket; later ones must have the same format.
func (s *Stage) Plan(in pipeline.Format, _ []pipeline.Format) error {
	if s.sink != nil {
		if in != s.in {
			return fmt.Errorf("%w: %s, and its consumers expect %s", ErrFormat, in, s.in)
		}
		return nil
	}
	c := &s.config
	sink, err := New(Config{
		Name: c.Name, Socket: c.Socket, Mode: c.Mode, Users: c.Users, Groups: c.Groups, Consumers: 1, Frames: c.Frames, Logger: c.Logger, answers: s,
	}, in)
	if err != nil {
		return err
	}
	s.in, s.sink = in, sink
	return nil
}

// Process implements pipeline.Stage. It offers the frame to the process, and returns without waiting.
func (s *Stage) Process(_ context.Context, in *pipeline.Frame, outs []*pipeline.Frame) error {
	m, err := messageOf(in)
	if err != nil {
		return err
	}
	j := &job{stage: s, out: outs[0], offered: time.Now(), done: make(chan struct{})}
	m.job, j.out.Ready = j, j
	k := s.sink
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.hearAll(); len(k.consumers) == 0 {
		j.end(nil)
		return nil
	}
	k.consumers[0].offer(m)
	return nil
}

// take gives the results of a frame to its job. The sink's lock must be held.
func (s *Stage) take(j *job, a *answer) error {
	r, err := parseResult(a.text, s.in)
	if err != nil {
		return err
	}
	waited := time.Since(j.offered)
	s.latency.Observe(waited)
	s.counts.waited.Add(int64(waited))
	r.Stage, r.Began, r.Ended = s.config.Name, a.began, a.ended
	if !j.end(&r) {
		s.counts.late.Add(1)
	}
	return nil
}

// Stats returns the counters.
func (s *Stage) Stats() (st StageStats) {
	if s.sink != nil {
		st.Stats = s.sink.Stats()
	}
	st.Answered, st.Without, st.Late = s.counts.answered.Load(), s.counts.without.Load(), s.counts.late.Load()
	st.Latency, st.Waited = s.latency.Percentiles(), time.Duration(s.counts.waited.Load())
	return st
}

// Close ends the connection and removes the socket. Process must not run.
func (s *Stage) Close() error {
	if s.sink == nil {
		return nil
	}
	return s.sink.Close()
}

// A job waits for the results of a frame. It is the fence of the frame that is passed on.
type job struct {
	stage   *Stage
	out     *pipeline.Frame
	offered time.Time
	ended   atomic.Bool
	result  *pipeline.Result // nil: there is none; valid after done is closed
	done    chan struct{}
}

// end ends the wait, with the frame's results or with nil. It returns false if the wait was over. j may be nil.
func (j *job) end(r *pipeline.Result) bool {
	if j == nil || j.ended.Swap(true) {
		return false
	}
	j.result = r
	close(j.done)
	return true
}

// Wait implements pipeline.Fence. It ends at the deadline at the latest. It must be called once.
func (j *job) Wait(ctx context.Context) error {
	s := j.stage
	late := time.NewTimer(time.Until(j.offered.Add(s.config.Deadline)))
	defer late.Stop()
	select {
	case <-j.done:
	case <-late.C:
		s.sink.expire(j)
		<-j.done // ends: expire has ended it
	case <-ctx.Done():
		return ctx.Err()
	}
	switch {
	case j.result != nil:
		s.counts.answered.Add(1)
		j.out.Results = append(j.out.Results, *j.result)
		return nil
	case s.config.Drop:
		s.counts.without.Add(1)
		return pipeline.ErrDropped
	}
	s.counts.without.Add(1)
	return nil
}

// expire ends a job at its deadline. If its frame waits for the consumer, the consumer loses it.
func (k *Sink) expire(j *job) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.consumers {
		if c.waiting.job == j {
			c.forget()
		}
	}
	j.end(nil)
}

// errResult is wrapped by errors about results that a consumer returned.
var errResult = errors.New("invalid results")
