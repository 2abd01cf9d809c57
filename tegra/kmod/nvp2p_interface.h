/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Declarations of Tegra's nv-p2p: user memory made accessible to another device (GPUDirect RDMA
 * 12.9 section 13.4). They stand in for Jetson Linux's <linux/nv-p2p.h> where that is not
 * installed. Names, types and the layout of the structures are those of the provider; tests compare
 * both with NVIDIA's header. The words are not NVIDIA's.
 *
 * Kbuild chooses between the two. A source file includes <nv-p2p.h>; nvp2p/nv-p2p.h leads here.
 */
#ifndef TEGRA_P2P_NVP2P_INTERFACE_H
#define TEGRA_P2P_NVP2P_INTERFACE_H

#include <linux/dma-mapping.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/types.h>

/* What page_size says. It is no number of bytes. */
enum nvidia_p2p_page_size_type {
	NVIDIA_P2P_PAGE_SIZE_4KB,	/* Tegra has no other */
	NVIDIA_P2P_PAGE_SIZE_64KB,
	NVIDIA_P2P_PAGE_SIZE_128KB,
	NVIDIA_P2P_PAGE_SIZE_COUNT
};

/* Bits of mapped. */
#define NVIDIA_P2P_UNINITIALIZED	0x0
#define NVIDIA_P2P_PINNED		0x1U
#define NVIDIA_P2P_MAPPED		0x2U

/*
 * Pages of a range. The provider fills it in and never frees it: it is the notifier, and the caller
 * kfrees it when no notifier of it can run any more.
 */
struct nvidia_p2p_page_table {
	u32 version;
	u32 page_size;		/* enum nvidia_p2p_page_size_type */
	u64 size;		/* as get_pages was called with, in bytes */
	u32 entries;		/* of pages */
	struct page **pages;
	u64 vaddr;		/* as get_pages was called with */
	u32 mapped;
	struct mm_struct *mm;
	struct mmu_notifier mn;	/* unhashed: an invalidation has ended it */
	struct mutex lock;	/* mapped, pages */
	void (*free_callback)(void *data);
	void *data;
};

/* Bus addresses of a range. The provider frees it. */
struct nvidia_p2p_dma_mapping {
	u32 version;
	dma_addr_t *hw_address;
	u32 *hw_len;		/* in bytes */
	u32 entries;		/* of both */
	struct sg_table *sgt;
	struct device *dev;
	struct nvidia_p2p_page_table *page_table;
	enum dma_data_direction direction;
};

/*
 * The major version is in the upper half. It must be the same; the provider's minor one may be
 * newer.
 */
#define NVIDIA_P2P_PAGE_TABLE_VERSION	0x00010000
#define NVIDIA_P2P_DMA_MAPPING_VERSION	0x00010000

static inline bool tegra_p2p_nvp2p_compatible(u32 version, u32 known)
{
	return version >> 16 == known >> 16 && (version & 0xffff) >= (known & 0xffff);
}

#define NVIDIA_P2P_PAGE_TABLE_VERSION_COMPATIBLE(p) \
	tegra_p2p_nvp2p_compatible((p)->version, NVIDIA_P2P_PAGE_TABLE_VERSION)
#define NVIDIA_P2P_DMA_MAPPING_VERSION_COMPATIBLE(p) \
	tegra_p2p_nvp2p_compatible((p)->version, NVIDIA_P2P_DMA_MAPPING_VERSION)

/*
 * Pins the pages of size bytes at vaddr of the calling process; both are multiples of 4 KiB.
 * free_callback is called when the memory goes, when its process ends, and by nvidia_p2p_put_pages.
 * It may come before this returns.
 */
int nvidia_p2p_get_pages(u64 vaddr, u64 size, struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data);

/*
 * Ends that, and calls free_callback before it returns. Not from the callback, and not after an
 * invalidation.
 */
int nvidia_p2p_put_pages(struct nvidia_p2p_page_table *page_table);

/* Gives the pages back, from the callback. */
int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table);

/*
 * Maps the pages for dev, once for a page table. Success does not say that there is a mapping: only
 * *dma_mapping does, which is NULL where dev could not map.
 */
int nvidia_p2p_dma_map_pages(struct device *dev, struct nvidia_p2p_page_table *page_table,
			     struct nvidia_p2p_dma_mapping **dma_mapping,
			     enum dma_data_direction direction);

/* Unmaps and frees. Not from the callback. */
int nvidia_p2p_dma_unmap_pages(struct nvidia_p2p_dma_mapping *dma_mapping);

/* The same, from the callback. */
int nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *dma_mapping);

#endif
