// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record/cuda"
)

// page is the unit of the layout in bytes: headers and pixels begin at its multiples, both in memory and in the file.
const page = 4096

// Holds is the maximum number of frames being written at a time.
const Holds = 4

// Config configures a recording.
type Config struct {
	Directory string // folder of the files; must exist
	Name      string // name of the output; file names consist of it and the time at which the file begins
	Source    string // name of the frames' source, used for topics and frame_id
	Library   string // name of the writing program for the files' headers
	Driver    *cufile.Driver
	Duration  time.Duration // duration of a file after which a new one begins; 0: unlimited
	Size      int64         // size of a file in bytes after which a new one begins; 0: unlimited
	Keep      Retention
	// DeleteOldest makes the recording delete its oldest files when the disk is full; otherwise a full disk ends the
	// recording.
	DeleteOldest bool
	Sync         time.Duration // interval at which written data is made durable; 0: only at the end of each file
	// Configuration is stored in each file; may be nil.
	Configuration []byte
	// Settings returns the camera's settings, and whether they are known. It is called before each frame until the file
	// contains settings, and then about once a second. If it is nil they are not recorded.
	Settings func() (Settings, bool)
	Pack     bool // record samples of 10 or 12 bits packed
	// Memory is the allocator of the frames. If it is CUDA's and there is a compiler, the GPU packs them, with a kernel
	// cached in the folder Kernels; otherwise the CPU does. It may be nil.
	Memory  cudahost.Allocator
	Kernels string
	Window  *Window // the window around triggers; nil: all frames are kept
	// Told, if not nil, is called for triggers and completed files. It must not block.
	Told func(News)
	// Disks records hanging disks; may be nil.
	Disks  *Disks
	Logger *slog.Logger // nil: slog.Default()
}

// A Sink records the frames of one output. It implements pipeline.Sink.
type Sink struct {
	config Config
	format pipeline.Format  // of the recorded frames
	words  *pipeline.Format // of the incoming frames if the recording packs them; otherwise nil
	folder
	packer *cuda.Packer // nil if the CPU packs
	memory []*job

	frames, bytes, files atomic.Uint64
	waited               atomic.Int64 // ns during which a write waited for the disk

	ending   sync.WaitGroup // completion of the previous file
	triggers chan Trigger
	ended    atomic.Bool
	saving   atomic.Bool // of a ring: the newest frame belongs to an event
	space    space
	longest  int64 // the constant longest, except in tests

	waits    waits
	patience time.Duration // diskPatience, except in tests
	hangs    error         // why Run does nothing; nil if the disk has answered
	busy     atomic.Bool   // the goroutine that Run has started is recording
	freeing  sync.Mutex
}

