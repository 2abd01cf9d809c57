// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Commands (vfio-user, "Commands").
const (
	cmdVersion    = 1
	cmdDMAMap     = 2
	cmdDMAUnmap   = 3
	cmdInfo       = 4
	cmdRegionInfo = 5
	cmdIRQInfo    = 7
	cmdSetIRQs    = 8
	cmdRead       = 9
	cmdWrite      = 10
	cmdDMARead    = 11 // sent by the server
	cmdReset      = 13
	commands      = 19 // the highest command of the protocol, plus one
)

// The header (vfio-user, "Header").
const (
	headerSize  = 16
	typeBits    = 0xf
	typeCommand = 0
	typeReply   = 1
	flagNoReply = 1 << 4
	flagError   = 1 << 5
	flagBits    = typeBits | flagNoReply | flagError
)

// Limits of a message.
const (
	maxTransfer = 1 << 20                       // max_data_xfer_size: bytes of one region access
	maxMessage  = headerSize + 16 + maxTransfer // of a region write
	maxFiles    = 16                            // max_msg_fds
)

var le = binary.LittleEndian // byte order of arm64 and amd64; the protocol uses the host's

// errProtocol is wrapped by errors that end a connection because of what the client has sent.
var errProtocol = errors.New("the client broke the protocol")

// message is a message from a client. Its descriptors are closed after handling, except for those passed on by
// takeFile.
type message struct {
	id, command uint16
	flags       uint32
	body        []byte // valid until the next message is received
	files       []int
}

// takeFile returns the ith descriptor, which becomes the caller's.
func (m *message) takeFile(i int) int {
	fd := m.files[i]
	m.files[i] = -1
	return fd
}

func (m *message) close() {
	for _, fd := range m.files {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	m.files = nil
}

// parseHeader parses the 16 bytes of a message's header and returns the length of its body.
func (m *message) parseHeader(b []byte) (body int, err error) {
	m.id, m.command, m.flags = le.Uint16(b), le.Uint16(b[2:]), le.Uint32(b[8:])
	size := le.Uint32(b[4:])
	if size < headerSize || size > maxMessage {
		return 0, fmt.Errorf("%w: command %d has %d bytes, want %d to %d", errProtocol, m.command, size, headerSize, maxMessage)
	}
	if kind := m.flags & typeBits; kind != typeCommand && kind != typeReply {
		return 0, fmt.Errorf("%w: command %d is of type %d, want 0 (command) or 1 (reply)", errProtocol, m.command, kind)
	}
	return int(size) - headerSize, nil
}

// receiver reads messages and reuses its buffers.
type receiver struct {
	conn   *net.UnixConn
	header [headerSize]byte
	oob    []byte
	body   []byte
}

func newReceiver(c *net.UnixConn) *receiver {
	return &receiver{conn: c, oob: make([]byte, unix.CmsgSpace(4*maxFiles))}
}

// next waits for a message. At the end of the connection it returns io.EOF. The caller must close the message, even after
// an error.
func (r *receiver) next() (m message, err error) {
	if err := r.readHeader(&m); err != nil {
		return m, err
	}
	n, err := m.parseHeader(r.header[:])
	if err != nil {
		return m, err
	}
	if n > cap(r.body) {
		r.body = make([]byte, max(n, 4096))
	}
	m.body = r.body[:n]
	if _, err := io.ReadFull(r.conn, m.body); err != nil {
		return m, fmt.Errorf("the body of command %d: %w", m.command, noEOF(err))
	}
	return m, nil
}

// readHeader reads only the header. Descriptors arrive with a message's first byte, so it receives all descriptors of
// this message, and none of the next.
func (r *receiver) readHeader(m *message) error {
	for have := 0; have < headerSize; {
		n, oobn, flags, _, err := r.conn.ReadMsgUnix(r.header[have:], r.oob)
		if rights := m.addFiles(r.oob[:oobn]); rights != nil {
			return rights
		}
		switch {
		case err != nil && have > 0:
			return noEOF(err)
		case err != nil:
			return err
		case n == 0 && have > 0:
			return io.ErrUnexpectedEOF
		case n == 0:
			return io.EOF
		case flags&unix.MSG_CTRUNC != 0 || len(m.files) > maxFiles:
			return fmt.Errorf("%w: a message came with more than %d descriptors", errProtocol, maxFiles)
		}
		have += n
	}
	return nil
}

func (m *message) addFiles(oob []byte) error {
	if len(oob) == 0 {
		return nil
	}
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("%w: its descriptors: %w", errProtocol, err)
	}
	for i := range list {
		fds, err := unix.ParseUnixRights(&list[i])
		if err != nil {
			return fmt.Errorf("%w: its descriptors: %w", errProtocol, err)
		}
		m.files = append(m.files, fds...)
	}
	return nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// gone reports whether an error only means that the client or the connection has ended.
func gone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed)
}

// putReply writes the header of the answer to m in front of the body, which is in b from byte 16 on, and returns b.
// An answer with an error has no body: then putReply returns only the header.
func (m *message) putReply(b []byte, errno unix.Errno) []byte {
	flags := uint32(typeReply)
	if errno != 0 {
		flags |= flagError
		b = b[:headerSize]
	}
	putHeader(b, m.id, m.command, flags, uint32(errno))
	return b
}

func putHeader(b []byte, id, command uint16, flags, errno uint32) {
	le.PutUint16(b[0:], id)
	le.PutUint16(b[2:], command)
	le.PutUint32(b[4:], uint32(len(b)))
	le.PutUint32(b[8:], flags)
	le.PutUint32(b[12:], errno)
}
