// SPDX-License-Identifier: GPL-2.0
/* Handles: what an open file owns, how it is counted and charged, and how it ends. */
#include <linux/cred.h>
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>
#include <linux/slab.h>

#include "p2p.h"

/*
 * Charges the caller's locked memory (RLIMIT_MEMLOCK), as RDMA does. mm is the caller's, and is
 * referenced.
 */
static int tp_charge_mm(struct mm_struct *mm, s64 pages)
{
	s64 limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;

	if (atomic64_add_return(pages, &mm->pinned_vm) > limit && !capable(CAP_IPC_LOCK)) {
		atomic64_sub(pages, &mm->pinned_vm);
		return -ENOMEM;
	}
	mmgrab(mm);
	return 0;
}

static void tp_uncharge_user(const struct cred *cred, s64 pages)
{
	atomic_long_sub(pages, &cred->user->locked_vm);
	put_cred(cred);
}

/*
 * The same for memory that can outlive the caller's address space: charged to the user. NULL beyond
 * the limit.
 */
static const struct cred *tp_charge_user(s64 pages)
{
	const struct cred *cred = get_current_cred(); /* keeps the user */
	s64 limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;

	if (atomic_long_add_return(pages, &cred->user->locked_vm) <= limit || capable(CAP_IPC_LOCK))
		return cred;
	tp_uncharge_user(cred, pages);
	return NULL;
}

static int tp_object_charge(struct tp_object *obj)
{
	int err;

	if (obj->ops->charges_user) {
		obj->cred = tp_charge_user(obj->size >> PAGE_SHIFT);
		if (!obj->cred)
			return -ENOMEM;
	}
	err = tp_charge_mm(current->mm, obj->size >> PAGE_SHIFT);
	if (err) {
		if (obj->cred)
			tp_uncharge_user(obj->cred, obj->size >> PAGE_SHIFT);
		return err;
	}
	obj->mm = current->mm;
	obj->charged = true;
	atomic64_add(obj->size, &obj->file->bytes);
	return 0;
}

/**
 * tp_object_uncharge() - Ends what tp_object_init() has charged, if that was not done before.
 * @obj: the object
 * @mm_dropped: the charge's reference of the mm has gone already, and the caller has another
 */
void tp_object_uncharge(struct tp_object *obj, bool mm_dropped)
{
	if (!obj->charged)
		return;
	obj->charged = false;
	if (obj->cred)
		tp_uncharge_user(obj->cred, obj->size >> PAGE_SHIFT);
	atomic64_sub(obj->size >> PAGE_SHIFT, &obj->mm->pinned_vm);
	atomic64_sub(obj->size, &obj->file->bytes);
	if (!mm_dropped)
		mmdrop(obj->mm);
}

/**
 * tp_object_init() - Counts and charges an object, and gives it a handle.
 * @obj: the object
 * @file: its open file, of which it gets a reference
 * @size: in bytes
 * @ops: its kind
 *
 * Context: Takes file->lock and may sleep. The handle means nothing before tp_object_publish().
 * Return: 0; -ENOMEM: also beyond RLIMIT_MEMLOCK; -ENOSPC: too many. A failure leaves nothing.
 */
int tp_object_init(struct tp_object *obj, struct tp_file *file, u64 size,
		   const struct tp_object_ops *ops)
{
	int err;

	kref_init(&obj->ref);
	obj->file = file;
	obj->size = size;
	obj->ops = ops;
	mutex_lock(&file->lock);
	if (file->count == TP_MAX_PINS)
		err = -ENOSPC;
	else
		err = xa_alloc_cyclic(&file->objects, &obj->handle, NULL,
				      XA_LIMIT(1, TP_LAST_HANDLE), &file->next_handle,
				      GFP_KERNEL_ACCOUNT);
	if (err >= 0)
		file->count++;
	mutex_unlock(&file->lock);
	if (err < 0)
		return err == -EBUSY ? -ENOSPC : err;
	err = tp_object_charge(obj);
	if (err) {
		tp_object_withdraw(obj);
		return err;
	}
	mmgrab(obj->mm);
	kref_get(&file->ref);
	return 0;
}

/**
 * tp_object_publish() - Makes an object the one that its handle means.
 * @obj: the object
 *
 * Context: Takes file->lock.
 */
void tp_object_publish(struct tp_object *obj)
{
	mutex_lock(&obj->file->lock);
	xa_store(&obj->file->objects, obj->handle, obj, GFP_KERNEL); /* the place is there */
	mutex_unlock(&obj->file->lock);
}

/**
 * tp_object_withdraw() - Takes the handle back, of an object that was not published.
 * @obj: the object
 *
 * Context: Takes file->lock.
 */
void tp_object_withdraw(struct tp_object *obj)
{
	mutex_lock(&obj->file->lock);
	xa_erase(&obj->file->objects, obj->handle);
	obj->file->count--;
	mutex_unlock(&obj->file->lock);
}

/**
 * tp_object_get() - Looks a handle up.
 * @file: the open file
 * @handle: the handle
 *
 * Context: Takes file->lock.
 * Return: the object, with a reference for the caller, or NULL.
 */
struct tp_object *tp_object_get(struct tp_file *file, u32 handle)
{
	struct tp_object *obj;

	mutex_lock(&file->lock);
	obj = xa_load(&file->objects, handle);
	if (obj)
		kref_get(&obj->ref);
	mutex_unlock(&file->lock);
	return obj;
}

static void tp_file_free(struct kref *ref)
{
	struct tp_file *file = container_of(ref, struct tp_file, ref);

	put_pid(file->opener);
	put_device(&file->dev->device);
	mutex_destroy(&file->lock);
	kfree(file);
}

