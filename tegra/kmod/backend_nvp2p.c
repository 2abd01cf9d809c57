// SPDX-License-Identifier: GPL-2.0
/*
 * Pins through Tegra's nv-p2p (GPUDirect RDMA 12.9 section 13.4): memory of cudaHostAlloc. The provider calls back from
 * its MMU notifier and on every put_pages; whether its notifier is still hashed tells how it came to it:
 *
 *   put_pages      hashed, in the thread that called put_pages
 *   invalidation   unhashed; put_pages must not be called any more
 *   exit           hashed; put_pages is still to be called, once, outside the callback, or the mm leaks
 *
 * An invalidation that comes while put_pages runs drops the provider's reference of the mm twice, so ours stays.
 */
#include <linux/dma-mapping.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "p2p.h"

#ifdef TEGRA_P2P_NO_NVP2P

static bool nv_present(void)
{
	return false;
}

const struct tp_backend tp_backend_nvp2p = {
	.present = nv_present,
};

#else

#include <nv-p2p.h>

#if defined(TEGRA_P2P_DESKTOP_NVP2P) || defined(NVIDIA_P2P_PARAMS_VERSION) || defined(NVIDIA_P2P_FLAGS_DEFAULT)
#error "this nv-p2p.h is the desktop driver's: its calls take tokens, 64 KiB pages and dma_addresses. tegra_p2p needs \
the one of Jetson Linux (NVP2P=/path/to/its/include/linux), or tegra/nvp2p"
#endif

/* Weak: the module loads without a provider. Not symbol_get, which takes symbols that are exported for GPL only. */
extern typeof(nvidia_p2p_get_pages) nvidia_p2p_get_pages __weak;
extern typeof(nvidia_p2p_put_pages) nvidia_p2p_put_pages __weak;
extern typeof(nvidia_p2p_free_page_table) nvidia_p2p_free_page_table __weak;
extern typeof(nvidia_p2p_dma_map_pages) nvidia_p2p_dma_map_pages __weak;
extern typeof(nvidia_p2p_dma_unmap_pages) nvidia_p2p_dma_unmap_pages __weak;
extern typeof(nvidia_p2p_free_dma_mapping) nvidia_p2p_free_dma_mapping __weak;

struct nv_calls {
	typeof(nvidia_p2p_get_pages) *get_pages;
	typeof(nvidia_p2p_put_pages) *put_pages;
	typeof(nvidia_p2p_free_page_table) *free_page_table;
	typeof(nvidia_p2p_dma_map_pages) *dma_map_pages;
	typeof(nvidia_p2p_dma_unmap_pages) *dma_unmap_pages;
	typeof(nvidia_p2p_free_dma_mapping) *free_dma_mapping;
};

/* In memory, for the loader to fill in: code could not address a symbol that is at 0. */
static const struct nv_calls nv_linked = {
	.get_pages = nvidia_p2p_get_pages,
	.put_pages = nvidia_p2p_put_pages,
	.free_page_table = nvidia_p2p_free_page_table,
	.dma_map_pages = nvidia_p2p_dma_map_pages,
	.dma_unmap_pages = nvidia_p2p_dma_unmap_pages,
	.free_dma_mapping = nvidia_p2p_free_dma_mapping,
};

static struct nv_calls nv;

static bool nv_present(void)
{
	const struct nv_calls *linked = &nv_linked;

	OPTIMIZER_HIDE_VAR(linked);
	nv = *linked;
	return nv.get_pages && nv.put_pages && nv.free_page_table && nv.dma_map_pages && nv.dma_unmap_pages &&
	       nv.free_dma_mapping;
}

/* Under pin->lock. */
static void nv_free_pages(struct tp_pin *pin)
{
	if (!pin->nv.freed)
		nv.free_page_table(pin->nv.table);
	pin->nv.freed = true;
}

/* In the notifier, or in put_pages, which nv_put calls without a lock. */
static void nv_callback(void *data)
{
	struct tp_pin *pin = data;
	struct nvidia_p2p_page_table *table = READ_ONCE(pin->nv.table);
	bool unhashed = table && hlist_unhashed(&table->mn.hlist);

	mutex_lock(&pin->lock);
	if (pin->nv.putting == current) {
		nv_free_pages(pin);
		mutex_unlock(&pin->lock);
		return;
	}
	if (unhashed) {
		pin->nv.unhashed = true;
		pin->nv.twice = pin->nv.putting;
	}
	mutex_unlock(&pin->lock);
	tp_pin_revoke(pin, unhashed ? TEGRA_P2P_REASON_INVALIDATE : TEGRA_P2P_REASON_MM_EXIT, true);
}

