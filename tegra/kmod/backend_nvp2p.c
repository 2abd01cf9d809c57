// SPDX-License-Identifier: GPL-2.0
/*
 * Pins through Tegra's nv-p2p (GPUDirect RDMA 12.9 section 13.4): memory of cudaHostAlloc. The
 * provider calls back from its MMU notifier and on every put_pages:
 *
 *   put_pages      in the thread that called put_pages
 *   invalidation   the notifier is unhashed, and put_pages must not be called any more
 *   exit           put_pages is still to be called, once, outside the callback, or the mm leaks
 *
 * An exit that meets another thread's put_pages finds the notifier unhashed, too. So the notifier
 * gets operations of our own as soon as get_pages has returned, and the provider's callback tells
 * of its own invalidations only.
 *
 * An invalidation that comes while put_pages runs drops the provider's reference of the mm twice,
 * so ours stays.
 *
 * The table is the notifier. After an invalidation SRCU has a callback of its own queued in it,
 * which no grace period waits for: the table is ours to free when SRCU has called free_notifier,
 * which is the last that it does with it.
 */
#include <linux/cpu.h>
#include <linux/dma-mapping.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "p2p.h"

#ifdef TEGRA_P2P_NO_NVP2P

static bool tp_nv_present(void)
{
	return false;
}

const struct tp_backend tp_backend_nvp2p = {
	.present = tp_nv_present,
};

bool tp_nvp2p_foreign(void)
{
	return false;
}

void tp_nvp2p_exit(void)
{
}

#else

#include <nv-p2p.h>

#if defined(TEGRA_P2P_DESKTOP_NVP2P) || defined(NVIDIA_P2P_PARAMS_VERSION) || \
	defined(NVIDIA_P2P_FLAGS_DEFAULT)
#error "this nv-p2p.h is the desktop driver's: its calls take tokens, 64 KiB pages and \
dma_addresses. tegra_p2p needs the one of Jetson Linux (NVP2P=/path/to/its/include/linux), or \
tegra/nvp2p"
#endif

/*
 * Weak: the module loads without a provider. Not symbol_get, which takes symbols that are exported
 * for GPL only.
 */
extern typeof(nvidia_p2p_get_pages) nvidia_p2p_get_pages __weak;
extern typeof(nvidia_p2p_put_pages) nvidia_p2p_put_pages __weak;
extern typeof(nvidia_p2p_free_page_table) nvidia_p2p_free_page_table __weak;
extern typeof(nvidia_p2p_dma_map_pages) nvidia_p2p_dma_map_pages __weak;
extern typeof(nvidia_p2p_dma_unmap_pages) nvidia_p2p_dma_unmap_pages __weak;
extern typeof(nvidia_p2p_free_dma_mapping) nvidia_p2p_free_dma_mapping __weak;

struct tp_nv_calls {
	typeof(nvidia_p2p_get_pages) *get_pages;
	typeof(nvidia_p2p_put_pages) *put_pages;
	typeof(nvidia_p2p_free_page_table) *free_page_table;
	typeof(nvidia_p2p_dma_map_pages) *dma_map_pages;
	typeof(nvidia_p2p_dma_unmap_pages) *dma_unmap_pages;
	typeof(nvidia_p2p_free_dma_mapping) *free_dma_mapping;
};

/* In memory, for the loader to fill in: code could not address a symbol that is at 0. */
static const struct tp_nv_calls tp_nv_linked = {
	.get_pages = nvidia_p2p_get_pages,
	.put_pages = nvidia_p2p_put_pages,
	.free_page_table = nvidia_p2p_free_page_table,
	.dma_map_pages = nvidia_p2p_dma_map_pages,
	.dma_unmap_pages = nvidia_p2p_dma_unmap_pages,
	.free_dma_mapping = nvidia_p2p_free_dma_mapping,
};

static struct tp_nv_calls tp_nv;

/*
 * The desktop driver exports the six names for calls with other arguments, and this one, which
 * Tegra's has not.
 */
