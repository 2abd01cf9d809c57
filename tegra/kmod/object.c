// SPDX-License-Identifier: GPL-2.0
/* Handles: what an open file owns, how it is counted and charged, and how it ends. */
#include <linux/cred.h>
#include <linux/dma-mapping.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>
#include <linux/slab.h>

#include "p2p.h"

/*
 * Charges the caller's locked memory (RLIMIT_MEMLOCK), as RDMA does. mm is the caller's, and is
 * referenced.
 */
static int charge_mm(struct mm_struct *mm, s64 pages)
{
	s64 limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;

	if (atomic64_add_return(pages, &mm->pinned_vm) > limit && !capable(CAP_IPC_LOCK)) {
		atomic64_sub(pages, &mm->pinned_vm);
		return -ENOMEM;
	}
	mmgrab(mm);
	return 0;
}

static void uncharge_user(const struct cred *cred, s64 pages)
{
	atomic_long_sub(pages, &cred->user->locked_vm);
	put_cred(cred);
}

/*
 * The same for memory that can outlive the caller's address space: charged to the user. NULL beyond
 * the limit.
 */
static const struct cred *charge_user(s64 pages)
{
	const struct cred *cred = get_current_cred(); /* keeps the user */
	s64 limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;

	if (atomic_long_add_return(pages, &cred->user->locked_vm) <= limit || capable(CAP_IPC_LOCK))
		return cred;
	uncharge_user(cred, pages);
	return NULL;
}

static int charge(struct tp_object *obj)
{
	int err;

	if (!obj->is_pin) {
		obj->cred = charge_user(obj->size >> PAGE_SHIFT);
		if (!obj->cred)
			return -ENOMEM;
	}
	err = charge_mm(current->mm, obj->size >> PAGE_SHIFT);
	if (err) {
		if (obj->cred)
			uncharge_user(obj->cred, obj->size >> PAGE_SHIFT);
		return err;
	}
	obj->mm = current->mm;
	obj->charged = true;
	atomic64_add(obj->size, &obj->file->bytes);
	return 0;
}

/* mm_dropped: the reference of charge has gone already, and the caller has another. */
void tp_object_uncharge(struct tp_object *obj, bool mm_dropped)
{
	if (!obj->charged)
		return;
	obj->charged = false;
	if (obj->cred)
		uncharge_user(obj->cred, obj->size >> PAGE_SHIFT);
	atomic64_sub(obj->size >> PAGE_SHIFT, &obj->mm->pinned_vm);
	atomic64_sub(obj->size, &obj->file->bytes);
	if (!mm_dropped)
		mmdrop(obj->mm);
}

/*
 * Counts, charges and gives a handle that means nothing before tp_object_publish. A failure leaves
 * nothing.
 */
int tp_object_init(struct tp_object *obj, struct tp_file *file, u64 size, bool is_pin)
{
	int err;

	kref_init(&obj->ref);
	obj->file = file;
	obj->size = size;
	obj->is_pin = is_pin;
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
	err = charge(obj);
	if (err) {
		tp_object_withdraw(obj);
		return err;
	}
	mmgrab(obj->mm);
	kref_get(&file->ref);
	return 0;
}

void tp_object_publish(struct tp_object *obj)
{
	mutex_lock(&obj->file->lock);
	xa_store(&obj->file->objects, obj->handle, obj, GFP_KERNEL); /* the place is there */
	mutex_unlock(&obj->file->lock);
}

/* Takes the handle back, of an object that was not published. */
void tp_object_withdraw(struct tp_object *obj)
{
	mutex_lock(&obj->file->lock);
	xa_erase(&obj->file->objects, obj->handle);
	obj->file->count--;
	mutex_unlock(&obj->file->lock);
}

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

