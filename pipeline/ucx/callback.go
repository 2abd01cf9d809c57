// SPDX-License-Identifier: Apache-2.0

package ucx

import (
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// callbacks are Go's functions that the library calls, on a thread that is in one of its calls and holds the worker's lock. They put
// work aside and return. A callback of purego is never freed: there are these few for the process, and what they are called
// for is found by a key.
var callbacks = sync.OnceValue(func() (c struct{ ended, message, request, failed uintptr }) {
	c.ended = purego.NewCallback(func(request uintptr, status int8, length uintptr, k *key) {
		w := k.inbox.worker
		w.collect() // in their order
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

// workers are those that exist, by number.
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

// key stands for a thing of the worker in what the library keeps.
func (w *Worker) key(n uint32) uintptr { return uintptr(uint64(w.number)<<32 | uint64(n)) }

// keyed finds the worker of a key, and the number of the thing.
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
