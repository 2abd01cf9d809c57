// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// session is one client's connection. One goroutine handles its messages in order. While it handles one, it waits for
// the client only to write the answer, which QEMU always reads. Another goroutine reports refused accesses.
type session struct {
	s    *Server
	conn *net.UnixConn
	out  []byte // buffer for an answer and its header

	write sync.Mutex // held while a message is written

	question atomic.Uint32 // 1<<16 | id of the open question; 0: none
	answered chan struct{} // receives an element when the question has been answered
}

// smallAnswer is the initial size in bytes of the buffer for answers. Only the answer to a read can need more, because
// it grows with the request.
const smallAnswer = 4096

// session serves a client until its connection ends. It returns nil if the client or Close ended the connection,
// otherwise the reason for the end.
func (s *Server) session(c *net.UnixConn) error {
	t := &session{s: s, conn: c, out: make([]byte, smallAnswer), answered: make(chan struct{}, 1)}
	var asking sync.WaitGroup
	ended := make(chan struct{})
	defer func() {
		c.Close()
		close(ended)
		asking.Wait()
		s.memory.drop()
		s.irqs.close()
	}()
	r := newReceiver(c)
	if err := t.greet(r); err != nil {
		return hidden(err)
	}
	for len(s.refusals) > 0 {
		<-s.refusals // from before this client
	}
	asking.Go(func() { t.ask(ended) })
	for {
		if err := t.one(r); err != nil {
			return hidden(err)
		}
	}
}

// hidden returns nil if err is the normal end of a connection, otherwise an error that wraps err.
func hidden(err error) error {
	if gone(err) {
		return nil
	}
	return fmt.Errorf("vfio-user: %w", err)
}

// greet handles the first message, which must be VERSION.
func (t *session) greet(r *receiver) error {
	m, err := r.next()
	defer m.close()
	if err != nil {
		return err
	}
	t.s.books.requests.Add(1)
	errno := m.versionRequest()
	if m.command != cmdVersion || m.flags != typeCommand || errno != 0 {
		t.s.books.errors.Add(1)
		_ = t.send(m.putReply(t.out, max(errno, unix.EINVAL))) // the connection ends
		return fmt.Errorf("%w: it began with command %d, flags %#x, want version 0.x with proper capabilities", errProtocol, m.command, m.flags)
	}
	body := append(words(t.out[:headerSize], 0), capabilities...) // version 0.0
	return t.send(m.putReply(body, 0))
}

// capabilities announces 4 KiB pages, the limits of messages and tables, and that REGION_WRITE_MULTI is not supported.
var capabilities = fmt.Sprintf(`{"capabilities":{"max_msg_fds":%d,"max_data_xfer_size":%d,"max_dma_maps":%d,"pgsizes":%d,"write_multiple":false}}`+"\x00",
	maxFiles, maxTransfer, maxRanges, pageSize)

func (t *session) one(r *receiver) error {
	m, err := r.next()
	defer m.close()
	if err != nil {
		return err
	}
	if m.flags&typeBits == typeReply {
		return t.answer(&m)
	}
	t.s.books.requests.Add(1)
	body, errno := t.s.answerRequest(&m, t.out[:headerSize])
	if errno != 0 {
		t.s.books.errors.Add(1)
		body = t.out[:headerSize]
	}
	if cap(body) > cap(t.out) {
		t.out = body[:cap(body)]
	}
	m.close() // before the answer, so that the client finds them closed
	if m.flags&flagNoReply != 0 {
		return nil
	}
	return t.send(m.putReply(body, errno))
}

func (t *session) send(b []byte) error {
	t.write.Lock()
	defer t.write.Unlock()
	_, err := t.conn.Write(b)
	return err
}

// answerRequest performs a request and appends the answer to out.
func (s *Server) answerRequest(m *message, out []byte) ([]byte, unix.Errno) {
	if m.flags&^flagBits != 0 || m.flags&flagError != 0 {
		return nil, unix.EINVAL
	}
	switch m.command {
	case cmdDMAMap:
		return out, s.mapMemory(m)
	case cmdDMAUnmap:
		r, errno := m.unmapRequest()
		if errno == 0 {
			errno = s.memory.remove(r)
		}
		return append(out, m.body...), errno // the answer repeats the request
	case cmdInfo:
		_, errno := m.infoRequest(16)
		return words(out, 16, deviceReset|devicePCI, regions, irqKinds), errno
	case cmdRegionInfo:
		return s.regionInfo(m, out)
	case cmdIRQInfo:
		index, errno := m.infoRequest(16)
		if errno != 0 || index >= irqKinds {
			return nil, unix.EINVAL
		}
		flags, count := s.irqs.info(int(index))
		return words(out, 16, flags, index, count), 0
	case cmdSetIRQs:
		return out, s.irqs.set(m)
	case cmdRead:
		return s.readRegion(m, out)
	case cmdWrite:
		return s.writeRegion(m, out)
	case cmdReset:
		if len(m.body) > 0 || len(m.files) > 0 {
			return nil, unix.EINVAL
		}
		s.reset()
		return out, 0
	case cmdVersion:
		return nil, unix.EINVAL // already negotiated
	}
	return nil, unix.ENOTSUP
}

// Flags of GET_INFO.
const (
	deviceReset = 1
	devicePCI   = 2
)

func (s *Server) mapMemory(m *message) unix.Errno {
	r, errno := m.mapRequest()
	if errno != 0 {
		return errno
	}
	fd := -1
	if len(m.files) > 0 {
		fd = m.files[0]
	}
	return s.memory.mapRange(r, fd)
}

func words(out []byte, v ...uint32) []byte {
	for _, w := range v {
		out = le.AppendUint32(out, w)
	}
	return out
}

// noteRefusal stores a refused access for the status register and the IOMMU's report. It does not block: excess accesses
// are only counted.
func (s *Server) noteRefusal(r Refusal) {
	if !r.Write {
		s.aborted.Store(true)
	}
	select {
	case s.refusals <- r:
	default:
	}
}

// ask makes refused accesses visible to the machine's IOMMU, one at a time: it asks the client to read the address on
// behalf of the function. The client fails, as the function did, and the machine reports the fault as for any device.
// The access is always a read, which is harmless if the address has been mapped meanwhile.
func (t *session) ask(ended <-chan struct{}) {
	var b [headerSize + 16]byte
	for id := uint16(0); ; id++ {
		var r Refusal
		select {
		case <-ended:
			return
		case r = <-t.s.refusals:
		}
		putHeader(b[:], id, cmdDMARead, typeCommand, 0)
		le.PutUint64(b[headerSize:], r.Addr)
		le.PutUint64(b[headerSize+8:], 1)
		t.question.Store(1<<16 | uint32(id))
		if t.send(b[:]) != nil {
			return
		}
		t.s.books.reported.Add(1)
		select {
		case <-ended:
			return
		case <-t.answered:
		}
	}
}

// answer handles the reply to a question, normally an error.
func (t *session) answer(m *message) error {
	if m.command != cmdDMARead || !t.question.CompareAndSwap(1<<16|uint32(m.id), 0) {
		return fmt.Errorf("%w: a reply to command %d, which nobody has sent", errProtocol, m.command)
	}
	t.answered <- struct{}{}
	return nil
}
