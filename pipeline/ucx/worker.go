// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tegracast/tegracast/pipeline/flood"
)

// A Worker has connections, and one goroutine that makes progress on them and calls the functions given to the worker.
type Worker struct {
	context   *Context
	library   *library
	handle    uintptr
	number    uint32
	fd        int // readable when there is something to do
	maxHeader int
	ports     map[netip.AddrPort]bool // addresses at which the library listens for this worker
	stopped   chan struct{}           // closed when the goroutine has ended

	sleeping atomic.Bool // the goroutine waits for fd; set and cleared with the lock held
	outbox   outbox

	mu       sync.Mutex // held during every call of the library for this worker
	args     [8]uintptr
	param    requestParam
	closed   bool
	events   []event
	handlers map[uint16]*handler
	inbox    *inbox

	requests  []*request // by number
	free      []*request
	messages  []*Message // free for reuse
	last      uint32     // last number given to an endpoint or listener
	endpoints map[uint32]*Endpoint
	byHandle  map[uintptr]*Endpoint
	listeners map[uint32]*Listener
	admitted  []netip.Prefix // networks whose clients may connect
}

// A handler receives the messages with one ID. The library refers to it as long as the worker exists.
type handler struct {
	key     key
	receive func(*Message)
}

// NewWorker creates a worker, whose goroutine runs until Worker.Close.
func (c *Context) NewWorker() (*Worker, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	w := &Worker{
		context: c, library: c.library, stopped: make(chan struct{}), handlers: map[uint16]*handler{},
		endpoints: map[uint32]*Endpoint{}, byHandle: map[uintptr]*Endpoint{}, listeners: map[uint32]*Listener{},
		admitted: flood.Everyone,
	}
	if err := checkDescriptors(); err != nil {
		return nil, err
	}
	if err := w.create(); err != nil {
		return nil, err
	}
	if err := w.query(); err != nil {
		w.library.call(symWorkerDestroy, w.handle)
		return nil, err
	}
	w.inbox = &inbox{message: callbacks().message, ended: callbacks().ended, worker: w}
	w.register()
	c.workers = append(c.workers, w)
	go w.makeProgress()
	return w, nil
}

// create creates the worker in the library, and finds the addresses at which the library listens for it.
func (w *Worker) create() error {
	libraries.Lock() // another worker's sockets are not this one's
	defer libraries.Unlock()
	others := libraryPorts()
	p := &workerParams{mask: workerThreads | workerEvents, threads: threadsSerial, events: wakeupTX | wakeupRX}
	err := w.library.try(symWorkerCreate, "", w.context.handle, uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(&w.handle)))
	w.ports = libraryPorts()
	maps.DeleteFunc(w.ports, func(at netip.AddrPort, _ bool) bool { return others[at] })
	return err
}

// query sets maxHeader and fd, and checks that different threads may use the worker, at least one at a time.
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

// MaxHeader returns the maximum length of a message's header in bytes.
func (w *Worker) MaxHeader() int { return w.maxHeader }

// Address returns the address that another worker needs for Worker.Connect. It is opaque and must be passed on by other
// means.
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

// Handle makes f receive the messages with that ID; nil removes the function. A message and its data are valid until f
// returns: see Message. Messages without a function are dropped by the library, which logs them.
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

// call calls a function of the library without allocating. The worker's lock must be held, and no argument may point to
// Go memory that can move or be freed.
func (w *Worker) call(f symbol, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(w.library.symbols[f], w.args[:copy(w.args[:], args)]...)
	if w.inbox.count > 0 {
		w.collect()
	}
	return r
}

// wake makes the goroutine look for work. The worker's lock must be held.
func (w *Worker) wake() {
	if w.sleeping.Load() {
		w.sleeping.Store(false)
		w.call(symWorkerSignal, w.handle)
	}
}

// Close closes the worker and ends its goroutine. Open listeners and endpoints are closed too, endpoints by force; the
// error then wraps ErrOpen and names them. Functions of operations in progress are called with an error.
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
	<-w.stopped // ends: run sees that the worker is closed
	c := w.context
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.workers, w); i >= 0 {
		c.workers = slices.Delete(c.workers, i, i+1)
	}
	return errors.Join(open...)
}
