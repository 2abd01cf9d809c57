// Package ivshmem connects the virtual Jetson's FPGA model, a process outside the machine, with the machine: the
// protocol of QEMU's ivshmem server (QEMU docs/specs/ivshmem-spec, "Inter-VM Shared Memory device") and a mailbox in
// the shared memory that carries register accesses. Only three descriptors are shared: the mailbox's memory, an
// eventfd by which the guest rings the card, and one eventfd for each interrupt vector of the guest.
package ivshmem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// The two peers and what they have.
const (
	Guest   = 0       // peer id of the machine
	CardID  = 1       // peer id of the card's process
	Vectors = 32      // MSI-X vectors of the guest's device; the card has one, its doorbell
	Size    = 1 << 16 // bytes of shared memory (the device's BAR2)

	version = 0
	memory  = -1 // the message that brings the shared memory
)

// ErrProtocol is that of a server that says something else than the specification has.
var ErrProtocol = errors.New("ivshmem: not the server's protocol")

// Shared is what the peers have in common. Whoever made it closes it.
type Shared struct {
	Memory   *os.File
	Doorbell *os.File // eventfd: the guest has written a request
	Vectors  [Vectors]*os.File
}

// New makes the shared memory and the eventfds.
func New() (*Shared, error) {
	s := &Shared{}
	fd, err := unix.MemfdCreate("ivshmem", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("ivshmem: memory: %w", err)
	}
	s.Memory = os.NewFile(uintptr(fd), "ivshmem")
	if err := s.Memory.Truncate(Size); err != nil {
		s.Close()
		return nil, fmt.Errorf("ivshmem: memory: %w", err)
	}
	for _, f := range s.events() {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("ivshmem: eventfd: %w", err)
		}
		*f = os.NewFile(uintptr(fd), "eventfd")
	}
	return s, nil
}

// events are the doorbell and the vectors.
func (s *Shared) events() []**os.File {
	list := []**os.File{&s.Doorbell}
	for i := range s.Vectors {
		list = append(list, &s.Vectors[i])
	}
	return list
}

// Close closes all descriptors.
func (s *Shared) Close() {
	for _, f := range append(s.events(), &s.Memory) {
		if *f != nil {
			(*f).Close()
		}
	}
}

// Introduce says to a new peer, id, what a server says: its id, the memory, the other peer's eventfds and its own.
func (s *Shared) Introduce(conn *net.UnixConn, id int) error {
	type message struct {
		value int64
		file  *os.File
	}
	list := []message{{version, nil}, {int64(id), nil}, {memory, s.Memory}}
	card, guest := []message{{CardID, s.Doorbell}}, []message(nil)
	for _, f := range s.Vectors {
		guest = append(guest, message{Guest, f})
	}
	if id == Guest {
		list = append(append(list, card...), guest...)
	} else {
		list = append(append(list, guest...), card...)
	}
	for _, m := range list {
		var rights []byte
		if m.file != nil {
			rights = unix.UnixRights(int(m.file.Fd()))
		}
		if _, _, err := conn.WriteMsgUnix(binary.LittleEndian.AppendUint64(nil, uint64(m.value)), rights, nil); err != nil {
			return fmt.Errorf("ivshmem: introducing peer %d: %w", id, err)
		}
	}
	return nil
}

// Join takes the introduction as the card.
func Join(conn *net.UnixConn) (_ *Shared, err error) {
	s := &Shared{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	for _, want := range []int64{version, CardID} {
		if err := expect(conn, want, nil); err != nil {
			return nil, err
		}
	}
	if err := expect(conn, memory, &s.Memory); err != nil {
		return nil, err
	}
	for i := range s.Vectors {
		if err := expect(conn, Guest, &s.Vectors[i]); err != nil {
			return nil, err
		}
	}
	if err := expect(conn, CardID, &s.Doorbell); err != nil {
		return nil, err
	}
	return s, nil
}

// expect receives one message that must have the value want and, unless file is nil, a descriptor.
func expect(conn *net.UnixConn, want int64, file **os.File) error {
	b, oob := make([]byte, 8), make([]byte, unix.CmsgSpace(4*4))
	n, oobn, _, _, err := conn.ReadMsgUnix(b, oob)
	if err != nil {
		return fmt.Errorf("ivshmem: introduction: %w", err)
	}
	files := received(oob[:oobn])
	bad := n != len(b) || int64(binary.LittleEndian.Uint64(b)) != want || (file == nil) != (len(files) == 0) || len(files) > 1
	if bad {
		for _, f := range files {
			f.Close()
		}
		return fmt.Errorf("%w: message %x with %d descriptors, want %d", ErrProtocol, b[:n], len(files), want)
	}
	if file != nil {
		*file = files[0]
	}
	return nil
}

// received takes the descriptors out of a control message, all of them, so that none is lost.
func received(oob []byte) []*os.File {
	var files []*os.File
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "ivshmem"))
		}
	}
	return files
}
