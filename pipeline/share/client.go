// SPDX-License-Identifier: Apache-2.0

package share

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
)

// Errors of a client.
var (
	// ErrClosed says that the program has ended the connection; an EndError says why, where it has told.
	ErrClosed = errors.New("share: the connection has ended")
	// ErrHeld says that the client holds as many frames as it may: release one first.
	ErrHeld = errors.New("share: as many frames are held as may be: release one")
)

// An EndError is what the program says when it ends a connection. It wraps ErrClosed.
type EndError struct {
	Code   Code
	Reason string
}

func (e *EndError) Error() string {
	return fmt.Sprintf("share: the program ends the connection (%s): %s", e.Code, e.Reason)
}

func (e *EndError) Unwrap() error { return ErrClosed }

// ClientConfig says what a client wants.
type ClientConfig struct {
	Socket string // path
	// Policy is pipeline.Latest for the newest frame whenever Next is called, or pipeline.Block for each frame as long as the client
	// keeps up: it then loses those that come while it holds all that it may.
	Policy pipeline.Policy
	Every  int // every n-th frame; 0: 1
	// Register lets a device read a slot's memory, which this process has mapped to read: RegisterReadOnly of cudahost.Device is such a
	// function. It is called once for each slot, when the slot's first frame comes; device is where the device finds the first byte, and
	// unregister is called by Close. Nil: no device reads the frames.
	Register func(memory []byte) (device uintptr, unregister func() error, err error)
}

// A Client takes frames of one output. One goroutine calls Next; any may release frames.
type Client struct {
	conn   *net.UnixConn
	cfg    ClientConfig
	name   string
	format pipeline.Format
	holds  int

	slots map[uint32]mapping
	asked bool          // for a frame that has not come
	held  chan struct{} // has an element for each frame that is held
	text  []byte
}

// A mapping is a slot's whole file.
type mapping struct {
	memory     []byte
	device     uintptr      // where the device finds it; 0: none does
	unregister func() error // nil: it is not registered
}

// A SharedFrame is a frame in the program's own memory, to read, until Release.
type SharedFrame struct {
	Format   pipeline.Format
	Bytes    []byte  // Format.Size() long
	Device   uintptr // where the device of ClientConfig.Register finds Bytes; 0: there is none
	Sequence uint64  // a gap is a frame that was lost, or that this client did not want
	Times    pipeline.Times
	Sent     time.Time
	Flags    pipeline.FrameFlags
	CRC      uint32 // CRC-32C of Bytes, as who made the frame has computed it
	HasCRC   bool
	Results  []pipeline.Result
	Offered  uint64 // frames that this client wanted until now
	Lost     uint64 // those of them that it was not ready for

	lease  uint64
	client *Client
}

// Dial connects and subscribes.
func Dial(ctx context.Context, c ClientConfig) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unixpacket", c.Socket)
	if err != nil {
		return nil, fmt.Errorf("share: %w", err)
	}
	k := &Client{conn: conn.(*net.UnixConn), cfg: c, slots: map[uint32]mapping{}, text: make([]byte, maxMessage+1)}
	if err := k.begin(ctx, subscribe{c.Policy, uint32(cmp.Or(c.Every, 1))}); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

func (k *Client) begin(ctx context.Context, s subscribe) error {
	if _, err := k.conn.Write(s.append(nil)); err != nil && !errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("share: %w", err)
	}
	text, _, err := k.receive(ctx)
	if err != nil {
		return err
	}
	w, err := parseWelcome(text)
	if err != nil {
		return err
	}
	k.name, k.format, k.holds = w.name, w.format, int(w.holds)
	k.held = make(chan struct{}, k.holds)
	if k.cfg.Policy == pipeline.Block {
		return k.tell(ready{more: w.holds})
	}
	return nil
}

// Name is that of the output.
func (k *Client) Name() string { return k.name }

// Format is that of the frames, with the rate at which they come.
func (k *Client) Format() pipeline.Format { return k.format }

