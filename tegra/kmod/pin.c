// SPDX-License-Identifier: GPL-2.0
/* PIN and QUERY. */
#include <linux/backing-dev.h>
#include <linux/hugetlb_inline.h>
#include <linux/overflow.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/userfaultfd_k.h>

#include "p2p.h"
#include "trace.h"

/*
 * Whether a file system keeps track of what is written to the mapping, and writes it back. It does
 * not learn of what a function writes: that would be lost, or found where it must not be. Linux
 * itself refuses such pins since 6.5.
 */
static bool tp_vma_written_back(struct vm_area_struct *vma)
{
	const vm_flags_t written = VM_SHARED | VM_WRITE;

	return (vma->vm_flags & written) == written && vma->vm_file &&
	       !S_ISCHR(file_inode(vma->vm_file)->i_mode) &&
	       mapping_can_writeback(vma->vm_file->f_mapping);
}

/*
 * Whether pages that were faulted in can be pinned without another fault. Those of hugetlbfs are
 * never read; a private mapping that is not written gets copies of a file's pages when it is pinned
 * (since 6.2), which is a fault.
 */
static bool tp_vma_kept_in_file(struct vm_area_struct *vma)
{
	return vma->vm_file && !is_vm_hugetlb_page(vma) && (vma->vm_flags & (VM_SHARED | VM_WRITE));
}

/**
 * tp_check_vma() - Checks that the range is in one mapping of memory that allows what is asked for.
 * @pin: the pin, of the caller; gets what the mapping says of it
 *
 * Context: mmap_lock is held.
 * Return: 0; -EFAULT; -EMEDIUMTYPE: the memory has another cache attribute than expected.
 */
int tp_check_vma(struct tp_pin *pin)
{
	struct vm_area_struct *vma = find_vma(current->mm, pin->va);

	if (!vma || pin->va < vma->vm_start || pin->va + pin->obj.size > vma->vm_end)
		return -EFAULT;
	pin->writable = vma->vm_flags & VM_WRITE;
	pin->of_driver = vma->vm_file && S_ISCHR(file_inode(vma->vm_file)->i_mode);
	pin->cached = vma->vm_file && vma->vm_ops && vma->vm_ops->map_pages;
	pin->no_fault = tp_vma_kept_in_file(vma);
	if (vma->vm_flags & (VM_IO | VM_PFNMAP) || !(vma->vm_flags & VM_READ))
		return -EFAULT;
	if (userfaultfd_armed(vma)) /* nv-p2p's provider would wait for whoever fills it in */
		return -EFAULT;
	if (pin->direction != DMA_TO_DEVICE && !pin->writable)
		return -EFAULT;
	if (tp_vma_written_back(vma))
		return -EFAULT;
	switch (tp_prot_cache(vma->vm_page_prot)) {
	case TP_CACHE_WB:
		pin->attr = TEGRA_P2P_ATTR_WB;
		break;
	case TP_CACHE_WC:
		pin->attr = TEGRA_P2P_ATTR_WC;
		break;
	case TP_CACHE_OTHER:
		return -EMEDIUMTYPE;
	}
	if (pin->expect != TP_EXPECT_ANY && pin->expect != pin->attr)
		return -EMEDIUMTYPE;
	return 0;
}

/**
 * tp_pin_segments() - Makes room for segments, for a back end's map.
 * @pin: the pin
 * @n: how many
 *
 * Context: May sleep. Where map may not reclaim, it does not take from the reserves instead.
 * Return: 0 or -ENOMEM.
 */
int tp_pin_segments(struct tp_pin *pin, u32 n)
{
	pin->segs = kvcalloc(n, sizeof(*pin->segs), GFP_KERNEL_ACCOUNT | __GFP_NOMEMALLOC);
	return pin->segs ? 0 : -ENOMEM;
}

/**
 * tp_pin_segment() - Adds a segment. It becomes one with the one before where it can.
 * @pin: the pin, with room
 * @iova: the segment's bus address
 * @len: its length in bytes
 *
 * Context: pin->lock is held.
 */
void tp_pin_segment(struct tp_pin *pin, u64 iova, u64 len)
{
	struct tegra_p2p_segment *last = pin->segs + pin->nsegs - 1;

	if (pin->nsegs && last->iova + last->len == iova) {
		last->len += len;
		return;
	}
	pin->segs[pin->nsegs++] = (struct tegra_p2p_segment){ .iova = iova, .len = len };
}

