/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tegra's nv-p2p: user memory made accessible to another device (GPUDirect RDMA 12.9 section 13.4). The prototypes are
 * those of its table "Tegra API"; what it leaves open follows the behaviour of Jetson Linux.
 */
#ifndef NV_P2P_H
#define NV_P2P_H

#include <linux/dma-direction.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/types.h>

struct device;
struct page;
struct sg_table;

#define NVIDIA_P2P_PAGE_TABLE_VERSION	0x00010000
#define NVIDIA_P2P_DMA_MAPPING_VERSION	0x00010000

enum nvidia_p2p_page_size_type {
	NVIDIA_P2P_PAGE_SIZE_4KB = 0,
	NVIDIA_P2P_PAGE_SIZE_64KB,
	NVIDIA_P2P_PAGE_SIZE_128KB,
};

/* The same major version, and a minor one that is not older. */
static inline bool nvidia_p2p_compatible(u32 version, u32 known)
{
	return version >> 16 == known >> 16 && (version & 0xffff) >= (known & 0xffff);
}

#define NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE(p) \
	nvidia_p2p_compatible((p)->version, NVIDIA_P2P_PAGE_TABLE_VERSION)
#define NVIDIA_P2P_DMA_MAPPING_VERSION_COMPATIBLE(p) \
	nvidia_p2p_compatible((p)->version, NVIDIA_P2P_DMA_MAPPING_VERSION)

/* Pages of a range. The structure is the caller's to kfree when no notifier of it can run any more. */
struct nvidia_p2p_page_table {
	u32 version;
	u32 page_size;		/* enum nvidia_p2p_page_size_type */
	u64 size;		/* bytes */
	u32 entries;		/* of pages */
	struct page **pages;
	u64 vaddr;
	u32 mapped;		/* NVIDIA_P2P_PINNED and the like */
	struct mm_struct *mm;
	struct mmu_notifier mn;	/* unhashed: an invalidation has ended it */
	struct mutex lock;
	void (*free_callback)(void *data);
	void *data;
};

#define NVIDIA_P2P_PINNED	1
#define NVIDIA_P2P_MAPPED	2
#define NVIDIA_P2P_INVALID	4

/* Bus addresses of a range. */
struct nvidia_p2p_dma_mapping {
	u32 version;
	dma_addr_t *hw_address;
	u32 *hw_len;		/* bytes */
	u32 entries;		/* of both */
	struct sg_table *sgt;
	struct device *dev;
	struct nvidia_p2p_page_table *page_table;
	enum dma_data_direction direction;
};

/*
 * Pins the pages of virtual_address, for length bytes; both must be multiples of 4 KiB. free_callback is called when
 * the memory goes, when its process ends, and by nvidia_p2p_put_pages.
 */
int nvidia_p2p_get_pages(u64 virtual_address, u64 length, struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data);

/* Ends that and calls free_callback before it returns. Not from the callback. */
int nvidia_p2p_put_pages(struct nvidia_p2p_page_table *page_table);

/* Gives the pages back. From the callback. */
int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table);

/* Maps the pages for dev; one mapping of a page table at a time. */
int nvidia_p2p_dma_map_pages(struct device *dev, struct nvidia_p2p_page_table *page_table,
			     struct nvidia_p2p_dma_mapping **dma_mapping, enum dma_data_direction direction);

/* Unmaps and frees. Not from the callback. */
int nvidia_p2p_dma_unmap_pages(struct nvidia_p2p_dma_mapping *dma_mapping);

/* The same, from the callback. */
int nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *dma_mapping);

#endif
