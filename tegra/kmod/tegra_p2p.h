/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The interface between tegra_p2p.ko and user space: DMA of a PCI function to and from user memory
 * that CUDA sees.
 *
 * One char device /dev/tegra_p2pN, mode 0600, for each PCI function. Every structure begins with
 * its size and flags: argsz below the size of version 1 is EINVAL, bytes that are not zero past
 * what the kernel knows are E2BIG, an unknown flag or padding that is not zero is EINVAL. All calls
 * but GET_INFO and QUERY return ENODEV when the function has gone, and all but GET_INFO, GET_REGION
 * and QUERY return EACCES on a descriptor that cannot be written. Structures have the same layout
 * for 32- and 64-bit programs. docs/module.md describes every call and errno.
 */
#ifndef TEGRA_P2P_H
#define TEGRA_P2P_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define TEGRA_P2P_API_VERSION	2
#define TEGRA_P2P_IOC		0xbd

/* GET_INFO: what the device is and may do. */
#define TEGRA_P2P_GET_INFO	_IO(TEGRA_P2P_IOC, 0)
struct tegra_p2p_info {
	__u32 argsz;
	__u32 flags;		/* out: TEGRA_P2P_INFO_* */
	__u32 api_version;	/* out: TEGRA_P2P_API_VERSION */
	__u32 state;		/* out: TEGRA_P2P_STATE_* */
	__u64 fence_gen;	/* out: counts the fences; CONTROL's RESUME must name it */
	__u16 vendor, device, subvendor, subdevice; /* out: of PCI */
	__u32 dma_bits;		/* out: width of the DMA mask */
	/* out: vectors for SET_EVENT: of MSI-X or MSI, or 1 for the legacy line */
	__u32 n_irqs;
	__u32 pin_align;	/* out: of a pin's address and size, in bytes */
	__u32 max_pins;		/* out: live pins and allocations an open file may have */
	__u64 max_pin_bytes;	/* out: largest single pin */
	__u64 pinned_bytes;	/* out: pinned now through this open file */
	/* Since 1.1: */
	__u32 error;		/* out: TEGRA_P2P_ERROR_* of the last error event */
	__u32 errors;		/* out: how many error events the function has had */
};

#define TEGRA_P2P_INFO_IOMMU	(1U << 0) /* a translating IOMMU stands before memory */
#define TEGRA_P2P_INFO_STRICT	(1U << 1) /* and it forgets a mapping at once */
/* no such protection: the holder of the device owns all memory */
#define TEGRA_P2P_INFO_UNSAFE	(1U << 2)
#define TEGRA_P2P_INFO_COHERENT	(1U << 3) /* DMA is coherent with the CPU's caches */
#define TEGRA_P2P_INFO_NVP2P	(1U << 4) /* pins go through nv-p2p, else through pin_user_pages */
#define TEGRA_P2P_INFO_FLR	(1U << 5) /* the function can be reset: CONTROL's RESET works */
#define TEGRA_P2P_INFO_NVP2P_BUILT   (1U << 6) /* nv-p2p is compiled in */
/* a provider of nv-p2p was loaded before this module */
#define TEGRA_P2P_INFO_NVP2P_PRESENT (1U << 7)
/* it was the desktop driver, whose nv-p2p is another one: refused */
#define TEGRA_P2P_INFO_NVP2P_FOREIGN (1U << 8)
/* its one interrupt is the legacy line: masked when it comes, until UNMASK */
#define TEGRA_P2P_INFO_INTX	(1U << 9)
/* it cannot raise others' interrupts by writing their messages */
#define TEGRA_P2P_INFO_ISOLATED_MSI (1U << 10)

/*
 * Why the function has lost its state, or its protection: it is fenced until user space has started
 * it again.
 */
