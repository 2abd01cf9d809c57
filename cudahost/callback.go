// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"sync"

	"github.com/ebitengine/purego"
)

// callbacks holds the functions that the streams of a driver will call.
type callbacks struct {
	mu      sync.Mutex
	entry   uintptr // address that CUDA calls, for every f; 0: not created yet. It cannot be freed.
	last    uintptr // the key given out last
	waiting map[uintptr]func()
}

// Call enqueues a call of f on the stream; later work waits for it (cuLaunchHostFunc). f runs on a CUDA thread, and
// must neither call CUDA nor wait for work of the GPU. After a sticky error, it is possible that f is never called.
func (s *Stream) Call(f func()) error {
	return s.device.withContext(func(d *driver) error {
		entry, key := d.back.addCallback(f)
		err := d.quick(cuLaunchHostFunc, s.handle, entry, key)
		if err != nil {
			d.back.takeCallback(key)
		}
		return err
	})
}

func (c *callbacks) addCallback(f func()) (entry, key uintptr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entry == 0 {
		c.entry = purego.NewCallback(func(key uintptr) { c.takeCallback(key)() })
		c.waiting = map[uintptr]func(){}
	}
	c.last++
	c.waiting[c.last] = f
	return c.entry, c.last
}

func (c *callbacks) takeCallback(key uintptr) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.waiting[key]
	delete(c.waiting, key)
	return f
}
