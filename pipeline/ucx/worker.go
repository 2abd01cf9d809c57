// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"
)

// A Worker has connections, and one goroutine that makes progress on them and calls the functions given to it.
type Worker struct {
	context   *Context
	library   *library
	handle    uintptr
	number    uint32
	fd        int // readable when there is something to do
	maxHeader int
	stopped   chan struct{} // closed when the goroutine has ended

	sleeping atomic.Bool // the goroutine waits for fd. Set and cleared with the lock
	outbox   outbox

	mu       sync.Mutex // held in every call of the library for this worker
	args     [8]uintptr
	param    requestParam
	closed   bool
	events   []event
	handlers map[uint16]*handler
	inbox    *inbox

	requests  []*request // by number
	free      []*request
	messages  []*Message // that may be used again
	last      uint32     // number of an endpoint or listener
	endpoints map[uint32]*Endpoint
	byHandle  map[uintptr]*Endpoint
	listeners map[uint32]*Listener
}

// A handler takes the messages with one number. The library knows it as long as there is the worker.
type handler struct {
	key     key
	receive func(*Message)
}

// NewWorker makes a worker, whose goroutine runs until Worker.Close.
func (c *Context) NewWorker() (*Worker, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	w := &Worker{
		context: c, library: c.library, stopped: make(chan struct{}), handlers: map[uint16]*handler{},
		endpoints: map[uint32]*Endpoint{}, byHandle: map[uintptr]*Endpoint{}, listeners: map[uint32]*Listener{},
	}
	p := &workerParams{mask: workerThreads | workerEvents, threads: threadsSerial, events: wakeupTX | wakeupRX}
	if err := w.library.try(symWorkerCreate, "", c.handle, uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(&w.handle))); err != nil {
		return nil, err
	}
	if err := w.query(); err != nil {
		w.library.call(symWorkerDestroy, w.handle)
		return nil, err
	}
	w.inbox = &inbox{message: callbacks().message, ended: callbacks().ended, worker: w}
	w.register()
	c.workers = append(c.workers, w)
	go w.run()
	return w, nil
}

// query learns what the worker is.
func (w *Worker) query() error {
	a := &workerAttr{mask: attrThreads | attrMaxHeader}
	if err := w.library.try(symWorkerQuery, "", w.handle, uintptr(unsafe.Pointer(a))); err != nil {
		return err
	}
	if a.threads < threadsSerial {
		return ErrThreadMode
	}
	w.maxHeader = int(a.maxHeader)
	var fd int32
	err := w.library.try(symWorkerGetEfd, "", w.handle, uintptr(unsafe.Pointer(&fd)))
	w.fd = int(fd)
	return err
}

// MaxHeader returns the length of the longest header of a message.
func (w *Worker) MaxHeader() int { return w.maxHeader }

// Address returns what another worker needs for Worker.Connect. It is opaque, and brought there by other means.
func (w *Worker) Address() ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, ErrClosed
	}
	a := &workerAttr{mask: attrAddress}
	if err := w.library.try(symWorkerQuery, "", w.handle, uintptr(unsafe.Pointer(a))); err != nil {
		return nil, err
	}
	defer w.library.call(symWorkerReleaseAddress, w.handle, a.address)
	return bytes.Clone(unsafe.Slice(*(**byte)(unsafe.Pointer(&a.address)), a.addressLength)), nil
}

// Handle makes f receive the messages with that number. A message and its data belong to f until it returns: see Message. Messages
// without a function are dropped by the library, which logs them. nil ends it.
func (w *Worker) Handle(id uint16, f func(*Message)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	h := w.handlers[id]
	if h == nil {
		h = &handler{key: key{w.inbox, uint64(id)}}
		w.handlers[id] = h
	}
	h.receive = f
	p := &handlerParam{mask: handlerAll, id: uint32(id), flags: handlerPersistent, argument: h.key.address()}
	if f != nil {
		p.callback = atMessage
	}
	return w.library.try(symWorkerSetAMRecvHandler, fmt.Sprintf("of number %d", id), w.handle, uintptr(unsafe.Pointer(p)))
}

// call calls a function of the library without an allocation. The worker's lock is held, and no argument points to Go's memory that
// may move or go.
func (w *Worker) call(f symbol, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(w.library.symbols[f], w.args[:copy(w.args[:], args)]...)
	if w.inbox.count > 0 {
		w.collect()
	}
	return r
}

// wake makes the goroutine look for work.
func (w *Worker) wake() {
	if w.sleeping.Load() {
		w.sleeping.Store(false)
		w.call(symWorkerSignal, w.handle)
	}
}

// Close ends the worker and its goroutine. Endpoints that are open are closed by force and listeners, too; the error wraps ErrOpen
// and names them. Functions of operations that were under way are called with an error.
func (w *Worker) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return ErrClosed
	}
	w.closed = true
	var open []error
	for _, l := range w.listeners {
		open = append(open, fmt.Errorf("%w: listener at %v", ErrOpen, l.addr))
		l.destroy()
	}
	for _, e := range w.endpoints {
		if e.state == opened {
			open = append(open, fmt.Errorf("%w: endpoint %s", ErrOpen, e.peer))
		}
		e.force()
	}
	w.settle()
	w.wake()
	w.mu.Unlock()
	<-w.stopped // ends: the worker is told to end
	c := w.context
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.workers, w); i >= 0 {
		c.workers = slices.Delete(c.workers, i, i+1)
	}
	return errors.Join(open...)
}
