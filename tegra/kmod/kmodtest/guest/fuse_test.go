// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A FUSE file system of three files. Its server is a separate process, because a thread that touches a file waits for the
// server in the kernel. The structures are those of linux/fuse.h.

func init() { roles["fuse"] = serveFUSE }

const (
	fuseRoot = "/run/fuse"

	fuseFile    = 2 // "file" has a pattern and can be written
	fuseStalled = 3 // reads of "stalled" get no answer: the server reports them instead
	fuseSize    = 16 * page

	fuseLate     = 4 // reads of "late" are answered until it is written
	fuseLateSize = stalledPins * page

	fuseOnce = 5 // each page of "once" can be read once

	fuseLookup  = 1
	fuseForget  = 2
	fuseGetattr = 3
	fuseSetattr = 4
	fuseOpen    = 14
	fuseRead    = 15
	fuseWrite   = 16
	fuseRelease = 18
	fuseFlush   = 25
	fuseInit    = 26
	fuseStop    = 36 // INTERRUPT
	fuseForgets = 42

	fuseAsyncRead = 1
)

type fuseIn struct {
	Len, Opcode      uint32
	Unique, Node     uint64
	UID, GID, PID, _ uint32
}

type fuseOut struct {
	Len    uint32
	Error  int32
	Unique uint64
}

type fuseAttr struct {
	Ino, Size, Blocks           uint64
	_                           [3]uint64 // times
	_                           [3]uint32
	Mode, Nlink, UID, GID, Rdev uint32
	BlockSize, Flags            uint32
}

type fuseAttrOut struct {
	Valid uint64
	_     [2]uint32
	Attr  fuseAttr
}

type fuseEntryOut struct {
	Node, Generation, EntryValid, AttrValid uint64
	_                                       [2]uint32
	Attr                                    fuseAttr
}

type fuseInitOut struct {
	Major, Minor, MaxReadahead, Flags uint32
	MaxBackground, Congestion         uint16
	MaxWrite, TimeGran                uint32
	MaxPages, Alignment               uint16
	_                                 [8]uint32
}

// fuseRange is the start of the requests READ and WRITE.
type fuseRange struct {
	Handle, Offset uint64
	Size, Flags    uint32
	_              [2]uint64
}

// fuseServer serves the files.
type fuseServer struct {
	fd   int
	data []byte
	late bool // whether "late" was written
	once [fuseSize / page]bool
}

func serveFUSE() {
	must(os.MkdirAll(fuseRoot, 0o755))
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(err)
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	must(unix.Mount("guest", fuseRoot, "fuse", 0, options))
	s := &fuseServer{fd: fd, data: make([]byte, fuseSize)}
	for i := range s.data {
		s.data[i] = pattern(i)
	}
	fmt.Println("mounted")
	for b := make([]byte, 256<<10); ; {
		n, err := unix.Read(fd, b)
		if errors.Is(err, unix.ENODEV) { // unmounted
			return
		}
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) { // its caller has given up
			continue
		}
		must(err)
		s.serve(b[:n])
	}
}

func (s *fuseServer) serve(b []byte) {
	var in fuseIn
	n, err := binary.Decode(b, binary.NativeEndian, &in)
	must(err)
	b = b[n:]
	switch in.Opcode {
	case fuseForget, fuseForgets, fuseStop: // have no answer
	case fuseInit:
		s.answer(in, fuseInitOut{Major: 7, Minor: 31, MaxReadahead: 128 << 10, Flags: fuseAsyncRead, MaxWrite: 128 << 10})
	case fuseLookup:
		node := map[string]uint64{"file\x00": fuseFile, "stalled\x00": fuseStalled, "late\x00": fuseLate, "once\x00": fuseOnce}[string(b)]
		if node == 0 {
			s.refuse(in, unix.ENOENT)
			return
		}
		s.answer(in, fuseEntryOut{Node: node, AttrValid: 1000, EntryValid: 1000, Attr: fuseAttributes(node)})
	case fuseGetattr, fuseSetattr:
		s.answer(in, fuseAttrOut{Valid: 1000, Attr: fuseAttributes(in.Node)})
	case fuseOpen:
		s.answer(in, [2]uint64{})
	case fuseRelease, fuseFlush:
		s.answer(in, struct{}{})
	case fuseRead, fuseWrite:
		s.transfer(in, b)
	default:
		s.refuse(in, unix.ENOSYS)
	}
}

func (s *fuseServer) transfer(in fuseIn, b []byte) {
	var r fuseRange
	n, err := binary.Decode(b, binary.NativeEndian, &r)
	must(err)
	at := s.data[min(r.Offset, fuseSize):min(r.Offset+uint64(r.Size), fuseSize)]
	switch {
	case in.Node == fuseLate && in.Opcode == fuseWrite:
		s.late = true
		s.answer(in, [2]uint32{r.Size})
	case in.Node == fuseLate && s.late:
	case in.Node == fuseLate:
		s.answer(in, make([]byte, r.Size))
	case in.Node == fuseOnce && !s.once[r.Offset/page]:
		s.once[r.Offset/page] = true
		if r.Offset == fuseSize/2 {
			fmt.Println("half way")
			_, _ = fmt.Scanln()
		}
		s.answer(in, at)
	case in.Node == fuseStalled || in.Node == fuseOnce:
		fmt.Println("stalled")
	case in.Opcode == fuseRead:
		s.answer(in, at)
	default:
		copy(at, b[n:])
		s.answer(in, [2]uint32{r.Size})
	}
}

func fuseAttributes(node uint64) fuseAttr {
	a := fuseAttr{Ino: node, Size: fuseSize, Mode: unix.S_IFREG | 0o666, Nlink: 1, BlockSize: page}
	switch node {
	case 1:
		a.Mode = unix.S_IFDIR | 0o755
	case fuseLate:
		a.Size = fuseLateSize
	}
	return a
}

func (s *fuseServer) answer(in fuseIn, what any) { s.send(in, 0, what) }

func (s *fuseServer) refuse(in fuseIn, errno unix.Errno) { s.send(in, -int32(errno), struct{}{}) }

// send sends an answer. It may fail if the caller is gone.
func (s *fuseServer) send(in fuseIn, status int32, what any) {
	body, err := binary.Append(nil, binary.NativeEndian, what)
	must(err)
	head := fuseOut{Len: uint32(16 + len(body)), Error: status, Unique: in.Unique}
	b, err := binary.Append(nil, binary.NativeEndian, head)
	must(err)
	_, _ = unix.Write(s.fd, append(b, body...))
}

// fuse mounts the file system as root until the test ends.
func fuse(t *testing.T) *child {
	t.Helper()
	if isNobody() {
		return nil
	}
	server := startChild(t, "fuse", "")
	t.Cleanup(func() {
		_ = server.Process.Kill() // it may have been killed
		_ = server.Wait()
		if err := unix.Unmount(fuseRoot, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if line := server.line(t); line != "mounted" {
		t.Fatal(line)
	}
	return server
}

// ofFUSE maps the file "file".
func ofFUSE(mode, prot, flags int) func(t *testing.T) []byte {
	return func(t *testing.T) []byte {
		return mapping(t, openFile(t, fuseRoot+"/file", mode), kindSize, prot, flags)
	}
}
