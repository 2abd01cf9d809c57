// SPDX-License-Identifier: GPL-2.0
/*
 * How a pin ends: by its owner, or by tp_pin_revoke, the one way in which its memory is taken away.
 */
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "p2p.h"
#include "trace.h"

struct workqueue_struct *tp_wq;
struct kmem_cache *tp_pin_cache;

static void tp_pin_queued_put(struct tp_pin *pin)
{
	tp_object_put(&pin->obj);
	module_put(THIS_MODULE);
}

/* A worker gives the pin back. The references are its own. */
static void tp_pin_queue(struct tp_pin *pin)
{
	kref_get(&pin->obj.ref);
	__module_get(THIS_MODULE);
	if (!queue_work(tp_wq, &pin->work))
		tp_pin_queued_put(pin);
}

/**
 * tp_pin_revoke() - Takes a pin's memory back: the function cannot reach it when this returns.
 * @pin: the pin
 * @reason: TEGRA_P2P_REASON_*
 * @in_callback: the caller is the notifier
 *
 * Context: Takes pin->lock, then fence_lock, and may sleep. A second caller waits for the first. In
 * the notifier nothing may be allocated, faulted in or waited for but hardware.
 */
void tp_pin_revoke(struct tp_pin *pin, u32 reason, bool in_callback)
{
	struct tp_file *file = pin->obj.file;

	mutex_lock(&pin->lock);
	if (pin->state == TP_PINNING) {
		pin->doomed = true; /* nothing is mapped yet, and nothing will be */
	} else if (pin->state == TP_LIVE) {
		pin->fence_gen = tp_fence(file->dev, TP_FENCE_REVOKED, 0);
		tp_backend->unmap(pin, in_callback);
		pin->nsegs = 0;
		pin->reason = reason;
		WRITE_ONCE(pin->state, TP_REVOKED);
		tp_pin_unlist(pin);
		trace_tegra_p2p_revoke(file->dev->name, pin->obj.handle, reason, pin->fence_gen);
		tp_signal_revoke(file);
		tp_pin_queue(pin);
	}
	mutex_unlock(&pin->lock);
}

/**
 * tp_pins_end_mm() - Revokes the function's pins of an address space whose last process has ended.
 * @dev: the function
 * @mm: the address space
 *
 * Context: No pin's lock is held. Takes pins_lock, and each pin's lock, and may sleep.
 */
void tp_pins_end_mm(struct tp_dev *dev, struct mm_struct *mm)
{
	struct interval_tree_node *node;
	struct tp_space *space;
	struct tp_pin *pin;

	do {
		spin_lock(&dev->pins_lock);
		space = tp_space_of(dev, mm);
		node = space ? interval_tree_iter_first(&space->pins, 0, ULONG_MAX) : NULL;
		pin = node ? container_of(node, struct tp_pin, node) : NULL;
		if (pin)
			kref_get(&pin->obj.ref);
		spin_unlock(&dev->pins_lock);
		if (pin) {
			tp_pin_revoke(pin, TEGRA_P2P_REASON_MM_EXIT, false);
			tp_object_put(&pin->obj);
		}
	} while (pin);
}

/* Gives back what tp_pin_revoke had to leave: page references, notifier, charge. Once. */
static void tp_pin_give_back(struct tp_pin *pin)
{
	struct mm_struct *mm = pin->obj.mm;

	if (pin->finished)
		return;
	pin->finished = true;
	mmgrab(mm); /* with mm_dropped, put has dropped the reference of the charge */
	if (pin->got)
		tp_backend->put(pin);
	tp_object_uncharge(&pin->obj, pin->mm_dropped);
	mmdrop(mm);
}

/**
 * tp_pin_work() - Gives a pin back: what its end or its revocation has left.
 * @work: the pin's work
 *
 * Context: A worker of tp_wq, with references of the pin and of the module, which it drops. Sleeps.
 */
void tp_pin_work(struct work_struct *work)
{
	struct tp_pin *pin = container_of(work, struct tp_pin, work);

	tp_pin_give_back(pin);
	tp_pin_queued_put(pin);
}

/**
 * tp_pin_end() - Ends a pin for its owner: it is no longer mapped for the function.
 * @obj: the pin's object
 *
 * Context: As end of struct tp_object_ops. Takes pin->lock and may sleep.
 */
void tp_pin_end(struct tp_object *obj)
{
	struct tp_pin *pin = tp_to_pin(obj);

	mutex_lock(&pin->lock);
	if (pin->state == TP_LIVE)
		tp_backend->unmap(pin, false);
	if (pin->state != TP_REVOKED)
		WRITE_ONCE(pin->state, TP_ENDED);
	tp_pin_unlist(pin);
	mutex_unlock(&pin->lock);
}

/*
 * After tp_pin_end, for many pins whose waits for grace periods are to be one: tp_pin_finish comes
 * later.
 */
static void tp_pin_begin_finish(struct tp_object *obj)
{
	tp_pin_queue(tp_to_pin(obj));
}

/*
 * Whether the pin is of a process that lives, and is not the caller. Giving back such a pin waits
 * until none of its threads changes mappings, which they can keep up: nobody else waits for that.
 */
static bool tp_pin_of_others(struct tp_object *obj)
{
	return obj->mm != current->mm && atomic_read(&obj->mm->mm_users);
}

/*
 * After tp_pin_end: no callback of the pin runs any more when this returns. It waits for no other
 * pin's worker.
 */
static void tp_pin_finish(struct tp_object *obj)
{
	struct tp_pin *pin = tp_to_pin(obj);

	if (cancel_work_sync(&pin->work))
		tp_pin_queued_put(pin);
	tp_pin_give_back(pin);
}

/**
 * tp_pin_free() - Frees a pin's structure.
 * @obj: the pin's object, with no reference left, or not initialized
 */
void tp_pin_free(struct tp_object *obj)
{
	struct tp_pin *pin = tp_to_pin(obj);

	mutex_destroy(&pin->lock);
	kvfree(pin->segs);
	kmem_cache_free(tp_pin_cache, pin);
}

static bool tp_pin_busy(struct tp_object *obj)
{
	return READ_ONCE(tp_to_pin(obj)->state) == TP_LIVE;
}

static void tp_pin_unplug(struct tp_object *obj)
{
	tp_pin_revoke(tp_to_pin(obj), TEGRA_P2P_REASON_UNPLUG, false);
}

const struct tp_object_ops tp_pin_ops = {
	.first_slot = TP_FIRST_PIN_SLOT,
	.end = tp_pin_end,
	.begin_finish = tp_pin_begin_finish,
	.of_others = tp_pin_of_others,
	.finish = tp_pin_finish,
	.free = tp_pin_free,
	.busy = tp_pin_busy,
	.unplug = tp_pin_unplug,
};