extern typeof(tp_nvp2p_foreign) nvidia_p2p_get_pages_persistent __weak;

static bool (*const tp_nv_desktop)(void) = nvidia_p2p_get_pages_persistent;

/**
 * tp_nvp2p_foreign() - Looks for the desktop driver's nv-p2p.
 *
 * Return: true if that driver was loaded before this module.
 */
bool tp_nvp2p_foreign(void)
{
	bool (*const *desktop)(void) = &tp_nv_desktop;

	OPTIMIZER_HIDE_VAR(desktop);
	return *desktop;
}

static bool tp_nv_present(void)
{
	const struct tp_nv_calls *linked = &tp_nv_linked;

	OPTIMIZER_HIDE_VAR(linked);
	tp_nv = *linked;
	return !tp_nvp2p_foreign() && tp_nv.get_pages && tp_nv.put_pages && tp_nv.free_page_table &&
	       tp_nv.dma_map_pages && tp_nv.dma_unmap_pages && tp_nv.free_dma_mapping;
}

/* Under pin->lock. Pages that stay mapped, since the machine ends, are not freed. */
static void tp_nv_free_pages(struct tp_pin *pin)
{
	if (!pin->nv.freed && !READ_ONCE(pin->obj.file->dev->over))
		tp_nv.free_page_table(pin->nv.table);
	pin->nv.freed = true;
}

/* SRCU has done with the notifier. */
static void tp_nv_released(struct mmu_notifier *notifier)
{
	struct nvidia_p2p_page_table *table =
		container_of(notifier, struct nvidia_p2p_page_table, mn);
	struct tp_pin *pin = table->data;

	complete(&pin->nv.released);
}

static long tp_nv_synchronize(void *unused)
{
	mmu_notifier_synchronize();
	return 0;
}

/**
 * tp_nvp2p_exit() - Waits for callbacks of SRCU that run the module's code.
 *
 * Context: At the module's end. Sleeps. SRCU runs a processor's callbacks one after the other: when
 * each has run one of ours, tp_nv_released has returned.
 */
void tp_nvp2p_exit(void)
{
	unsigned int cpu;

	cpus_read_lock();
	for_each_online_cpu(cpu)
		work_on_cpu(cpu, tp_nv_synchronize, NULL);
	cpus_read_unlock();
}

/*
 * In the place of the provider's, which looks at the first address alone, and takes its notifier
 * out once for each of two invalidations that meet.
 */
static int tp_nv_invalidate(struct mmu_notifier *notifier, const struct mmu_notifier_range *range)
{
	struct nvidia_p2p_page_table *table =
		container_of(notifier, struct nvidia_p2p_page_table, mn);
	struct tp_pin *pin = table->data;

	if (range->end <= pin->va || range->start >= pin->va + pin->obj.size)
		return 0;
	if (!mmu_notifier_range_blockable(range))
		return -EAGAIN;
	mutex_lock(&pin->lock);
	if (!pin->nv.queued && !pin->nv.putting) { /* put_pages does the same */
		pin->nv.queued = true;
		pin->nv.unhashed = true;
		mmu_notifier_put(notifier);
	}
	mutex_unlock(&pin->lock);
	tp_pin_revoke(pin, TEGRA_P2P_REASON_INVALIDATE, true);
	return 0;
}

/* The mm exits, or put_pages runs. */
static void tp_nv_release(struct mmu_notifier *notifier, struct mm_struct *mm)
{
	struct nvidia_p2p_page_table *table =
		container_of(notifier, struct nvidia_p2p_page_table, mn);
	struct tp_pin *pin = table->data;
	bool putting;

	mutex_lock(&pin->lock);
	putting = pin->nv.putting == current;
	if (putting)
		tp_nv_free_pages(pin);
	mutex_unlock(&pin->lock);
	if (!putting)
		tp_pin_revoke(pin, TEGRA_P2P_REASON_MM_EXIT, true);
}

