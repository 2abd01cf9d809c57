// SPDX-License-Identifier: GPL-2.0
/*
 * Pins through pin_user_pages: memory of any kind that the kernel lets be pinned for long. The
 * pages stay where they are until the pin is given back, so an invalidation tells user space only
 * that its mapping is no longer theirs.
 *
 * Many invalidations change nothing for pages that are pinned: compaction and reclaim unmap a page
 * and map it again when they find that it cannot go, writeback protects it for a moment. After such
 * a one a worker looks whether the mapping still leads to the same pages, and revokes the pin if
 * not. PIN itself does so after one that comes meanwhile, and leaves to the worker what cannot be
 * told yet.
 */
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "p2p.h"

struct workqueue_struct *tp_mm_wq;

#define ATTEMPTS 8 /* at pinning, if pages vanish or are replaced meanwhile */
#define CHECKS 12 /* a page that is on its way is looked for again after 1, 2, 4 ... ticks */
#define LATEST (8 * HZ) /* between two looks at a page that is in its file and not mapped */

/*
 * Reports whether an invalidation ends the pin at once. What else comes may leave the pages where
 * they are, mprotect and NUMA balancing (both MMU_NOTIFY_PROTECTION_VMA) among them.
 */
static bool tp_gup_ends(enum mmu_notifier_event event)
{
	return event == MMU_NOTIFY_UNMAP || event == MMU_NOTIFY_RELEASE;
}

/*
 * With pin->lock held: the pages of the range are to be looked at again, by PIN or, once the pin is
 * live, by a worker. It does not come earlier than planned after looks that told nothing.
 */
static void tp_gup_look_again(struct tp_pin *pin, const struct mmu_notifier_range *range)
{
	u64 first = max_t(u64, range->start, pin->va) - pin->va;
	u64 last = min_t(u64, range->end, pin->va + pin->obj.size) - 1 - pin->va;

	if (pin->state == TP_REVOKED || pin->state == TP_ENDED)
		return;
	if (pin->gup.check_first > pin->gup.check_last)
		pin->gup.checks = 0;
	pin->gup.later = 1;
	pin->gup.check_first = min_t(unsigned long, pin->gup.check_first, first >> PAGE_SHIFT);
	pin->gup.check_last = max_t(unsigned long, pin->gup.check_last, last >> PAGE_SHIFT);
	if (pin->state == TP_LIVE)
		tp_pin_check(pin, 1UL << pin->gup.checks);
}

static bool tp_gup_invalidate(struct mmu_interval_notifier *notifier,
			      const struct mmu_notifier_range *range, unsigned long seq)
{
	struct tp_pin *pin = container_of(notifier, struct tp_pin, gup.notifier);
	bool ends = tp_gup_ends(range->event);

	/*
	 * The OOM reaper may not be kept waiting: it leaves what it cannot have to the end of the
	 * process.
	 */
	if (mmu_notifier_range_blockable(range))
		mutex_lock(&pin->lock);
	else if (!mutex_trylock(&pin->lock))
		return false;
	if (ends && !mmu_notifier_range_blockable(range) && pin->state != TP_REVOKED &&
	    pin->state != TP_ENDED) {
		mutex_unlock(&pin->lock);
		return false;
	}
	mmu_interval_set_seq(notifier, seq);
	if (!ends)
		tp_gup_look_again(pin, range);
	mutex_unlock(&pin->lock);
	if (ends)
		tp_pin_revoke(pin,
			      range->event == MMU_NOTIFY_RELEASE ? TEGRA_P2P_REASON_MM_EXIT :
								   TEGRA_P2P_REASON_INVALIDATE,
			      true);
	return true;
}

static const struct mmu_interval_notifier_ops tp_gup_ops = {
	.invalidate = tp_gup_invalidate,
};

static bool tp_gup_in_file(struct page *page)
{
	return !PageAnon(page) && READ_ONCE(compound_head(page)->mapping);
}

/*
 * Gets the page that the mapping leads to at va. A page of a file is never read in for this: its
 * server may not answer, and this worker is needed for others' pins. Memory without a file may come
 * from the swap cache, where reclaim has left the pinned page. Kernels that always fault
 * (before 5.16) cannot tell of a mapping with a file: -EFAULT, as for another page. FOLL_FORCE
 * passes by the marks of NUMA balancing; the caller has compared the rights.
 */
static long tp_gup_page_at(struct tp_pin *pin, struct vm_area_struct *vma, unsigned long va,
			   struct page **now)
{
	long n;

