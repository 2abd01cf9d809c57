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
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
)

// Errors of a client.
var (
	// ErrClosed means that the connection has ended, because the program that shares the frames ended it, or Close was
	// called before. If the program gave a reason, the error is an EndError.
	ErrClosed = errors.New("share: the connection has ended")
	// ErrHeld means that the client already holds the maximum number of frames and must release one first.
	ErrHeld = errors.New("share: the maximum number of frames is held: release one")
)

// An EndError is the reason for which the program that shares the frames has ended a connection. It wraps ErrClosed.
type EndError struct {
	Code   Code
	Reason string
}

func (e *EndError) Error() string {
	return fmt.Sprintf("share: the program ends the connection (%s): %s", e.Code, e.Reason)
}

func (e *EndError) Unwrap() error { return ErrClosed }

// ClientConfig configures a Client.
type ClientConfig struct {
	Socket string // path
	// Conn, if not nil, is the connection, in place of one to Socket: the process has inherited it (Stage.Connect). Dial
	// closes it.
	Conn *os.File
	// Policy is pipeline.Latest to get the newest frame on each call of Next, or pipeline.Block to get every frame as
	// long as the client keeps up. With Block it loses the frames that arrive while it holds its maximum.
	Policy pipeline.Policy
	Every  int // take every n-th frame; 0: 1
	// Answers is true to return results with Respond, to the socket of an external stage. Otherwise the socket is that
	// of an output.
	Answers bool
	// Groups is true to get the numbers of the frames' groups. A program older than these refuses it (CodeBroken).
	Groups bool
	// Register, if not nil, lets a device read the memory of a slot, which is mapped read-only;
	// cudahost.Device.RegisterReadOnly is such a function. It is called once for each slot, when the slot's first frame
	// arrives. device is the device's address of the first byte. Close calls unregister.
	Register func(memory []byte) (device uintptr, unregister func() error, err error)
}

// A Client receives frames of one output. Only one goroutine may call Next; any goroutine may release frames.
type Client struct {
	conn   *net.UnixConn
	cfg    ClientConfig
	name   string
	format pipeline.Format
	holds  int

	receiving sync.Mutex // held while a message is received
	slots     map[uint32]mapping
	asked     bool          // requested a frame that has not arrived yet
	held      chan struct{} // holds one element for each held frame
	text      []byte
}

// A mapping is the whole file of a slot, mapped into memory.
type mapping struct {
	memory     []byte
	device     uintptr      // address for the device; 0: none
	unregister func() error // nil: not registered
}

// A SharedFrame is a frame in the memory of the program that shares it. It is read-only and valid until Release or
// Client.Close.
type SharedFrame struct {
	Format   pipeline.Format
	Bytes    []byte  // Format.Size() long
	Device   uintptr // device address of Bytes; 0 without ClientConfig.Register
	Sequence uint64  // gaps are frames that were lost or that this client did not want
	Group    uint64  // number of the frame among those that belong together; 0: none, or ClientConfig.Groups is false
	Times    pipeline.Times
	Sent     time.Time
	Flags    pipeline.FrameFlags
	CRC      uint32 // CRC-32C of Bytes, computed by the maker of the frame, if HasCRC
	HasCRC   bool
	Results  []pipeline.Result
	Offered  uint64 // frames that this client wanted so far
	Lost     uint64 // those of Offered that the client was not ready for

	lease  uint64
	client *Client
}

// Dial connects and subscribes. The caller must close the Client.
func Dial(ctx context.Context, c ClientConfig) (*Client, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("share: %w", err)
	}
	k := &Client{conn: conn.(*net.UnixConn), cfg: c, slots: map[uint32]mapping{}, text: make([]byte, maxMessage+1)}
	if err := k.subscribe(ctx, subscribe{c.Policy, uint32(cmp.Or(c.Every, 1)), c.Answers, c.Groups}); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

func (c *ClientConfig) connect(ctx context.Context) (net.Conn, error) {
	if c.Conn == nil {
		var d net.Dialer
		return d.DialContext(ctx, "unixpacket", c.Socket)
	}
	conn, err := net.FileConn(c.Conn)
	if err = errors.Join(err, c.Conn.Close()); err != nil {
		return nil, err
	}
	if _, is := conn.(*net.UnixConn); !is {
		return nil, errors.Join(fmt.Errorf("%s is no Unix socket", c.Conn.Name()), conn.Close())
	}
	return conn, nil
}

func (k *Client) subscribe(ctx context.Context, s subscribe) error {
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
		return k.sendReady(ready{more: w.holds})
	}
	return nil
}