static void object_free(struct kref *ref)
{
	struct tp_object *obj = container_of(ref, struct tp_object, ref);
	struct tp_file *file = obj->file;

	mmdrop(obj->mm);
	if (obj->is_pin)
		tp_pin_free(tp_to_pin(obj));
	else
		kfree(tp_to_mem(obj));
	tp_file_put(file);
}

void tp_object_put(struct tp_object *obj)
{
	kref_put(&obj->ref, object_free);
}

u64 tp_object_offset(struct tp_object *obj)
{
	u64 first = obj->is_pin ? TP_FIRST_PIN_SLOT : TP_FIRST_HANDLE_SLOT;

	return (first + obj->handle) << TP_MMAP_SHIFT;
}

/* With file->lock held, or the memory known to nobody else. The function is there. */
void tp_mem_free(struct tp_mem *mem)
{
	struct tp_dev *dev = mem->obj.file->dev;

	if (mem->cpu && !READ_ONCE(dev->over))
		dma_free_coherent(&dev->pdev->dev, mem->obj.size, mem->cpu, mem->iova);
	if (mem->cpu)
		sg_free_table(&mem->pages);
	mem->cpu = NULL;
}

/* Nobody has seen the memory yet, so a fence that comes in between does no harm. */
static int mem_alloc(struct tp_mem *mem)
{
	struct tp_dev *dev = mem->obj.file->dev;
	u64 gen;
	int err;

	err = tp_may_use(dev, mem->obj.file->unsafe);
	if (err)
		return err;
	mutex_lock(&dev->fence_lock);
	gen = dev->fence_gen;
	if (dev->state != TEGRA_P2P_STATE_LIVE)
		err = -ESTALE;
	mutex_unlock(&dev->fence_lock);
	if (err)
		return err;
	/*
	 * Refused when there is no room: nobody is killed for it. It is charged to the user, and
	 * not to a memory cgroup as well: that would hold the caller up, and whoever unbinds with
	 * it.
	 */
	mem->cpu = dma_alloc_coherent(&dev->pdev->dev, mem->obj.size, &mem->iova,
				      GFP_KERNEL | __GFP_RETRY_MAYFAIL | __GFP_NOWARN);
	if (!mem->cpu)
		return -ENOMEM;
	err = dma_get_sgtable(&dev->pdev->dev, &mem->pages, mem->cpu, mem->iova, mem->obj.size);
	if (err) {
		dma_free_coherent(&dev->pdev->dev, mem->obj.size, mem->cpu, mem->iova);
		mem->cpu = NULL;
		return -ENOMEM;
	}
	mutex_lock(&dev->fence_lock);
	if (gen != dev->fence_gen)
		err = -ESTALE;
	mutex_unlock(&dev->fence_lock);
	if (err)
		tp_mem_free(mem);
	return err;
}

long tp_alloc(struct tp_file *file, void *arg)
{
	struct tegra_p2p_alloc *a = arg;
	struct tp_mem *mem;
	int err;

	if (a->flags || a->pad || !a->size || !PAGE_ALIGNED(a->size))
		return -EINVAL;
	if (a->size > TP_MAX_ALLOC)
		return -E2BIG;
	mem = kzalloc(sizeof(*mem), GFP_KERNEL_ACCOUNT);
	if (!mem)
		return -ENOMEM;
	err = tp_object_init(&mem->obj, file, a->size, false);
	if (err) {
		kfree(mem);
		return err;
	}
	err = mem_alloc(mem);
	if (err) {
		tp_object_withdraw(&mem->obj);
		tp_object_uncharge(&mem->obj, false);
		tp_object_put(&mem->obj);
		return err;
	}
	a->iova = mem->iova;
	a->handle = mem->obj.handle;
	a->mmap_offset = tp_object_offset(&mem->obj);
	tp_object_publish(&mem->obj);
	return 0;
}

/*
 * Ends an object that is in no table any more. The function is there, or has been told to forget
 * it.
 */