/**
 * tp_file_put() - Drops a reference of an open file, and frees it with the last one.
 * @file: the open file
 */
void tp_file_put(struct tp_file *file)
{
	kref_put(&file->ref, tp_file_free);
}

static void tp_object_free(struct kref *ref)
{
	struct tp_object *obj = container_of(ref, struct tp_object, ref);
	struct tp_file *file = obj->file;

	mmdrop(obj->mm);
	obj->ops->free(obj);
	tp_file_put(file);
}

/**
 * tp_object_put() - Drops a reference of an object, and frees it with the last one.
 * @obj: the object
 */
void tp_object_put(struct tp_object *obj)
{
	kref_put(&obj->ref, tp_object_free);
}

/**
 * tp_object_offset() - Returns where an object can be mapped.
 * @obj: the object, with its handle
 *
 * Return: the offset for mmap.
 */
u64 tp_object_offset(struct tp_object *obj)
{
	return (obj->ops->first_slot + obj->handle) << TP_MMAP_SHIFT;
}

/**
 * tp_object_drop() - Ends an object that is in no table any more, and drops a reference of it.
 * @obj: the object
 *
 * Context: The function is there, or has been told to forget the object. No lock is held. Sleeps.
 */
void tp_object_drop(struct tp_object *obj)
{
	obj->ops->end(obj);
	obj->ops->finish(obj);
	tp_object_put(obj);
}

/* With the function there: takes the object out of the table and its memory from the function. */
static int tp_put_locked(struct tp_file *file, u32 handle, struct tp_object **ended)
{
	struct tp_object *obj;
	int err = 0;

	mutex_lock(&file->lock);
	obj = xa_load(&file->objects, handle);
	if (!obj) {
		err = -ENOENT;
	} else if (atomic_read(&obj->vmas)) {
		err = -EBUSY;
	} else {
		xa_erase(&file->objects, handle);
		file->count--;
		obj->ops->end(obj);
		*ended = obj;
	}
	mutex_unlock(&file->lock);
	return err;
}

/**
 * tp_put() - Does PUT: ends a pin or an allocation.
 * @file: the caller's open file
 * @arg: struct tegra_p2p_put
 *
 * Context: Takes SRCU and file->lock, and sleeps. What is left of the object may have to wait for
 * others, which must not hold up remove(): SRCU is not held then.
 * Return: 0; -EINVAL; -ENODEV; -ENOENT: there is no such handle; -EBUSY: it is mapped.
 */
long tp_put(struct tp_file *file, void *arg)
{
	struct tegra_p2p_put *a = arg;
	struct tp_object *obj = NULL;
	int idx, err = -ENODEV;

	if (a->flags || a->pad)
		return -EINVAL;
	idx = srcu_read_lock(&file->dev->srcu);
	if (!READ_ONCE(file->dev->gone))
		err = tp_put_locked(file, a->handle, &obj);
	srcu_read_unlock(&file->dev->srcu, idx);
	if (obj)
		tp_object_drop(obj);
	return err;
}

/* Whether the function may still be at work on memory of the file. */
static bool tp_file_busy(struct tp_file *file)
{
	struct tp_object *obj;
	unsigned long i;

	xa_for_each(&file->objects, i, obj)
		if (obj->ops->busy(obj))
			return true;
	return false;
}

/**
 * tp_file_end() - Takes all memory of a file from the function.
 * @file: the open file, whose last descriptor has been closed
 *
 * Whoever closes with memory left has not stopped its engine, so the next one begins with a fence.
 *
 * Context: Takes file->lock and may sleep.
 */
void tp_file_end(struct tp_file *file)
{
	struct tp_dev *dev = file->dev;
	struct tp_object *obj;
	unsigned long i;
	int idx = srcu_read_lock(&dev->srcu);

	mutex_lock(&file->lock);
	if (tp_file_busy(file)) {
		/* remove() waits for this, and then takes what is left of others. */
		if (READ_ONCE(dev->gone))
			tp_stop(dev, TP_FENCE_CLOSED, 0);
		else
			tp_fence(dev, TP_FENCE_CLOSED, 0);
	}
	xa_for_each(&file->objects, i, obj)
		obj->ops->end(obj);
	mutex_unlock(&file->lock);
	srcu_read_unlock(&dev->srcu, idx);
}

/**
 * tp_file_finish() - Does the rest after tp_file_end(), when nobody else knows the file.
 * @file: the open file
 *
 * Context: No lock is held. Sleeps.
 */
void tp_file_finish(struct tp_file *file)
{
	struct tp_object *obj;
	unsigned long i;

	xa_for_each(&file->objects, i, obj)
		if (obj->ops->begin_finish)
			obj->ops->begin_finish(obj);
	xa_for_each(&file->objects, i, obj) {
		xa_erase(&file->objects, i);
		if (obj->ops->of_others && obj->ops->of_others(obj))
			tp_object_put(obj); /* its worker does the rest */
		else
			tp_object_drop(obj);
	}
	xa_destroy(&file->objects);
}

/**
 * tp_file_unplug() - Takes all memory of a file from a function that goes, or its driver does.
 * @file: the open file
 *
 * Context: BARs and allocations are zapped, and bus mastering has ended. files_lock is held. Takes
 * file->lock and may sleep.
 */
void tp_file_unplug(struct tp_file *file)
{
	struct tp_object *obj;
	unsigned long i;

	mutex_lock(&file->lock);
	xa_for_each(&file->objects, i, obj)
		obj->ops->unplug(obj);
	mutex_unlock(&file->lock);
}
