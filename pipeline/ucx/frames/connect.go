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

// A client is what a receiver has of UCX.
type client struct {
	receiver *Receiver
	context  *ucx.Context
	worker   *ucx.Worker

	unreachable atomic.Bool // the sender was, by the devices that UCX knows

	mu       sync.Mutex
	attempts map[*ucx.Endpoint]*attempt
	slots    []buffer
}

// A buffer is a slot as UCX knows it.
type buffer struct {
	address unsafe.Pointer
	size    int
	kind    ucx.MemoryType
	memory  *ucx.Memory
}

// Connect makes a receiver, connects it and waits until the stream's format is known, or ctx ends. An error that ends the waiting says what the
// last trouble was; one that wraps ucx.ErrNoLibrary says that there is no UCX.
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

// CheckRemote refuses what is no address of a sender.
func CheckRemote(address string) error {
	host, port, err := net.SplitHostPort(address)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 {
		return fmt.Errorf("%q: write host:port, such as 192.0.2.7:5020 or [2001:db8::7]:5020", address)
	}
	return nil
}

// dial connects to the sender. There is no other connection.
func (k *client) dial(ctx context.Context, a *attempt) (link, error) {
	address, err := resolve.AddrPort(ctx, "tcp", k.receiver.config.Address)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.unreachable.Load() {
		if err := k.reopen(); err != nil {
			return nil, err
		}
	}
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

// reopen opens UCX once more. It knows only the network devices that were up when it was opened.
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
	err = k.shut()
	k.context, k.worker = c, w
	for i := range k.slots {
		k.slots[i].memory = fresh[i]
	}
	k.unreachable.Store(false)
	return err
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

// register makes a buffer known to UCX. One without bytes is memory of a CUDA device.
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

// receive hands a message to the connection that it is of.
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

// shut closes UCX, and what it knows. The lock is held.
func (k *client) shut() error {
	var errs []error
	for _, b := range k.slots {
		errs = append(errs, b.memory.Close())
	}
	return errors.Join(append(errs, k.worker.Close(), k.context.Close())...)
}

// close forgets all buffers and closes UCX. No attempt is under way.
func (k *client) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.shut()
}
