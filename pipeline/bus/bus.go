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

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/bus/store"
)

// Config is a publisher.
type Config struct {
	Server
	Board  string // a name that no other board on the bus has; CheckBoard
	Folder string // of what is kept on disk
	Limit  int64  // bytes of it
	Logger *slog.Logger
}

// A Publisher publishes what a board has to tell. All methods may be called concurrently.
type Publisher struct {
	config  Config
	opening []byte
	id      uint64
	epoch   uint64
	wake    chan struct{}
	bodies  sync.Pool // *[]byte: what a message says, before it has its number
	blocks  sync.Pool
	dialed  chan dialed

	mu      sync.Mutex
	numbers map[string]uint64 // the last of each subject
	queue   []queued
	queued  int    // bytes of their data
	block   *block // for messages to come; nil: there has been none
	losses  []loss
	stats   Stats
	ended   bool

	pump // of Run's goroutine
}

// Stats are a publisher's counters.
type Stats struct {
	Server    string
	Connected bool
	Trouble   string // why it is not
	Links     uint64 // connections that were made
	Published uint64 // messages that the server has for sure
	Waiting   int    // messages that it has not yet
	Stored    int64  // of these, on disk
	// Messages that are lost. The numbers of the others show it.
	Full    uint64 // the oldest on disk had to make room
	Failed  uint64 // the disk could not keep them, or there was no room in memory
	Refused uint64 // the server does not take such a message
}

// New opens the store. Where the disk cannot keep anything, messages wait in memory alone, and the log says so. Errors are those of the
// configuration, and store.ErrTaken.
func New(c Config) (*Publisher, error) {
	if err := errors.Join(CheckBoard(c.Board), CheckServer(c.URL)); err != nil {
		return nil, err
	}
	p := &Publisher{config: c, wake: make(chan struct{}, 1), dialed: make(chan dialed, 1), numbers: map[string]uint64{}, epoch: 1}
	p.stats.Server = c.URL
	var err error
	p.store, err = store.Open(store.Config{Folder: c.Folder, Limit: c.Limit, Logger: c.Logger})
	switch {
	case errors.Is(err, store.ErrTaken):
		return nil, fmt.Errorf("bus: %w: each process needs a folder of its own", err)
	case err != nil:
		c.Logger.Error("the disk keeps no messages while the bus cannot be reached: few wait in memory, and numbers begin again", "error", err)
		p.id = store.NewID()
	default:
		p.id, p.epoch, p.numbers = p.store.ID, p.store.Epoch, p.store.Numbers
	}
	p.opening, err = opening(c.Board, p.id)
	return p, err
}

// Results publishes the results of a frame. An error says which number JSON has no word for.
func (p *Publisher) Results(output string, r pipeline.Report) error {
	room, is := p.bodies.Get().(*[]byte)
	if !is {
		room = new([]byte)
	}
	defer p.bodies.Put(room)
	b := pipeline.AppendText(append((*room)[:0], `{"output":`...), output)
	begin := len(b)
	b, err := r.AppendJSON(b)
	*room = b
	if err != nil {
		return fmt.Errorf("results of frame %d: %w", r.Frame, err)
	}
	b[begin] = ',' // one object of both
	p.publish(prefix+p.config.Board+results+output, b)
	return nil
}

// Event publishes what has happened.
func (p *Publisher) Event(e Happened) { p.tell(events, e) }

// Health publishes how the board is.
func (p *Publisher) Health(c Condition) { p.tell(health, c) }

func (p *Publisher) tell(below string, what any) {
	body, err := json.Marshal(what)
	if err != nil { // a sensor that says NaN
		p.config.Logger.Warn("a message cannot be written as JSON", "subject", prefix+p.config.Board+below, "error", err)
		return
	}
	p.publish(prefix+p.config.Board+below, body)
}

// Missed counts an event that could not be published: its number is missing.
func (p *Publisher) Missed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.numbers[prefix+p.config.Board+events]++
	}
	p.stats.Failed++
}

// Stats reads the counters.
func (p *Publisher) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.stats
	st.Waiting += len(p.queue)
	return st
}

// Run publishes until ctx ends. What the server does not take within a second more is kept for the next time. It closes the publisher,
// and is called once.
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
		return fmt.Errorf("bus: the numbers of the messages are not kept: %w", err)
	}
	return nil
}
