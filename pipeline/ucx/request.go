// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"runtime"
	"unsafe"
)

// A request is an operation that the library may finish later. Requests and their buffers are reused.
type request struct {
	worker   *Worker
	key      key
	call     symbol
	endpoint *Endpoint
	message  *Message // being received
	active   bool
	handle   uintptr // of the library's request, set when it has finished
	status   Status
	length   int
	done     func(error)
	received func(int, error)

	// Read by the library until the operation is finished.
	header []byte
	parts  [][]byte
	iov    []iov
	pinned runtime.Pinner
}

func (w *Worker) newRequest(call symbol, e *Endpoint) *request {
	n := len(w.free)
	if n == 0 {
		w.requests = append(w.requests, &request{worker: w, key: key{w.inbox, uint64(len(w.requests))}})
		w.free = append(w.free, w.requests[len(w.requests)-1])
		n = 1
	}
	r := w.free[n-1]
	w.free = w.free[:n-1]
	r.call, r.endpoint, r.active = call, e, true
	if r.ofMessage() {
		e.active++
	}
	return r
}

// ofMessage reports whether the request belongs to a message of an endpoint.
func (r *request) ofMessage() bool {
	return r.endpoint != nil && (r.call == symAMSend || r.call == symAMRecvData)
}

// release frees the request. If the endpoint now has no message in progress and a close waits for that, release starts
// the close.
func (r *request) release() {
	e, last := r.endpoint, false
	if r.ofMessage() {
		e.active--
		last = e.active == 0 && e.ending != nil
	}
	r.pinned.Unpin()
	clear(r.parts)
	r.parts = r.parts[:0]
	r.endpoint, r.message, r.done, r.received, r.active = nil, nil, nil, nil, false
	r.worker.free = append(r.worker.free, r)
	if last {
		e.rest()
	}
}

// begun reports whether the operation is in progress. If it is not, it is finished, and begun frees the request.
func (r *request) begun(p statusPointer) bool {
	under := p.status() == inProgress
	if under || len(r.worker.events) > 0 { // a message to the worker itself may have arrived
		r.worker.wake()
	}
	if !under {
		r.release()
	}
	return under
}

// data describes the parts in the worker's param, and returns the buffer and count arguments for the library.
func (r *request) data(parts [][]byte, m *Memory) (buffer, n uintptr) {
	r.parts = append(r.parts[:0], parts...)
	p := &r.worker.param
	p.mask |= opDatatype
	p.datatype = datatypeBytes
	if m != nil {
		p.mask |= opMemh | opMemory
		p.memh, p.memory = m.handle, int32(m.kind)
	}
	switch len(parts) {
	case 0:
		return 0, 0
	case 1:
		return r.pin(parts[0]), uintptr(len(parts[0]))
	}
	r.iov = r.iov[:0]
	for _, b := range parts {
		r.iov = append(r.iov, iov{buffer: r.pin(b), length: uint64(len(b))})
	}
	r.pinned.Pin(&r.iov[0])
	p.datatype = datatypeIOV
	return uintptr(unsafe.Pointer(&r.iov[0])), uintptr(len(r.iov))
}

// pin pins b until the request is finished, and returns its address.
func (r *request) pin(b []byte) uintptr {
	if len(b) == 0 {
		return 0
	}
	at := unsafe.SliceData(b)
	r.pinned.Pin(at)
	return uintptr(unsafe.Pointer(at))
}

// finish frees the request and calls the user's function. The lock must not be held.
func (r *request) finish() {
	w := r.worker
	w.mu.Lock()
	if r.handle != 0 {
		w.call(symRequestFree, r.handle)
	}
	e, call, done, received, n := r.endpoint, r.call, r.done, r.received, r.length
	peer := ""
	if e != nil && r.status != ok {
		peer = e.peer
	}
	err := check(call, peer, r.status)
	if call == symEpClose && e != nil {
		e.state = gone
		delete(w.endpoints, e.number)
	}
	if r.message != nil {
		w.recycle(r.message)
	}
	r.handle, r.status, r.length = 0, ok, 0
	r.release()
	w.mu.Unlock()
	switch {
	case received != nil:
		received(n, err)
	case done != nil:
		done(err)
	}
}
