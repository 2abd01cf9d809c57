// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record/mp4"
)

// VideoExtension is the file name extension of recordings of encoded pictures.
const VideoExtension = ".mp4"

const (
	maxQueued   = 64 << 20 // maximum bytes of pictures that wait for the disk
	maxFragment = 32 << 20 // bytes of pictures and notes at which a fragment is written
)

// MaxKept is the maximum number of bytes of pictures that are kept for a trigger.
const MaxKept = 1 << 30

// VideoConfig configures a recording of encoded pictures. Fields without a comment are as in Config.
type VideoConfig struct {
	Directory     string
	Name          string
	Source        string
	Library       string
	MCAP          bool      // MCAP instead of MP4
	Configuration []byte    // for MCAP
	Codec         mp4.Codec // encoding of the pictures
	Width, Height int       // of the pictures, in pixels
	Duration      time.Duration
	Size          int64
	Keep          Retention
	DeleteOldest  bool
	Sync          time.Duration // duration of a fragment, which is made durable when it is complete; at least a nanosecond
	Window        *Window
	Told          func(News)
	Disks         *Disks
	Logger        *slog.Logger

	limits videoLimits
}

// videoLimits are constants, except in tests; 0: the constant.
type videoLimits struct {
	kept     int64         // MaxKept
	pictures int           // of a file, after which the next one begins
	patience time.Duration // diskPatience
}

// A Video records the encoded pictures of a stream as fragmented MP4 (ISO/IEC 14496-12 §8.8), or as MCAP. Each file
// begins with a picture that refers to no other. After an error it goes on in a new file, as soon as that is possible.
// All methods may be called concurrently.
type Video struct {
	folder
	config   VideoConfig
	triggers chan Trigger
	waits    waits
	space    space
	fault    atomic.Pointer[string] // why pictures are not recorded at the moment; nil: they are
	saving   atomic.Bool            // the newest picture is in a file, or will be

	frames, bytes, files, missed atomic.Uint64
	waited                       atomic.Int64 // ns during which a write waited for the disk

	keys, others sync.Pool // memory of pictures that refer to no other, and of those that do, which are much smaller

	mu     sync.Mutex
	queue  chan videoPicture // closed by Close
	due    chan struct{}     // holds a value while the recorder should look into the queue
	begun  time.Time         // time of the oldest picture of the next fragment
	closed time.Time         // when it began to be closed; zero: not yet
	queued atomic.Int64      // bytes of the pictures in queue
	gap    bool              // the newest picture was not queued
	told   bool              // it was logged that results cannot be recorded

	closing chan struct{} // closed by Close
	ended   chan struct{} // closed when the recorder has ended, with failed
	failed  error
}

// videoPicture is an encoded picture with the data about its frame.
type videoPicture struct {
	data  []byte
	key   bool
	at    time.Time
	shift time.Duration // of at from this machine's time
	note  videoNote
	gap   bool // the picture before it is missing
	met   bool // its results meet the condition of the window
}

// videoNote is a Note whose results are text, because those of a frame may not be read later.
type videoNote struct {
	Note
	Results json.RawMessage `json:"results,omitempty"`
}

// NewVideo returns a recording that has begun. The caller must close it. If the folder cannot be used the recording logs
// why, and begins when it can be.
func NewVideo(c VideoConfig) *Video {
	c.Logger = cmp.Or(c.Logger, slog.Default())
	l := &c.limits
	l.kept, l.pictures, l.patience = cmp.Or(l.kept, MaxKept), cmp.Or(l.pictures, mp4.MaxSamples/2), cmp.Or(l.patience, diskPatience)
	extension := VideoExtension
	if c.MCAP {
		extension = Extension
	}
	v := &Video{
		config: c, triggers: make(chan Trigger, waitingTriggers),
		queue: make(chan videoPicture, 4096), due: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{}),
		folder: folder{
			directory: c.Directory, name: c.Name, extension: extension, keep: c.Keep, deleteOldest: c.DeleteOldest,
			told: c.Told, disks: c.Disks, log: c.Logger,
		},
	}
	go v.run()
	return v
}

// Take records a copy of the encoded picture of frame f; key reports whether it refers to no other. Take never waits:
// if too many pictures wait for the disk, it counts this one as missed.
func (v *Video) Take(f *pipeline.Frame, picture []byte, key bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.closed.IsZero() {
		return
	}
	n := videoNote{Note: NoteOf(f), Results: v.results(f)}
	n.Note.Results = nil
	p := videoPicture{data: append(v.memory(key), picture...), key: key, at: f.Times.Shown(), shift: f.Times.Shift(), note: n}
	if w := v.config.Window; w != nil && w.Result != nil {
		p.met = w.Result.met(f)
	}
	p.gap, v.gap = v.gap, true
	if v.queued.Load() <= maxQueued {
		select {
		case v.queue <- p:
			v.gap = false
			if total := v.queued.Add(int64(len(p.data))); v.begins(&p) || total > maxQueued/4 || len(v.queue) > cap(v.queue)/4 {
				v.wake()
			}
			return
		default:
		}
	}
	v.missed.Add(1)
}

// begins reports whether there is something to write with picture p: the fragment before it is complete, or a trigger may
// have come. Otherwise the recorder sleeps on: to wake it for each picture costs more than all else.
func (v *Video) begins(p *videoPicture) bool {
	if v.config.Window == nil && !(p.key && v.config.Codec == mp4.H264) && p.at.Sub(v.begun).Abs() < v.config.Sync {
		return false
	}
	v.begun = p.at
	return true
}

func (v *Video) wake() {
	select {
	case v.due <- struct{}{}:
	default:
	}
}

