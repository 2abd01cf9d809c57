// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"fmt"
	"unsafe"
)

// A Protocol says how the data of a message travels.
type Protocol int

// The protocols.
const (
	Auto       Protocol = iota // the library chooses by length
	Eager                      // with the header, at once
	Rendezvous                 // when the receiver fetches it, from the sender's memory into the receiver's
)

// An Outgoing is a message to send.
type Outgoing struct {
	ID       uint16   // the receiver's Worker.Handle has the same
	Header   []byte   // at most Worker.MaxHeader; it is copied
	Data     [][]byte // parts that are sent as one; they stay as they are until the message is sent
	Memory   *Memory  // in which all data lies, or nil
	Protocol Protocol
}

// Send sends a message. done is called once when the data may be used again, or with why the message was not sent, unless Send returns
// an error: by Send itself if that is the case at once, else by the worker's goroutine. That the message has arrived follows only for a
// rendezvous. Send does not wait for the worker: its goroutine sends the message if it is awake.
func (e *Endpoint) Send(m *Outgoing, done func(error)) error {
	w := e.worker
	if !w.sleeping.Load() || !w.mu.TryLock() {
		if len(m.Header) > w.maxHeader {
			return headerError(m, w)
		}
		return w.post(e, m, done)
	}
	w.sendPosted() // in their order
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

// A Message is one that has arrived. It is valid until the function that it was given to returns, if that has called neither Keep nor
// Receive. Of a rendezvous whose data nobody fetches the sender learns nothing: for it the message is sent.
type Message struct {
	ID         uint16
	Header     []byte
	Data       []byte    // nil if it is a rendezvous
	Length     int       // of the data
	Rendezvous bool      // the data is fetched by Receive
	Endpoint   *Endpoint // to the sender; nil if it is connected by this worker's address, and this worker not by its

	worker  *Worker
	replyTo uintptr // the library's endpoint to the sender
	desc    uintptr
	kept    bool
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

// recycle makes the message one that may be used again.
func (w *Worker) recycle(m *Message) {
	*m = Message{worker: w, Header: m.Header[:0]}
	w.messages = append(w.messages, m)
}

// deliver calls the user's function.
func (w *Worker) deliver(m *Message) {
	w.mu.Lock()
	f := w.handlers[m.ID].receive
	m.Endpoint = w.byHandle[m.replyTo] // one that the library has made for itself may go at any time, and is not used
	w.mu.Unlock()
	if f != nil {
		f(m)
	}
	if m.kept {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m.release()
	w.recycle(m)
}

// Keep keeps the message after the function that it was given to has returned, until Release or Receive. That function calls it.
func (m *Message) Keep() { m.kept = true }

// Release ends the message and its data.
func (m *Message) Release() {
	m.worker.mu.Lock()
	defer m.worker.mu.Unlock()
	m.release()
}

func (m *Message) release() {
	if w := m.worker; m.desc != 0 && w.handle != 0 {
		w.call(symAMDataRelease, w.handle, m.desc)
		w.wake()
	}
	m.desc, m.Data = 0, nil
}

// Receive fetches the data of a rendezvous into the parts, which are at least as long together, and ends the message. memory is what
// they lie in, or nil. done is called by the worker's goroutine, with the bytes that have arrived, unless Receive returns an error.
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
	if !m.kept { // else others may read it
		m.kept = true
	}
	if p.status() != inProgress { // at once: the function is called like others
		r.status = p.status()
		w.events = append(w.events, event{request: r})
	}
	w.wake()
	return nil
}
