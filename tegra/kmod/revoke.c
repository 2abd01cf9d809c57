// SPDX-License-Identifier: GPL-2.0
/*
 * How a pin ends: by its owner, or by tp_pin_revoke, the one way in which its memory is taken away.
 */
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "p2p.h"
#include "trace.h"

/* Out of the way of later pins of the same addresses. */
static void pin_unlist(struct tp_pin *pin)
{
	struct tp_dev *dev = pin->obj.file->dev;
	struct tp_space *space;

	spin_lock(&dev->pins_lock);
	space = pin->space;
	pin->space = NULL;
	if (space) {
		interval_tree_remove(&pin->node, &space->pins);
		if (--space->n)
			space = NULL;
		else
			hash_del(&space->entry);
	}
	spin_unlock(&dev->pins_lock);
	kfree(space);
}

/*
 * Takes the memory back from the function: when this returns, the function cannot reach it. A
 * second caller waits for the first. in_callback: in the notifier, where nothing may be allocated,
 * faulted in or waited for but hardware.
 */
void tp_pin_revoke(struct tp_pin *pin, u32 reason, bool in_callback)
{
	struct tp_file *file = pin->obj.file;

	mutex_lock(&pin->lock);
	if (pin->state == TP_PINNING) {
		pin->doomed = true; /* nothing is mapped yet: the back end's valid decides */
	} else if (pin->state == TP_LIVE) {
		pin->fence_gen = tp_fence(file->dev, TP_FENCE_REVOKED, 0);
		tp_backend->unmap(pin, in_callback);
		pin->nsegs = 0;
		pin->reason = reason;
		WRITE_ONCE(pin->state, TP_REVOKED);
		pin_unlist(pin);
		trace_tegra_p2p_revoke(file->dev->name, pin->obj.handle, reason, pin->fence_gen);
		tp_signal_revoke(file);
		queue_work(tp_wq, &pin->work);
	}
	mutex_unlock(&pin->lock);
}

/* Revokes the function's pins of an address space whose last process has ended. */
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
static void pin_give_back(struct tp_pin *pin)
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

void tp_pin_work(struct work_struct *work)
{
	pin_give_back(container_of(work, struct tp_pin, work));
}

/* The owner ends the pin: it is no longer mapped for the function. */
void tp_pin_end(struct tp_pin *pin)
{
	mutex_lock(&pin->lock);
	if (pin->state == TP_LIVE)
		tp_backend->unmap(pin, false);
	if (pin->state != TP_REVOKED)
		WRITE_ONCE(pin->state, TP_ENDED);
	pin_unlist(pin);
	mutex_unlock(&pin->lock);
}

/*
 * After tp_pin_end, for many pins whose waits for grace periods are to be one: tp_pin_finish comes
 * later.
 */
void tp_pin_begin_finish(struct tp_pin *pin)
{
	queue_work(tp_wq, &pin->work);
}

/*
 * After tp_pin_end: no callback of the pin runs any more when this returns. It waits for no other
 * pin's worker.
 */
void tp_pin_finish(struct tp_pin *pin)
{
	cancel_work_sync(&pin->work);
	pin_give_back(pin);
}

void tp_pin_free(struct tp_pin *pin)
{
	mutex_destroy(&pin->lock);
	kvfree(pin->segs);
	kmem_cache_free(tp_pin_cache, pin);
}
