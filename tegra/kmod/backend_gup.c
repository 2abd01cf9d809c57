// SPDX-License-Identifier: GPL-2.0
/*
 * Pins through pin_user_pages: memory of any kind that the kernel lets be pinned for long. The pages stay where they
 * are until the pin is given back, so an invalidation tells user space only that its mapping is no longer theirs.
 */
#include <linux/dma-mapping.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "p2p.h"

#define ATTEMPTS 8 /* breaking copy-on-write while pinning is an invalidation of its own */

/* The OOM reaper may not be kept waiting: it leaves such a mapping to the end of the process. */
static bool gup_nonblocking(struct tp_pin *pin, unsigned long seq)
{
	bool over;

	if (!mutex_trylock(&pin->lock))
		return false;
	over = pin->state == TP_REVOKED || pin->state == TP_ENDED;
	if (over)
		mmu_interval_set_seq(&pin->gup.notifier, seq);
	mutex_unlock(&pin->lock);
	return over;
}

static bool gup_invalidate(struct mmu_interval_notifier *notifier, const struct mmu_notifier_range *range,
			   unsigned long seq)
{
	struct tp_pin *pin = container_of(notifier, struct tp_pin, gup.notifier);
	bool exit = range->event == MMU_NOTIFY_RELEASE;

	if (!mmu_notifier_range_blockable(range))
		return gup_nonblocking(pin, seq);
	mutex_lock(&pin->lock);
	mmu_interval_set_seq(notifier, seq);
	mutex_unlock(&pin->lock);
	tp_pin_revoke(pin, exit ? TEGRA_P2P_REASON_MM_EXIT : TEGRA_P2P_REASON_INVALIDATE, true);
	return true;
}

static const struct mmu_interval_notifier_ops gup_ops = {
	.invalidate = gup_invalidate,
};

static void gup_unpin(struct tp_pin *pin, bool dirty)
{
	unpin_user_pages_dirty_lock(pin->gup.pages, pin->gup.n, dirty);
	pin->gup.n = 0;
}

/* All pages of the range, or none. */
static int gup_pages(struct tp_pin *pin)
{
	unsigned int flags = FOLL_LONGTERM | (pin->direction != DMA_TO_DEVICE ? FOLL_WRITE : 0);
	unsigned long want = pin->obj.size >> PAGE_SHIFT;
	long n;
	int err;

	mmap_read_lock(current->mm);
	err = tp_check_vma(pin);
	while (!err && pin->gup.n < want) {
		n = tp_pin_user_pages(pin->va + (pin->gup.n << PAGE_SHIFT), want - pin->gup.n, flags,
				      pin->gup.pages + pin->gup.n);
		if (n > 0)
			pin->gup.n += n;
		else
			err = n ?: -EFAULT;
	}
	mmap_read_unlock(current->mm);
	if (err)
		gup_unpin(pin, false);
	return err;
}

/* Pins until no invalidation has come in between. */
static int gup_stable_pages(struct tp_pin *pin)
{
	int i, err;

	for (i = 0; i < ATTEMPTS; i++) {
		pin->gup.seq = mmu_interval_read_begin(&pin->gup.notifier);
		err = gup_pages(pin);
		if (err)
			return err;
		if (!mmu_interval_check_retry(&pin->gup.notifier, pin->gup.seq))
			return 0;
		gup_unpin(pin, false);
	}
	return -EAGAIN;
}

static int gup_get(struct tp_pin *pin)
{
	unsigned long n = pin->obj.size >> PAGE_SHIFT;
	int err;

	pin->gup.pages = kvmalloc_array(n, sizeof(*pin->gup.pages), GFP_KERNEL_ACCOUNT);
	if (!pin->gup.pages)
		return -ENOMEM;
	/* The range is in the caller's address space, or pinning it fails. */
	err = mmu_interval_notifier_insert(&pin->gup.notifier, pin->obj.mm, pin->va, pin->obj.size, &gup_ops);
	if (err)
		goto free;
	err = gup_stable_pages(pin);
	if (err)
		goto remove;
	err = sg_alloc_table_from_pages(&pin->gup.sgt, pin->gup.pages, n, 0, pin->obj.size, GFP_KERNEL_ACCOUNT);
	if (!err)
		return 0;
	gup_unpin(pin, false);
remove:
	mmu_interval_notifier_remove(&pin->gup.notifier);
free:
	kvfree(pin->gup.pages);
	return err == -EOVERFLOW ? -EFAULT : err;
}

static bool gup_valid(struct tp_pin *pin)
{
	return !mmu_interval_read_retry(&pin->gup.notifier, pin->gup.seq);
}

static int gup_map(struct tp_pin *pin, struct device *dev)
{
	struct scatterlist *sg;
	int i, err = 0;

	if (dma_map_sgtable(dev, &pin->gup.sgt, pin->direction, DMA_ATTR_NO_WARN))
		return -EIO;
	pin->gup.mapped = true;
	err = tp_pin_segments(pin, pin->gup.sgt.nents);
	if (err)
		goto unmap;
	for_each_sgtable_dma_sg(&pin->gup.sgt, sg, i) {
		if (tp_bounced(dev, sg_dma_address(sg))) {
			err = -EIO;
			goto unmap;
		}
		tp_pin_segment(pin, sg_dma_address(sg), sg_dma_len(sg));
	}
	return 0;
unmap:
	tp_backend_gup.unmap(pin, false);
	return err;
}

static void gup_unmap(struct tp_pin *pin, bool in_callback)
{
	if (pin->gup.mapped)
		dma_unmap_sgtable(&pin->obj.file->dev->pdev->dev, &pin->gup.sgt, pin->direction, 0);
	pin->gup.mapped = false;
}

/* Here and not in the callback, since marking a page dirty takes its lock, which an invalidation may hold. */
static bool gup_put(struct tp_pin *pin)
{
	mmu_interval_notifier_remove(&pin->gup.notifier);
	gup_unpin(pin, pin->direction != DMA_TO_DEVICE);
	sg_free_table(&pin->gup.sgt);
	kvfree(pin->gup.pages);
	return true;
}

static struct page **gup_page_array(struct tp_pin *pin)
{
	return pin->gup.pages;
}

static bool gup_present(void)
{
	return true;
}

const struct tp_backend tp_backend_gup = {
	.name = "pin_user_pages",
	.present = gup_present,
	.get = gup_get,
	.valid = gup_valid,
	.map = gup_map,
	.unmap = gup_unmap,
	.put = gup_put,
	.pages = gup_page_array,
};
