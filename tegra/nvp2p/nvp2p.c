// SPDX-License-Identifier: GPL-2.0
/*
 * nvp2p gives a stock kernel the symbols of Tegra's nv-p2p, so that a module that uses them runs where there is no
 * Jetson. It behaves as documented and as the provider of Jetson Linux was seen to:
 *
 *   - the callback comes on an invalidation, on the end of the process and on every put_pages;
 *   - an invalidation is told by its first address alone, and one that ends where the range starts counts too;
 *   - free_page_table frees the pages, never the structure, which is the notifier;
 *   - put_pages after an invalidation drops the mm a second time.
 *
 * Module parameters add its bad habits. Each counts down: 3 misbehaves three times.
 */
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "nv-p2p.h"

static int null_mapping;
module_param(null_mapping, int, 0644);
MODULE_PARM_DESC(null_mapping, "dma_map_pages succeeds without a mapping");

static int early_callback;
module_param(early_callback, int, 0644);
MODULE_PARM_DESC(early_callback, "the memory is invalidated before get_pages returns");

static int no_notifier;
module_param(no_notifier, int, 0644);
MODULE_PARM_DESC(no_notifier, "get_pages succeeds although a pending signal kept it from registering its notifier");

static int foreign_version;
module_param(foreign_version, int, 0644);
MODULE_PARM_DESC(foreign_version, "page tables have a major version that nobody knows");

static int foreign_page_size;
module_param(foreign_page_size, int, 0644);
MODULE_PARM_DESC(foreign_page_size, "page tables have pages of 64 KiB");

static bool unaligned;
module_param(unaligned, bool, 0644);
MODULE_PARM_DESC(unaligned, "ranges that are not multiples of 4 KiB are rounded down instead of refused");

/* Live page tables with pages, to see that none is left. */
static atomic_t tables = ATOMIC_INIT(0);

static int tables_get(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%d\n", atomic_read(&tables));
}

static const struct kernel_param_ops tables_ops = { .get = tables_get };

module_param_cb(tables, &tables_ops, NULL, 0444);
MODULE_PARM_DESC(tables, "page tables that hold pages");

static bool habit(int *count)
{
	if (READ_ONCE(*count) <= 0)
		return false;
	WRITE_ONCE(*count, *count - 1);
	return true;
}

static void mn_release(struct mmu_notifier *mn, struct mm_struct *mm)
{
	struct nvidia_p2p_page_table *table = container_of(mn, struct nvidia_p2p_page_table, mn);

	table->free_callback(table->data);
}

static void end_by_invalidation(struct nvidia_p2p_page_table *table)
{
	/* Two invalidations at once: the first takes the notifier out. Both call back. */
	mutex_lock(&table->lock);
	if (!(table->mapped & NVIDIA_P2P_INVALID))
		mmu_notifier_put(&table->mn);
	table->mapped |= NVIDIA_P2P_INVALID;
	mutex_unlock(&table->lock);
	table->free_callback(table->data);
}

static int mn_invalidate_range_start(struct mmu_notifier *mn, const struct mmu_notifier_range *range)
{
	struct nvidia_p2p_page_table *table = container_of(mn, struct nvidia_p2p_page_table, mn);

	if (table->vaddr < range->start || table->vaddr > range->end)
		return 0;
	if (!mmu_notifier_range_blockable(range))
		return -EAGAIN;
	end_by_invalidation(table);
	return 0;
}

/* The structure is not ours to free. */
static void mn_free(struct mmu_notifier *mn)
{
}

static const struct mmu_notifier_ops mn_ops = {
	.release = mn_release,
	.invalidate_range_start = mn_invalidate_range_start,
	.free_notifier = mn_free,
};

static void release_pages_of(struct page **pages, long n)
{
	while (n > 0)
		put_page(pages[--n]);
	kvfree(pages);
}

