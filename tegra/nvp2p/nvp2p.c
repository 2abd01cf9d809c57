// SPDX-License-Identifier: GPL-2.0
/*
 * nvp2p gives a stock kernel the symbols of Tegra's nv-p2p, so that a module that uses them runs
 * where there is no Jetson. It is as unkind as NVIDIA's provider:
 *
 *   - nothing is checked but that there is a page at least;
 *   - the callback comes on an invalidation, on the end of the process and on every put_pages;
 *   - an invalidation is told by its first address alone, and one that ends where the range starts
 * counts too; two at
 *     once put the notifier twice, and one that must not block calls back all the same;
 *   - free_page_table frees the pages, never the structure, which is the notifier;
 *   - put_pages after an invalidation drops the mm a second time;
 *   - dma_map_pages returns 0 when the device could not map;
 *   - nothing waits for notifiers when the module goes.
 *
 * It differs from NVIDIA's in this: its name, which tegra_p2p does not load; it is for Linux 5.10,
 * not 4.9; the text of its WARN, and the versions of its symbols; no typedefs and version macros. A
 * mapping is allocated before the table's lock is taken, and unmapped before its arrays are freed.
 * Pages are released through free_page_table if the notifier cannot be registered.
 *
 * Module parameters add habits that NVIDIA's cannot be made to show. Each counts down: 3 misbehaves
 * three times.
 */
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "nvp2p_interface.h"

static int null_mapping;
module_param(null_mapping, int, 0644);
MODULE_PARM_DESC(null_mapping, "dma_map_pages succeeds without a mapping");

static int remap;
module_param(remap, int, 0644);
MODULE_PARM_DESC(remap, "other memory is mapped over the range before get_pages returns");

static int no_notifier;
module_param(no_notifier, int, 0644);
MODULE_PARM_DESC(no_notifier, "get_pages succeeds though a signal kept its notifier out");

static int foreign_version;
module_param(foreign_version, int, 0644);
MODULE_PARM_DESC(foreign_version, "page tables have a major version that nobody knows");

static int foreign_page_size;
module_param(foreign_page_size, int, 0644);
MODULE_PARM_DESC(foreign_page_size, "page tables have pages of 64 KiB");

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

static int mn_invalidate_range_start(struct mmu_notifier *mn,
				     const struct mmu_notifier_range *range)
{
	struct nvidia_p2p_page_table *table = container_of(mn, struct nvidia_p2p_page_table, mn);

	if (table->vaddr < range->start || table->vaddr > range->end)
		return 0;
	mmu_notifier_put(&table->mn);
	table->free_callback(table->data);
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
	kfree(pages);
}

static int pin_pages(struct nvidia_p2p_page_table *table, u32 entries)
{
	long n;

	table->pages = kcalloc(entries, sizeof(*table->pages), GFP_KERNEL);
	if (!table->pages)
		return -ENOMEM;
	/* Private memory is written to for the device, whoever may write it. */
	n = get_user_pages_unlocked(table->vaddr & PAGE_MASK, entries, table->pages,
				    FOLL_WRITE | FOLL_FORCE);
	if (n != entries) {
		release_pages_of(table->pages, n);
		return n < 0 ? n : -ENOMEM;
	}
	table->entries = entries;
	table->mapped = NVIDIA_P2P_PINNED;
	atomic_inc(&tables);
	return 0;
}

/*
 * The callback comes as it does when another thread is quicker, in the notifier of a change of the
 * mapping.
 */
static int map_over(struct nvidia_p2p_page_table *table)
{
	unsigned long at = vm_mmap(NULL, table->vaddr, table->size, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, 0);

	return at == table->vaddr ? 0 : -ENOMEM;
}

static int begin(struct nvidia_p2p_page_table *table, u32 entries)
{
	int err = pin_pages(table, entries);

	if (err || habit(&no_notifier))
		return err;
	err = mmu_notifier_register(&table->mn, table->mm);
	if (err)
		nvidia_p2p_free_page_table(table);
	else if (habit(&remap) && map_over(table))
		pr_err("nvp2p: nothing could be mapped over %#llx\n", table->vaddr);
	return err;
}

