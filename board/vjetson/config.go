// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"time"
)

// Errors of fetching, starting and running a machine. They are wrapped with details; those of a machine that has run,
// also with the end of its kernel log.
var (
	ErrMissing     = errors.New("vjetson: missing on this machine") // a program or file, with the Debian package
	ErrUnreachable = errors.New("vjetson: Debian's archive is out of reach")
	ErrBoot        = errors.New("vjetson: the machine did not boot")
	ErrHung        = errors.New("vjetson: the machine does not answer")
	ErrPanic       = errors.New("vjetson: the kernel panicked")
	ErrEnded       = errors.New("vjetson: the machine has ended")
	ErrFault       = errors.New("vjetson: the kernel reported faults")
)

// errStuck is the ErrBoot of a machine whose kernel has stopped before the agent ran.
var errStuck = fmt.Errorf("%w", ErrBoot)

const (
	defaultMemory      = 512 // MiB
	defaultCPUs        = 2
	defaultBootTimeout = 10 * time.Minute
	fullBootTimeout    = 15 * time.Minute
	defaultRunTimeout  = 15 * time.Minute
)

// Config is the configuration of a machine. The zero value is a minimal one with the small root.
type Config struct {
	Arch   string // "arm64" (default) or "amd64"; overridden by Kernel
	Kernel Kernel // the zero value selects Fetch's kernel for Arch
	Full   bool   // the full root: Debian with systemd on a disk

	Memory int // MiB, 128 to 16384, default 512
	CPUs   int // 1 to 8, default 2

	Edu bool // QEMU's edu device (1234:11e8) on a hot-plug port, everything behind an SMMUv3 or an Intel IOMMU

	// Functions are PCI functions that processes of this host serve by vfio-user: the paths of the servers' Unix
	// sockets, which no longer need a name after Start has returned. Each has a hot-plug port at FunctionAddress, and
	// does its DMA through an IOMMU. The servers must run before Start, and again before HotPlug. There are at most 8
	// functions, and none with Edu.
	Functions []string

	// Devices are further devices, in the format of QEMU's -device. They cannot be unplugged. On a machine with neither
	// Edu nor Functions they have no IOMMU.
	Devices []string

	Nodes int // number of NUMA nodes into which the memory is divided; 0: no NUMA. The processors are in the first

	Network bool // a network between the machine (GuestAddress) and the host (HostAddress, Machine.HostCommand)

	// Disk is a raw image on this host for /dev/vda, with ext4's module loaded. Writes to it persist. With Full it is the
	// root, and is created if it does not exist; "" then means a root that is discarded.
	Disk string

	// DiskCache gives Disk a volatile write cache: a power cut loses a random part of what the guest has written and not
	// flushed (Machine.CacheLost). Without it nothing is lost that has left the guest.
	DiskCache bool
	temporary bool // Disk is of a test: it need not survive a crash of this host

	Modules []string          // modules of Debian's kernel to load at boot, with their dependencies
	Files   map[string]string // further files of the root: path inside → path on this host
	Append  string            // further parameters for the kernel's command line

	BootTimeout time.Duration // default 10 min, with Full 15 min, enough for a host with a load of 10

	Log      *slog.Logger // progress of fetching; default slog.Default
	Console  io.Writer    // if not nil, also receives the serial console's output
	Keyboard *os.File     // its input is typed at the console

	arch        *arch    // of Arch
	qemu        []string // QEMU's program, with the arguments that locate its files
	qemuVersion string   // "" for this host's
	iommuModule string   // file of virtioIOMMU; "" for the kernel's own
}

func (c *Config) check() error {
	if c.Kernel.Dir != "" {
		c.Arch = c.Kernel.Arch
	}
	a, err := archOf(c.Arch)
	if err != nil {
		return err
	}
	c.arch = a
	if c.Memory == 0 {
		c.Memory = defaultMemory
	}
	if c.CPUs == 0 {
		c.CPUs = defaultCPUs
	}
	if c.BootTimeout == 0 {
		c.BootTimeout = defaultBootTimeout
		if c.Full {
			c.BootTimeout = fullBootTimeout
		}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	switch {
	case c.Memory < 128 || c.Memory > 16<<10:
		return fmt.Errorf("vjetson: %d MiB of memory, want 128 to %d", c.Memory, 16<<10)
	case c.CPUs < 1 || c.CPUs > 8:
		return fmt.Errorf("vjetson: %d CPUs, want 1 to 8", c.CPUs)
	case c.DiskCache && c.Disk == "":
		return errors.New("vjetson: DiskCache is for a disk that stays: name one in Disk")
	case c.BootTimeout < 0:
		return fmt.Errorf("vjetson: boot timeout of %v", c.BootTimeout)
	case c.Edu && len(c.Functions) > 0:
		return errors.New("vjetson: edu and functions stand behind different IOMMUs: ask for one of them")
	case len(c.Functions) > maxFunctions:
		return fmt.Errorf("vjetson: %d functions, want %d at most", len(c.Functions), maxFunctions)
	}
	for to := range c.Files {
		if !path.IsAbs(to) || path.Clean(to) != to {
			return fmt.Errorf("vjetson: file %q: want a clean absolute path inside the machine", to)
		}
	}
	return nil
}