/*
 * With pin->lock held, before the notifier's memory can be freed: after get_pages, or in the
 * notifier.
 */
static void tp_nv_take_over(struct tp_pin *pin, struct nvidia_p2p_page_table *table)
{
	if (pin->nv.ops.free_notifier)
		return;
	pin->nv.ops = *table->mn.ops;
	pin->nv.ops.free_notifier = tp_nv_released;
	pin->nv.ops.release = tp_nv_release;
	pin->nv.ops.invalidate_range_start = tp_nv_invalidate;
	WRITE_ONCE(table->mn.ops, &pin->nv.ops);
}

/* In the notifier, or in put_pages, which tp_nv_put calls without a lock. */
static void tp_nv_callback(void *data)
{
	struct tp_pin *pin = data;
	struct nvidia_p2p_page_table *table = READ_ONCE(pin->nv.table);
	bool unhashed = table && hlist_unhashed(&table->mn.hlist);

	mutex_lock(&pin->lock);
	if (pin->nv.putting == current) {
		tp_nv_free_pages(pin);
		mutex_unlock(&pin->lock);
		return;
	}
	if (unhashed) {
		tp_nv_take_over(pin, table);
		pin->nv.queued = true;
		pin->nv.unhashed = true;
		if (pin->nv.putting)
			pin->mm_dropped = true;
	}
	mutex_unlock(&pin->lock);
	tp_pin_revoke(pin, unhashed ? TEGRA_P2P_REASON_INVALIDATE : TEGRA_P2P_REASON_MM_EXIT, true);
}

static int tp_nv_check_vma(struct tp_pin *pin)
{
	int err;

	mmap_read_lock(current->mm);
	err = tp_check_vma(pin);
	mmap_read_unlock(current->mm);
	return err;
}

/*
 * Changes that came before the provider listened have left no trace but in the pages. A page that a
 * fork has made the child's, too, is copied here, and differs.
 */
static int tp_nv_check_pages(struct tp_pin *pin)
{
	unsigned int flags = pin->writable ? FOLL_WRITE : 0;
	struct nvidia_p2p_page_table *table = pin->nv.table;
	struct page *now[16];
	int i, n, err = 0;
	u32 at;

	for (at = 0; at < table->entries && !err; at += n) {
		n = get_user_pages_fast(pin->va + ((u64)at << PAGE_SHIFT),
					min_t(u32, ARRAY_SIZE(now), table->entries - at), flags,
					now);
		if (n <= 0)
			return -EAGAIN;
		for (i = 0; i < n; i++) {
			if (now[i] != table->pages[at + i])
				err = -EAGAIN;
			put_page(now[i]);
		}
	}
	return err;
}

static void tp_nv_put(struct tp_pin *pin)
{
	bool call, queued;

	mutex_lock(&pin->lock);
	call = !pin->nv.unhashed;
	if (call)
		pin->nv.putting = current;
	mutex_unlock(&pin->lock);
	if (call)
		tp_nv.put_pages(pin->nv.table); /* waits for callbacks that are on their way */
	else
		mmu_notifier_synchronize(); /* does the same */
	mutex_lock(&pin->lock);
	tp_nv_free_pages(pin);
	queued = pin->nv.queued;
	mutex_unlock(&pin->lock);
	if (queued)
		wait_for_completion(&pin->nv.released);
	kfree(pin->nv.table);
}

/*
 * Registering a notifier fails when a signal is pending, and a provider that does not look returns
 * a table without one, for which put_pages would drop an mm that it does not hold. An invalidation
 * whose callback is still to come looks the same and ends PIN as well.
 */
static bool tp_nv_unregistered(struct tp_pin *pin)
{
	bool unhashed = hlist_unhashed(&pin->nv.table->mn.hlist);

	mutex_lock(&pin->lock);
	if (unhashed)
		pin->nv.unhashed = true;
	else
		tp_nv_take_over(pin, pin->nv.table);
	unhashed = unhashed && !pin->doomed;
	mutex_unlock(&pin->lock);
	return unhashed;
}

