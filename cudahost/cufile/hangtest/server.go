// SPDX-License-Identifier: Apache-2.0

package hangtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Requests of the kernel (linux/fuse.h).
const (
	opLookup, opForget, opGetattr, opSetattr, opUnlink, opOpen, opRead, opWrite = 1, 2, 3, 4, 10, 14, 15, 16
	opStatfs, opRelease, opFsync, opFlush, opInit, opOpendir, opReaddir         = 17, 18, 20, 25, 26, 27, 28
	opReleasedir, opFsyncdir, opCreate, opInterrupt, opBatchForget              = 29, 30, 35, 36, 42
	rootID                                                                      = 1
	setSize                                                                     = 1 << 3
	headSize                                                                    = 40
	mostWritten                                                                 = 128 << 10
)

type head struct {
	Length, Op       uint32
	Unique, Node     uint64
	UID, GID, PID, _ uint32
}

type attr struct {
	Ino, Size, Blocks, Atime, Mtime, Ctime                      uint64
	Atimensec, Mtimensec, Ctimensec, Mode, Nlink, UID, GID, Dev uint32
	BlockSize, Flags                                            uint32
}

// server answers the kernel's requests for the files of one folder.
type server struct {
	back string

	mu    sync.Mutex
	names map[uint64]string   // file names by node
	nodes map[string]uint64   // nodes by file name
	open  map[uint64]*os.File // by handle
	last  uint64              // the node or handle given out last

	gate   sync.Mutex
	held   chan struct{} // closed when the server responds again; nil while it responds
	wholly bool          // all requests are held, not only those that change or sync files
}

func newServer(back string) *server {
	return &server{back: back, names: map[uint64]string{rootID: "."}, nodes: map[string]uint64{".": rootID}, open: map[uint64]*os.File{}, last: rootID}
}

func (s *server) hang(wholly bool) {
	s.gate.Lock()
	defer s.gate.Unlock()
	if s.wholly = wholly; s.held == nil {
		s.held = make(chan struct{})
	}
}

func (s *server) answer() {
	s.gate.Lock()
	defer s.gate.Unlock()
	if s.held != nil {
		close(s.held)
		s.held = nil
	}
}

// pass holds a request of kind op as long as the disk hangs. Unless it hangs wholly, only requests that write, sync,
// create or change files are held.
func (s *server) pass(op uint32) {
	s.gate.Lock()
	held, wholly := s.held, s.wholly
	s.gate.Unlock()
	switch op {
	case opWrite, opFsync, opFsyncdir, opSetattr, opCreate:
	default:
		if !wholly {
			return
		}
	}
	if held != nil {
		<-held // ends: with Answer, or the process
	}
}

// serveRequests reads requests until the disk is unmounted, and carries out each in a goroutine.
func (s *server) serveRequests(fd int) error {
	for {
		b := make([]byte, mostWritten+4096)
		n, err := unix.Read(fd, b)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return err
		}
		var h head
		decode(b, &h)
		if h.Op == opForget || h.Op == opBatchForget || h.Op == opInterrupt { // these have no reply
			continue
		}
		go func() {
			s.pass(h.Op)
			errno, out := s.handleRequest(&h, b[headSize:n])
			var reply bytes.Buffer
			encode(&reply, struct {
				Length uint32
				Errno  int32
				Unique uint64
			}{uint32(16 + len(out)), -int32(errno), h.Unique})
			_, _ = unix.Write(fd, append(reply.Bytes(), out...)) // fails if the request has been given up
		}()
	}
}

func decode(b []byte, to any) { _ = binary.Read(bytes.NewReader(b), binary.NativeEndian, to) }

func encode(b *bytes.Buffer, v any) { _ = binary.Write(b, binary.NativeEndian, v) }

// errnoOf returns the errno of an error of package os, or 0 for nil, or EIO for an error without one.
func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	if err != nil && !errors.As(err, &errno) {
		return unix.EIO
	}
	return errno
}

