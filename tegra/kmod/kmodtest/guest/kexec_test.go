// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

func init() { roles["second kernel"] = secondKernel }

// Places of the second kernel and its data in arm64's virtual Jetson, whose memory begins at 1 GiB.
const (
	nextEntry  = 0x50000000
	nextTree   = 0x50200000 // the device tree
	nextKernel = 0x52000000
	nextInitrd = 0x5a000000
)

const (
	halted      = 0x600d          // value that the halt list leaves in edu's liveness register
	haltedReads = ^uint32(halted) // value read from the register then
)

// secondKernel is the init of the second kernel. It prints the state of the function.
func secondKernel() {
	for kind, at := range map[string]string{"sysfs": "/sys", "devtmpfs": "/dev"} {
		must(os.MkdirAll(at, 0o755))
		if err := unix.Mount(kind, at, kind, 0, ""); err != nil && err != unix.EBUSY {
			must(err)
		}
	}
	config, err := os.ReadFile(pciDevice + "config")
	must(err)
	must(os.WriteFile(pciDevice+"enable", []byte("1"), 0))
	f, err := os.OpenFile(pciDevice+"resource0", os.O_RDWR, 0)
	must(err)
	regs, err := unix.Mmap(int(f.Fd()), 0, page, readWrite, unix.MAP_SHARED)
	must(err)
	e := &edu{regs: regs}
	said := fmt.Sprintf("second kernel: bus master %v, halted %v\n",
		binary.LittleEndian.Uint16(config[4:])&4 != 0, e.read(eduLiveness) == haltedReads)
	must(os.WriteFile("/dev/kmsg", []byte(said), 0))
	must(unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
}

// segment is linux/kexec.h's kexec_segment.
type segment struct {
	from           *byte
	size           uintptr
	to, memorySize uintptr
}

func segmentOf(b []byte, to, memory int) segment {
	return segment{unsafe.SliceData(b), uintptr(len(b)), uintptr(to), uintptr(memory+page-1) &^ (page - 1)}
}

// loadKernel loads the kernel that runs next. It jumps to the entry with the processor's translation off.
func loadKernel(t *testing.T, kernel, initrd []byte) {
	t.Helper()
	if len(kernel) < 64 || string(kernel[56:60]) != "ARM\x64" {
		t.Fatal("no image of an arm64 kernel")
	}
	tree, err := os.ReadFile("/sys/firmware/fdt")
	if err != nil {
		t.Fatal(err)
	}
	setProperty(t, tree, "linux,initrd-start", nextInitrd)
	setProperty(t, tree, "linux,initrd-end", nextInitrd+uint64(len(initrd)))
	start := nextKernel + binary.LittleEndian.Uint64(kernel[8:])
	entry := binary.LittleEndian.AppendUint32(nil, 0x58000080)  // ldr x0, the first address below
	entry = binary.LittleEndian.AppendUint32(entry, 0x580000a4) // ldr x4, the second
	entry = binary.LittleEndian.AppendUint32(entry, 0xd61f0080) // br x4
	entry = binary.LittleEndian.AppendUint32(entry, 0)
	entry = binary.LittleEndian.AppendUint64(entry, nextTree)
	entry = binary.LittleEndian.AppendUint64(entry, start)
	segments := []segment{
		segmentOf(entry, nextEntry, len(entry)), segmentOf(tree, nextTree, len(tree)),
		segmentOf(kernel, int(start), int(binary.LittleEndian.Uint64(kernel[16:]))), segmentOf(initrd, nextInitrd, len(initrd)),
	}
	var pinner runtime.Pinner
	defer pinner.Unpin()
	for i := range segments {
		pinner.Pin(segments[i].from)
	}
	call(t, "kexec_load", unix.SYS_KEXEC_LOAD, nextEntry, uintptr(len(segments)), uintptr(unsafe.Pointer(&segments[0])), 0)
}

// setProperty changes a number in a flattened device tree.
func setProperty(t *testing.T, tree []byte, name string, value uint64) {
	t.Helper()
	word := func(at int) int { return int(binary.BigEndian.Uint32(tree[at:])) }
	names := word(12)
	for at := word(8); ; {
		token := word(at)
		at += 4
		switch token {
		case 1: // a node, by its name
			at += bytes.IndexByte(tree[at:], 0)/4*4 + 4
		case 3: // a property
			size, its := word(at), tree[names+word(at+4):]
			at += 8
			if string(its[:bytes.IndexByte(its, 0)]) == name {
				if size == 4 {
					binary.BigEndian.PutUint32(tree[at:], uint32(value))
				} else {
					binary.BigEndian.PutUint64(tree[at:], value)
				}
				return
			}
			at += (size + 3) / 4 * 4
		case 9:
			t.Fatalf("the device tree has no %s", name)
		}
	}
}

// TestKexec starts another kernel during a DMA. Its init is this program, and its root contains nothing else.
func TestKexec(t *testing.T) {
	loadNext(t)
	s := openScene(t)
	if err := uapi.SetHalt(s.fd, []uapi.HaltOp{{Op: uapi.HaltW32, Offset: eduLiveness, Value: halted}}); err != nil {
		t.Fatal(err)
	}
	b := anonymous(t, 2*page)
	p, iova := s.mustPin(t, b)
	s.edu.roundTrip(t, b, iova)
	s.put(t, p.Handle)
	s.inFlight(t, newMemory(t, pinPages*page).bytes)
	if !busMaster(t) || s.edu.read(eduLiveness) == haltedReads {
		t.Fatal("it is stopped before")
	}
	t.Error(unix.Reboot(unix.LINUX_REBOOT_CMD_KEXEC))
}

// TestStartKernel starts another kernel, regardless of the function's state.
func TestStartKernel(t *testing.T) {
	loadNext(t)
	t.Error(unix.Reboot(unix.LINUX_REBOOT_CMD_KEXEC))
}

// loadNext loads the kernel in the file /kernel, with this program as its init.
func loadNext(t *testing.T) {
	t.Helper()
	kernel, err := os.ReadFile("/kernel")
	if err != nil {
		t.Fatal(err)
	}
	make := exec.Command("sh", "-c", "mkdir /tmp/next && cd /tmp/next && cp /guest.test init && find . | cpio -o -H newc")
	initrd, err := make.Output()
	if err != nil {
		t.Fatal(err)
	}
	loadKernel(t, kernel, initrd)
}