static int pin_pages(struct nvidia_p2p_page_table *table)
{
	long n;

	table->pages = kvcalloc(table->entries, sizeof(*table->pages), GFP_KERNEL);
	if (!table->pages)
		return -ENOMEM;
	mmap_read_lock(current->mm);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
	n = get_user_pages(table->vaddr, table->entries, FOLL_WRITE, table->pages);
#else
	n = get_user_pages(table->vaddr, table->entries, FOLL_WRITE, table->pages, NULL);
#endif
	mmap_read_unlock(current->mm);
	if (n == table->entries)
		return 0;
	release_pages_of(table->pages, n);
	return n < 0 ? n : -ENOMEM;
}

int nvidia_p2p_get_pages(u64 virtual_address, u64 length, struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data)
{
	struct nvidia_p2p_page_table *table;
	int err;

	if (!virtual_address || !length || !page_table || !free_callback || length >> PAGE_SHIFT > INT_MAX)
		return -EINVAL;
	if (!unaligned && (!PAGE_ALIGNED(virtual_address) || !PAGE_ALIGNED(length)))
		return -EINVAL;
	table = kzalloc(sizeof(*table), GFP_KERNEL);
	if (!table)
		return -ENOMEM;
	table->version = NVIDIA_P2P_PAGE_TABLE_VERSION + (habit(&foreign_version) ? 0x10000 : 0);
	table->page_size = habit(&foreign_page_size) ? NVIDIA_P2P_PAGE_SIZE_64KB : NVIDIA_P2P_PAGE_SIZE_4KB;
	table->vaddr = virtual_address & PAGE_MASK;
	table->entries = length >> PAGE_SHIFT;
	table->size = (u64)table->entries << PAGE_SHIFT;
	table->mm = current->mm;
	table->free_callback = free_callback;
	table->data = data;
	table->mn.ops = &mn_ops;
	mutex_init(&table->lock);
	err = pin_pages(table);
	if (err) {
		kfree(table);
		return err;
	}
	table->mapped = NVIDIA_P2P_PINNED;
	atomic_inc(&tables);
	*page_table = table;
	if (habit(&no_notifier))
		return 0;
	err = mmu_notifier_register(&table->mn, current->mm);
	if (err) {
		*page_table = NULL;
		nvidia_p2p_free_page_table(table);
		kfree(table);
		return err;
	}
	if (habit(&early_callback))
		end_by_invalidation(table);
	return 0;
}
EXPORT_SYMBOL(nvidia_p2p_get_pages);

int nvidia_p2p_put_pages(struct nvidia_p2p_page_table *page_table)
{
	if (!page_table)
		return -EINVAL;
	mmu_notifier_unregister(&page_table->mn, page_table->mm);
	return 0;
}
EXPORT_SYMBOL(nvidia_p2p_put_pages);

int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table)
{
	u32 i;

	if (!page_table)
		return 0;
	mutex_lock(&page_table->lock);
	if (page_table->mapped & NVIDIA_P2P_PINNED) {
		for (i = 0; i < page_table->entries; i++)
			set_page_dirty(page_table->pages[i]);
		release_pages_of(page_table->pages, page_table->entries);
		page_table->pages = NULL;
		page_table->mapped &= ~NVIDIA_P2P_PINNED;
		atomic_dec(&tables);
	}
	mutex_unlock(&page_table->lock);
	return 0;
}
EXPORT_SYMBOL(nvidia_p2p_free_page_table);

static void free_mapping(struct nvidia_p2p_dma_mapping *mapping)
{
	sg_free_table(mapping->sgt);
	kfree(mapping->sgt);
	kvfree(mapping->hw_address);
	kvfree(mapping->hw_len);
	kfree(mapping);
}

