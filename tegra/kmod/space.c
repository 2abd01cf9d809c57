// SPDX-License-Identifier: GPL-2.0
/* The pins of an address space, and the worker that looks at them. */
#include <linux/module.h>
#include <linux/slab.h>

#include "p2p.h"

const struct tp_backend *tp_backend;
struct workqueue_struct *tp_check_wq;

static void tp_space_free(struct kref *ref)
{
	kfree(container_of(ref, struct tp_space, ref));
}

static void tp_space_put(struct tp_space *space)
{
	kref_put(&space->ref, tp_space_free);
}

/* A run of the worker has ended, or will not be. */
static void tp_space_unqueued(struct tp_space *space)
{
	put_device(&space->dev->device);
	tp_space_put(space);
	module_put(THIS_MODULE);
}

/* With pins_lock held: the worker runs at that time at the latest. */
static void tp_space_queue(struct tp_space *space, unsigned long at)
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

/**
 * tp_pin_check() - Has a worker look at a pin, if it is still listed.
 * @pin: the pin
 * @ticks: when, or earlier if that was wanted already
 *
 * Context: pin->lock is held. Takes pins_lock. Also in the notifier.
 */
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
		tp_space_queue(pin->space, at);
	}
	spin_unlock(&dev->pins_lock);
}

/* Takes a pin that is due, NULL for none; then the worker runs again for the others. */
static struct tp_pin *tp_space_next(struct tp_space *space)
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
			tp_space_queue(space, pin->check_at);
	spin_unlock(&space->dev->pins_lock);
	return found;
}

static void tp_space_work(struct work_struct *work)
{
	struct tp_space *space = container_of(to_delayed_work(work), struct tp_space, work);
	struct tp_pin *pin;

	spin_lock(&space->dev->pins_lock);
	space->queued = false;
	spin_unlock(&space->dev->pins_lock);
	for (pin = tp_space_next(space); pin; pin = tp_space_next(space)) {
		tp_backend->check(pin);
		tp_object_put(&pin->obj);
	}
	tp_space_unqueued(space);
}

/**
 * tp_space_of() - Looks for the function's pins of an address space.
 * @dev: the function
 * @mm: the address space
 *
 * Context: pins_lock is held.
 * Return: the pins, or NULL for none.
 */
struct tp_space *tp_space_of(struct tp_dev *dev, struct mm_struct *mm)
{
	struct tp_space *space;

	hash_for_each_possible(dev->spaces, space, entry, (unsigned long)mm)
		if (space->mm == mm)
			return space;
	return NULL;
}

/**
 * tp_pin_list() - Puts a new pin among those of its address space.
 * @pin: the pin
 *
 * Context: Takes pins_lock and may sleep.
 * Return: 0; -ENOMEM; -EBUSY: another pin, made or being made, has some of the range.
 */
int tp_pin_list(struct tp_pin *pin)
{
	struct tp_space *space, *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL_ACCOUNT);
	struct tp_dev *dev = pin->obj.file->dev;
	u64 last = pin->va + pin->obj.size - 1;
	int err = 0;

	if (!fresh)
		return -ENOMEM;
	spin_lock(&dev->pins_lock);
	space = tp_space_of(dev, pin->obj.mm);
	if (!space) {
		space = fresh;
		fresh = NULL;
		kref_init(&space->ref);
		INIT_LIST_HEAD(&space->checks);
		INIT_DELAYED_WORK(&space->work, tp_space_work);
		space->dev = dev;
		space->mm = pin->obj.mm; /* a pin's charge references it */
		space->pins = RB_ROOT_CACHED;
		hash_add(dev->spaces, &space->entry, (unsigned long)space->mm);
	}
	if (interval_tree_iter_first(&space->pins, pin->va, last)) {
		err = -EBUSY;
	} else {
		pin->node.start = pin->va;
		pin->node.last = last;
		interval_tree_insert(&pin->node, &space->pins);
		pin->space = space;
		space->n++;
	}
	spin_unlock(&dev->pins_lock);
	kfree(fresh);
	return err;
}

/**
 * tp_pin_unlist() - Takes a pin out of the way of later pins of the same addresses, if it is there.
 * @pin: the pin, of which the caller has a reference
 *
 * Context: pin->lock is held. Takes pins_lock. Also in the notifier.
 */
void tp_pin_unlist(struct tp_pin *pin)
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
			tp_space_unqueued(space);
		tp_space_put(space);
	}
}
