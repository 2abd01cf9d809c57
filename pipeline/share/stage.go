// SPDX-License-Identifier: Apache-2.0

package share

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
)

// Limits of a StageConfig.
const (
	DefaultDeadline = 100 * time.Millisecond
	MaxDeadline     = time.Second
	maxWaiting      = 64 // frames that wait for results
)

// StageConfig configures a Stage. Fields without a comment are as in Config.
type StageConfig struct {
	Name     string
	Pixels   pipeline.PixelFormat // what it takes of a stage before it; 0: it reads from a source
	Turned   bool                 // that stage exchanges width and height
	Socket   string               // "": none, processes are connected by Connect
	Mode     fs.FileMode
	Users    []uint32
	Groups   []uint32
	Frames   int           // maximum number of frames that the process may hold; 0: 1
	Deadline time.Duration // how long a frame waits for its results; 0: DefaultDeadline
	Drop     bool          // frames without results are dropped, and not passed on without them
	Waits    bool          // the source waits for its consumers: a frame waits until the process is ready, up to the deadline
	Logger   *slog.Logger
}

// Holds returns how many frames of rate r a stage with this configuration holds at most: those that wait for results,
// those of the process, and one that waits for it.
func (c *StageConfig) Holds(r pipeline.Rate) int { return c.waiting(r) + max(c.Frames, 1) + 1 }

// CheckDeadline returns an error if too many frames of rate r come until the deadline.
func (c *StageConfig) CheckDeadline(r pipeline.Rate) error {
	longest := min(MaxDeadline, (maxWaiting-spare)*r.Period())
	if r.Period() == 0 {
		longest = MaxDeadline
	}
	if c.Deadline < 0 || c.Deadline > longest {
		return fmt.Errorf("%v: must be at most %v for %s frames a second", c.Deadline, longest.Round(time.Millisecond), r)
	}
	return nil
}

// spare is the number of frames that may wait besides those that come until the deadline, because frames do not come at
// equal distances.
const spare = 4

// waiting returns how many frames may wait for results.
func (c *StageConfig) waiting(r pipeline.Rate) int {
	period := r.Period()
	if period == 0 {
		return maxWaiting
	}
	return min(int((cmp.Or(c.Deadline, DefaultDeadline)+period-1)/period)+spare, maxWaiting)
}

// A Stage is a pipeline.Stage whose work another process does: it passes frames on with the results that the process
// returns for them. A frame waits for its results until the deadline. It does not wait if no process is connected. If the
// process is busy, it waits until a newer frame comes (Latest), or not at all (Block). At most one process is connected.
// Without a socket frames of a source that waits also wait while the process starts.
type Stage struct {
	config StageConfig
	in     pipeline.Format
	sink   atomic.Pointer[Sink] // nil before Plan

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
	if c.Socket == "" {
		return &Stage{config: c}, nil
	}
	return &Stage{config: c}, CheckSocket(c.Socket)
}

// Needs implements pipeline.Stage.
func (s *Stage) Needs(in pipeline.Format) (pipeline.StageNeeds, error) {
	from, err := s.config.Input(in)
	if err == nil {
		err = s.config.CheckDeadline(from.Rate)
	}
	needs := pipeline.StageNeeds{From: from, Holds: s.config.Holds(from.Rate), Passes: s.config.waiting(from.Rate)}
	if s.config.Waits {
		needs.Await = func(ctx context.Context) { s.sink.Load().awaitConsumer(ctx, s.config.Deadline) }
	}
	return needs, err
}

// Input returns the format of the stage's frames if the source delivers frames of format in.
func (c *StageConfig) Input(in pipeline.Format) (pipeline.Format, error) {
	return in.As(c.Pixels, c.Turned)
}

// Plan implements pipeline.Stage. Its first call creates the socket; later ones must have the same format.
func (s *Stage) Plan(in pipeline.Format, _ []pipeline.Format) error {
	if s.sink.Load() != nil {
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
	s.in = in
	s.sink.Store(sink)
	return nil
}

// Connect returns a connection for a process that the caller starts, and makes the other end the stage's. who describes
// the process to users. Plan must have been called. The caller must close the file.
func (s *Stage) Connect(who string) (*os.File, error) {
	k := s.sink.Load()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("share: %w", err)
	}
	own, theirs := os.NewFile(uintptr(pair[0]), "frames"), os.NewFile(uintptr(pair[1]), "frames")
	conn, err := net.FileConn(own)
	if err = errors.Join(err, own.Close()); err == nil {
		if !k.arrived(conn.(*net.UnixConn), who) {
			err = fmt.Errorf("%w: the stage ends", ErrClosed)
		}
	}
	if err != nil {
		return nil, errors.Join(err, theirs.Close())
	}
	return theirs, nil
}

// Process implements pipeline.Stage. It offers the frame to the process, and does not wait.
func (s *Stage) Process(_ context.Context, in *pipeline.Frame, outs []*pipeline.Frame) error {
	m, err := messageOf(in)
	if err != nil {
		return err
	}
	k := s.sink.Load()
	j := &job{stage: s, out: outs[0], offered: time.Now(), done: make(chan struct{})}
	m.job, j.out.Ready = j, j
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.hearAll(); len(k.consumers) == 0 {
		j.end(nil)
		return nil
	}
	k.consumers[0].offer(m)
	return nil
}

// For frames of a source that waits, these limit the time from the start of a process by the program until it subscribes, as it
// may compile a model, and from its end until the next one starts, if that starts at once.
const (
	longestStart = time.Hour
	longestGap   = 200 * time.Millisecond
)

// starting reports whether a process that the program starts has not subscribed yet.
func (k *Sink) starting() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.consumers) == 0 && time.Since(k.starts) < longestStart
}

// awaitConsumer waits until the consumer is ready for a frame, or has gone; at most the given time after it has subscribed.
func (k *Sink) awaitConsumer(ctx context.Context, most time.Duration) {
	for k.starting() && ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
	}
	ready := func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.hearAll()
		return len(k.consumers) == 0 || k.consumers[0].credits > 0
	}
	for end := time.Now().Add(most); !ready() && ctx.Err() == nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
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
	if k := s.sink.Load(); k != nil {
		st.Stats = k.Stats()
	}
	st.Answered, st.Without, st.Late = s.counts.answered.Load(), s.counts.without.Load(), s.counts.late.Load()
	st.Latency, st.Waited = s.latency.Percentiles(), time.Duration(s.counts.waited.Load())
	return st
}

// Close ends the connection and removes the socket. Process must not run.
func (s *Stage) Close() error {
	if k := s.sink.Load(); k != nil {
		return k.Close()
	}
	return nil
}

// A job waits for the results of a frame. It is the fence of the frame that is passed on.
type job struct {
	stage   *Stage
	out     *pipeline.Frame
	offered time.Time
	ended   bool             // guarded by the sink's lock
	result  *pipeline.Result // nil: there is none; valid after done is closed
	done    chan struct{}
}

// end ends the wait, with the frame's results or with nil. It returns false if the wait was over. j may be nil. The sink's
// lock must be held.
func (j *job) end(r *pipeline.Result) bool {
	if j == nil || j.ended {
		return false
	}
	j.ended, j.result = true, r
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
		s.sink.Load().expire(j)
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
