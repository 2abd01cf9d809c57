// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"time"

	"github.com/tegracast/tegracast/pipeline/ucx"
)

// What a connection waits for.
const (
	patience = 5 * time.Second // with a side that says nothing, or does not take what it has asked for
	tick     = 2 * time.Second // how often that is looked after; each time wakes the process
	alive    = time.Second     // at a tick each side says something if it has said nothing for so long
	linger   = time.Second     // for the last message
)

// A link is the way to the other side: what the protocol needs of a ucx.Endpoint.
type link interface {
	// Send sends a message. Its data stays as it is until done is called, once, on any goroutine, maybe before Send returns; after an
	// error done is not called.
	Send(m *ucx.Outgoing, done func(error)) error
	// end closes the connection once all that was sent has gone, and after linger by force. It does not wait; ended is called
	// when nothing of the connection is left.
	end(ended func())
}

// control is a message without pixels.
func control(id uint16, data []byte) *ucx.Outgoing {
	return &ucx.Outgoing{ID: id, Data: [][]byte{data}, Protocol: ucx.Eager}
}

// tell sends a message that nobody waits for.
func tell(l link, id uint16, data []byte) error { return l.Send(control(id, data), nil) }

// An incoming message. Header and data are good until its handler returns.
type incoming struct {
	id     uint16
	header []byte
	data   []byte // nil by rendezvous
	length int    // of what is to be fetched, by rendezvous
	// fetch gets the data into a slot; done is called once, on any goroutine, unless fetch returns an error. nil: it is eager.
	fetch func(slot int, done func(n int, err error)) error
}
