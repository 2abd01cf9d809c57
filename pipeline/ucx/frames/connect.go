// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/resolve"
	"github.com/tegracast/tegracast/pipeline/ucx"
)

// A client is the UCX side of a receiver.
type client struct {
	receiver *Receiver
	context  *ucx.Context
	worker   *ucx.Worker

	unreachable atomic.Bool // the sender could not be reached through the devices that UCX knows

	mu       sync.Mutex
	attempts map[*ucx.Endpoint]*attempt
	slots    []buffer
}

// A buffer is a slot as registered with UCX.
type buffer struct {
	address unsafe.Pointer
	size    int
	kind    ucx.MemoryType
	memory  *ucx.Memory
}

// Connect creates a receiver, connects it, and waits until the stream's format is known. If ctx ends first, it returns
// an error that includes the last problem. It also returns an error if reconnecting is pointless. The error wraps
// ucx.ErrNoLibrary if UCX is not available. The caller must close the Receiver.
func Connect(ctx context.Context, c ReceiverConfig) (*Receiver, error) {
	k := &client{attempts: map[*ucx.Endpoint]*attempt{}}
	var err error
	if k.context, k.worker, err = openContext(k.receive); err != nil {
		return nil, err
	}
	r, err := newReceiver(c, k.context.Release())
	if err != nil {
		return nil, errors.Join(err, k.close())
	}
	k.receiver = r
	r.dial, r.register, r.shut = k.dial, k.register, k.close
	if err := r.start(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// CheckRemote returns an error unless address has the form host:port. It does not resolve the host.
func CheckRemote(address string) error {
	host, port, err := net.SplitHostPort(address)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 {
		return fmt.Errorf("%q: write host:port, such as 192.0.2.7:5020 or [2001:db8::7]:5020", address)
	}
	return nil
}

// dial connects to the sender. There must be no other connection.
func (k *client) dial(ctx context.Context, a *attempt) (link, error) {
	address, err := resolve.AddrPort(ctx, "tcp", k.receiver.config.Address)
	if err != nil {
		return nil, err
	}
	if k.unreachable.Load() {
		if err := k.reopen(); err != nil {
			return nil, err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	failed := func(err error) {
		if errors.Is(err, ucx.ErrUnreachable) {
			k.unreachable.Store(true)
		}
		a.fail(err)
	}
	e, err := k.worker.Dial(address, ucx.EndpointOptions{Failed: failed})
	if err != nil {
		return nil, err
	}
	k.attempts[e] = a
	return &endpoint{e, func() { k.forget(e) }}, nil
}

// reopen opens a new UCX context, because a context only knows the network devices that were up when it was opened.
func (k *client) reopen() error {
	c, w, err := openContext(k.receive)
	if err != nil {
		return err
	}
	var fresh []*ucx.Memory
	for _, b := range k.slots {
		m, err := c.Map(b.address, b.size, b.kind)
		if err != nil {
			return errors.Join(err, closeAll(fresh), w.Close(), c.Close())
		}
		fresh = append(fresh, m)
	}
	old := k.exchange(c, w, fresh)
	k.unreachable.Store(false)
	return old.close()
}

// An instance is UCX as a client has opened it.
type instance struct {
	context *ucx.Context
	worker  *ucx.Worker
	memory  []*ucx.Memory // of the buffers
}

// exchange replaces the client's instance of UCX, and returns the previous one.
func (k *client) exchange(c *ucx.Context, w *ucx.Worker, memory []*ucx.Memory) instance {
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.current()
	k.context, k.worker = c, w
	for i := range k.slots {
		k.slots[i].memory = memory[i]
	}
	return old
}

// current returns the client's instance of UCX. The lock must be held.
func (k *client) current() instance {
	now := instance{k.context, k.worker, nil}
	for _, b := range k.slots {
		now.memory = append(now.memory, b.memory)
	}
	return now
}

// close unregisters the buffers and closes UCX. The client's lock must not be held: the worker waits for its functions,
// which take it.
func (i instance) close() error {
	return errors.Join(closeAll(i.memory), i.worker.Close(), i.context.Close())
}

func closeAll(list []*ucx.Memory) error {
	var errs []error
	for _, m := range list {
		errs = append(errs, unmap(m))
	}
	return errors.Join(errs...)
}

func (k *client) forget(e *ucx.Endpoint) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.attempts, e)
}

// register registers a buffer with UCX. A slot without Bytes is memory of a CUDA device.
func (k *client) register(s pipeline.Slot, size int) error {
	b := buffer{address: unsafe.Pointer(unsafe.SliceData(s.Bytes)), size: size, kind: ucx.Host}
	if s.Bytes == nil {
		b.address, b.kind = *(*unsafe.Pointer)(unsafe.Pointer(&s.Device)), ucx.CUDA
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var err error
	if b.memory, err = k.context.Map(b.address, size, b.kind); err == nil {
		k.slots = append(k.slots, b)
	}
	return err
}

// receive passes a message to the attempt it belongs to.
func (k *client) receive(m *ucx.Message) {
	k.mu.Lock()
	a := k.attempts[m.Endpoint]
	k.mu.Unlock()
	if a == nil {
		return
	}
	in := incoming{id: m.ID, header: m.Header, data: m.Data, length: m.Length}
	if m.Rendezvous {
		in.fetch = func(slot int, done func(int, error)) error {
			k.mu.Lock()
			b := k.slots[slot]
			k.mu.Unlock()
			return m.Receive([][]byte{unsafe.Slice((*byte)(b.address), b.size)}, b.memory, done)
		}
	}
	a.receive(in, time.Now())
}

// close unregisters all buffers and closes UCX. No attempt may be in progress.
func (k *client) close() error {
	k.mu.Lock()
	now := k.current()
	k.mu.Unlock()
	return now.close()
}
