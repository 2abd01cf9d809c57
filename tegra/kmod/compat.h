/* SPDX-License-Identifier: GPL-2.0 */
/* What differs between kernels and processors: the only place that asks for a version. */
#ifndef TEGRA_P2P_COMPAT_H
#define TEGRA_P2P_COMPAT_H

#include <linux/aer.h>
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/eventfd.h>
#include <linux/iommu.h>
#include <linux/irqdomain.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/msi.h>
#include <linux/pci.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 10, 0)
#error "tegra_p2p needs Linux 5.10 (L4T r35): pin_user_pages and mmu_interval_notifier"
#endif
#ifndef CONFIG_64BIT
#error "tegra_p2p needs a 64-bit kernel"
#endif
#ifndef CONFIG_MMU_NOTIFIER
#error "tegra_p2p needs CONFIG_MMU_NOTIFIER"
#endif

/* vm_flags are changed by function since 6.3. */
static inline void tp_vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_set(vma, flags);
#else
	vma->vm_flags |= flags;
#endif
}

static inline void tp_vm_flags_clear(struct vm_area_struct *vma, unsigned long flags)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_clear(vma, flags);
#else
	vma->vm_flags &= ~flags;
#endif
}

/* A mapping can tell of mprotect since 5.11. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 11, 0)
#define TP_VM_OP_MPROTECT(op) .mprotect = op,
#else
#define TP_VM_OP_MPROTECT(op)
#endif

/* eventfd_signal counts by one since 6.8. */
static inline void tp_eventfd_signal(struct eventfd_ctx *ctx)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 8, 0)
	eventfd_signal(ctx);
#else
	eventfd_signal(ctx, 1);
#endif
}

/* pin_user_pages returns no VMAs since 6.5. */
static inline long tp_pin_user_pages(unsigned long va, unsigned long n, unsigned int flags,
				     struct page **pages)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
	return pin_user_pages(va, n, flags, pages);
#else
	return pin_user_pages(va, n, flags, pages, NULL);
#endif
}

/*
 * One page of another address space, whose mmap_lock is held, without a pin. The call returns no
 * VMAs since 6.5.
 */
static inline long tp_get_page_of(struct mm_struct *mm, unsigned long va, unsigned int flags,
				  struct page **page)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
	return get_user_pages_remote(mm, va, 1, flags, page, NULL);
#else
	return get_user_pages_remote(mm, va, 1, flags, page, NULL, NULL);
#endif
}

/* get_user_pages can look for a page without a fault since 5.16. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 16, 0)
#define TP_FOLL_NOFAULT FOLL_NOFAULT
#else
#define TP_FOLL_NOFAULT 0
#endif

/* Whether reclaim looks after a page, or has. */
static inline bool tp_page_reclaimed(struct page *page)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 16, 0)
	struct folio *folio = page_folio(page);

	return folio_test_lru(folio) || folio_test_swapbacked(folio);
#else
	return PageLRU(page) || PageSwapBacked(page);
#endif
}

/*
 * Whether a domain of the DMA API forgets a mapping before dma_unmap returns; in doubt it does not.
 */
static inline bool tp_domain_strict(struct iommu_domain *domain)
{
#if defined(IOMMU_DOMAIN_DMA_FQ)
	return domain->type == IOMMU_DOMAIN_DMA;
#elif LINUX_VERSION_CODE < KERNEL_VERSION(5, 13, 0)
	int lazy = 0;

	if (domain->type != IOMMU_DOMAIN_DMA)
		return false;
	/* Intel's driver cannot be asked before 5.12, and is lazy by default. */
	if (iommu_domain_get_attr(domain, DOMAIN_ATTR_DMA_USE_FLUSH_QUEUE, &lazy))
		return !IS_ENABLED(CONFIG_X86);
	return !lazy;
#else
	return false;
#endif
}

/*
 * Whether the function's interrupts, which are writes, are its own alone. On x86 a write to
 * 0xfee00000 is any interrupt of any processor unless the IOMMU remaps it. On arm64 it is any
 * interrupt of the frame or controller that takes the function's messages, unless that goes by the
 * writer (GICv3's ITS).
 */
static inline bool tp_isolated_msi(struct device *dev)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	return msi_device_has_isolated_msi(dev);
#elif !defined(CONFIG_X86)
	return irq_domain_check_msi_remap();
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 0, 0)
	return device_iommu_capable(dev, IOMMU_CAP_INTR_REMAP);
#else
	return iommu_capable(dev->bus, IOMMU_CAP_INTR_REMAP);
#endif
}

/* Whether the kernel may reset the function: it has a list of ways since 5.15. */
static inline bool tp_has_reset(struct pci_dev *pdev)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 15, 0)
	return pdev->reset_methods[0];
#else
	return pdev->reset_fn;
#endif
}

#ifndef PCI_IRQ_INTX /* before 6.8 */
#define PCI_IRQ_INTX PCI_IRQ_LEGACY
#endif

/* The core has functions report errors of their links by itself since 6.2. */
static inline void tp_report_errors(struct pci_dev *pdev)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
	pci_enable_pcie_error_reporting(pdev);
#endif
}

/* A tracepoint's string is named once since 6.10. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
#define tp_assign_str(field, from) __assign_str(field)
#else
#define tp_assign_str(field, from) __assign_str(field, from)
#endif

enum tp_cache { TP_CACHE_WB, TP_CACHE_WC, TP_CACHE_OTHER };

/* The cache attribute that user space has its memory with. */
static inline enum tp_cache tp_prot_cache(pgprot_t prot)
{
#if defined(CONFIG_ARM64)
	switch (pgprot_val(prot) & PTE_ATTRINDX_MASK) {
	case PTE_ATTRINDX(MT_NORMAL):
#ifdef MT_NORMAL_TAGGED
	case PTE_ATTRINDX(MT_NORMAL_TAGGED):
#endif
		return TP_CACHE_WB;
	case PTE_ATTRINDX(MT_NORMAL_NC):
		return TP_CACHE_WC;
	}
	return TP_CACHE_OTHER;
#elif defined(CONFIG_X86)
	unsigned long bits = pgprot_val(prot) & _PAGE_CACHE_MASK;

	if (!bits)
		return TP_CACHE_WB;
	if (bits == (pgprot_val(pgprot_writecombine(__pgprot(0))) & _PAGE_CACHE_MASK))
		return TP_CACHE_WC;
	return TP_CACHE_OTHER;
#else
#error "tegra_p2p knows the page protection bits of arm64 and x86-64 only"
#endif
}

#endif
