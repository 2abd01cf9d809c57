// SPDX-License-Identifier: GPL-2.0
/* What stands between the function and the memory that is not pinned for it. */
#include <linux/capability.h>
#include <linux/kernel.h>

#include "p2p.h"

static bool tp_allow_unsafe;
module_param_named(allow_unsafe, tp_allow_unsafe, bool, 0644);
MODULE_PARM_DESC(allow_unsafe, "allow functions without a strict IOMMU of their own: they reach all memory (CAP_SYS_RAWIO, taints)");

/**
 * tp_expose() - Marks the function as one that no IOMMU holds back, and warns of that once.
 * @dev: the function
 * @why: the cause, for the warning
 *
 * Return: true if it was not marked before.
 */
bool tp_expose(struct tp_dev *dev, const char *why)
{
	if (xchg(&dev->exposed, true))
		return false;
	dev_warn(&dev->pdev->dev, "%s: not protected\n", why);
	return true;
}

static bool tp_is_function(struct device *dev)
{
	return !dev_is_pci(dev) || to_pci_dev(dev)->hdr_type == PCI_HEADER_TYPE_NORMAL;
}

/*
 * The function itself, and what it hangs on. A Jetson Orin's PCIe controller is in the group of its
 * slot.
 */
static bool tp_is_above(struct device *dev, struct device *other)
{
	for (; dev; dev = dev->parent)
		if (dev == other)
			return true;
	return false;
}

/**
 * tp_is_neighbour() - Reports whether a device of the function's IOMMU group does DMA of its own.
 * @dev: the function
 * @other: the device
 *
 * Return: false for the function itself, for what it hangs on, and for bridges. These do no DMA of
 * their own, nor does the controller above them, but for the address of its messages.
 */
bool tp_is_neighbour(struct tp_dev *dev, struct device *other)
{
	return tp_is_function(other) && !tp_is_above(&dev->pdev->dev, other);
}

static int tp_expose_to_other(struct device *other, void *data)
{
	struct tp_dev *dev = data;

	if (tp_is_neighbour(dev, other))
		tp_expose(dev, "its IOMMU group has other functions");
	return 0;
}

/**
 * tp_protection_probe() - Refuses DMA that is not coherent, and looks at where interrupts go.
 * @dev: the function
 *
 * Context: At probe, before tp_find_exposure(). May sleep.
 * Return: 0; -EOPNOTSUPP: its DMA is not coherent with the caches.
 */
int tp_protection_probe(struct tp_dev *dev)
{
	if (!dev_is_dma_coherent(&dev->pdev->dev)) {
		dev_err(&dev->pdev->dev, "DMA is not coherent with the caches: not supported\n");
		return -EOPNOTSUPP;
	}
	dev->isolated_msi = tp_isolated_msi(&dev->pdev->dev);
	return 0;
}

/**
 * tp_find_exposure() - Marks the function if its IOMMU group has others, or the IOMMU trusts it.
 * @dev: the function
 *
 * Context: At probe, after tp_neighbours_watch(). A revocation must not take the group's mutex.
 */
void tp_find_exposure(struct tp_dev *dev)
{
	struct iommu_group *group = iommu_group_get(&dev->pdev->dev);

	if (group) {
		iommu_group_for_each_dev(group, dev, tp_expose_to_other);
		iommu_group_put(group);
	}
#ifdef CONFIG_PCI_ATS
	if (dev->pdev->ats_enabled)
		tp_expose(dev, "its ATS is enabled, which the IOMMU trusts");
#endif
}

/**
 * tp_protection() - Returns what protects memory from the function.
 * @dev: the function
 *
 * An administrator may make a domain lazy at any time, so it is asked each time.
 *
 * Return: flags of GET_INFO.
 */
u32 tp_protection(struct tp_dev *dev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&dev->pdev->dev);
	u32 flags = TEGRA_P2P_INFO_COHERENT;

	if (domain && domain->type != IOMMU_DOMAIN_IDENTITY && domain->type != IOMMU_DOMAIN_BLOCKED)
		flags |= TEGRA_P2P_INFO_IOMMU;
	if (dev->isolated_msi)
		flags |= TEGRA_P2P_INFO_ISOLATED_MSI;
	/*
	 * Elsewhere than on x86 the messages of another's interrupts are no way to memory
	 * (docs/module.md).
	 */
	if (domain && tp_domain_strict(domain) && (dev->isolated_msi || !IS_ENABLED(CONFIG_X86)))
		flags |= TEGRA_P2P_INFO_STRICT;
	if (!(flags & TEGRA_P2P_INFO_STRICT) || READ_ONCE(dev->exposed))
		flags |= TEGRA_P2P_INFO_UNSAFE;
	return flags;
}

/**
 * tp_protected() - Reports whether the function reaches only what is mapped for it.
 * @dev: the function
 *
 * Return: true if tp_protection() is without TEGRA_P2P_INFO_UNSAFE.
 */
bool tp_protected(struct tp_dev *dev)
{
	return !(tp_protection(dev) & TEGRA_P2P_INFO_UNSAFE);
}

/**
 * tp_bounced() - Reports whether DMA goes to a bounce buffer instead of the memory that was mapped.
 * @dev: the function
 * @addr: the bus address
 *
 * Return: true if so; not behind an IOMMU.
 */
bool tp_bounced(struct device *dev, dma_addr_t addr)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);

	return (!domain || domain->type == IOMMU_DOMAIN_IDENTITY) && dma_need_sync(dev, addr);
}

/* Whether the caller may do DMA by a function that no IOMMU holds back. */
static int tp_may_use_unsafe(struct tp_dev *dev, bool allowed)
{
	if (!tp_allow_unsafe) {
		dev_warn_ratelimited(&dev->pdev->dev,
				     "no strict IOMMU of its own: it could reach all memory; allow_unsafe=1 permits that\n");
		return -EPERM;
	}
	if (!allowed && !capable(CAP_SYS_RAWIO))
		return -EPERM;
	add_taint(TAINT_USER, LOCKDEP_STILL_OK);
	return 0;
}

/**
 * tp_may_open() - Checks that the caller may open the device.
 * @dev: the function
 * @unsafe: set to true if the caller has shown its right to an unprotected function
 *
 * That is decided once, here: a function that loses its protection later is not for those who
 * opened it before.
 *
 * Return: 0 or -EPERM.
 */
int tp_may_open(struct tp_dev *dev, bool *unsafe)
{
	*unsafe = !tp_protected(dev);
	return *unsafe ? tp_may_use_unsafe(dev, false) : 0;
}

/**
 * tp_may_use() - Checks that the caller may do DMA.
 * @dev: the function
 * @allowed: the caller has shown its right to an unprotected function at open
 *
 * Return: 0 or -EPERM.
 */
int tp_may_use(struct tp_dev *dev, bool allowed)
{
	return tp_protected(dev) ? 0 : tp_may_use_unsafe(dev, allowed);
}
