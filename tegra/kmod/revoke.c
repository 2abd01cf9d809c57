// SPDX-License-Identifier: GPL-2.0
/*
 * How a pin ends: by its owner, or by tp_pin_revoke, the one way in which its memory is taken away.
 */
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "p2p.h"
#include "trace.h"

static void space_free(struct kref *ref)
{
	kfree(container_of(ref, struct tp_space, ref));
}

void tp_space_put(struct tp_space *space)
{
	kref_put(&space->ref, space_free);
}

/* A run of the worker has ended, or will not be. */
static void space_unqueued(struct tp_space *space)
{
	put_device(&space->dev->device);
	tp_space_put(space);
	module_put(THIS_MODULE);
}

/* With pins_lock held: the worker runs at that time at the latest. */
static void space_queue(struct tp_space *space, unsigned long at)
{
	unsigned long now = jiffies;

	if (space->queued && time_before_eq(space->due, at))
		return;
	space->queued = true;
	space->due = at;
	if (!mod_delayed_work(tp_check_wq, &space->work, time_after(at, now) ? at - now : 0)) {
		get_device(&space->dev->device);
		kref_get(&space->ref);
		__module_get(THIS_MODULE);
	}
}

/* Has a worker look at the pin after some ticks, or earlier if that was wanted already. */
void tp_pin_check(struct tp_pin *pin, unsigned long ticks)
{
	struct tp_dev *dev = pin->obj.file->dev;
	unsigned long at = jiffies + ticks;

	spin_lock(&dev->pins_lock);
	if (pin->space) {
		if (list_empty(&pin->check)) {
			kref_get(&pin->obj.ref);
			list_add_tail(&pin->check, &pin->space->checks);
			pin->check_at = at;
		} else if (time_before(at, pin->check_at)) {
			pin->check_at = at;
		}
		space_queue(pin->space, at);
	}
	spin_unlock(&dev->pins_lock);
}

/* Takes a pin that is due, NULL for none; then the worker runs again for the others. */
static struct tp_pin *space_next(struct tp_space *space)
{
	struct tp_pin *pin, *found = NULL;
	unsigned long now = jiffies;

	spin_lock(&space->dev->pins_lock);
	list_for_each_entry(pin, &space->checks, check)
		if (time_after_eq(now, pin->check_at)) {
			found = pin;
			list_del_init(&pin->check);
			break;
		}
	if (!found)
		list_for_each_entry(pin, &space->checks, check)
			space_queue(space, pin->check_at);
	spin_unlock(&space->dev->pins_lock);
	return found;
}

void tp_space_work(struct work_struct *work)
{
	struct tp_space *space = container_of(to_delayed_work(work), struct tp_space, work);
	struct tp_pin *pin;

	spin_lock(&space->dev->pins_lock);
	space->queued = false;
	spin_unlock(&space->dev->pins_lock);
	for (pin = space_next(space); pin; pin = space_next(space)) {
		tp_backend->check(pin);
		tp_object_put(&pin->obj);
	}
	space_unqueued(space);
}

/* Out of the way of later pins of the same addresses. */
static void pin_unlist(struct tp_pin *pin)
{
	struct tp_dev *dev = pin->obj.file->dev;
	bool checked = false, last = false;
	struct tp_space *space;

	spin_lock(&dev->pins_lock);
	space = pin->space;
	pin->space = NULL;
	if (space) {
		interval_tree_remove(&pin->node, &space->pins);
		checked = !list_empty(&pin->check);
		list_del_init(&pin->check);
		last = !--space->n;
		if (last)
			hash_del(&space->entry);
	}
	spin_unlock(&dev->pins_lock);
	if (checked)
		tp_object_put(&pin->obj); /* not the last: the caller has one */
	if (last) {
		if (cancel_delayed_work(&space->work))
			space_unqueued(space);
		tp_space_put(space);
	}
}

static void pin_queued_put(struct tp_pin *pin)
{
	tp_object_put(&pin->obj);
	module_put(THIS_MODULE);
}

/* A worker gives the pin back. The references are its own. */
static void pin_queue(struct tp_pin *pin)
{
	kref_get(&pin->obj.ref);
	__module_get(THIS_MODULE);
	if (!queue_work(tp_wq, &pin->work))
		pin_queued_put(pin);
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
		pin_queue(pin);
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
	struct tp_pin *pin = container_of(work, struct tp_pin, work);

	pin_give_back(pin);
	pin_queued_put(pin);
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
	pin_queue(pin);
}

/*
 * Whether the pin is of a process that lives, and is not the caller. Giving back such a pin waits
 * until none of its threads changes mappings, which they can keep up: nobody else waits for that.
 */
bool tp_pin_of_others(struct tp_pin *pin)
{
	return pin->obj.mm != current->mm && atomic_read(&pin->obj.mm->mm_users);
}

/*
 * After tp_pin_end: no callback of the pin runs any more when this returns. It waits for no other
 * pin's worker.
 */
void tp_pin_finish(struct tp_pin *pin)
{
	if (cancel_work_sync(&pin->work))
		pin_queued_put(pin);
	pin_give_back(pin);
}

void tp_pin_free(struct tp_pin *pin)
{
	mutex_destroy(&pin->lock);
	kvfree(pin->segs);
	kmem_cache_free(tp_pin_cache, pin);
}
