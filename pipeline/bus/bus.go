// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline/bus/store"
	"github.com/tegracast/tegracast/pipeline/report"
)

// Config configures a Publisher.
type Config struct {
	Server
	Board  string // a name that CheckBoard accepts, and that no other board on the bus has
	Folder string // where messages are stored
	Limit  int64  // maximum size of the stored messages in bytes
	Logger *slog.Logger
}

// A Publisher publishes a board's results, events and health. All methods may be called concurrently.
type Publisher struct {
	config  Config
	opening []byte
	id      uint64
	epoch   uint64
	wake    chan struct{}
	bodies  sync.Pool // *[]byte: message bodies, before they get a number
	blocks  sync.Pool
	dialed  chan dialed

	mu      sync.Mutex
	numbers map[string]uint64 // last number of each subject
	queue   []queued
	queued  int    // bytes of data in queue
	block   *block // memory for the next messages; nil before the first message
	losses  []loss
	stats   Stats
	ended   bool
	others  map[string]time.Time // when other boards last published under this name, by their ID

	pump // used by Run's goroutine only
}

// Stats are the counters of a Publisher.
type Stats struct {
	Server    string
	Connected bool
	Trouble   string // why it is not connected
	Links     uint64 // connections established
	Published uint64 // messages that the server has acknowledged
	Waiting   int    // messages that it has not acknowledged yet
	Stored    int64  // bytes of the files on disk
	// Lost messages. Consumers see them as gaps in the numbers.
	Full    uint64 // dropped from the disk, to make room or because they were damaged
	Failed  uint64 // those that could not be stored, for which there was no room in memory, or that were not published (Missed)
	Refused uint64 // those that the server does not accept
}

// Lost returns the number of messages that the server will never get.
func (s Stats) Lost() uint64 { return s.Full + s.Failed + s.Refused }

// New returns a Publisher, and opens its store. If the store cannot be opened, messages wait in memory only, and New
// logs an error. New returns an error if the configuration is invalid, or one that wraps store.ErrTaken if the folder
// is already in use.
func New(c Config) (*Publisher, error) {
	if err := errors.Join(CheckBoard(c.Board), CheckServer(c.URL)); err != nil {
		return nil, err
	}
	p := &Publisher{
		config: c, wake: make(chan struct{}, 1), dialed: make(chan dialed, 1), numbers: map[string]uint64{}, epoch: 1,
		others: map[string]time.Time{},
	}
	p.stats.Server = c.URL
	var err error
	p.store, err = store.Open(store.Config{Folder: c.Folder, Limit: c.Limit, Logger: c.Logger})
	switch {
	case errors.Is(err, store.ErrTaken):
		return nil, fmt.Errorf("bus: %w: each process needs a folder of its own", err)
	case err != nil:
		c.Logger.Error("messages cannot be stored on disk while the bus cannot be reached: "+
			"only a few are kept in memory, and their numbers begin again", "error", err)
		p.id = store.NewID()
	default:
		p.id, p.epoch, p.numbers = p.store.ID, p.store.Epoch, p.store.Numbers
	}
	p.opening, err = opening(c.Board, p.id)
	return p, err
}

// Results publishes the results of a frame. It returns an error if they contain a number that JSON cannot represent.
func (p *Publisher) Results(output string, r report.Report) error {
	room, is := p.bodies.Get().(*[]byte)
	if !is {
		room = new([]byte)
	}
	defer p.bodies.Put(room)
	b := report.AppendText(append((*room)[:0], `{"output":`...), output)
	begin := len(b)
	b, err := r.AppendJSON(b)
	*room = b
	if err != nil {
		return fmt.Errorf("results of frame %d: %w", r.Frame, err)
	}
	b[begin] = ',' // joins both into one object
	p.publish(prefix+p.config.Board+results+output, b)
	return nil
}

// Event publishes an event.
func (p *Publisher) Event(e Happened) { p.publishJSON(events, e) }

// Health publishes the condition of the board; it fills in Others. A condition with a number that JSON cannot represent
// is logged instead.
func (p *Publisher) Health(c Condition) {
	c.Others = p.namesakes(time.Now())
	p.publishJSON(health, c)
}

func (p *Publisher) publishJSON(below string, what any) {
	body, err := json.Marshal(what)
	if err != nil { // for example, a sensor value that is NaN
		p.config.Logger.Warn("a message cannot be written as JSON", "subject", prefix+p.config.Board+below, "error", err)
		return
	}
	p.publish(prefix+p.config.Board+below, body)
}

// Missed counts an event that could not be published. Consumers see that its number is missing.
func (p *Publisher) Missed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.numbers[prefix+p.config.Board+events]++
	}
	p.stats.Failed++
}

// Stats returns the counters.
func (p *Publisher) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.stats
	st.Waiting += len(p.queue)
	return st
}

// Run publishes until ctx ends, plus at most one second to finish. Messages that the server has not acknowledged by
// then are stored for the next run, if the disk can store them. Run closes the publisher and may be called only once.
func (p *Publisher) Run(ctx context.Context) error {
	p.work(ctx)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
	defer cancel()
	p.flush(bounded)
	p.mu.Lock()
	p.ended = true
	numbers := maps.Clone(p.numbers)
	p.mu.Unlock()
	p.lose(nil)
	p.abandon()
	p.keep()
	if p.store == nil {
		return nil
	}
	if err := p.store.Close(numbers); err != nil {
		return fmt.Errorf("bus: the numbers of the messages cannot be stored: %w", err)
	}
	return nil
}