// Next waits for a frame, which is the client's until Release. An error wraps ErrHeld, ErrClosed, or is ctx's.
func (k *Client) Next(ctx context.Context) (*SharedFrame, error) {
	if len(k.held) == k.holds {
		return nil, ErrHeld
	}
	if k.cfg.Policy == pipeline.Latest && !k.asked {
		if err := k.tell(ready{more: 1}); err != nil {
			return nil, err
		}
		k.asked = true
	}
	text, fd, err := k.receive(ctx)
	if err != nil {
		return nil, err
	}
	h, err := parseHeader(text)
	switch {
	case err != nil && fd >= 0:
		err = errors.Join(err, unix.Close(fd))
	case fd >= 0:
		err = k.keep(h.slot, fd)
	}
	if err != nil {
		return nil, err
	}
	k.asked = false
	slot := k.slots[h.slot]
	if size := uint64(len(slot.memory)); h.offset > size || h.length > size-h.offset {
		return nil, fmt.Errorf("%w: frame %d is not in slot %d", errWire, h.sequence, h.slot)
	}
	f := &SharedFrame{
		Format: h.format, Bytes: slot.memory[h.offset:][:h.length:h.length], Sequence: h.sequence, Times: h.times, Sent: h.sent,
		Flags: pipeline.FrameFlags(h.flags &^ (flagCRC | flagNoResults)), CRC: h.crc, HasCRC: h.flags&flagCRC != 0,
		Offered: h.offered, Lost: h.lost, lease: h.lease, client: k,
	}
	f.Format.Rate = k.format.Rate
	if slot.device != 0 {
		f.Device = slot.device + uintptr(h.offset)
	}
	if len(h.results) > 0 {
		if err := json.Unmarshal(h.results, &f.Results); err != nil {
			return nil, fmt.Errorf("%w: results of frame %d: %w", errWire, h.sequence, err)
		}
	}
	k.held <- struct{}{}
	return f, nil
}

// Release gives the frame back. Neither this process nor its device may read its bytes any more. It is called once.
func (f *SharedFrame) Release() error {
	f.Bytes = nil
	<-f.client.held // ends: who holds it does not wait
	r := ready{lease: f.lease}
	if f.client.cfg.Policy == pipeline.Block {
		r.more = 1
	}
	return f.client.tell(r)
}

func (k *Client) tell(r ready) error {
	if _, err := k.conn.Write(r.append(nil)); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return nil
}

// receive waits for a message. A descriptor that comes with it belongs to the caller; -1: none came.
func (k *Client) receive(ctx context.Context) (text []byte, fd int, err error) {
	if err := k.conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, -1, fmt.Errorf("%w: %w", ErrClosed, err)
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = k.conn.SetReadDeadline(time.Unix(1, 0))
		close(woken)
	})
	var rights [64]byte
	n, m, flags, _, err := k.conn.ReadMsgUnix(k.text, rights[:])
	if !stop() {
		<-woken // ends: the function does not wait
	}
	fd, rightsErr := descriptor(rights[:m])
	switch {
	case ctx.Err() != nil && err != nil:
		err = ctx.Err()
	case err == nil && n == 0, errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		err = ErrClosed
	case err == nil && flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0:
		err = fmt.Errorf("%w: it is cut: has this process as many open files as it may?", errWire)
	case err == nil:
		err = rightsErr
	}
	if err == nil && n >= 4 && le.Uint32(k.text) == kindBye {
		var y bye
		if y, err = parseBye(k.text[:n]); err == nil {
			err = &EndError{y.code, y.reason}
		}
	}
	if err != nil && fd >= 0 {
		err, fd = errors.Join(err, unix.Close(fd)), -1
	}
	return k.text[:max(n, 0)], fd, err
}

// descriptor is the only one that control messages have; -1: they have none.
func descriptor(rights []byte) (int, error) {
	if len(rights) == 0 {
		return -1, nil
	}
	list, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return -1, fmt.Errorf("%w: %w", errWire, err)
	}
	var all []int
	for i := range list {
		fds, _ := unix.ParseUnixRights(&list[i])
		all = append(all, fds...)
	}
	if len(all) == 1 {
		return all[0], nil
	}
	for _, fd := range all {
		_ = unix.Close(fd)
	}
	return -1, fmt.Errorf("%w: %d descriptors", errWire, len(all))
}

// keep maps a slot's file to read, and closes the descriptor. The file must be sealed: the memory cannot vanish.
func (k *Client) keep(slot uint32, fd int) error {
	defer unix.Close(fd)
	var st unix.Stat_t
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	switch {
	case err != nil:
		return fmt.Errorf("share: slot %d: %w", slot, err)
	case k.slots[slot].memory != nil || slot >= maxSlots || seals&unix.F_SEAL_SHRINK == 0 || st.Size <= 0:
		return fmt.Errorf("%w: slot %d with seals %#x and %d bytes", errWire, slot, seals, st.Size)
	}
	b, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("share: mapping slot %d: %w", slot, err)
	}
	m := mapping{memory: b}
	if k.cfg.Register != nil {
		if m.device, m.unregister, err = k.cfg.Register(b); err != nil {
			return errors.Join(fmt.Errorf("share: slot %d: %w", slot, err), unix.Munmap(b))
		}
	}
	k.slots[slot] = m
	return nil
}

// Close ends the connection, which gives all frames back. Neither this process nor its device may read their bytes any more.
func (k *Client) Close() error {
	err := k.conn.Close()
	for slot, m := range k.slots {
		if m.unregister != nil {
			err = errors.Join(err, m.unregister())
		}
		err = errors.Join(err, unix.Munmap(m.memory))
		delete(k.slots, slot)
	}
	return err
}
