// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"sync"

	"github.com/ebitengine/purego"
)

// callbacks are the functions that streams of a driver will call.
type callbacks struct {
	mu      sync.Mutex
	entry   uintptr // what CUDA calls; 0: not made yet. It is never freed, so a driver makes one.
	last    uintptr
	waiting map[uintptr]func()
}

// Call puts a call of f on the stream, which what comes later waits for (cuLaunchHostFunc). f runs on a thread of CUDA, and must not
// call CUDA, nor wait for work of the GPU. After an error that is sticky f may never be called.
func (s *Stream) Call(f func()) error {
	return s.device.do(func(d *driver) error {
		entry, key := d.back.add(f)
		err := d.quick(cuLaunchHostFunc, s.handle, entry, key)
		if err != nil {
			d.back.take(key)
		}
		return err
	})
}

func (c *callbacks) add(f func()) (entry, key uintptr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entry == 0 {
		c.entry = purego.NewCallback(func(key uintptr) { c.take(key)() })
		c.waiting = map[uintptr]func(){}
	}
	c.last++
	c.waiting[c.last] = f
	return c.entry, c.last
}

func (c *callbacks) take(key uintptr) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.waiting[key]
	delete(c.waiting, key)
	return f
}