#define TEGRA_P2P_ERROR_NONE	0
/* its link has reported an error; its registers may still have their values */
#define TEGRA_P2P_ERROR_LINK	1
#define TEGRA_P2P_ERROR_FATAL	2	/* the error was fatal: the bus was reset */
#define TEGRA_P2P_ERROR_RESET	3	/* somebody has reset the function */
#define TEGRA_P2P_ERROR_SUSPEND	4	/* the machine was suspended */
#define TEGRA_P2P_ERROR_SHUTDOWN 5	/* the machine ends, or starts another kernel */
#define TEGRA_P2P_ERROR_EXPOSED	6	/* another function has joined its IOMMU group */
#define TEGRA_P2P_ERROR_UNPLUG	7	/* the function has gone, or its driver was unbound */

#define TEGRA_P2P_STATE_LIVE	0
/* no PIN and no ALLOC until RESUME: the engine may run on old addresses */
#define TEGRA_P2P_STATE_FENCED	1
#define TEGRA_P2P_STATE_GONE	2

/* GET_REGION: a BAR. */
#define TEGRA_P2P_GET_REGION	_IO(TEGRA_P2P_IOC, 1)
struct tegra_p2p_region {
	__u32 argsz;
	__u32 flags;		/* out: TEGRA_P2P_REGION_* */
	__u32 index;		/* in: BAR 0 to 5 */
	__u32 pad;
	__u64 size;		/* out: bytes, 0 for a BAR that is not there */
	__u64 mmap_offset;	/* out */
};

#define TEGRA_P2P_REGION_MMAP	(1U << 0) /* it can be mapped: uncached */

/* PIN: memory of the caller that the function may reach until PUT, revocation or close. */
#define TEGRA_P2P_PIN		_IO(TEGRA_P2P_IOC, 2)
struct tegra_p2p_segment {
	__u64 iova;
	__u64 len;
};

struct tegra_p2p_pin {
	__u32 argsz;
	__u32 flags;		/* in: TEGRA_P2P_PIN_* */
	__u64 va;		/* in: aligned to pin_align, as is size */
	__u64 size;
	__u64 cookie;		/* in: QUERY returns it */
	__u64 segs;		/* in: address of segments to fill */
	__u32 seg_cap;		/* in: how many there is room for */
	__u32 nsegs;		/* out: none: revoked already; QUERY fetches those without room */
	__u32 handle;		/* out */
	__u32 attr;		/* out: TEGRA_P2P_ATTR_* */
	/* out: maps a driver's pages, with the attribute and rights of the caller's mapping */
	__u64 mmap_offset;
};

#define TEGRA_P2P_PIN_TO_DEVICE	  (1U << 0) /* the function reads the memory */
#define TEGRA_P2P_PIN_FROM_DEVICE (1U << 1) /* the function writes it; both may be set */
#define TEGRA_P2P_PIN_EXPECT_WB	  (1U << 2) /* EMEDIUMTYPE unless the memory is write-back */
#define TEGRA_P2P_PIN_EXPECT_WC	  (1U << 3) /* EMEDIUMTYPE unless the memory is write-combined */

#define TEGRA_P2P_ATTR_WB	0
#define TEGRA_P2P_ATTR_WC	1

/* QUERY: how a pin is. */
#define TEGRA_P2P_QUERY		_IO(TEGRA_P2P_IOC, 3)
struct tegra_p2p_query {
	__u32 argsz;
	__u32 flags;
	__u32 handle;		/* in */
	__u32 state;		/* out: TEGRA_P2P_PIN_LIVE or _REVOKED */
	__u64 cookie;		/* out */
	__u64 segs;		/* in: address of segments to fill */
	__u32 seg_cap;		/* in */
	__u32 seg_first;	/* in: the first segment that is wanted */
	__u32 nsegs;		/* out: how many the pin has; none once it is revoked */
	__u32 reason;		/* out: TEGRA_P2P_REASON_* */
	__u64 fence_gen;	/* out: the fence that its revocation set */
};

#define TEGRA_P2P_PIN_LIVE		0
#define TEGRA_P2P_PIN_REVOKED		1