// New returns a Sink for frames of format f. The caller must call Run or Close. New returns an error if the folder, the
// memory or the GPU cannot be used, or one that wraps pipeline.ErrFormat if the frames cannot be packed. If the disk
// hangs, New succeeds and Run fails.
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
	s := &Sink{
		config: c, format: f, words: words, triggers: make(chan Trigger, waitingTriggers), longest: longest, patience: diskPatience,
		folder: folder{
			directory: c.Directory, name: c.Name, extension: Extension, keep: c.Keep, deleteOldest: c.DeleteOldest,
			told: c.Told, disks: c.Disks, log: c.Logger,
		},
	}
	if err := s.checkFolder(); errors.Is(err, ErrHangs) { // it may still answer later
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

// checkFolder checks that the folder exists and that the driver can use it.
func (s *Sink) checkFolder() error {
	c := &s.config
	if err := s.space.check(c.Directory, c.Disks); err != nil {
		return err
	}
	return c.Disks.try(c.Directory, diskPatience, func() error { return c.Driver.Prepare(c.Directory) })
}

// Needs implements pipeline.Sink. The CPU reads each frame, for its CRC.
func (s *Sink) Needs() pipeline.SinkNeeds { return pipeline.SinkNeeds{Holds: Holds} }

// end does nothing: Run has ended the file.
func (s *Sink) end() {}

// Close frees what New has allocated, as Run does too. While the goroutine that Run has started is recording, Close
// does nothing: that goroutine frees it when it ends.
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

// recordFrames records frames until ctx ends, no more frames come, or an error occurs.
func (s *Sink) recordFrames(ctx context.Context, h *hands) (err error) {
	r := &run{sink: s, hands: h, free: make(chan *job, Holds), writing: make(chan *job, Holds)}
	if w := s.config.Window; w != nil {
		r.ring = newRing(r, w)
	}
	for _, j := range s.memory {
		r.free <- j
	}
	var finishing, mended sync.WaitGroup
	finishing.Go(r.finish)
	mends, enough := context.WithCancel(ctx)
	mended.Go(func() {
		s.mend(mends)
		s.pruneRegularly(mends)
	})
	for {
		var f *pipeline.Frame
		if f, err = h.next(ctx); err != nil {
			break
		}
		s.waits.begin(laying)
		err = r.record(ctx, f)
		s.waits.end(laying)
		if err != nil {
			if errors.Is(err, context.Canceled) { // the end is not a fault
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
	ended := r.endFile()
	s.waits.end(laying)
	s.ending.Wait()
	enough()
	s.waits.begin(mending)
	mended.Wait()
	s.waits.end(mending)
	if ended == nil {
		ended = r.failure()
	}
	return errors.Join(err, ended)
}

// run is the state of a running recording.
type run struct {
	sink    *Sink
	hands   *hands
	segment *segment
	ring    *ring // nil if all frames are kept
	free    chan *job
	writing chan *job // in the order of the frames
	next    uint64    // sequence number after the newest frame
	begun   bool

	told  *segment // file that contains the latest settings of the camera
	set   Settings // these settings
	asked time.Time

	mu     sync.Mutex
	failed error // errors of writing
}

// failure returns the errors of writing so far.
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

// record starts writing a frame.
func (r *run) record(ctx context.Context, f *pipeline.Frame) error {
	if err := r.failure(); err != nil {
		return err
	}
	at := f.Times.Shown()
	var err error
	if r.ring == nil {
		err = r.nextFile(time.Now())
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
	r.segment.size.Add(j.end - j.begin)
	begin := j.begin
	r.writing <- j
	if r.ring != nil {
		r.ring.wrote(r.next-1, at.UnixNano(), begin)
	}
	return nil
}

// nextFile begins a new file if there is none, or if the current one has reached its limits or was deleted.
func (r *run) nextFile(now time.Time) error {
	c, g := &r.sink.config, r.segment
	if g != nil && !g.gone.Load() && !c.full(int64(now.Sub(g.begun)), int64(g.writer.Offset)) {
		return nil
	}
	if err := r.endFile(); err != nil {
		return err
	}
	if err := r.sink.prune(now); err != nil {
		return err
	}
	var err error
	r.segment, err = r.sink.newSegment(now)
	return err
}

// endFile waits until the current file's frames are written, and ends the file. Unless the recording is a ring, the
// file is completed in the background, because making it durable takes time.
func (r *run) endFile() error {
	g := r.segment
	switch {
	case r.ring != nil:
		return r.ring.endEvent()
	case g == nil:
		return r.failure()
	}
	g.pending.Wait()
	r.sink.ending.Wait()
	r.segment = nil
	err := r.failure()
	switch {
	case g.written == g.head: // it has no frames: the disk was and is full
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
		r.sink.reportNews(News{File: g.path()})
	})
	return nil
}

// finish returns each frame to the queue when it is written, and makes the file durable at the configured interval.
func (r *run) finish() {
	s := r.sink
	synced := time.Now()
	var putting sync.WaitGroup
	defer putting.Wait()
	for j := range r.writing { // ends: Run closes it
		s.waits.begin(writing)
		err := j.wait()
		s.waited.Add(int64(s.waits.end(writing)))
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
			putting.Wait() // the previous one
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
