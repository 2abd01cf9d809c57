package guest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"tegracast/tegra/uapi"
)

// errnos are those that docs/kernel-abi.md gives each call, by number, beside those of all calls.
var errnos = [][]unix.Errno{
	{},
	{},
	{
		unix.ENOMEM, unix.ENOSPC, unix.EMEDIUMTYPE, unix.EIO, unix.ESTALE, unix.EBUSY, unix.EOPNOTSUPP, unix.EAGAIN, unix.EINTR,
		unix.EPERM,
	},
	{unix.ENOENT},
	{unix.ENOENT, unix.EBUSY},
	{unix.ENOMEM, unix.ENOSPC, unix.ESTALE, unix.EPERM},
	{unix.EBADF, unix.EBUSY},
	{unix.ENOMEM, unix.EBUSY},
	{unix.EAGAIN, unix.EOPNOTSUPP, unix.EBUSY, unix.EIO},
}

var everywhere = []unix.Errno{unix.EINVAL, unix.E2BIG, unix.EFAULT, unix.ENODEV}

// TestFuzz calls the module from four threads, as root and as nobody, half of it at random and half of it nearly right.
func TestFuzz(t *testing.T) {
	noLeak(t)
	d := open(t).live(t)
	fuzz(t.Fatalf, d.fd, 100_000)
	d.live(t)
	c := exec.Command("/guest.test")
	c.Env = []string{"GUEST_ROLE=fuzz"}
	c.ExtraFiles = []*os.File{os.Stdin, file(t, d.fd)}
	defer c.ExtraFiles[1].Close()
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("as nobody: %v: %s", err, out)
	}
	d.close()
}

func fuzzChild() {
	fuzz(func(format string, a ...any) {
		fmt.Printf(format+"\n", a...)
		os.Exit(1)
	}, 4, 100_000)
}

// fuzz does n calls in four threads. Memory comes and goes meanwhile.
func fuzz(fatal func(string, ...any), fd, n int) {
	const size = 64 * page
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		fatal("%v", err)
	}
	rooms, err := unix.Mmap(-1, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON) // outside of what Go moves
	if err != nil {
		fatal("%v", err)
	}
	seed := uint64(os.Getpid())
	var all sync.WaitGroup
	for thread := range uint64(4) {
		all.Add(1)
		go func() {
			defer all.Done()
			f := fuzzer{rand.New(rand.NewPCG(seed, thread)), fd, address(b), size, address(rooms) + thread*page}
			for range n / 4 {
				if nr, err := f.call(); !documented(nr, err) {
					fatal("call %d (seed %d): %v", nr, seed, err)
				}
			}
		}()
	}
	all.Wait()
	_, _ = unix.Munmap(b), unix.Munmap(rooms)
}

func documented(nr int, err error) bool {
	var e *uapi.Error
	if err == nil {
		return true
	}
	e, _ = err.(*uapi.Error)
	return e != nil && (slices.Contains(everywhere, e.Errno) || slices.Contains(errnos[nr], e.Errno))
}

type fuzzer struct {
	*rand.Rand
	fd       int
	va, size uint64
	segments uint64 // where PIN and QUERY may write
}

// interesting are numbers that checks go wrong with.
var interesting = []uint64{0, 1, 3, 4, 7, page - 1, page, page + 1, 1 << 20, 1 << 30, 1<<30 + page, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 40, 1 << 63, ^uint64(0) - page + 1, ^uint64(0)}

func (f *fuzzer) number() uint64 {
	switch f.IntN(4) {
	case 0:
		return interesting[f.IntN(len(interesting))]
	case 1:
		return uint64(f.IntN(64))
	case 2:
		return f.va + uint64(f.IntN(70))*page
	}
	return f.Uint64() >> f.IntN(64)
}

func (f *fuzzer) call() (int, error) {
	nr := f.IntN(len(sizes))
	if f.IntN(50) == 0 {
		f.disturb()
	}
	b := make([]byte, 128)
	words := (*[16]uint64)(unsafe.Pointer(unsafe.SliceData(b)))
	if f.IntN(2) == 0 {
		for i := range words {
			words[i] = f.number()
		}
		if f.IntN(4) > 0 {
			binary.NativeEndian.PutUint32(b, uint32(sizes[nr]+8*f.IntN(4)))
		}
		if f.IntN(2) == 0 {
			binary.NativeEndian.PutUint32(b[4:], uint32(f.IntN(8)))
		}
		return nr, raw(f.fd, nr, b)
	}
	binary.NativeEndian.PutUint32(b, uint32(sizes[nr]))
	f.nearlyRight(nr, b, words)
	return nr, raw(f.fd, nr, b)
}

// nearlyRight fills in a call that may well do something.
func (f *fuzzer) nearlyRight(nr int, b []byte, words *[16]uint64) {
	const room = 4
	switch uapi.CallGetInfo + nr {
	case uapi.CallGetRegion, uapi.CallPut, uapi.CallQuery:
		binary.NativeEndian.PutUint32(b[8:], uint32(f.IntN(40)))
	case uapi.CallPin:
		binary.NativeEndian.PutUint32(b[4:], uint32(1+f.IntN(7)))
		pages := 1 + f.Uint64N(4)
		words[1], words[2] = f.va+page*f.Uint64N(f.size/page-pages), pages*page
		words[4], words[5] = f.segments, room
	case uapi.CallAlloc:
		words[1] = page * uint64(1+f.IntN(3))
	case uapi.CallSetEvent:
		binary.NativeEndian.PutUint32(b[8:], uint32(f.IntN(3)))
		binary.NativeEndian.PutUint32(b[16:], uint32(f.IntN(12)-1))
	case uapi.CallControl: // RESUME of the present fence, mostly
		if i, err := uapi.GetInfo(f.fd); err == nil && f.IntN(8) > 0 {
			words[2] = i.FenceGen
		} else {
			binary.NativeEndian.PutUint32(b[8:], 1)
		}
	}
}

// disturb changes memory that may be pinned, and puts what was pinned.
func (f *fuzzer) disturb() {
	at := f.va + page*f.Uint64N(f.size/page)
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(at), page, unix.MADV_DONTNEED)
	for h := range uint32(64) {
		_ = uapi.DoPut(f.fd, h+uint32(f.IntN(20_000)))
	}
}
