// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
	"unsafe"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx"
)

// A client is what a receiver has of UCX.
type client struct {
	receiver *Receiver
	context  *ucx.Context
	worker   *ucx.Worker

	mu       sync.Mutex
	attempts map[*ucx.Endpoint]*attempt
	slots    []buffer
}

// A buffer is a slot as UCX knows it.
type buffer struct {
	parts  [][]byte
	memory *ucx.Memory
}

// Connect makes a receiver, connects it and waits until the stream's format is known, or ctx ends. An error that ends the waiting says what the
// last trouble was; one that wraps ucx.ErrNoLibrary says that there is no UCX.
func Connect(ctx context.Context, c ReceiverConfig) (*Receiver, error) {
	k := &client{attempts: map[*ucx.Endpoint]*attempt{}}
	var err error
	if k.context, k.worker, err = open(k.receive); err != nil {
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
	if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
		return fmt.Errorf("%q: write host:port, such as 192.0.2.7:5020 or [2001:db8::7]:5020", address)
	}
	return nil
}

// dial connects to the sender.
func (k *client) dial(ctx context.Context, a *attempt) (link, error) {
	address, err := resolve(ctx, k.receiver.config.Address)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	e, err := k.worker.Dial(address, ucx.EndpointOptions{Failed: a.fail})
	if err != nil {
		return nil, err
	}
	k.attempts[e] = a
	return &endpoint{e, func() { k.forget(e) }}, nil
}

// resolve finds an address by its name.
func resolve(ctx context.Context, name string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(name)
	if err != nil {
		return netip.AddrPort{}, err
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return netip.AddrPort{}, err
	}
	list, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(list[0].Unmap(), uint16(n)), nil
}

func (k *client) forget(e *ucx.Endpoint) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.attempts, e)
}

// register makes a buffer known to UCX. One without bytes is memory of a CUDA device.
func (k *client) register(s pipeline.Slot, size int) (*ucx.Memory, error) {
	address, kind := unsafe.Pointer(unsafe.SliceData(s.Bytes)), ucx.Host
	if s.Bytes == nil {
		address, kind = *(*unsafe.Pointer)(unsafe.Pointer(&s.Device)), ucx.CUDA
	}
	m, err := k.context.Map(address, size, kind)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.slots = append(k.slots, buffer{[][]byte{unsafe.Slice((*byte)(address), size)}, m})
	return m, nil
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
			return m.Receive(b.parts, b.memory, done)
		}
	}
	a.receive(in, time.Now())
}

func (k *client) close() error {
	return errors.Join(k.worker.Close(), k.context.Close())
}