void tp_object_drop(struct tp_object *obj)
{
	if (obj->is_pin) {
		tp_pin_end(tp_to_pin(obj));
		tp_pin_finish(tp_to_pin(obj));
	} else {
		tp_mem_free(tp_to_mem(obj));
		tp_object_uncharge(obj, false);
	}
	tp_object_put(obj);
}

/* With the function there: takes the object out of the table and its memory from the function. */
static int put_locked(struct tp_file *file, u32 handle, struct tp_object **ended)
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
		if (obj->is_pin)
			tp_pin_end(tp_to_pin(obj));
		else
			tp_mem_free(tp_to_mem(obj));
		*ended = obj;
	}
	mutex_unlock(&file->lock);
	return err;
}

/* What is left of the object may have to wait for others, which must not hold up remove(). */
long tp_put(struct tp_file *file, void *arg)
{
	struct tegra_p2p_put *a = arg;
	struct tp_object *obj = NULL;
	int idx, err = -ENODEV;

	if (a->flags || a->pad)
		return -EINVAL;
	idx = srcu_read_lock(&file->dev->srcu);
	if (!READ_ONCE(file->dev->gone))
		err = put_locked(file, a->handle, &obj);
	srcu_read_unlock(&file->dev->srcu, idx);
	if (obj)
		tp_object_drop(obj);
	return err;
}

/* Whether the function may still be at work on memory of the file. */
static bool file_busy(struct tp_file *file)
{
	struct tp_object *obj;
	unsigned long i;

	xa_for_each(&file->objects, i, obj)
		if (obj->is_pin ? READ_ONCE(tp_to_pin(obj)->state) == TP_LIVE :
				  !!tp_to_mem(obj)->cpu)
			return true;
	return false;
}

/*
 * The last descriptor has been closed: no memory of the file is mapped for the function any more
 * when this returns. Whoever closes with memory left has not stopped its engine, so the next one
 * begins with a fence.
 */
void tp_file_end(struct tp_file *file)
{
	struct tp_dev *dev = file->dev;
	struct tp_object *obj;
	unsigned long i;
	int idx = srcu_read_lock(&dev->srcu);

	mutex_lock(&file->lock);
	if (file_busy(file)) {
		/* remove() waits for this, and then takes what is left of others. */
		if (READ_ONCE(dev->gone))
			tp_stop(dev, TP_FENCE_CLOSED, 0);
		else
			tp_fence(dev, TP_FENCE_CLOSED, 0);
	}
	xa_for_each(&file->objects, i, obj) {
		if (obj->is_pin)
			tp_pin_end(tp_to_pin(obj));
		else
			tp_mem_free(tp_to_mem(obj));
	}
	mutex_unlock(&file->lock);
	srcu_read_unlock(&dev->srcu, idx);
}

/* The rest, when nobody else knows the file. */
void tp_file_finish(struct tp_file *file)
{
	struct tp_object *obj;
	unsigned long i;

	xa_for_each(&file->objects, i, obj)
		if (obj->is_pin)
			tp_pin_begin_finish(tp_to_pin(obj));
	xa_for_each(&file->objects, i, obj) {
		xa_erase(&file->objects, i);
		if (obj->is_pin && tp_pin_of_others(tp_to_pin(obj)))
			tp_object_put(obj); /* its worker does the rest */
		else
			tp_object_drop(obj);
	}
	xa_destroy(&file->objects);
}

/*
 * The function goes, or its driver does. Its BARs and allocations are zapped and its bus mastering
 * has ended.
 */
void tp_file_unplug(struct tp_file *file)
{
	struct tp_object *obj;
	unsigned long i;

	mutex_lock(&file->lock);
	xa_for_each(&file->objects, i, obj) {
		if (obj->is_pin)
			tp_pin_revoke(tp_to_pin(obj), TEGRA_P2P_REASON_UNPLUG, false);
		else
			tp_mem_free(tp_to_mem(obj));
	}
	mutex_unlock(&file->lock);
}