// handleRequest carries out one request.
func (s *server) handleRequest(h *head, in []byte) (unix.Errno, []byte) {
	var out bytes.Buffer
	var a [5]uint64
	decode(append(in[:len(in):len(in)], make([]byte, 40)...), &a)
	path := s.path(h.Node)
	switch h.Op {
	case opInit:
		const bigWrites = 1 << 5
		encode(&out, [16]uint32{7, 31, 0, bigWrites, 12 | 9<<16, mostWritten, 1})
		return 0, out.Bytes()
	case opLookup:
		return s.entry(string(bytes.TrimRight(in, "\x00")), &out)
	case opGetattr:
		return s.attributes(path, h.Node, &out)
	case opSetattr:
		if uint32(a[0])&setSize != 0 {
			if err := os.Truncate(path, int64(a[2])); err != nil {
				return errnoOf(err), nil
			}
		}
		return s.attributes(path, h.Node, &out)
	case opUnlink:
		return errnoOf(os.Remove(filepath.Join(s.back, string(bytes.TrimRight(in, "\x00"))))), nil
	case opOpen, opOpendir:
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if h.Op == opOpendir {
			f, err = os.Open(path)
		}
		return s.opened(f, err, &out)
	case opCreate:
		name := string(bytes.TrimRight(in[16:], "\x00"))
		f, err := os.OpenFile(filepath.Join(s.back, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640)
		if err == nil {
			_, _ = s.entry(name, &out)
		}
		return s.opened(f, err, &out)
	case opRelease, opReleasedir:
		return errnoOf(s.release(a[0])), nil
	case opRead:
		b := make([]byte, uint32(a[2]))
		n, err := s.file(a[0]).ReadAt(b, int64(a[1]))
		if n > 0 || err == nil || errnoOf(err) == unix.EIO { // the end of the file
			return 0, b[:n]
		}
		return errnoOf(err), nil
	case opWrite:
		n, err := s.file(a[0]).WriteAt(in[40:40+uint32(a[2])], int64(a[1]))
		encode(&out, [2]uint32{uint32(n)})
		return errnoOf(err), out.Bytes()
	case opFsync, opFlush, opFsyncdir:
		return 0, nil
	case opReaddir:
		return s.list(a[1], uint32(a[2]), &out)
	case opStatfs:
		encode(&out, [10]uint64{1 << 20, 1 << 19, 1 << 19, 1 << 20, 1 << 19, 4096 | 255<<32, 4096})
		return 0, out.Bytes()
	}
	return unix.ENOSYS, nil
}

func (s *server) path(node uint64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return filepath.Join(s.back, s.names[node])
}

func (s *server) file(handle uint64) *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[handle]
}

func (s *server) opened(f *os.File, err error, out *bytes.Buffer) (unix.Errno, []byte) {
	if err != nil {
		return errnoOf(err), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	s.open[s.last] = f
	encode(out, [2]uint64{s.last, 0})
	return 0, out.Bytes()
}

func (s *server) release(handle uint64) error {
	f := s.file(handle)
	s.mu.Lock()
	delete(s.open, handle)
	s.mu.Unlock()
	return f.Close()
}

// node returns the node number of a name. A new name gets a new number.
func (s *server) node(name string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes[name] == 0 {
		s.last++
		s.nodes[name], s.names[s.last] = s.last, name
	}
	return s.nodes[name]
}

func (s *server) stat(path string, node uint64) (attr, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return attr{}, err
	}
	return attr{
		Ino: node, Size: uint64(st.Size), Blocks: uint64(st.Blocks), Mtime: uint64(st.Mtim.Sec), Mode: st.Mode, Nlink: uint32(st.Nlink), BlockSize: 4096,
	}, nil
}

// entry replies with the node and the attributes of a name, and with validities of 0, so that the kernel does not cache
// them.
func (s *server) entry(name string, out *bytes.Buffer) (unix.Errno, []byte) {
	path := filepath.Join(s.back, name)
	if _, err := os.Stat(path); err != nil {
		return errnoOf(err), nil
	}
	node := s.node(name)
	a, err := s.stat(path, node)
	encode(out, [5]uint64{node, 0, 0, 0, 0})
	encode(out, a)
	return errnoOf(err), out.Bytes()
}

func (s *server) attributes(path string, node uint64, out *bytes.Buffer) (unix.Errno, []byte) {
	a, err := s.stat(path, node)
	encode(out, [2]uint64{0, 0})
	encode(out, a)
	return errnoOf(err), out.Bytes()
}

// list replies with the names in the folder, starting at an index.
func (s *server) list(from uint64, most uint32, out *bytes.Buffer) (unix.Errno, []byte) {
	entries, err := os.ReadDir(s.back)
	for i := from; i < uint64(len(entries)); i++ {
		name := entries[i].Name()
		if padded := (24 + len(name) + 7) &^ 7; out.Len()+padded > int(most) {
			break
		}
		encode(out, [2]uint64{s.node(name), i + 1})
		encode(out, [2]uint32{uint32(len(name)), unix.DT_REG})
		out.WriteString(name)
		out.Write(make([]byte, -len(name)&7))
	}
	return errnoOf(err), out.Bytes()
}
