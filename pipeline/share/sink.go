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
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/accept"
	"github.com/tegracast/tegracast/pipeline/flood"
)

// Limits of a Config.
const (
	MaxConsumers = 16
	maxFrames    = 16
	MaxFrames    = maxFrames // that a consumer may hold
	MaxResult    = maxAnswer // bytes of JSON of a pipeline.Result that a consumer returns, without its stage and its times

	strangers = 8 // maximum number of connections without a subscription
)

// Errors of this package.
var (
	ErrMemory = errors.New("share: other processes cannot map the frames' memory")
	ErrFormat = errors.New("share: impossible format")
)

// Config configures an output.
type Config struct {
	Name      string
	Socket    string      // path
	Mode      fs.FileMode // of the socket; 0: 0600
	Users     []uint32    // ids of users whose processes may have the frames
	Groups    []uint32    // likewise for groups; without Users and Groups, every process that can connect
	Consumers int         // maximum number of subscribers; 0: 1
	Frames    int         // maximum number of frames that each consumer may hold; 0: 1
	Logger    *slog.Logger

	answers  *Stage        // takes the results that consumers return; nil: they return none
	patience time.Duration // time limit for connections to subscribe; 0: defaultPatience
	sweep    time.Duration // interval at which consumers' messages are read while no frames arrive; 0: defaultSweep
}

// Holds returns how many frames an output with these limits holds at most: for each consumer those that it holds and
// one that waits for it, plus the one being processed.
func Holds(consumers, frames int) int { return consumers*(frames+1) + 1 }

// A Sink passes the frames of one output to its consumers. It implements pipeline.Sink.
type Sink struct {
	cfg      Config
	format   pipeline.Format
	visits   *slog.Logger      // for log messages about consumers; omits some if there are many
	listener *net.UnixListener // nil: only Stage.Connect connects
	watch    *watch
	running  sync.WaitGroup
	answers  *Stage // takes the results that consumers return; nil: they return none

	mu        sync.Mutex // held only briefly, also while messages are sent without waiting
	connected map[*consumer]struct{}
	consumers []*consumer // those that have subscribed
	starts    time.Time   // of the stage, or of the process that the program has connected last; zero: others start processes
	gone      totals
	strange   pipeline.FaultLog // limits log lines about connections that never subscribed
	ended     bool
	room      []byte // for a consumer's message: one byte more than the longest, to detect longer ones
}

// totals are the counters of consumers that have disconnected.
type totals struct{ consumers, frames, lost uint64 }

// New returns a Sink for frames of format f, and creates its socket. Consumers get frames while Run runs. The caller
// must close the Sink.
func New(c Config, f pipeline.Format) (*Sink, error) {
	c.Mode, c.Consumers, c.Frames, c.Logger = cmp.Or(c.Mode, 0o600), max(c.Consumers, 1), max(c.Frames, 1), cmp.Or(c.Logger, slog.Default())
	c.patience, c.sweep = cmp.Or(c.patience, defaultPatience), cmp.Or(c.sweep, defaultSweep)
	if f.PacketPitch > 0 || f.Memory != pipeline.MemoryHost {
		return nil, fmt.Errorf("%w: %s: frames must be plain, and in memory that the CPU reads", ErrFormat, f)
	}
	if err := c.checkSocket(); err != nil {
		return nil, err
	}
	w, err := newWatch()
	if err != nil {
		return nil, err
	}
	k := &Sink{
		cfg: c, format: f, visits: flood.Logger(c.Logger), watch: w, answers: c.answers, connected: map[*consumer]struct{}{},
		room: make([]byte, readySize+1),
	}
	if k.answers != nil {
		k.room = make([]byte, answerSize+maxAnswer+1)
	}
	if c.Socket != "" {
		if k.listener, err = accept.Unix(c.Socket, unix.SOCK_SEQPACKET, c.Mode); err != nil {
			return nil, errors.Join(fmt.Errorf("share: %w", err), w.file.Close())
		}
		k.running.Go(k.accept)
	}
	if k.listener == nil {
		k.starts = time.Now()
	}
	k.running.Go(k.listen)
	return k, nil
}

// accept accepts connections until the listener is closed.
func (k *Sink) accept() {
	for loop := accept.From(k.listener.AcceptUnix, k.cfg.Logger); ; {
		conn, err := loop.Next()
		if err != nil {
			return
		}
		k.arrived(conn, "")
	}
}