	if (!vma->vm_file)
		return tp_get_page_of(pin->obj.mm, va, FOLL_FORCE | FOLL_NOWAIT, now);
	if (!TP_FOLL_NOFAULT)
		return -EFAULT;
	n = tp_get_page_of(pin->obj.mm, va, FOLL_FORCE | TP_FOLL_NOFAULT, now);
	return n == -EFAULT ? -EBUSY : n; /* it may be on its way */
}

/*
 * Looks whether the mapping still leads to page i: 0, or -EBUSY when that cannot be told yet. A
 * page that is still in its file is the one that the next touch finds, unless a private mapping may
 * have a copy of it: a debugger makes one without the right to write. It is not faulted in for
 * that: this would fill holes that are punched. But who takes it out of the file unmaps it first:
 * -EAGAIN until it is mapped again.
 */
static int tp_gup_same_page(struct tp_pin *pin, struct vm_area_struct *vma, unsigned long i)
{
	struct page *page = pin->gup.pages[i], *now;
	bool copied = !(vma->vm_flags & VM_SHARED) && ((vma->vm_flags & VM_WRITE) || vma->anon_vma);
	bool file = pin->gup.files && !copied && !PageAnon(page) && !is_zero_pfn(page_to_pfn(page));
	long n;

	if (file && !tp_gup_in_file(page))
		return -EFAULT;
	n = tp_gup_page_at(pin, vma, pin->va + (i << PAGE_SHIFT), &now);
	if (n != 1 && file)
		return -EAGAIN;
	if (n != 1)
		return !n || n == -EBUSY || n == -EAGAIN || n == -ENOMEM ? -EBUSY : -EFAULT;
	put_page(now);
	return now == page ? 0 : -EFAULT;
}

/*
 * Returns the mapping at va, if it still has the rights that the pin was made with. With mmap_lock
 * held.
 */
static struct vm_area_struct *tp_gup_vma(struct tp_pin *pin, unsigned long va)
{
	const vm_flags_t rights = VM_READ | (pin->writable ? VM_WRITE : 0);
	struct vm_area_struct *vma = find_vma(pin->obj.mm, va);

	return vma && vma->vm_start <= va && (vma->vm_flags & rights) == rights ? vma : NULL;
}

static int tp_gup_check_page(struct tp_pin *pin, unsigned long i)
{
	struct vm_area_struct *vma = tp_gup_vma(pin, pin->va + (i << PAGE_SHIFT));

	return vma ? tp_gup_same_page(pin, vma, i) : -EFAULT;
}

static void tp_gup_mm_work(struct work_struct *work)
{
	struct tp_pin *pin = container_of(work, struct tp_pin, gup.mm_work);

	mmput(pin->obj.mm);
	tp_object_put(&pin->obj);
	module_put(THIS_MODULE);
}

/*
 * Gives up the use of the address space. The last user ends it, which waits for what its owner has
 * under way in files (exit_aio), so that is left to a worker that nobody waits for: rmmod is
 * refused meanwhile. Its process has ended, so its pins end here. Drivers cannot call mmput_async.
 */
static void tp_gup_mmput(struct tp_pin *pin)
{
	if (atomic_add_unless(&pin->obj.mm->mm_users, -1, 1))
		return;
	tp_pins_end_mm(pin->obj.file->dev, pin->obj.mm);
	kref_get(&pin->obj.ref);
	__module_get(THIS_MODULE);
	queue_work(tp_mm_wq, &pin->gup.mm_work);
}

/*
 * Looks at the pages from first to last. With -EBUSY or -EAGAIN it makes these the ones that are to
 * be looked at again.
 */
static int tp_gup_check_range(struct tp_pin *pin, unsigned long *first, unsigned long *last)
{
	unsigned long i, again_first = *last + 1, again_last = 0;
	struct mm_struct *mm = pin->obj.mm;
	int err = 0;

	if (!mmget_not_zero(mm)) /* the address space ends, which is an event of its own */
		return 0;
	if (mmap_read_trylock(mm)) {
		for (i = *first; i <= *last && (!err || err == -EAGAIN); i++) {
			err = tp_gup_check_page(pin, i);
			if (!err)
				continue;
			again_first = min(again_first, i);
			again_last = err == -EAGAIN ? i : *last;
		}
		mmap_read_unlock(mm);
		if (!err && again_first <= again_last)
			err = -EAGAIN;
		*first = again_first;
		*last = again_last;
	} else { /* its holder may wait for a file's server */
		err = -EBUSY;
	}
	tp_gup_mmput(pin);
	return err;
}