static int fill_addresses(struct nvidia_p2p_dma_mapping *mapping)
{
	struct scatterlist *sg;
	int i;

	mapping->entries = mapping->sgt->nents;
	mapping->hw_address = kvcalloc(mapping->entries, sizeof(*mapping->hw_address), GFP_KERNEL);
	mapping->hw_len = kvcalloc(mapping->entries, sizeof(*mapping->hw_len), GFP_KERNEL);
	if (!mapping->hw_address || !mapping->hw_len)
		return -ENOMEM;
	for_each_sgtable_dma_sg(mapping->sgt, sg, i) {
		mapping->hw_address[i] = sg_dma_address(sg);
		mapping->hw_len[i] = sg_dma_len(sg);
	}
	return 0;
}

static struct nvidia_p2p_dma_mapping *new_mapping(struct device *dev, struct nvidia_p2p_page_table *table,
						  enum dma_data_direction direction)
{
	struct nvidia_p2p_dma_mapping *mapping = kzalloc(sizeof(*mapping), GFP_KERNEL);

	if (!mapping)
		return NULL;
	mapping->version = NVIDIA_P2P_DMA_MAPPING_VERSION;
	mapping->dev = dev;
	mapping->page_table = table;
	mapping->direction = direction;
	mapping->sgt = kzalloc(sizeof(*mapping->sgt), GFP_KERNEL);
	if (!mapping->sgt ||
	    sg_alloc_table_from_pages(mapping->sgt, table->pages, table->entries, 0, table->size, GFP_KERNEL)) {
		kfree(mapping->sgt);
		kfree(mapping);
		return NULL;
	}
	return mapping;
}

int nvidia_p2p_dma_map_pages(struct device *dev, struct nvidia_p2p_page_table *page_table,
			     struct nvidia_p2p_dma_mapping **dma_mapping, enum dma_data_direction direction)
{
	struct nvidia_p2p_dma_mapping *mapping;
	int err = 0;

	if (!dev || !page_table || !dma_mapping)
		return -EINVAL;
	*dma_mapping = NULL;
	if (habit(&null_mapping))
		return 0;
	mutex_lock(&page_table->lock);
	if (page_table->mapped & NVIDIA_P2P_MAPPED)
		goto out; /* success, and no mapping: so it was seen */
	mapping = new_mapping(dev, page_table, direction);
	err = mapping ? dma_map_sgtable(dev, mapping->sgt, direction, 0) : -ENOMEM;
	if (!err) {
		err = fill_addresses(mapping);
		if (err)
			dma_unmap_sgtable(dev, mapping->sgt, direction, 0);
	}
	if (err && mapping)
		free_mapping(mapping);
	if (!err) {
		page_table->mapped |= NVIDIA_P2P_MAPPED;
		*dma_mapping = mapping;
	}
out:
	mutex_unlock(&page_table->lock);
	return err;
}
EXPORT_SYMBOL(nvidia_p2p_dma_map_pages);

int nvidia_p2p_dma_unmap_pages(struct nvidia_p2p_dma_mapping *dma_mapping)
{
	struct nvidia_p2p_page_table *table;

	if (!dma_mapping)
		return -EINVAL;
	table = dma_mapping->page_table;
	mutex_lock(&table->lock);
	dma_unmap_sgtable(dma_mapping->dev, dma_mapping->sgt, dma_mapping->direction, 0);
	free_mapping(dma_mapping);
	table->mapped &= ~NVIDIA_P2P_MAPPED;
	mutex_unlock(&table->lock);
	return 0;
}
EXPORT_SYMBOL(nvidia_p2p_dma_unmap_pages);

int nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *dma_mapping)
{
	return nvidia_p2p_dma_unmap_pages(dma_mapping);
}
EXPORT_SYMBOL(nvidia_p2p_free_dma_mapping);

static void __exit nvp2p_exit(void)
{
	mmu_notifier_synchronize(); /* no notifier of ours can be called when the code goes */
}
module_exit(nvp2p_exit);

static int __init nvp2p_init(void)
{
	return 0;
}
module_init(nvp2p_init);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Tegra's nv-p2p for a stock kernel");