static int tp_nv_get(struct tp_pin *pin)
{
	struct nvidia_p2p_page_table *table;
	int err;

	err = tp_nv_check_vma(pin);
	if (err)
		return err;
	init_completion(&pin->nv.released);
	/*
	 * The callback may come before this returns: it finds the table where the provider puts it.
	 */
	err = tp_nv.get_pages(pin->va, pin->obj.size, &pin->nv.table, tp_nv_callback, pin);
	if (err)
		return err == -ENOMEM || err == -EINTR ? err : -EFAULT;
	table = pin->nv.table;
	if (tp_nv_unregistered(pin)) {
		err = signal_pending(current) ? -EINTR : -EAGAIN;
	} else if (!NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE(table) ||
		   table->page_size != NVIDIA_P2P_PAGE_SIZE_4KB) {
		pr_err_once("nv-p2p: page table of version %#x with pages of kind %u is not understood\n",
			    table->version, table->page_size);
		err = -EOPNOTSUPP;
	} else {
		/* now that changes call back */
		err = tp_nv_check_vma(pin) ?: tp_nv_check_pages(pin);
	}
	if (err)
		tp_nv_put(pin);
	return err;
}

static int tp_nv_segments(struct tp_pin *pin, struct device *dev)
{
	struct nvidia_p2p_dma_mapping *mapping = pin->nv.mapping;
	u64 total = 0;
	u32 i;
	int err;

	if (!NVIDIA_P2P_DMA_MAPPING_VERSION_COMPATIBLE(mapping)) {
		pr_err_once("nv-p2p: DMA mapping of version %#x is not understood\n",
			    mapping->version);
		return -EOPNOTSUPP;
	}
	err = tp_pin_segments(pin, mapping->entries);
	if (err)
		return err;
	for (i = 0; i < mapping->entries; i++) {
		if (tp_bounced(dev, mapping->hw_address[i]))
			return -EIO;
		tp_pin_segment(pin, mapping->hw_address[i], mapping->hw_len[i]);
		total += mapping->hw_len[i];
	}
	return total == pin->obj.size ? 0 : -EIO;
}

static int tp_nv_map(struct tp_pin *pin, struct device *dev)
{
	unsigned int noreclaim;
	int err;

	/*
	 * The provider allocates its tables here, where reclaim must not be entered. They come from
	 * the reserves, if need be: 48 bytes for a page of memory that is in small pieces.
	 */
	noreclaim = memalloc_noreclaim_save();
	/* Success with nothing mapped has been seen: only the pointer tells. */
	if (tp_nv.dma_map_pages(dev, pin->nv.table, &pin->nv.mapping, pin->direction) ||
	    !pin->nv.mapping)
		err = -EIO;
	else
		err = tp_nv_segments(pin, dev);
	memalloc_noreclaim_restore(noreclaim);
	if (err && pin->nv.mapping) {
		tp_nv.dma_unmap_pages(pin->nv.mapping);
		pin->nv.mapping = NULL;
	}
	return err;
}

static void tp_nv_unmap(struct tp_pin *pin, bool in_callback)
{
	bool over = READ_ONCE(pin->obj.file->dev->over);

	if (in_callback) {
		if (!over)
			tp_nv.free_dma_mapping(pin->nv.mapping);
		tp_nv_free_pages(pin);
	} else if (!over) {
		tp_nv.dma_unmap_pages(pin->nv.mapping);
	}
	pin->nv.mapping = NULL;
}

static struct page **tp_nv_pages(struct tp_pin *pin)
{
	return pin->nv.table->pages;
}

const struct tp_backend tp_backend_nvp2p = {
	.name = "nv-p2p",
	.info = TEGRA_P2P_INFO_NVP2P,
	.present = tp_nv_present,
	.get = tp_nv_get,
	.map = tp_nv_map,
	.unmap = tp_nv_unmap,
	.put = tp_nv_put,
	.pages = tp_nv_pages,
};

#endif
