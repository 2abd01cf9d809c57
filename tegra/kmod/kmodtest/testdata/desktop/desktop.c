// SPDX-License-Identifier: GPL-2.0
/*
 * The symbols of a desktop driver: names of Tegra's nv-p2p with other arguments (GPUDirect
 * RDMA 12.9 section 13.3), and those that Tegra has not. Nobody here may call them.
 */
#include <linux/module.h>
#include <linux/pci.h>

struct nvidia_p2p_page_table;
struct nvidia_p2p_dma_mapping;

static int refuse(const char *name)
{
	WARN(1, "desktop: %s was called\n", name);
	return -EINVAL;
}

int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address, u64 length,
			 struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data)
{
	return refuse(__func__);
}
EXPORT_SYMBOL(nvidia_p2p_get_pages);

int nvidia_p2p_get_pages_persistent(u64 virtual_address, u64 length,
				    struct nvidia_p2p_page_table **page_table, u32 flags)
{
	return refuse(__func__);
}
EXPORT_SYMBOL(nvidia_p2p_get_pages_persistent);

int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 struct nvidia_p2p_page_table *page_table)
{
	return refuse(__func__);
}
EXPORT_SYMBOL(nvidia_p2p_put_pages);

int nvidia_p2p_put_pages_persistent(u64 virtual_address, struct nvidia_p2p_page_table *page_table,
				    u32 flags)
{
	return refuse(__func__);
}
EXPORT_SYMBOL(nvidia_p2p_put_pages_persistent);

int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table)
{
	return refuse(__func__);
}
EXPORT_SYMBOL(nvidia_p2p_free_page_table);

int nvidia_p2p_dma_map_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
			     struct nvidia_p2p_dma_mapping **dma_mapping)
{
	return refuse(__func__);
}
EXPORT_SYMBOL(nvidia_p2p_dma_map_pages);

int nvidia_p2p_dma_unmap_pages(struct pci_dev *peer, struct nvidia_p2p_page_table *page_table,
			       struct nvidia_p2p_dma_mapping *dma_mapping)
{
	return refuse(__func__);
}
EXPORT_SYMBOL(nvidia_p2p_dma_unmap_pages);

int nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *dma_mapping)
{
	return refuse(__func__);
}
EXPORT_SYMBOL(nvidia_p2p_free_dma_mapping);

MODULE_LICENSE("Dual MIT/GPL"); /* as the open driver's */
MODULE_DESCRIPTION("A desktop driver's nv-p2p symbols");