/* Has the pages looked at again, and reports whether they are. */
static bool tp_gup_postpone(struct tp_pin *pin, unsigned long first, unsigned long last, int err)
{
	unsigned long ticks;
	bool again;

	mutex_lock(&pin->lock);
	if (err == -EAGAIN) {
		pin->gup.checks = 0;
		ticks = pin->gup.later;
		pin->gup.later = min_t(unsigned long, 2 * ticks, LATEST);
		again = true;
	} else {
		ticks = 1UL << ++pin->gup.checks;
		again = err == -EBUSY && pin->gup.checks < CHECKS;
	}
	if (again) {
		pin->gup.check_first = min(pin->gup.check_first, first);
		pin->gup.check_last = max(pin->gup.check_last, last);
		if (pin->state != TP_PINNING)
			tp_pin_check(pin, ticks);
	}
	mutex_unlock(&pin->lock);
	return again;
}

/*
 * Looks at the pages that are to be looked at: 0, or the error of tp_gup_check_range, which makes
 * first and last the pages that are left. Until an invalidation ends the mapping may still be what
 * it was, so the pages of one that begins meanwhile are left to the next look.
 */
static int tp_gup_look(struct tp_pin *pin, unsigned long *first, unsigned long *last)
{
	unsigned long seq = mmu_interval_read_begin(&pin->gup.notifier);
	bool begun;

	mutex_lock(&pin->lock);
	begun = mmu_interval_read_retry(&pin->gup.notifier, seq);
	*first = pin->gup.check_first;
	*last = pin->gup.check_last;
	if (!begun) {
		pin->gup.check_first = ULONG_MAX;
		pin->gup.check_last = 0;
	}
	mutex_unlock(&pin->lock);
	return !begun && *first <= *last ? tp_gup_check_range(pin, first, last) : 0;
}

static void tp_gup_check(struct tp_pin *pin)
{
	unsigned long first, last;
	int err = 0;

	mutex_lock(&pin->gup.checking);
	if (pin->gup.pages)
		err = tp_gup_look(pin, &first, &last);
	if (err && !tp_gup_postpone(pin, first, last, err))
		tp_pin_revoke(pin, TEGRA_P2P_REASON_INVALIDATE, false);
	mutex_unlock(&pin->gup.checking);
}

static void tp_gup_unpin(struct tp_pin *pin, bool dirty)
{
	unpin_user_pages_dirty_lock(pin->gup.pages, pin->gup.n, dirty);
	pin->gup.n = 0;
}

/*
 * All pages of the range, or none. A page of a file that has gone since it was faulted in is not
 * read in here, with mmap_lock held: -EFAULT. Kernels before 5.16 read it.
 */
static int tp_gup_pages(struct tp_pin *pin)
{
	unsigned long want = pin->obj.size >> PAGE_SHIFT;
	unsigned int flags;
	long n;
	int err;

	if (mmap_read_lock_killable(current->mm))
		return -EINTR;
	err = tp_check_vma(pin);
	/*
	 * Also for a function that only reads: else the caller's first write would leave the pinned
	 * page behind.
	 */
	flags = FOLL_LONGTERM | (pin->writable ? FOLL_WRITE : 0);
	if (pin->no_fault)
		flags |= TP_FOLL_NOFAULT;
	while (!err && pin->gup.n < want) {
		n = tp_pin_user_pages(pin->va + (pin->gup.n << PAGE_SHIFT), want - pin->gup.n,
				      flags, pin->gup.pages + pin->gup.n);
		if (n > 0)
			pin->gup.n += n;
		else
			err = n ?: -EFAULT;
	}
	mmap_read_unlock(current->mm);
	if (err)
		tp_gup_unpin(pin, false);
	return err;
}

/* Whether any page belongs to a file, or did until the file was truncated. */
static void tp_gup_files(struct tp_pin *pin)
{
	unsigned long i;

	pin->gup.files = pin->cached;
	for (i = 0; i < pin->gup.n && !pin->gup.files; i++)
		pin->gup.files = tp_gup_in_file(pin->gup.pages[i]);
}

/*
 * Pins the pages, and looks at those for which an invalidation came meanwhile: if they were
 * replaced, or have gone from their file, it begins again. What cannot be told yet is looked at
 * when the pin is live.
 */
