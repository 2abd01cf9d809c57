// SPDX-License-Identifier: Apache-2.0

// Package memlock compares the memory that a configuration's frames need with the limit of locked memory
// (RLIMIT_MEMLOCK).
package memlock

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/tegra"
)

// A Limit is the maximum amount of memory that may be locked. The kernel compares it separately with locked memory
// (mlock) and with memory pinned by the kernel module.
type Limit struct {
	Bytes  uint64
	From   string // what sets it
	Remedy string // how to raise it
	Pins   bool   // applies only to pinned memory
}

// Own returns the limit of this process, or nil if it has none. Outside the service it applies only to pinned memory:
// memory that cannot be locked is used all the same, and may be swapped out.
func Own(service bool) *Limit {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil || limit.Cur == unix.RLIM_INFINITY || mayLockAll() {
		return nil
	}
	if service {
		return &Limit{limit.Cur, "LimitMEMLOCK= of the service", remedy, false}
	}
	return &Limit{limit.Cur, "ulimit -l of this process", "raise it with `ulimit -l`", true}
}

// mayLockAll reports whether this process has CAP_IPC_LOCK, to which the limit does not apply.
func mayLockAll() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&header, &data[0])
	return err == nil && data[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0
}

// Check refuses a configuration whose frames need more than the limit, with the place of the part that needs the most. A
// nil Limit accepts every configuration.
func (l *Limit) Check(c *config.Appliance) error {
	if l == nil {
		return nil
	}
	pools := Pools(c)
	ways := []struct {
		verb string
		of   func(Pool) uint64
	}{{"pinned for FPGAs", pinned}, {"locked", locked}}
	if l.Pins || onGPU(c.Memory) {
		ways = ways[:1]
	}
	for _, way := range ways {
		var sum, most uint64
		var part Pool
		for _, p := range pools {
			n := way.of(p)
			if sum += n; n > most {
				part, most = p, n
			}
		}
		if sum > l.Bytes {
			return l.refuse(part, most, sum, way.verb)
		}
	}
	return nil
}

// refuse returns the error for a configuration that needs sum bytes, of which part needs the most.
func (l *Limit) refuse(part Pool, most, sum uint64, verb string) error {
	lower := "the outputs shorter queues"
	if part.Source {
		lower = "it fewer slots"
	}
	return part.At.Errorf("its %d slots need %s of memory that is %s, and all slots %s: the limit is %s (%s): give %s, or %s",
		part.Slots, text(most, true), verb, text(sum, true), text(l.Bytes, false), l.From, lower, l.Remedy)
}

// text formats a number of bytes in KiB or MiB, rounded up if up is true and down otherwise.
func text(n uint64, up bool) string {
	shift, unit := 10, "KiB"
	if n >= 10<<20 {
		shift, unit = 20, "MiB"
	}
	if up {
		n += 1<<shift - 1
	}
	return fmt.Sprintf("%d %s", n>>shift, unit)
}

// onGPU reports whether frames will be in CUDA's memory, which the program does not lock. memory is the value of the
// configuration's key memory.
func onGPU(memory string) bool {
	return memory == "cuda" || memory == "auto" && len(cudahost.DeviceFiles(os.DirFS("/"))) > 0
}

// locked returns the number of bytes of a pool that the host back end locks.
func locked(p Pool) uint64 {
	var flags cudahost.Flags
	if p.Shared {
		flags = cudahost.Shared
	}
	size := p.Size
	if p.Paged {
		size = pages(size)
	}
	return uint64(p.Slots * cudahost.LockedBytes(size, flags))
}

// pinned returns the maximum number of bytes that the kernel module charges for a pool: its slots, and the DMA engine's
// descriptors.
func pinned(p Pool) uint64 {
	const (
		perPage = 64                 // a descriptor of 32 bytes and its write-back of 32, if memory consists of single pages
		perSlot = 3 * tegra.PageSize // the frame's trailer, and the rounding of the descriptors
		perPool = 32 * tegra.PageSize
	)
	slot := pages(p.Size)
	return uint64(p.Pins * (perPool + p.Slots*(slot+slot/tegra.PageSize*perPage+perSlot)))
}

// pages rounds a number of bytes up to whole pages.
func pages(n int) int { return (n + tegra.PageSize - 1) &^ (tegra.PageSize - 1) }
