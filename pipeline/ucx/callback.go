// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// callbacks are the Go functions that the library calls, on a thread that is inside one of its calls and holds the
// worker's lock. They only record work for later. purego never frees a callback, so there are just these few for the
// whole process; a key identifies the object that a call is about.
var callbacks = sync.OnceValue(func() (c struct{ ended, message, request, failed uintptr }) {
	c.ended = purego.NewCallback(func(request uintptr, status int8, length uintptr, k *key) {
		w := k.inbox.worker
		w.collect() // in order
		w.ended(k.number, request, Status(status), int(length))
	})
	c.message = purego.NewCallback(func(k *key, header unsafe.Pointer, headerLength, data, length uintptr, p *receiveParam) int {
		w := k.inbox.worker
		w.collect()
		if w.message(k.number, unsafe.Slice((*byte)(header), headerLength), data, uint64(length), *p) {
			return int(inProgress)
		}
		return int(ok)
	})
	c.request = purego.NewCallback(onConnRequest)
	c.failed = purego.NewCallback(onFailure)
	return c
})

// workers holds the existing workers by number.
var workers struct {
	sync.RWMutex
	last     uint32
	byNumber map[uint32]*Worker
}

func (w *Worker) register() {
	workers.Lock()
	defer workers.Unlock()
	if workers.byNumber == nil {
		workers.byNumber = map[uint32]*Worker{}
	}
	for workers.last++; workers.last == 0 || workers.byNumber[workers.last] != nil; workers.last++ {
	}
	w.number = workers.last
	workers.byNumber[w.number] = w
}

func (w *Worker) unregister() {
	workers.Lock()
	defer workers.Unlock()
	delete(workers.byNumber, w.number)
}

// key returns the value that represents an object of the worker in the library. n is the object's number.
func (w *Worker) key(n uint32) uintptr { return uintptr(uint64(w.number)<<32 | uint64(n)) }

// keyed returns the worker of a key, or nil if it does not exist any more, and the object's number.
func keyed(key uintptr) (*Worker, uint32) {
	workers.RLock()
	defer workers.RUnlock()
	return workers.byNumber[uint32(uint64(key)>>32)], uint32(key)
}

func onConnRequest(handle, key uintptr) {
	w, n := keyed(key)
	w.events = append(w.events, event{conn: w.listeners[n].newRequest(handle)})
}

func onFailure(key, _ uintptr, status int8) {
	w, n := keyed(key)
	if e := w.endpoints[n]; e != nil {
		e.fail(Status(status))
	}
}