int nvidia_p2p_get_pages(u64 vaddr, u64 size, struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data)
{
	struct nvidia_p2p_page_table *table;
	int err;

	if (WARN_ON(size >> PAGE_SHIFT > INT_MAX) || !(size >> PAGE_SHIFT))
		return -EINVAL;
	table = kzalloc(sizeof(*table), GFP_KERNEL);
	*page_table = table; /* the callback may come before this returns */
	if (!table)
		return -ENOMEM;
	table->version = NVIDIA_P2P_PAGE_TABLE_VERSION + (habit(&foreign_version) ? 0x10000 : 0);
	table->page_size =
		habit(&foreign_page_size) ? NVIDIA_P2P_PAGE_SIZE_64KB : NVIDIA_P2P_PAGE_SIZE_4KB;
	table->vaddr = vaddr;
	table->size = size;
	table->mm = current->mm;
	table->free_callback = free_callback;
	table->data = data;
	table->mn.ops = &mn_ops;
	mutex_init(&table->lock);
	err = begin(table, size >> PAGE_SHIFT);
	if (err) {
		*page_table = NULL;
		kfree(table);
	}
	return err;
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
	if (!page_table)
		return 0;
	mutex_lock(&page_table->lock);
	WARN(page_table->mapped & NVIDIA_P2P_MAPPED, "nvp2p: pages are freed that are mapped\n");
	if (page_table->mapped & NVIDIA_P2P_PINNED) {
		release_pages_of(page_table->pages, page_table->entries);
		page_table->mapped &= ~NVIDIA_P2P_PINNED;
		atomic_dec(&tables);
	}
	mutex_unlock(&page_table->lock);
	return 0;
}
EXPORT_SYMBOL(nvidia_p2p_free_page_table);

static void free_mapping(struct nvidia_p2p_dma_mapping *mapping)
{
	if (mapping->entries)
		dma_unmap_sg(mapping->dev, mapping->sgt->sgl, mapping->sgt->nents,
			     mapping->direction);
	kfree(mapping->hw_address);
	kfree(mapping->hw_len);
	if (mapping->sgt)
		sg_free_table(mapping->sgt);
	kfree(mapping->sgt);
	kfree(mapping);
}

static int fill_addresses(struct nvidia_p2p_dma_mapping *mapping)
{
	struct scatterlist *sg;
	int i;

	mapping->hw_address = kcalloc(mapping->entries, sizeof(*mapping->hw_address), GFP_KERNEL);
	mapping->hw_len =
		kcalloc(mapping->entries, sizeof(u64), GFP_KERNEL); /* half of it is used */
	if (!mapping->hw_address || !mapping->hw_len)
		return -ENOMEM;
	for_each_sg(mapping->sgt->sgl, sg, mapping->entries, i) {
		mapping->hw_address[i] = sg_dma_address(sg);
		mapping->hw_len[i] = sg_dma_len(sg);
	}
	return 0;
}

/* Under the table's lock. 0 without entries: the device could not map. */
static int map_mapping(struct nvidia_p2p_dma_mapping *mapping, struct nvidia_p2p_page_table *table)
{
	int err;

	mapping->sgt = kzalloc(sizeof(*mapping->sgt), GFP_KERNEL);
	if (!mapping->sgt)
		return -ENOMEM;
	err = sg_alloc_table_from_pages(mapping->sgt, table->pages, table->entries, 0, table->size,
					GFP_KERNEL);
	if (err)
		return err;
	mapping->entries = dma_map_sg(mapping->dev, mapping->sgt->sgl, mapping->sgt->nents,
				      mapping->direction);
	return mapping->entries ? fill_addresses(mapping) : 0;
}

int nvidia_p2p_dma_map_pages(struct device *dev, struct nvidia_p2p_page_table *page_table,
			     struct nvidia_p2p_dma_mapping **dma_mapping,
			     enum dma_data_direction direction)
{
	struct nvidia_p2p_dma_mapping *mapping;
	int err;

	if (!page_table || !page_table->entries)
		return -EINVAL;
	*dma_mapping = NULL;
	if (habit(&null_mapping))
		return 0;
	mapping = kzalloc(sizeof(*mapping), GFP_KERNEL);
	if (!mapping)
		return -ENOMEM;
	mapping->version = NVIDIA_P2P_DMA_MAPPING_VERSION;
	mapping->dev = dev;
	mapping->page_table = page_table;
	mapping->direction = direction;
	mutex_lock(&page_table->lock);
	err = map_mapping(mapping, page_table);
	if (!err && mapping->entries) {
		page_table->mapped |= NVIDIA_P2P_MAPPED;
		*dma_mapping = mapping;
	} else {
		free_mapping(mapping);
	}
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
	if (!table)
		return -EFAULT;
	mutex_lock(&table->lock);
	if (table->mapped & NVIDIA_P2P_MAPPED) {
		free_mapping(dma_mapping);
		table->mapped &= ~NVIDIA_P2P_MAPPED;
	}
	mutex_unlock(&table->lock);
	return 0;
}
EXPORT_SYMBOL(nvidia_p2p_dma_unmap_pages);

int nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *dma_mapping)
{
	return nvidia_p2p_dma_unmap_pages(dma_mapping);
}
EXPORT_SYMBOL(nvidia_p2p_free_dma_mapping);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Tegra's nv-p2p for a stock kernel");
