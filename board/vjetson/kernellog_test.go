// SPDX-License-Identifier: Apache-2.0

package vjetson

import "testing"

// troubled lists lines of kernels in trouble, one for each report that must fail a run.
var troubled = []string{
	"Unable to handle kernel NULL pointer dereference at virtual address 0",
	"Internal error: Oops: 0000000096000044 [#1] SMP",
	"WARNING: CPU: 1 PID: 12 at mm/slub.c:100 f+0x1/0x2",
	"BUG kmalloc-64 (Tainted: G    B      ): Poison overwritten",
	"BUG: KASAN: slab-out-of-bounds",
	"BUG: KCSAN: data-race in tp_pin / tp_put",
	"kernel BUG at mm/slub.c:1!",
	"refcount_t: underflow; use-after-free.",
	"Kernel panic - not syncing: Attempted to kill init!",
	"UBSAN: array-index-out-of-bounds in drivers/misc/a.c:12:5",

	// memory
	"kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
	"kmemleak: Cannot allocate a kmemleak_object structure",
	"kmemleak: Kernel memory leak detector disabled",
	"kmemleak: Memory pool empty, consider increasing CONFIG_DEBUG_KMEMLEAK_MEM_POOL_SIZE",
	"kmem_cache_destroy tegra_p2p_pin: Slab cache still has objects",
	"[Poison overwritten] 0xffff000005e3a958-0xffff000005e3a95f @offset=2392",
	"guest.test: page allocation failure: order:9, mode:0x40dc0(GFP_KERNEL|__GFP_COMP|__GFP_ZERO), nodemask=(null),cpuset=/,mems_allowed=0",
	"guest.test: vmalloc error: size 4096, failed to allocate pages, mode:0xcc0(GFP_KERNEL), nodemask=(null)",
	"BUG: Bad rss-counter state mm:00000000f4bd8a3c type:MM_ANONPAGES val:-1",
	"BUG: Bad page map in process guest.test  pte:e8000004a3dfc3 pmd:800000004c0f003",
	"BUG: Bad page state in process guest.test  pfn:4a3df",
	"BUG: Bad page cache in process guest.test  pfn:4a3df",
	"get_swap_device: Bad swap file entry 3ffffffffffff",
	"mm/memory.c:434: bad pmd 00000000a13f2b09.",
	"x86/PAT: guest.test:512 freeing invalid memtype [mem 0xfe800000-0xfe800fff]",
	"x86/PAT: guest.test:512 map pfn expected mapping type write-back for [mem 0xfe800000-0xfe800fff], got write-combining",
	"Out of memory: Killed process 512 (guest.test) total-vm:1234kB",

	// locks, and waits that take too long
	"WARNING: possible circular locking dependency detected",
	"WARNING: possible recursive locking detected",
	"WARNING: possible irq lock inversion dependency detected",
	"WARNING: inconsistent lock state",
	"WARNING: suspicious RCU usage",
	"WARNING: held lock freed!",
	"WARNING: bad unlock balance detected!",
	"[ BUG: Invalid wait context ]",
	"BUG: sleeping function called from invalid context at include/linux/sched/mm.h:274",
	"BUG: scheduling while atomic: guest.test/512/0x00000002",
	"INFO: trying to register non-static key.",
	"watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [guest.test:512]",
	"rcu: INFO: rcu_preempt self-detected stall on CPU",
	"rcu: INFO: rcu_sched detected stalls on CPUs/tasks:",
	"rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-...D } 24 jiffies s: 61 root: 0x2/.",
	"INFO: task insmod:12 blocked for more than 120 seconds.",
	"cleanup_srcu_struct: Active srcu_struct 00000000f4bd8a3c read state: 1 gp state: 4/4",
	"BUG: workqueue lockup - pool cpus=1 node=0 flags=0x0 nice=0 stuck for 36s!",
	"BUG: workqueue leaked lock or atomic: kworker/1:1/0x00000001/24",
	"destroy_workqueue: tegra_p2p has the following busy pwq",
	"workqueue tegra_p2p: drain_workqueue() isn't complete after 10 tries",
	"unregister_netdevice: waiting for eth0 to become free. Usage count = 2",

	// devices
	"arm-smmu-v3 9050000.smmuv3: event 0x10 received:",
	"arm-smmu-v3 9050000.smmuv3: CMDQ error (cons 0x0200000a): Illegal command",
	"DMAR: [DMA Write NO_PASID] Request device [01:00.0] fault addr 0xffff",
	"virtio_iommu virtio0: page fault from EP 256 at 0x48100000 []",
	"virtio_iommu virtio0: domain fault from EP 256 at 0x48100000 []",
	"DMA-API: tegra_p2p 0000:01:00.0: device driver frees DMA memory with different size [device address=0x00000000fffff000]",
	"DMA-API: debugging out of memory - disabling",
	"DMA-API: cacheline tracking ENOMEM, dma-debug disabled",
	"DMA-API: exceeded 7 overlapping mappings of cacheline 0x0000000001234567",
	`irq 54: nobody cared (try booting with the "irqpoll" option)`,
	"sysfs: cannot create duplicate filename '/class/misc/tegra_p2p0'",
}

// calm lists lines of healthy kernels.
var calm = []string{
	"vjetson_probe: loading out-of-tree module taints kernel.",
	"arm-smmu-v3 9050000.smmuv3: allocated 65536 entries for evtq",
	"ledtrig-cpu: registered to indicate activity on CPUs, DEBUG: warning",
	"DMAR: IOMMU enabled",
	"virtio_iommu virtio0: input address: 64 bits",
	"virtio_iommu virtio0: page mask: 0xfffffffffffff000",
	"Spectre-v4: mitigation disabled: BUGS: none",
	"pci 0000:00:01.0: BAR 4 [mem 0x8000000000-0x8000003fff 64bit pref]: bogus",
	"kmemleak: Kernel memory leak detector initialized (mem pool available: 15206)",
	"kmemleak: Automatic memory scanning thread started",
	"DMA-API: preallocated 65536 debug entries",
	"DMA-API: debugging enabled by kernel config",
	"rcu: Preemptible hierarchical RCU implementation.",
	"rcu: \tRCU calculated value of scheduler-enlistment delay is 25 jiffies.",
	"x86/PAT: Configuration [0-7]: WB  WC  UC- UC  WB  WP  UC- WT  ",
	"workqueue: vmstat_shepherd hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND",
	"Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar",
	" *** DEADLOCK ***",
	"ODEBUG: selftest passed",
}

func TestFaults(t *testing.T) {
	for _, line := range troubled {
		testFault(t, "[    1.234567] "+line, true)
	}
	for _, line := range calm {
		testFault(t, "[    1.234567] "+line, false)
	}
}

func testFault(t *testing.T, line string, fault bool) {
	t.Helper()
	l := newKernelLog(nil)
	_, _ = l.Write([]byte(line + "\r\n"))
	if got := l.found(); (len(got) == 1) != fault || fault && got[0] != line {
		t.Errorf("%q: faults %q", line, got)
	}
	e, err := l.expect(`^\[    1\.2`)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = l.Write([]byte(line + "\n"))
	if got := l.found(); len(got) > 1 {
		t.Errorf("%q was expected and is a fault", line)
	}
	if first, err := e.Wait(t.Context()); err != nil || first != line {
		t.Errorf("expectation: %q %v", first, err)
	}
}