static int tp_gup_present_pages(struct tp_pin *pin)
{
	unsigned long first, last;
	int i, err = 0;

	/* Invalidations that began before the notifier was inserted do not call it. */
	mmu_interval_read_begin(&pin->gup.notifier);
	for (i = 0; i < ATTEMPTS; i++) {
		err = tp_gup_pages(pin);
		if (err == -EFAULT && pin->no_fault && !tp_pin_fault_in(pin))
			continue;
		if (err)
			return err;
		tp_gup_files(pin);
		err = tp_gup_look(pin, &first, &last);
		if (!err || tp_gup_postpone(pin, first, last, err))
			return 0;
		tp_gup_unpin(pin, false);
		err = -EAGAIN;
	}
	return err;
}

static int tp_gup_tables(struct tp_pin *pin)
{
	unsigned long n = pin->obj.size >> PAGE_SHIFT;
	int err;

	err = sg_alloc_table_from_pages(&pin->gup.sgt, pin->gup.pages, n, 0, pin->obj.size,
					GFP_KERNEL_ACCOUNT);
	if (err)
		return err;
	err = tp_pin_segments(pin, pin->gup.sgt.orig_nents);
	if (err)
		sg_free_table(&pin->gup.sgt);
	return err;
}

static int tp_gup_get(struct tp_pin *pin)
{
	unsigned long n = pin->obj.size >> PAGE_SHIFT;
	int err;

	mutex_init(&pin->gup.checking);
	INIT_WORK(&pin->gup.mm_work, tp_gup_mm_work);
	pin->gup.check_first = ULONG_MAX;

	pin->gup.pages = kvmalloc_array(n, sizeof(*pin->gup.pages), GFP_KERNEL_ACCOUNT);
	if (!pin->gup.pages)
		return -ENOMEM;
	/* The range is in the caller's address space, or pinning it fails. */
	err = mmu_interval_notifier_insert(&pin->gup.notifier, pin->obj.mm, pin->va, pin->obj.size,
					   &tp_gup_ops);
	if (err)
		goto free;
	err = tp_gup_present_pages(pin);
	if (err)
		goto remove;
	err = tp_gup_tables(pin);
	if (!err)
		return 0;
	tp_gup_unpin(pin, false);
remove:
	mmu_interval_notifier_remove(&pin->gup.notifier);
free:
	kvfree(pin->gup.pages);
	return err == -EOVERFLOW ? -EFAULT : err;
}

static int tp_gup_map(struct tp_pin *pin, struct device *dev)
{
	struct scatterlist *sg;
	int i;

	/* Allocates atomically: no reclaim, and not the last of the reserves. */
	if (dma_map_sgtable(dev, &pin->gup.sgt, pin->direction, DMA_ATTR_NO_WARN))
		return -EIO;
	pin->gup.mapped = true;
	for_each_sgtable_dma_sg(&pin->gup.sgt, sg, i) {
		if (tp_bounced(dev, sg_dma_address(sg))) {
			tp_backend_gup.unmap(pin, false);
			return -EIO;
		}
		tp_pin_segment(pin, sg_dma_address(sg), sg_dma_len(sg));
	}
	if (pin->gup.check_first <= pin->gup.check_last)
		tp_pin_check(pin, 1);
	return 0;
}

static void tp_gup_unmap(struct tp_pin *pin, bool in_callback)
{
	struct tp_dev *dev = pin->obj.file->dev;

	if (pin->gup.mapped && !READ_ONCE(dev->over))
		dma_unmap_sgtable(&dev->pdev->dev, &pin->gup.sgt, pin->direction, 0);
	pin->gup.mapped = false;
}

/*
 * Here and not in the callback, since marking a page dirty takes its lock, which an invalidation
 * may hold.
 */
static void tp_gup_put(struct tp_pin *pin)
{
	mmu_interval_notifier_remove(&pin->gup.notifier);
	mutex_lock(&pin->gup.checking); /* one that begins later finds no pages */
	tp_gup_unpin(pin, pin->direction != DMA_TO_DEVICE);
	sg_free_table(&pin->gup.sgt);
	kvfree(pin->gup.pages);
	pin->gup.pages = NULL;
	mutex_unlock(&pin->gup.checking);
}

static struct page **tp_gup_page_array(struct tp_pin *pin)
{
	return pin->gup.pages;
}

static bool tp_gup_present(void)
{
	return true;
}

const struct tp_backend tp_backend_gup = {
	.name = "pin_user_pages",
	.present = tp_gup_present,
	.get = tp_gup_get,
	.map = tp_gup_map,
	.unmap = tp_gup_unmap,
	.check = tp_gup_check,
	.put = tp_gup_put,
	.pages = tp_gup_page_array,
};
