// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record/cuda"
)

// page is the unit of the layout: heads and pixels begin at its multiples, in memory and in the file.
const page = 4096

// Holds is how many frames are on their way to the disk at a time.
const Holds = 4

// Config is a recording.
type Config struct {
	Directory string // of the files, which is there
	Name      string // of the output: files are called so, with the time at which they begin
	Source    string // of the frames: their topics and their frame_id are called so
	Library   string // who writes, for the files' headers
	Driver    *cufile.Driver
	Duration  time.Duration // after which a new file begins; 0: none does
	Size      int64         // bytes after which a new file begins; 0: none does
	Keep      int64         // bytes of the recording's files before the oldest is deleted; 0: none is
	// DeleteOldest says that the oldest files are deleted when the disk is full, which otherwise ends the recording.
	DeleteOldest bool
	Sync         time.Duration // how often what is written is put on the disk for sure; 0: at the end of each file
	// Configuration is kept in each file; nil: none is.
	Configuration []byte
	// Settings are the camera's, and whether they are known; nil: they are not recorded. It is called once a second.
	Settings func() (Settings, bool)
	Pack     bool // samples of 10 and 12 bits are packed
	// Memory has the frames: where it is CUDA's, the GPU packs them, by a kernel that is kept in the folder Kernels; nil: the CPU does.
	Memory  cudahost.Allocator
	Kernels string
	Window  *Window // what triggers ask for; nil: all frames are kept
	// Told hears of triggers and of files that are whole; nil: nobody does. It must not wait.
	Told func(News)
	// Disks are those that hang; nil: nobody knows.
	Disks  *Disks
	Logger *slog.Logger // nil: slog.Default()
}

// A Sink records the frames of one output. It implements pipeline.Sink.
type Sink struct {
	config Config
	format pipeline.Format  // of what is written
	words  *pipeline.Format // of the frames that are packed for that; nil: they are not
	log    *slog.Logger
	packer *cuda.Packer // nil: the CPU packs
	memory []*job

	frames, bytes, files atomic.Uint64

	writing  files
	ending   sync.WaitGroup // the file before, whose end is being written
	triggers chan Trigger
	ended    atomic.Bool
	longest  int64 // that of the constant; tests have another one

	waits    waits
	patience time.Duration // diskPatience; tests have less
	hangs    error         // why Run does nothing; nil: the disk has answered
	busy     atomic.Bool   // the disk is waited for
	freeing  sync.Mutex
}

