// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/pipeline/bus/store"
)

// Limits on the messages that wait in memory for Run's goroutine.
const (
	mostQueued      = 8192
	mostQueuedBytes = 8 << 20
)

// A block is memory shared by several messages. It is reused when none of them needs it any more.
type block struct {
	home *sync.Pool // nil for a block that holds a single message
	data []byte
	left atomic.Int32 // number of messages that still need it, plus one while the block is being filled
}

const blockSize = 64 << 10

// done releases one reference to the block: that of a message that no longer needs its memory, or that of the publisher
// when the block is full.
func (b *block) done() {
	if b != nil && b.left.Add(-1) == 0 && b.home != nil {
		b.data = b.data[:0]
		b.home.Put(b)
	}
}

// queued is a message with the block that holds its data. A message that was read from the store has no block.
type queued struct {
	store.Message
	block *block // nil for a message from the store
}

// publish numbers a message and queues it for Run. It never waits: if there is no room, the oldest messages are
// dropped.
func (p *Publisher) publish(subject string, body []byte) {
	at := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended { // the last numbers have already been saved
		p.stats.Failed++
		return
	}
	n := p.numbers[subject] + 1
	p.numbers[subject] = n
	data := p.head(n, at, body)
	for len(p.queue) > 0 && (len(p.queue) >= mostQueued || p.queued+len(data) > mostQueuedBytes) {
		p.queued -= len(p.queue[0].Data)
		p.queue[0].block.done()
		p.queue = p.queue[1:]
		p.stats.Failed++
	}
	m := store.Message{Subject: subject, Number: store.Number{ID: p.id, Epoch: p.epoch, Sequence: n}, Data: data}
	p.queue = append(p.queue, queued{m, p.block})
	if p.queued += len(data); len(p.queue) == 1 { // Run takes everything that is queued
		p.stir()
	}
}

// head builds a message in the current block from the common opening, the number, the time and body, which must be a
// non-empty JSON object.
func (p *Publisher) head(n uint64, at time.Time, body []byte) []byte {
	most := len(p.opening) + len(body) + 96
	if p.block == nil || cap(p.block.data)-len(p.block.data) < most {
		p.block.done()
		var is bool
		if most > blockSize {
			p.block = &block{data: make([]byte, 0, most)}
		} else if p.block, is = p.blocks.Get().(*block); !is {
			p.block = &block{home: &p.blocks, data: make([]byte, 0, blockSize)}
		}
		p.block.left.Store(1)
	}
	begin := len(p.block.data)
	b := p.block.data
	b = append(b, p.opening...)
	b = strconv.AppendUint(b, p.epoch, 10)
	b = append(b, `,"sequence":`...)
	b = strconv.AppendUint(b, n, 10)
	b = append(b, `,"at":"`...)
	b = at.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `",`...)
	b = append(b, body[1:]...)
	p.block.data = b
	p.block.left.Add(1)
	return b[begin:len(b):len(b)]
}

// stir wakes Run.
func (p *Publisher) stir() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// takeQueued removes up to n of the oldest queued messages. The returned slice is valid until the next call.
func (p *Publisher) takeQueued(n int) []queued {
	p.mu.Lock()
	defer p.mu.Unlock()
	n = min(n, len(p.queue))
	p.taken = append(p.taken[:0], p.queue[:n]...)
	for i := range p.taken {
		p.queued -= len(p.taken[i].Data)
	}
	left := copy(p.queue, p.queue[n:])
	clear(p.queue[left:])
	p.queue = p.queue[:left]
	return p.taken
}
