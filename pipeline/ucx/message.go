// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"fmt"
	"unsafe"
)

// A Protocol is a way to transfer the data of a message.
type Protocol int

// The protocols.
const (
	Auto       Protocol = iota // the library chooses by length
	Eager                      // immediately, together with the header
	Rendezvous                 // when the receiver fetches it, directly from the sender's memory to the receiver's
)

// An Outgoing is a message to send.
type Outgoing struct {
	ID       uint16   // selects the receiver's Worker.Handle function
	Header   []byte   // at most Worker.MaxHeader bytes; it is copied
	Data     [][]byte // parts that are sent as one; they must not change until the message has been sent
	Memory   *Memory  // registered memory that contains all of the data, or nil
	Protocol Protocol
}

// Send sends a message. Unless Send returns an error, done, which may be nil, is called once: with nil when the data
// may be reused, or with the reason why the message was not sent. It is called by Send itself or by the worker's
// goroutine. Only for a rendezvous does nil mean that the message has arrived. Send does not wait for the worker: if
// the worker's goroutine is awake, that goroutine sends the message.
func (e *Endpoint) Send(m *Outgoing, done func(error)) error {
	w := e.worker
	if !w.sleeping.Load() || !w.mu.TryLock() {
		if len(m.Header) > w.maxHeader {
			return headerError(m, w)
		}
		return w.post(e, m, done)
	}
	w.sendPosted() // keeps the order
	p, err := e.send(m, done)
	w.mu.Unlock()
	if err != nil {
		return err
	}
	if p == 0 && done != nil {
		done(nil)
	}
	return nil
}

func (e *Endpoint) send(m *Outgoing, done func(error)) (statusPointer, error) {
	w := e.worker
	switch {
	case w.closed || e.state != opened || e.ending != nil:
		return 0, ErrClosed
	case e.err != nil:
		return 0, e.err
	case len(m.Header) > w.maxHeader:
		return 0, headerError(m, w)
	}
	r := w.newRequest(symAMSend, e)
	r.done = done
	r.header = append(r.header[:0], m.Header...)
	w.param = requestParam{
		mask: opCallback | opUser | opFlags, flags: sendReply | [...]uint32{Auto: 0, Eager: sendEager, Rendezvous: sendRendezvous}[m.Protocol],
		callback: atSent, user: r.key.address(),
	}
	buffer, n := r.data(m.Data, m.Memory)
	p := statusPointer(w.call(symAMSend, e.handle, uintptr(m.ID), r.pin(r.header), uintptr(len(r.header)), buffer, n, uintptr(unsafe.Pointer(&w.param))))
	if r.begun(p) {
		return p, nil
	}
	return p, check(symAMSend, e.peer, p.status())
}

// A Message is a message that has arrived. It is valid until the function it was passed to calls Receive or returns. If
// nobody fetches the data of a rendezvous, the sender does not notice: for it, the message has been sent.
type Message struct {
	ID         uint16
	Header     []byte
	Data       []byte    // nil for a rendezvous
	Length     int       // of the data, in bytes
	Rendezvous bool      // the data must be fetched with Receive
	Endpoint   *Endpoint // to the sender; nil if Anonymous, or if the sender connected by this worker's address and this worker has not connected back
	Anonymous  bool      // the sender left out UCP_AM_SEND_FLAG_REPLY, and UCX does not tell who it is

	worker  *Worker
	replyTo uintptr // the library's endpoint to the sender
	desc    uintptr
	fetched bool // by Receive, whose completion recycles the message
}

func (w *Worker) newMessage() *Message {
	n := len(w.messages)
	if n == 0 {
		return &Message{worker: w}
	}
	m := w.messages[n-1]
	w.messages = w.messages[:n-1]
	return m
}

// recycle makes the message available for reuse.
func (w *Worker) recycle(m *Message) {
	*m = Message{worker: w, Header: m.Header[:0]}
	w.messages = append(w.messages, m)
}

// deliver calls the user's function for a message, and recycles the message unless the function has called Receive.
func (w *Worker) deliver(m *Message) {
	w.mu.Lock()
	f := w.handlers[m.ID].receive
	m.Endpoint = w.byHandle[m.replyTo] // one that the library created for itself may vanish at any time, so it is not used
	w.mu.Unlock()
	if f != nil {
		f(m)
	}
	if m.fetched {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m.release()
	w.recycle(m)
}

func (m *Message) release() {
	if w := m.worker; m.desc != 0 && w.handle != 0 {
		w.call(symAMDataRelease, w.handle, m.desc)
		w.wake()
	}
	m.desc, m.Data = 0, nil
}

// Receive fetches the data of a rendezvous into parts, whose total length must be at least Length. After the call the
// message must not be used. memory is the registered memory that contains the parts, or nil. Unless Receive returns an
// error, the worker's goroutine calls done, if it is not nil, with the number of bytes that arrived, or with an error.
func (m *Message) Receive(parts [][]byte, memory *Memory, done func(n int, err error)) error {
	w := m.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	if !m.Rendezvous || m.desc == 0 {
		return ErrNotRendezvous
	}
	room := 0
	for _, b := range parts {
		room += len(b)
	}
	if room < m.Length {
		return &Error{Call: symbolNames[symAMRecvData], What: fmt.Sprintf("%d bytes into %d", m.Length, room), Status: ErrBufferTooSmall}
	}
	r := w.newRequest(symAMRecvData, m.Endpoint)
	r.received, r.message, r.length = done, m, m.Length
	w.param = requestParam{mask: opCallback | opUser, callback: atReceived, user: r.key.address()}
	buffer, n := r.data(parts, memory)
	p := statusPointer(w.call(symAMRecvData, w.handle, m.desc, buffer, n, uintptr(unsafe.Pointer(&w.param))))
	m.desc = 0
	m.fetched = true
	if p.status() != inProgress { // already finished; the function is called like any other
		r.status = p.status()
		w.events = append(w.events, event{request: r})
	}
	w.wake()
	return nil
}