// Name returns the name of the output.
func (k *Client) Name() string { return k.name }

// Format returns the format of the frames, including their rate.
func (k *Client) Format() pipeline.Format { return k.format }

// Next waits for a frame, which belongs to the client until Release. The error wraps ErrHeld or ErrClosed, comes from
// ctx, a system call or ClientConfig.Register, or is about an invalid message.
func (k *Client) Next(ctx context.Context) (*SharedFrame, error) {
	if len(k.held) == k.holds {
		return nil, ErrHeld
	}
	if k.cfg.Policy == pipeline.Latest && !k.asked {
		if err := k.sendReady(ready{more: 1}); err != nil {
			return nil, err
		}
		k.asked = true
	}
	text, fd, err := k.receive(ctx)
	if err != nil {
		return nil, err
	}
	h, err := parseHeader(text, k.cfg.Groups)
	switch {
	case err != nil && fd >= 0:
		err = errors.Join(err, unix.Close(fd))
	case fd >= 0:
		err = k.keepSlot(h.slot, fd)
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
		Format: h.format, Bytes: slot.memory[h.offset:][:h.length:h.length], Sequence: h.sequence, Group: h.group, Times: h.times, Sent: h.sent,
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

// Respond returns the results of the frame, whose Stage is ignored: the stage to which the client is connected adds them
// to the frame, unless they come too late. It must be called at most once for each frame, before Release.
func (f *SharedFrame) Respond(r pipeline.Result) error {
	type result pipeline.Result // without the fields that are not part of the text
	text, err := json.Marshal(struct {
		result
		Stage struct{} `json:"stage,omitzero"`
		Began struct{} `json:"began,omitzero"`
		Ended struct{} `json:"ended,omitzero"`
	}{result: result(r)})
	if err != nil {
		return fmt.Errorf("share: %w", err)
	}
	if len(text) > maxAnswer {
		return fmt.Errorf("share: results of %d bytes, and at most %d are allowed", len(text), maxAnswer)
	}
	a := answer{lease: f.lease, began: r.Began, ended: r.Ended, text: text}
	return f.client.send(a.append(nil))
}

// Release returns the frame. After that, neither this process nor its device may read the frame's bytes. Release must
// be called at most once for each frame.
func (f *SharedFrame) Release() error {
	f.Bytes = nil
	<-f.client.held // ends: held has an element for this frame
	r := ready{lease: f.lease}
	if f.client.cfg.Policy == pipeline.Block {
		r.more = 1
	}
	return f.client.sendReady(r)
}

func (k *Client) sendReady(r ready) error { return k.send(r.append(nil)) }

// send sends a message. If the program has ended the connection, and no other goroutine is about to find that out, the
// error contains its reason.
func (k *Client) send(text []byte) error {
	_, err := k.conn.Write(text)
	if err == nil {
		return nil
	}
	for k.receiving.TryLock() {
		_, fd, end := k.receiveLocked(context.Background()) // ends: the program has closed the connection
		k.receiving.Unlock()
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		if reason := (*EndError)(nil); errors.As(end, &reason) {
			return end
		}
		if end != nil && !errors.Is(end, errWire) {
			break
		}
	}
	return fmt.Errorf("%w: %w", ErrClosed, err)
}

// receive waits for a message. fd is the file descriptor that comes with the message, which the caller must close, or
// -1 if there is none. A message that ends the connection becomes an *EndError.
func (k *Client) receive(ctx context.Context) (text []byte, fd int, err error) {
	k.receiving.Lock()
	defer k.receiving.Unlock()
	text, fd, err = k.receiveLocked(ctx)
	if errors.Is(err, syscall.ECONNRESET) { // which comes before the messages that are left
		text, fd, err = k.receiveLocked(ctx)
	}
	if errors.Is(err, syscall.ECONNRESET) {
		err = ErrClosed
	}
	return text, fd, err
}

func (k *Client) receiveLocked(ctx context.Context) (text []byte, fd int, err error) {
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
	case err == nil && n == 0, errors.Is(err, io.EOF):
		err = ErrClosed
	case err == nil && flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0:
		err = fmt.Errorf("%w: it is truncated: does this process have as many open files as it may (ulimit -n)?", errWire)
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

// descriptor returns the single descriptor in the control messages, or -1 if there is none. If there are several, it
// closes them and returns an error.
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

// keepSlot maps the file of a slot read-only and closes the descriptor. The file must be sealed, so that its memory
// cannot disappear.
func (k *Client) keepSlot(slot uint32, fd int) error {
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

// Close closes the connection, which returns all frames. After that, neither this process nor its device may read their
// bytes.
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