static int tp_pin_check_args(struct tegra_p2p_pin *a)
{
	const u32 expects = TEGRA_P2P_PIN_EXPECT_WB | TEGRA_P2P_PIN_EXPECT_WC;
	u64 end;

	if (a->flags & ~(TP_DIRECTIONS | expects) || !(a->flags & TP_DIRECTIONS) ||
	    (a->flags & expects) == expects)
		return -EINVAL;
	a->va = untagged_addr(a->va);
	if (!a->va || !a->size || !PAGE_ALIGNED(a->va) || !PAGE_ALIGNED(a->size) ||
	    check_add_overflow(a->va, a->size, &end))
		return -EINVAL;
	return a->size > TP_MAX_BYTES ? -E2BIG : 0;
}

static struct tp_pin *tp_pin_new(struct tp_file *file, const struct tegra_p2p_pin *a)
{
	struct tp_pin *pin = kmem_cache_zalloc(tp_pin_cache, GFP_KERNEL_ACCOUNT);
	int err;

	if (!pin)
		return ERR_PTR(-ENOMEM);
	mutex_init(&pin->lock);
	INIT_WORK(&pin->work, tp_pin_work);
	INIT_LIST_HEAD(&pin->check);
	pin->va = a->va;
	pin->cookie = a->cookie;
	pin->expect = TP_EXPECT_ANY;
	if (a->flags & TEGRA_P2P_PIN_EXPECT_WB)
		pin->expect = TEGRA_P2P_ATTR_WB;
	if (a->flags & TEGRA_P2P_PIN_EXPECT_WC)
		pin->expect = TEGRA_P2P_ATTR_WC;
	pin->direction = DMA_BIDIRECTIONAL;
	if (!(a->flags & TEGRA_P2P_PIN_FROM_DEVICE))
		pin->direction = DMA_TO_DEVICE;
	else if (!(a->flags & TEGRA_P2P_PIN_TO_DEVICE))
		pin->direction = DMA_FROM_DEVICE;
	err = tp_object_init(&pin->obj, file, a->size, &tp_pin_ops);
	if (err) {
		tp_pin_free(&pin->obj);
		return ERR_PTR(err);
	}
	return pin;
}

/*
 * Maps the pages that the back end has got, if they are still the caller's and there is no fence.
 * Under fence_lock, so that no IOVA is given out between the fence of a revocation and RESUME.
 */
static int tp_pin_map_locked(struct tp_pin *pin, struct tp_dev *dev)
{
	int err;

	if (dev->state != TEGRA_P2P_STATE_LIVE)
		return -ESTALE;
	if (pin->doomed)
		return -EAGAIN;
	err = tp_backend->map(pin, &dev->pdev->dev);
	if (!err)
		WRITE_ONCE(pin->state, TP_LIVE);
	return err;
}

static int tp_pin_map(struct tp_pin *pin)
{
	struct tp_dev *dev = pin->obj.file->dev;
	int idx = srcu_read_lock(&dev->srcu);
	int err = -ENODEV;

	if (!READ_ONCE(dev->gone))
		err = tp_may_use(dev, pin->obj.file->unsafe);
	if (!err) {
		mutex_lock(&pin->lock);
		mutex_lock(&dev->fence_lock);
		err = tp_pin_map_locked(pin, dev);
		mutex_unlock(&dev->fence_lock);
		mutex_unlock(&pin->lock);
	}
	if (!err) { /* here, so that remove() finds it */
		tp_object_publish(&pin->obj);
		trace_tegra_p2p_pin(dev->name, pin->obj.handle, pin->va, pin->obj.size, pin->nsegs);
	}
	srcu_read_unlock(&dev->srcu, idx);
	return err;
}

/**
 * tp_pin_fault_in() - Faults the pages in before the back end pins them with mmap_lock held.
 * @pin: the pin, of the caller
 *
 * No signal ends a wait with mmap_lock held, and the pages may be of a file whose server never
 * answers.
 *
 * Context: Takes mmap_lock and sleeps.
 * Return: 0; -EINTR: the caller was killed; an errno of tp_check_vma() or of a fault.
 */
int tp_pin_fault_in(struct tp_pin *pin)
{
	unsigned long va = pin->va, end = va + pin->obj.size;
	long n;
	int err;

	if (mmap_read_lock_killable(current->mm))
		return -EINTR;
	err = tp_check_vma(pin);
	mmap_read_unlock(current->mm);
	while (!err && va < end) {
		n = get_user_pages_unlocked(va, (end - va) >> PAGE_SHIFT, NULL,
					    pin->writable ? FOLL_WRITE : 0);
		if (n > 0)
			va += n << PAGE_SHIFT;
		else
			err = n ?: -EFAULT;
	}
	return fatal_signal_pending(current) ? -EINTR : err;
}