// New checks that frames of format f can be recorded. An error says what is wrong with the directory, or wraps pipeline.ErrFormat
// when they cannot be packed.
func New(c Config, f pipeline.Format) (*Sink, error) {
	var words *pipeline.Format
	if given := f; c.Pack {
		var err error
		if f, err = f.Packed(); err != nil {
			return nil, err
		}
		words = &given
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	s := &Sink{config: c, format: f, words: words, log: c.Logger, triggers: make(chan Trigger, waitingTriggers), longest: longest, patience: diskPatience}
	if err := s.look(); errors.Is(err, ErrHangs) { // it may answer by and by
		s.hangs = err
	} else if err != nil {
		return nil, fmt.Errorf("recordings: %w", err)
	}
	if err := s.openPacker(); err != nil {
		return nil, fmt.Errorf("recordings: %w", err)
	}
	for range Holds {
		j, err := newJob(s)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.memory = append(s.memory, j)
	}
	return s, nil
}

// look looks at the folder.
func (s *Sink) look() error {
	c := &s.config
	err := c.Disks.try(c.Directory, statPatience, func() error {
		info, err := os.Stat(c.Directory)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is no directory", c.Directory)
		}
		if err != nil {
			return fmt.Errorf("%w: create it, or name another one", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.Disks.try(c.Directory, diskPatience, func() error { return c.Driver.Prepare(c.Directory) })
}

// Needs implements pipeline.Sink. The CPU reads each frame, for its CRC.
func (s *Sink) Needs() pipeline.SinkNeeds { return pipeline.SinkNeeds{Holds: Holds} }

// Close frees what New has allocated. Run does so, too. While the disk hangs that is left to its end.
func (s *Sink) Close() error {
	if s.busy.Load() {
		return nil
	}
	s.freeing.Lock()
	defer s.freeing.Unlock()
	var errs []error
	for _, j := range s.memory {
		errs = append(errs, j.close())
	}
	errs = append(errs, s.packer.Close())
	s.memory, s.packer = nil, nil
	return errors.Join(errs...)
}

// run records what comes into its hands, until ctx ends or no more does.
func (s *Sink) run(ctx context.Context, h *hands) (err error) {
	r := &run{sink: s, hands: h, free: make(chan *job, Holds), writing: make(chan *job, Holds)}
	if w := s.config.Window; w != nil {
		r.ring = newRing(r, w)
	}
	for _, j := range s.memory {
		r.free <- j
	}
	var finishing sync.WaitGroup
	finishing.Go(r.finish)
	for {
		var f *pipeline.Frame
		if f, err = h.next(ctx); err != nil {
			break
		}
		s.waits.begin(laying)
		err = r.record(ctx, f)
		s.waits.end(laying)
		if err != nil {
			if errors.Is(err, context.Canceled) { // its end is no fault
				h.fail(f, nil)
			} else {
				h.fail(f, err)
			}
			break
		}
	}
	s.ended.Store(true)
	close(r.writing)
	finishing.Wait()
	s.waits.begin(laying)
	ended := r.end()
	s.waits.end(laying)
	s.ending.Wait()
	if ended == nil {
		ended = r.failure()
	}
	return errors.Join(err, ended)
}

// run is a recording that runs.
type run struct {
	sink    *Sink
	hands   *hands
	segment *segment
	ring    *ring // nil: all frames are kept
	free    chan *job
	writing chan *job // in the order of the frames
	next    uint64    // sequence number after the last frame
	begun   bool

	told  *segment // the file that has the camera's settings
	set   Settings // these
	asked time.Time

	mu     sync.Mutex
	failed error // the first error of writing
}

// failure is the first error of writing.
func (r *run) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = errors.Join(r.failed, err)
}

// record begins to write a frame.
func (r *run) record(ctx context.Context, f *pipeline.Frame) error {
	if err := r.failure(); err != nil {
		return err
	}
	at := f.Times.Shown()
	var err error
	if r.ring == nil {
		err = r.turn(time.Now())
	} else {
		err = r.ring.frame(f, at.UnixNano())
	}
	if err == nil {
		err = r.settings(at.UnixNano(), time.Now())
	}
	if err != nil {
		return err
	}
	s := r.sink
	var j *job
	select {
	case j = <-r.free:
	default:
		select {
		case j = <-r.free:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	lost := uint64(0)
	if r.begun && f.Sequence > r.next {
		lost = f.Sequence - r.next
	}
	r.begun, r.next = true, f.Sequence+1
	if err := j.layOut(s, r.segment, f, at, lost); err != nil {
		r.free <- j
		return err
	}
	if err := j.write(s, r.segment); err != nil {
		r.free <- j
		return err
	}
	r.segment.pending.Add(1)
	begin := j.begin
	r.writing <- j
	if r.ring != nil {
		r.ring.wrote(r.next-1, at.UnixNano(), begin)
	}
	return nil
}

// turn begins a file if there is none, or the one that there is has become too long or too large.
func (r *run) turn(now time.Time) error {
	c, g := &r.sink.config, r.segment
	if g != nil && !g.gone.Load() && !c.full(int64(now.Sub(g.begun)), int64(g.writer.Offset)) {
		return nil
	}
	if err := r.end(); err != nil {
		return err
	}
	if err := r.sink.prune(); err != nil {
		return err
	}
	var err error
	r.segment, err = r.sink.newSegment(now)
	return err
}

// end ends the file that is being written, when its frames are, beside what follows: to have it on the disk takes time.
func (r *run) end() error {
	g := r.segment
	switch {
	case r.ring != nil:
		return r.ring.end()
	case g == nil:
		return r.failure()
	}
	g.pending.Wait()
	r.sink.ending.Wait()
	r.segment = nil
	err := r.failure()
	switch {
	case g.written == g.head: // it has no frame: the disk was full, and is
		return errors.Join(err, g.remove())
	case err != nil:
		return errors.Join(err, g.cut())
	}
	r.sink.ending.Go(func() {
		r.sink.waits.begin(ending)
		defer r.sink.waits.end(ending)
		err := g.end()
		if err != nil {
			r.fail(fmt.Errorf("recording %s: %w", g.path(), err))
			return
		}
		r.sink.tell(News{File: g.path()})
	})
	return nil
}

// finish gives frames back as they are written, and puts them on the disk from time to time.
func (r *run) finish() {
	s := r.sink
	synced := time.Now()
	var putting sync.WaitGroup
	defer putting.Wait()
	for j := range r.writing { // ends: Run closes it
		s.waits.begin(writing)
		err := j.wait()
		s.waits.end(writing)
		if err != nil {
			err = fmt.Errorf("recording %s: %w", j.segment.path(), err)
			r.fail(err)
			r.hands.fail(j.frame, err)
		} else {
			if r.failure() == nil {
				j.segment.written = j.end
			}
			s.frames.Add(1)
			s.bytes.Add(uint64(j.end - j.begin))
			r.hands.done(j.frame)
		}
		g := j.segment
		if now := time.Now(); !g.idle.Load() && s.config.Sync > 0 && now.Sub(synced) >= s.config.Sync {
			putting.Wait() // the one before
			synced = now
			putting.Go(func() {
				s.waits.begin(syncing)
				defer s.waits.end(syncing)
				if err := g.sync(); err != nil && !errors.Is(err, cufile.HandleNotRegistered) {
					r.fail(fmt.Errorf("recording %s: %w", g.path(), err))
				}
			})
		}
		j.frame = nil
		r.free <- j
		g.pending.Done()
	}
}