// arrived adds a new connection and serves it. If there is no room, the sink has ended or the process cannot be identified,
// it closes the connection and returns false. who describes a process that this program has started, which may subscribe at
// any time; "": another one.
func (k *Sink) arrived(conn *net.UnixConn, who string) bool {
	c, err := newConsumer(k, conn)
	if err == nil && who != "" {
		c.who, c.patience = who, 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil || k.ended || len(k.connected)-len(k.consumers) >= strangers {
		_ = conn.Close()
		return false
	}
	k.connected[c] = struct{}{}
	if who != "" {
		k.starts = time.Now()
	}
	k.running.Go(c.serve) // with the lock: Close waits after it has set ended
	return true
}

// Needs implements pipeline.Sink.
func (k *Sink) Needs() pipeline.SinkNeeds {
	return pipeline.SinkNeeds{Format: k.format, Holds: Holds(k.cfg.Consumers, k.cfg.Frames)}
}

// Run implements pipeline.Sink.
func (k *Sink) Run(ctx context.Context, q *pipeline.Queue) error {
	for {
		f, err := q.Next(ctx)
		if err != nil {
			k.endConnections()
			return err
		}
		if err := k.offer(f); err != nil {
			q.Fail(f, pipeline.DropSink, err)
		} else {
			q.Done(f)
		}
	}
}

// offer offers a frame to the consumers. Those that take it hold their own leases.
func (k *Sink) offer(f *pipeline.Frame) error {
	m, err := messageOf(f)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hearAll()
	for _, c := range k.consumers {
		c.offer(m)
	}
	return nil
}

func messageOf(f *pipeline.Frame) (message, error) {
	file, offset := f.File()
	if file == nil || f.Slot() >= maxSlots {
		return message{}, fmt.Errorf("%w: slot %d of frame %d", ErrMemory, f.Slot(), f.Sequence)
	}
	return message{frame: f, file: file, offset: uint64(offset)}, nil
}

// endConnections takes all frames back and ends all connections.
func (k *Sink) endConnections() {
	k.mu.Lock()
	k.ended = true
	var list []*consumer
	for c := range k.connected {
		list = append(list, c)
	}
	k.mu.Unlock()
	for _, c := range list {
		k.drop(c, bye{CodeEnd, k.kind() + " " + k.cfg.Name + " ends"})
	}
}

// kind returns what the consumers are connected to.
func (k *Sink) kind() string {
	if k.answers != nil {
		return "the stage"
	}
	return "the output"
}

// drop ends a connection and takes its frames back.
func (k *Sink) drop(c *consumer, why bye) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.remove(c, why)
}

// remove is drop with the lock held. It does nothing if the consumer has already been removed.
func (k *Sink) remove(c *consumer, why bye) {
	if _, there := k.connected[c]; !there {
		return
	}
	if delete(k.connected, c); len(k.connected) == 0 && k.listener == nil {
		k.starts = time.Now().Add(longestGap - longestStart)
	}
	i := slices.Index(k.consumers, c)
	if i >= 0 {
		k.consumers = slices.Delete(k.consumers, i, i+1)
		k.gone.consumers++
		k.gone.frames += c.sent
		k.gone.lost += c.lost
	}
	c.releaseAll()
	_ = c.sendMessage(why.append(nil), nil)
	c.close()
	about := []any{"output", k.cfg.Name, "consumer", c.who, "reason", why.reason, "frames", c.sent, "lost", c.lost}
	if i < 0 { // it never subscribed, and there may be very many of these
		left, due := k.strange.Due("", time.Now())
		if !due {
			return
		}
		about = pipeline.Unlogged(about, left)
	}
	k.running.Go(func() { // a log may be slow
		k.visits.Info("share: a consumer has disconnected", about...)
	})
}

// Close ends all connections and removes the socket. Run must have ended, or never have been called.
func (k *Sink) Close() error {
	k.endConnections()
	err := k.watch.file.Close()
	if k.listener != nil {
		err = errors.Join(err, k.listener.Close(), os.Remove(k.cfg.Socket))
	}
	k.running.Wait()
	return err
}

// Stats are the counters of an output.
type Stats struct {
	Consumers []ConsumerStats // those that have subscribed
	Gone      uint64          // number of subscribers that have disconnected
	Frames    uint64          // frames passed, once for each consumer, including those that have disconnected
	Lost      uint64          // frames that consumers wanted but were not ready for
}

// ConsumerStats are the counters of one consumer.
type ConsumerStats struct {
	Who     string
	Policy  pipeline.Policy
	Every   uint32
	Offered uint64 // frames that it wanted
	Frames  uint64 // frames that it got
	Lost    uint64 // frames that it was not ready for
	Held    int    // frames that it holds
}

func (c ConsumerStats) String() string {
	return fmt.Sprintf("%s: %d frames, lost %d that it was not ready for, holds %d; every %d, %s", c.Who, c.Frames, c.Lost, c.Held, c.Every, c.Policy)
}

// Stats returns the counters.
func (k *Sink) Stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hearAll()
	st := Stats{Gone: k.gone.consumers, Frames: k.gone.frames, Lost: k.gone.lost}
	for _, c := range k.consumers {
		st.Frames, st.Lost = st.Frames+c.sent, st.Lost+c.lost
		st.Consumers = append(st.Consumers, ConsumerStats{
			Who: c.who, Policy: c.wants.policy, Every: c.wants.every, Offered: c.offered, Frames: c.sent, Lost: c.lost, Held: len(c.held),
		})
	}
	return st
}