static int tp_pin_build(struct tp_pin *pin)
{
	struct tp_dev *dev = pin->obj.file->dev;
	bool fenced;
	int err;

	mutex_lock(&dev->fence_lock);
	fenced = dev->state != TEGRA_P2P_STATE_LIVE;
	mutex_unlock(&dev->fence_lock);
	if (READ_ONCE(dev->gone))
		return -ENODEV;
	if (fenced)
		return -ESTALE;
	err = tp_pin_list(pin);
	if (!err)
		err = tp_pin_fault_in(pin);
	if (!err)
		err = tp_backend->get(pin);
	if (err)
		return err;
	pin->got = true;
	return tp_pin_map(pin);
}

/* Copies segments from first on; those of a revoked pin are no longer valid and are not given. */
static int tp_pin_copy_segments(struct tp_pin *pin, u64 to, u32 cap, u32 first, u32 nsegs)
{
	u32 n;

	if (first >= nsegs)
		return 0;
	n = min(cap, nsegs - first);
	return copy_to_user(u64_to_user_ptr(to), pin->segs + first,
			    (size_t)n * sizeof(*pin->segs)) ?
		       -EFAULT :
		       0;
}

/* Undoes a PIN whose result the caller cannot be told. Another thread may have been quicker. */
static void tp_pin_undo(struct tp_pin *pin)
{
	struct tp_file *file = pin->obj.file;
	struct tp_dev *dev = file->dev;
	int idx = srcu_read_lock(&dev->srcu);
	bool ours = false;

	if (!READ_ONCE(dev->gone)) {
		mutex_lock(&file->lock);
		ours = xa_load(&file->objects, pin->obj.handle) == &pin->obj &&
		       !atomic_read(&pin->obj.vmas);
		if (ours) {
			xa_erase(&file->objects, pin->obj.handle);
			file->count--;
			tp_pin_end(&pin->obj);
		}
		mutex_unlock(&file->lock);
	}
	srcu_read_unlock(&dev->srcu, idx);
	if (ours)
		tp_object_drop(&pin->obj);
}

/* Builds a new pin and tells what a is to say of it. */
static long tp_pin_make(struct tp_pin *pin, struct tegra_p2p_pin *a)
{
	int err;

	kref_get(&pin->obj.ref);
	err = tp_pin_build(pin);
	if (err) {
		tp_object_withdraw(&pin->obj);
		tp_object_drop(&pin->obj);
		goto out;
	}
	mutex_lock(&pin->lock);
	a->nsegs = pin->nsegs;
	mutex_unlock(&pin->lock);
	a->handle = pin->obj.handle;
	a->attr = pin->attr;
	a->mmap_offset = tp_object_offset(&pin->obj);
	err = tp_pin_copy_segments(pin, a->segs, a->seg_cap, 0, a->nsegs);
	if (err)
		tp_pin_undo(pin);
out:
	tp_object_put(&pin->obj);
	return err;
}

/**
 * tp_pin() - Does PIN: pins memory of the caller and maps it for the function.
 * @file: the caller's open file
 * @arg: struct tegra_p2p_pin
 *
 * Context: No lock is held. Sleeps.
 * Return: 0 or an errno.
 */
long tp_pin(struct tp_file *file, void *arg)
{
	struct tegra_p2p_pin *a = arg;
	struct tp_pin *pin;
	int err;

	err = tp_pin_check_args(a);
	if (err)
		return err;
	pin = tp_pin_new(file, a);
	return IS_ERR(pin) ? PTR_ERR(pin) : tp_pin_make(pin, a);
}

/**
 * tp_query() - Does QUERY: a pin's state and segments.
 * @file: the caller's open file
 * @arg: struct tegra_p2p_query
 *
 * Context: Takes file->lock and pin->lock, and may sleep.
 * Return: 0; -ENOENT: there is no such handle; -EINVAL: also, it is no pin's; -EFAULT.
 */
long tp_query(struct tp_file *file, void *arg)
{
	struct tegra_p2p_query *a = arg;
	struct tp_object *obj;
	struct tp_pin *pin;
	bool ended;
	int err;

	if (a->flags)
		return -EINVAL;
	obj = tp_object_get(file, a->handle);
	if (!obj)
		return -ENOENT;
	if (obj->ops != &tp_pin_ops) {
		tp_object_put(obj);
		return -EINVAL;
	}
	pin = tp_to_pin(obj);
	mutex_lock(&pin->lock);
	ended = pin->state == TP_ENDED; /* another thread has put it */
	a->state = pin->state == TP_LIVE ? TEGRA_P2P_PIN_LIVE : TEGRA_P2P_PIN_REVOKED;
	a->reason = pin->reason;
	a->fence_gen = pin->fence_gen;
	a->nsegs = pin->nsegs;
	mutex_unlock(&pin->lock);
	a->cookie = pin->cookie;
	err = ended ? -ENOENT :
		      tp_pin_copy_segments(pin, a->segs, a->seg_cap, a->seg_first, a->nsegs);
	tp_object_put(obj);
	return err;
}
