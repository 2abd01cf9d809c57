/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints: /sys/kernel/tracing/events/tegra_p2p. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM tegra_p2p

#if !defined(TEGRA_P2P_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define TEGRA_P2P_TRACE_H

#include <linux/tracepoint.h>

#include "compat.h"

TRACE_EVENT(tegra_p2p_pin,
	TP_PROTO(const char *dev, u32 handle, u64 va, u64 size, u32 segments),
	TP_ARGS(dev, handle, va, size, segments),
	TP_STRUCT__entry(
		__string(dev, dev)
		__field(u32, handle)
		__field(u64, va)
		__field(u64, size)
		__field(u32, segments)
	),
	TP_fast_assign(
		tp_assign_str(dev, dev);
		__entry->handle = handle;
		__entry->va = va;
		__entry->size = size;
		__entry->segments = segments;
	),
	TP_printk("%s handle=%u va=%#llx size=%llu segments=%u", __get_str(dev), __entry->handle,
		  __entry->va, __entry->size, __entry->segments)
);

/* mmap: slot is a BAR's index, or 8 + a handle. */
TRACE_EVENT(tegra_p2p_map,
	TP_PROTO(const char *dev, u64 slot, u64 offset, u64 size, int err),
	TP_ARGS(dev, slot, offset, size, err),
	TP_STRUCT__entry(
		__string(dev, dev)
		__field(u64, slot)
		__field(u64, offset)
		__field(u64, size)
		__field(int, err)
	),
	TP_fast_assign(
		tp_assign_str(dev, dev);
		__entry->slot = slot;
		__entry->offset = offset;
		__entry->size = size;
		__entry->err = err;
	),
	TP_printk("%s slot=%llu offset=%#llx size=%llu err=%d", __get_str(dev), __entry->slot,
		  __entry->offset, __entry->size, __entry->err)
);

TRACE_EVENT(tegra_p2p_revoke,
	TP_PROTO(const char *dev, u32 handle, u32 reason, u64 gen),
	TP_ARGS(dev, handle, reason, gen),
	TP_STRUCT__entry(
		__string(dev, dev)
		__field(u32, handle)
		__field(u32, reason)
		__field(u64, gen)
	),
	TP_fast_assign(
		tp_assign_str(dev, dev);
		__entry->handle = handle;
		__entry->reason = reason;
		__entry->gen = gen;
	),
	TP_printk("%s handle=%u reason=%u fence=%llu", __get_str(dev), __entry->handle,
		  __entry->reason, __entry->gen)
);

/* why: TEGRA_P2P_ERROR_*, 8 a revocation, 9 a close with memory left, 10 CONTROL's FENCE. */
TRACE_EVENT(tegra_p2p_fence,
	TP_PROTO(const char *dev, u64 gen, u32 why, u32 halt_us),
	TP_ARGS(dev, gen, why, halt_us),
	TP_STRUCT__entry(
		__string(dev, dev)
		__field(u64, gen)
		__field(u32, why)
		__field(u32, halt_us)
	),
	TP_fast_assign(
		tp_assign_str(dev, dev);
		__entry->gen = gen;
		__entry->why = why;
		__entry->halt_us = halt_us;
	),
	TP_printk("%s fence=%llu why=%u halt=%u us", __get_str(dev), __entry->gen, __entry->why,
		  __entry->halt_us)
);

/* The halt list has run. */
TRACE_EVENT(tegra_p2p_halt,
	TP_PROTO(const char *dev, u32 ops, bool late),
	TP_ARGS(dev, ops, late),
	TP_STRUCT__entry(
		__string(dev, dev)
		__field(u32, ops)
		__field(bool, late)
	),
	TP_fast_assign(
		tp_assign_str(dev, dev);
		__entry->ops = ops;
		__entry->late = late;
	),
	TP_printk("%s operations=%u%s", __get_str(dev), __entry->ops,
		  __entry->late ? " a poll never came true" : "")
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
