// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"strconv"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline/bus/store"
)

// Bounds of what waits in memory for the publisher's goroutine.
const (
	mostQueued      = 8192
	mostQueuedBytes = 8 << 20
)

// blockSize is how many bytes of messages share a piece of memory.
const blockSize = 64 << 10

// bodies are buffers for what a message says, before it has its number.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

// publish numbers a message and hands it to Run. It never waits. Where there is no room the oldest makes some.
func (p *Publisher) publish(subject string, body []byte) {
	at := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended { // the last numbers are on the disk
		p.stats.Failed++
		return
	}
	n := p.numbers[subject] + 1
	p.numbers[subject] = n
	data := p.head(n, at, body)
	for len(p.queue) > 0 && (len(p.queue) >= mostQueued || p.queued+len(data) > mostQueuedBytes) {
		p.queued -= len(p.queue[0].Data)
		p.queue = p.queue[1:]
		p.stats.Failed++
	}
	p.queue = append(p.queue, store.Message{Subject: subject, Number: store.Number{ID: p.id, Epoch: p.epoch, Sequence: n}, Data: data})
	if p.queued += len(data); len(p.queue) == 1 { // Run takes all that there is
		p.stir()
	}
}

// head makes a message of a body, which is an object that is not empty.
func (p *Publisher) head(n uint64, at time.Time, body []byte) []byte {
	most := len(p.opening) + len(body) + 96
	if cap(p.block)-len(p.block) < most {
		p.block = make([]byte, 0, max(blockSize, most))
	}
	b := p.block[len(p.block):]
	b = append(b, p.opening...)
	b = strconv.AppendUint(b, p.epoch, 10)
	b = append(b, `,"sequence":`...)
	b = strconv.AppendUint(b, n, 10)
	b = append(b, `,"at":"`...)
	b = at.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `",`...)
	b = append(b, body[1:]...)
	p.block = p.block[:len(p.block)+len(b)]
	return b[:len(b):len(b)]
}

// stir wakes Run.
func (p *Publisher) stir() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// take takes the oldest messages that wait in memory. The list is good until the next call.
func (p *Publisher) take(n int) []store.Message {
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
