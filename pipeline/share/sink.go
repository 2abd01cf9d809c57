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

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/accept"
)

// Limits of a Config.
const (
	MaxConsumers = 16
	maxFrames    = 16
	MaxFrames    = maxFrames // that a consumer may hold

	strangers = 8 // that may be connected and have not subscribed
)

// Errors of this package.
var (
	ErrMemory = errors.New("share: other processes cannot map the frames' memory")
	ErrFormat = errors.New("share: impossible format")
)

// Config describes an output.
type Config struct {
	Name      string
	Socket    string      // path
	Mode      fs.FileMode // of the socket; 0: 0600
	Users     []uint32    // ids of users whose processes may have the frames
	Groups    []uint32    // the same of groups; neither Users nor Groups: all that can connect
	Consumers int         // that may subscribe at a time; 0: 1
	Frames    int         // that each may hold; 0: 1
	Logger    *slog.Logger

	patience time.Duration // with those who have not subscribed
	sweep    time.Duration // how often consumers are heard while no frames come
}

// Holds is how many frames such an output holds: for each consumer those in its hands and one that waits for it, and the one that is looked at.
func Holds(consumers, frames int) int { return consumers*(frames+1) + 1 }

// A Sink gives the frames of one output to its consumers. It implements pipeline.Sink.
type Sink struct {
	cfg      Config
	format   pipeline.Format
	listener *net.UnixListener
	watch    *watch
	running  sync.WaitGroup

	mu        sync.Mutex // held for some instructions, and while messages are sent without waiting
	connected map[*consumer]struct{}
	consumers []*consumer // that have subscribed
	gone      totals
	ended     bool
}

// totals are what consumers that have gone have got.
type totals struct{ consumers, frames, lost uint64 }

// New makes the socket. Frames go to consumers while the sink runs.
func New(c Config, f pipeline.Format) (*Sink, error) {
	c.Mode, c.Consumers, c.Frames, c.Logger = cmp.Or(c.Mode, 0o600), max(c.Consumers, 1), max(c.Frames, 1), cmp.Or(c.Logger, slog.Default())
	c.patience, c.sweep = cmp.Or(c.patience, defaultPatience), cmp.Or(c.sweep, defaultSweep)
	if f.PacketPitch > 0 || f.Memory != pipeline.MemoryHost {
		return nil, fmt.Errorf("%w: %s: frames must be plain, and in memory that the CPU reads", ErrFormat, f)
	}
	if err := CheckSocket(c.Socket); err != nil {
		return nil, err
	}
	w, err := newWatch()
	if err != nil {
		return nil, err
	}
	l, err := listen(c.Socket, c.Mode)
	if err != nil {
		return nil, errors.Join(err, w.file.Close())
	}
	k := &Sink{cfg: c, format: f, listener: l, watch: w, connected: map[*consumer]struct{}{}}
	k.running.Go(k.accept)
	k.running.Go(k.listen)
	return k, nil
}

// accept takes those who connect, until the listener is closed.
func (k *Sink) accept() {
	for {
		conn, err := accept.Next(k.listener.AcceptUnix, k.cfg.Logger)
		if err != nil {
			return
		}
		if c := k.arrived(conn); c != nil {
			k.running.Go(c.serve)
		}
	}
}

// arrived adds somebody who has connected. It returns nil when there is no room.
func (k *Sink) arrived(conn *net.UnixConn) *consumer {
	c, err := newConsumer(k, conn)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil || k.ended || len(k.connected)-len(k.consumers) >= strangers {
		_ = conn.Close()
		return nil
	}
	k.connected[c] = struct{}{}
	return c
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
			k.end()
			return err
		}
		if err := k.offer(f); err != nil {
			q.Fail(f, pipeline.DropSink, err)
		} else {
			q.Done(f)
		}
	}
}

// offer gives a frame to those who take it now. They have leases of their own.
func (k *Sink) offer(f *pipeline.Frame) error {
	file, offset := f.File()
	if file == nil || f.Slot() >= maxSlots {
		return fmt.Errorf("%w: slot %d of frame %d", ErrMemory, f.Slot(), f.Sequence)
	}
	m := message{frame: f, file: file, offset: uint64(offset)}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hearAll()
	for _, c := range k.consumers {
		c.offer(m)
	}
	return nil
}

// end takes all frames back, and ends all connections.
func (k *Sink) end() {
	k.mu.Lock()
	k.ended = true
	var list []*consumer
	for c := range k.connected {
		list = append(list, c)
	}
	k.mu.Unlock()
	for _, c := range list {
		k.drop(c, bye{CodeEnd, "the output " + k.cfg.Name + " ends"})
	}
}

// drop ends a connection and takes its frames back.
func (k *Sink) drop(c *consumer, why bye) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.remove(c, why)
}

// remove is drop while the lock is held. It does nothing where that was done before.
func (k *Sink) remove(c *consumer, why bye) {
	if _, there := k.connected[c]; !there {
		return
	}
	delete(k.connected, c)
	if i := slices.Index(k.consumers, c); i >= 0 {
		k.consumers = slices.Delete(k.consumers, i, i+1)
		k.gone.consumers++
		k.gone.frames += c.sent
		k.gone.lost += c.lost
	}
	c.releaseAll()
	_ = c.tell(why.append(nil), nil)
	c.close()
	k.running.Go(func() { // a log may be slow
		k.cfg.Logger.Info("share: a consumer has gone", "output", k.cfg.Name, "consumer", c.who, "reason", why.reason, "frames", c.sent, "lost", c.lost)
	})
}

// Close ends all connections and removes the socket. Run has ended, or never ran.
func (k *Sink) Close() error {
	k.end()
	err := errors.Join(k.listener.Close(), os.Remove(k.cfg.Socket), k.watch.file.Close())
	k.running.Wait()
	return err
}

// Stats are the books of an output.
type Stats struct {
	Consumers []ConsumerStats // that have subscribed
	Gone      uint64          // consumers that had subscribed
	Frames    uint64          // given to all consumers, those that have gone, too
	Lost      uint64          // that consumers wanted, and were not ready for
}

// ConsumerStats are the books of one consumer.
type ConsumerStats struct {
	Who     string
	Policy  pipeline.Policy
	Every   uint32
	Offered uint64 // frames that it wanted
	Frames  uint64 // that it got
	Lost    uint64 // that it was not ready for
	Held    int    // that are in its hands
}

func (c ConsumerStats) String() string {
	return fmt.Sprintf("%s: %d frames, lost %d that it was not ready for, holds %d; every %d, %s", c.Who, c.Frames, c.Lost, c.Held, c.Every, c.Policy)
}

// Stats reads the books.
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