#define TEGRA_P2P_REASON_NONE		0
#define TEGRA_P2P_REASON_INVALIDATE	1	/* the mapping was changed, or has other pages */
#define TEGRA_P2P_REASON_MM_EXIT	2	/* the address space has ended */
/* the function has gone, or its driver was unbound */
#define TEGRA_P2P_REASON_UNPLUG		3

/* PUT: ends a pin or an allocation. The handle is free for another then; a second PUT is ENOENT. */
#define TEGRA_P2P_PUT		_IO(TEGRA_P2P_IOC, 4)
struct tegra_p2p_put {
	__u32 argsz;
	__u32 flags;
	__u32 handle;
	__u32 pad;
};

/* ALLOC: coherent memory of the kernel, for descriptors and write-backs. mmap it at mmap_offset. */
#define TEGRA_P2P_ALLOC		_IO(TEGRA_P2P_IOC, 5)
struct tegra_p2p_alloc {
	__u32 argsz;
	__u32 flags;
	__u64 size;		/* in: bytes, a multiple of pin_align */
	__u64 iova;		/* out */
	__u64 mmap_offset;	/* out */
	__u32 handle;		/* out */
	__u32 pad;
};

/* SET_EVENT: an eventfd that is signalled. */
#define TEGRA_P2P_SET_EVENT	_IO(TEGRA_P2P_IOC, 6)
struct tegra_p2p_event {
	__u32 argsz;
	__u32 flags;
	__u32 kind;		/* in: TEGRA_P2P_EVENT_* */
	__u32 index;		/* in: the vector of an MSI; else 0 */
	__s32 eventfd;		/* in: -1 takes the present one away */
	__u32 pad;
};

#define TEGRA_P2P_EVENT_MSI	0
#define TEGRA_P2P_EVENT_REVOKE	1	/* a pin of this open file was revoked */
#define TEGRA_P2P_EVENT_ERROR	2	/* the function has gone or reported an error on its link */

/*
 * SET_HALT: register accesses of BARs that stop the engine when a pin is revoked. A courtesy, never
 * the protection.
 */
#define TEGRA_P2P_SET_HALT	_IO(TEGRA_P2P_IOC, 7)
struct tegra_p2p_halt_op {
	__u32 op;		/* TEGRA_P2P_HALT_* */
	__u32 bar;
	__u64 offset;
	__u64 value;		/* written; or compared under mask */
	__u64 mask;		/* POLL32: wait until (register & mask) == value */
};

struct tegra_p2p_halt {
	__u32 argsz;
	__u32 flags;
	__u64 ops;		/* in: address of n operations */
	__u32 n;		/* in: 0 clears the list; TEGRA_P2P_HALT_OPS at most */
	__u32 pad;
};

#define TEGRA_P2P_HALT_W32	0
#define TEGRA_P2P_HALT_W64	1
#define TEGRA_P2P_HALT_POLL32	2	/* all polls of a list together wait 2 ms at most */
#define TEGRA_P2P_HALT_OPS	16

/* CONTROL: the fence. */
#define TEGRA_P2P_CONTROL	_IO(TEGRA_P2P_IOC, 8)
struct tegra_p2p_control {
	__u32 argsz;
	__u32 flags;
	__u32 op;		/* in: TEGRA_P2P_RESUME, _FENCE, _RESET or _UNMASK */
	__u32 pad;
	/* RESUME in: the fence that was seen; else EAGAIN. out: the present one */
	__u64 fence_gen;
};

#define TEGRA_P2P_RESUME	0	/* the engine is reset: PIN works again */
#define TEGRA_P2P_FENCE		1	/* forbid PIN */
#define TEGRA_P2P_RESET		2	/* reset the function (FLR); it stays fenced */
/* let the legacy line come again; it is signalled at once if it is still up */
#define TEGRA_P2P_UNMASK	3

/*
 * 9 and 10 were EXPORT and IMPORT of dma-bufs, until version 1 of the interface. They are ENOTTY
 * and are never used again.
 */

#endif