static int nv_check_vma(struct tp_pin *pin)
{
	int err;

	mmap_read_lock(current->mm);
	err = tp_check_vma(pin);
	mmap_read_unlock(current->mm);
	return err;
}

static bool nv_put(struct tp_pin *pin)
{
	bool call;

	mutex_lock(&pin->lock);
	call = !pin->nv.unhashed;
	if (call)
		pin->nv.putting = current;
	mutex_unlock(&pin->lock);
	if (call)
		nv.put_pages(pin->nv.table);
	mutex_lock(&pin->lock);
	nv_free_pages(pin);
	mutex_unlock(&pin->lock);
	mmu_notifier_synchronize(); /* the table is the notifier, and callbacks may still be on their way out */
	kfree(pin->nv.table);
	return !pin->nv.twice;
}

/*
 * Registering a notifier fails when a signal is pending, and a provider that does not look returns a table without one,
 * for which put_pages would drop an mm that it does not hold. An invalidation looks the same and ends PIN as well.
 */
static bool nv_unregistered(struct tp_pin *pin)
{
	bool unhashed = hlist_unhashed(&pin->nv.table->mn.hlist);

	mutex_lock(&pin->lock);
	if (unhashed)
		pin->nv.unhashed = true;
	unhashed = unhashed && !pin->doomed;
	mutex_unlock(&pin->lock);
	return unhashed;
}

static int nv_get(struct tp_pin *pin)
{
	struct nvidia_p2p_page_table *table;
	int err;

	err = nv_check_vma(pin);
	if (err)
		return err;
	/* The callback may come before this returns: it finds the table where the provider puts it. */
	err = nv.get_pages(pin->va, pin->obj.size, &pin->nv.table, nv_callback, pin);
	if (err)
		return err == -ENOMEM || err == -EINTR ? err : -EFAULT;
	table = pin->nv.table;
	if (nv_unregistered(pin)) {
		err = -EINTR;
	} else if (!NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE(table) || table->page_size != PAGE_SIZE) {
		pr_err_once("nv-p2p: page table of version %#x with pages of %u bytes is not understood\n",
			    table->version, table->page_size);
		err = -EOPNOTSUPP;
	} else {
		err = nv_check_vma(pin); /* again, now that changes call back */
	}
	if (err)
		nv_put(pin);
	return err;
}

static bool nv_valid(struct tp_pin *pin)
{
	return !pin->doomed;
}

static int nv_segments(struct tp_pin *pin, struct device *dev)
{
	struct nvidia_p2p_dma_mapping *mapping = pin->nv.mapping;
	u64 total = 0;
	u32 i;
	int err;

	if (!NVIDIA_P2P_DMA_MAPPING_VERSION_COMPATIBLE(mapping)) {
		pr_err_once("nv-p2p: DMA mapping of version %#x is not understood\n", mapping->version);
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

static int nv_map(struct tp_pin *pin, struct device *dev)
{
	int err;

	/* Success with nothing mapped has been seen: only the pointer tells. */
	if (nv.dma_map_pages(dev, pin->nv.table, &pin->nv.mapping, pin->direction) || !pin->nv.mapping)
		return -EIO;
	err = nv_segments(pin, dev);
	if (err) {
		nv.dma_unmap_pages(pin->nv.mapping);
		pin->nv.mapping = NULL;
	}
	return err;
}

static void nv_unmap(struct tp_pin *pin, bool in_callback)
{
	if (in_callback) {
		nv.free_dma_mapping(pin->nv.mapping);
		nv_free_pages(pin);
	} else {
		nv.dma_unmap_pages(pin->nv.mapping);
	}
	pin->nv.mapping = NULL;
}

static struct page **nv_pages(struct tp_pin *pin)
{
	return pin->nv.table->pages;
}

const struct tp_backend tp_backend_nvp2p = {
	.name = "nv-p2p",
	.info = TEGRA_P2P_INFO_NVP2P,
	.present = nv_present,
	.get = nv_get,
	.valid = nv_valid,
	.map = nv_map,
	.unmap = nv_unmap,
	.put = nv_put,
	.pages = nv_pages,
};

#endif
