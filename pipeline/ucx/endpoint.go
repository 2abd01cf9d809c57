// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"
)

// EndpointOptions are the options of an endpoint.
type EndpointOptions struct {
	// Failed, which may be nil, is called once if the connection fails or the peer closes it. The endpoint must still
	// be closed with Close or Abort.
	Failed func(error)
}

type endpointState int

const (
	opened endpointState = iota
	closing
	gone
)

// An Endpoint is a connection of one worker to another. It can be used immediately: messages wait for the connection to
// be established.
type Endpoint struct {
	worker *Worker
	number uint32
	handle uintptr
	peer   string
	own    bool // connected to its own worker
	failed func(error)

	// Guarded by the worker's lock.
	state  endpointState
	err    error
	active int        // messages being sent or fetched
	ending chan error // set while an orderly close waits for active to reach 0; receives the result of the close
}

// Dial creates an endpoint that connects to a listener. It does not wait for the connection; if that fails later,
// EndpointOptions.Failed is called.
func (w *Worker) Dial(addr netip.AddrPort, o EndpointOptions) (*Endpoint, error) {
	s, n, err := w.toSockaddr(addr)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, ErrClosed
	}
	return w.newEndpoint(&endpointParams{
		mask: endpointAddress | endpointFlags, flags: clientServer, errorMode: errorsOfPeer,
		address: sockaddr{address: uintptr(unsafe.Pointer(s)), length: n},
	}, "to "+addr.String(), o)
}

// Connect connects to the worker whose Worker.Address is address; it may be this worker itself. The peer gets an
// endpoint to this worker only if it connects too. The address must be trustworthy: the library does not check it.
func (w *Worker) Connect(address []byte, o EndpointOptions) (*Endpoint, error) {
	if len(address) == 0 {
		return nil, &Error{Call: symbolNames[symEpCreate], What: "to a worker", Status: ErrInvalidAddr}
	}
	own, err := w.Address()
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, ErrClosed
	}
	p := &endpointParams{mask: endpointRemote, remote: uintptr(unsafe.Pointer(&address[0])), errorMode: errorsOfPeer}
	if bytes.Equal(address, own) {
		p.errorMode = errorsNone // required by the transport "self"
	}
	return w.newEndpoint(p, "to a worker", o)
}

func (w *Worker) newEndpoint(p *endpointParams, peer string, o EndpointOptions) (*Endpoint, error) {
	w.last++
	e := &Endpoint{worker: w, number: w.last, peer: peer, failed: o.Failed, own: p.errorMode == errorsNone}
	w.endpoints[e.number] = e
	p.mask |= endpointErrorMode | endpointHandler
	p.handler, p.argument = callbacks().failed, w.key(e.number)
	if err := w.library.try(symEpCreate, peer, w.handle, uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(&e.handle))); err != nil {
		delete(w.endpoints, e.number)
		return nil, err
	}
	w.byHandle[e.handle] = e
	w.wake()
	return e, nil
}

func (e *Endpoint) fail(s Status) {
	if e.err == nil {
		e.err = &Error{Call: "connection", What: e.peer, Status: s}
		e.worker.events = append(e.worker.events, event{failed: e})
	}
}

func (e *Endpoint) report() {
	if e.failed != nil {
		e.failed(e.Err())
	}
}

// Err returns the reason why the connection failed, otherwise ErrClosed if the endpoint was closed, otherwise nil.
func (e *Endpoint) Err() error {
	e.worker.mu.Lock()
	defer e.worker.mu.Unlock()
	if e.err == nil && (e.state != opened || e.ending != nil) {
		return ErrClosed
	}
	return e.err
}

// String describes the endpoint by its peer.
func (e *Endpoint) String() string { return "endpoint " + e.peer }

// Close waits until everything has been sent and everything being fetched has arrived, and then closes the connection
// together with the peer. If ctx ends before that, the connection has failed, or another Close is in progress, Close
// aborts the connection and returns the reason.
func (e *Endpoint) Close(ctx context.Context) error {
	flushed, err := e.beginCall(symEpFlush)
	if err == nil {
		err = await(ctx, flushed)
	}
	if err != nil {
		e.Abort()
		return err
	}
	closed, err := e.beginCall(symEpClose)
	if err == nil {
		err = await(ctx, closed)
	}
	if errors.Is(err, ErrConnectionReset) || errors.Is(err, ErrCanceled) { // the peer was faster
		return nil
	}
	if err != nil {
		e.Abort()
	}
	return err
}

// beginCall starts a flush or an orderly close, and returns the channel that will receive its result.
func (e *Endpoint) beginCall(call symbol) (<-chan error, error) {
	w := e.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.state != opened || e.ending != nil || w.closed {
		return nil, ErrClosed
	}
	w.sendPosted()
	result := make(chan error, 1)
	if call == symEpClose && e.active > 0 {
		e.ending = result
	} else {
		e.start(call, result)
	}
	return result, nil
}

// rest starts the orderly close that was waiting for the messages in progress, or forces the close if the connection
// has failed. The library itself does not wait for a rendezvous: the close would never end, or fail an assertion and
// end the process.
func (e *Endpoint) rest() {
	result := e.ending
	e.ending = nil
	if e.err != nil {
		e.force()
		result <- e.err
		return
	}
	e.start(symEpClose, result)
}

func (e *Endpoint) start(call symbol, result chan<- error) {
	w := e.worker
	r := w.newRequest(call, e)
	r.done = func(err error) { result <- err }
	w.param = requestParam{mask: opCallback | opUser, callback: atSent, user: r.key.address()}
	p := statusPointer(w.call(call, e.handle, uintptr(unsafe.Pointer(&w.param))))
	if call == symEpClose {
		e.state = closing
		delete(w.byHandle, e.handle)
	}
	if r.begun(p) {
		return
	}
	if call == symEpClose {
		e.state = gone
		delete(w.endpoints, e.number)
	}
	result <- check(call, e.peer, p.status())
}

func await(ctx context.Context, result <-chan error) error {
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("ucx: close: %w", context.Cause(ctx))
	}
}

// Abort closes the connection immediately. Messages not sent yet are lost, and their functions are called with an
// error. The peer's endpoint fails.
func (e *Endpoint) Abort() {
	w := e.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.state == opened && !w.closed {
		w.settle()
		e.force()
		w.settle()
		w.wake()
	}
}

func (e *Endpoint) force() {
	if e.state != opened {
		return
	}
	w := e.worker
	e.state = gone
	if e.ending != nil {
		e.ending <- &Error{Call: symbolNames[symEpClose], What: e.peer, Status: ErrCanceled}
		e.ending = nil
	}
	delete(w.byHandle, e.handle)
	delete(w.endpoints, e.number)
	r := w.newRequest(symEpClose, e)
	w.param = requestParam{mask: opCallback | opUser | opFlags, flags: closeForce, callback: atSent, user: r.key.address()}
	if e.own { // without error handling a forced close is not possible
		w.param.flags = 0
	}
	r.begun(statusPointer(w.call(symEpClose, e.handle, uintptr(unsafe.Pointer(&w.param)))))
}
