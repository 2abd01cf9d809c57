// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"time"

	"github.com/tegracast/tegracast/pipeline/ucx"
)

// Timeouts and intervals of a connection.
const (
	patience = 5 * time.Second // how long a peer may send nothing, or not take what it requested
	tick     = 2 * time.Second // interval of the checks, each of which wakes the process
	alive    = time.Second     // at a tick, a side that has sent nothing for this long sends something
	linger   = time.Second     // maximum time for sending the last message
)

// sameDevices says why messages may get lost between peers that are connected.
const sameDevices = "UCX_CM_USE_ALL_DEVICES must be the same on both sides: n, unless one has set it"

// A link is a connection to the peer, with the part of a ucx.Endpoint that the protocol needs.
type link interface {
	// Send sends a message. Its data must not change until done is called, which happens once, on any goroutine,
	// possibly before Send returns. If Send returns an error, done is not called.
	Send(m *ucx.Outgoing, done func(error)) error
	// end closes the connection when everything has been sent, or by force after linger. It does not wait; ended is
	// called when the connection is completely gone.
	end(ended func())
}

// control returns a message with the given data, to be sent eagerly.
func control(id uint16, data []byte) *ucx.Outgoing {
	return &ucx.Outgoing{ID: id, Data: [][]byte{data}, Protocol: ucx.Eager}
}

// sendControl sends a message without waiting for its completion.
func sendControl(l link, id uint16, data []byte) error { return l.Send(control(id, data), nil) }

// incoming is a received message. Header and data are valid until its handler returns.
type incoming struct {
	id     uint16
	header []byte
	data   []byte // nil for a rendezvous
	length int    // of the data, or of those to fetch, in bytes
	// fetch transfers the data into a slot; done is called once, on any goroutine, unless fetch returns an error. fetch
	// is nil for an eager message.
	fetch func(slot int, done func(n int, err error)) error
}