// memory returns empty memory of a picture that was written, or nil if there is none.
func (v *Video) memory(key bool) []byte {
	if b, ok := v.pool(key).Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return nil
}

func (v *Video) pool(key bool) *sync.Pool {
	if key {
		return &v.keys
	}
	return &v.others
}

// results returns the results of a frame as JSON, or nil if it has none or they cannot be recorded.
func (v *Video) results(f *pipeline.Frame) json.RawMessage {
	if len(f.Results) == 0 {
		return nil
	}
	b, err := json.Marshal(f.Results)
	if err == nil && len(b) <= maxNote/2 {
		return b
	}
	if !v.told {
		v.told = true
		v.log.Warn("results are not recorded: make them shorter, and without numbers that JSON cannot represent",
			"frame", f.Sequence, "bytes", len(b), "most", maxNote/2, "error", err)
	}
	return nil
}

// Trigger is Sink.Trigger for a Video.
func (v *Video) Trigger(t Trigger) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return t.queueTo(v.triggers, v.config.Window, !v.closed.IsZero())
}

// State returns the state of the recording. It does not wait for the disk.
func (v *Video) State() State {
	st := State{
		Waiting: v.config.Window != nil && !v.saving.Load(), Folder: v.directory, Free: v.space.bytes(v.directory, v.config.Disks),
		Frames: v.frames.Load(), Missed: v.missed.Load(), Written: v.bytes.Load(), Files: v.files.Load(), Busy: time.Duration(v.waited.Load()),
	}
	if fault := v.fault.Load(); fault != nil {
		st.Error = *fault
	}
	if g := v.writing.newest(); g != nil {
		st.File, st.Bytes = g.path(), g.size.Load()
	}
	return st
}

// Close ends the file with the pictures that were taken, and returns when the disk has them, or with the error because of
// which they were not recorded. If the disk does not answer, the error wraps ErrHangs; the file is then ended when it
// answers. Until then no other recording of these Disks begins in the folder.
func (v *Video) Close() error {
	v.end()
	select {
	case <-v.ended:
		return v.failed
	case <-time.After(time.Until(v.closed.Add(closePatience))):
		select {
		case <-v.ended: // both were due
			return v.failed
		default:
		}
		answered := v.config.Disks.add(v.directory, "the recording "+v.name, v.closed)
		go func() {
			<-v.ended // ends: when the disk answers, or with the process
			answered()
		}()
		return fmt.Errorf("%w: the recording %s is not closed: check the disk", ErrHangs, v.name)
	}
}

// end takes no more pictures.
func (v *Video) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed.IsZero() {
		v.closed = time.Now()
		close(v.closing) // before the queue, whose end must find it closed
		close(v.queue)
		v.wake()
	}
}

// Pauses after an error, after which a recording is tried again.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// isClosing reports whether Close was called.
func (v *Video) isClosing() bool {
	select {
	case <-v.closing:
		return true
	default:
		return false
	}
}

// run records until Close.
func (v *Video) run() {
	defer close(v.ended)
	ctx, cancel := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	beside.Go(func() { v.watchDisk(ctx) })
	beside.Go(func() {
		for v.config.Disks.Hang(v.directory) != nil { // an earlier recording may still write its file and the index
			select {
			case <-ctx.Done():
				return
			case <-time.After(lookEvery):
			}
		}
		v.mend(ctx)
		v.pruneRegularly(ctx)
	})
	defer beside.Wait()
	defer cancel()
	w := &videoRun{video: v}
	var faults pipeline.FaultLog
	r := pipeline.Recovery{First: firstPause, Last: lastPause, Now: v.closing}
	v.failed = r.Run(ctx, func(context.Context) (pipeline.Outcome, error) {
		before := v.frames.Load()
		err := cmp.Or(v.config.Disks.Hang(v.directory), v.space.check(v.directory, v.config.Disks))
		if err == nil {
			if v.config.Window != nil && !w.open { // it waits, and the reason why it did not is gone
				v.fault.Store(nil)
			}
			err = w.record()
		}
		if v.isClosing() {
			cancel()
		}
		if v.frames.Load() > before {
			return pipeline.Settled, err
		}
		return pipeline.Fruitless, err
	}, func(_ context.Context, fault error) bool {
		text := fault.Error()
		v.fault.Store(&text)
		if left, due := faults.Due("recording", time.Now()); due {
			v.log.Warn("the recording failed, and is tried again", pipeline.Unlogged([]any{"error", fault, "in", r.Pause()}, left)...)
		}
		return false
	})
	for range v.queue { // ends: Close has closed it
		v.missed.Add(1)
	}
}

// watchDisk logs when the disk has not answered for longer than diskPatience, and when it answers again, until ctx ends.
func (v *Video) watchDisk(ctx context.Context) {
	tick := time.NewTicker(v.config.limits.patience / 5)
	defer tick.Stop()
	answered := func() {}
	defer func() { answered() }()
	hangs := false
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			what, since := v.waits.longest()
			switch late := !since.IsZero() && now.Sub(since) > v.config.limits.patience; {
			case late && !hangs:
				text := ErrHangs.Error()
				v.fault.Store(&text)
				hangs, answered = true, v.config.Disks.add(v.directory, "the recording "+v.name, since)
				v.log.Error("the disk hangs: a recording misses pictures", "waits for", what.String(), "since", since, "remedy", "check the disk")
			case !late && hangs:
				answered()
				v.fault.Store(nil)
				hangs, answered = false, func() {}
				v.log.Info("the disk answers again: the recording goes on")
			}
		}
	}
}
