// SPDX-License-Identifier: GPL-2.0
/* What stands between the function and the memory that is not pinned for it. */
#include <linux/capability.h>
#include <linux/kernel.h>

#include "p2p.h"

/* Counts the other functions of a group that can do DMA. */
static int count_others(struct device *dev, void *data)
{
	struct {
		struct device *self;
		int n;
	} *others = data;

	if (dev != others->self && (!dev_is_pci(dev) || to_pci_dev(dev)->hdr_type == PCI_HEADER_TYPE_NORMAL))
		others->n++;
	return 0;
}

/* At probe, since the group's mutex must not be taken in a revocation. */
int tp_protection_probe(struct tp_dev *dev)
{
	struct {
		struct device *self;
		int n;
	} others = { .self = &dev->pdev->dev };
	struct iommu_group *group;

	if (!dev_is_dma_coherent(&dev->pdev->dev)) {
		dev_err(&dev->pdev->dev, "DMA is not coherent with the caches: not supported\n");
		return -EOPNOTSUPP;
	}
	group = iommu_group_get(&dev->pdev->dev);
	if (group) {
		iommu_group_for_each_dev(group, &others, count_others);
		iommu_group_put(group);
	}
	dev->exposed = others.n;
	if (others.n)
		dev_warn(&dev->pdev->dev, "its IOMMU group has other functions: not protected\n");
#ifdef CONFIG_PCI_ATS
	if (dev->pdev->ats_enabled) {
		dev->exposed = true;
		dev_warn(&dev->pdev->dev, "its ATS is enabled, which the IOMMU trusts: not protected\n");
	}
#endif
	return 0;
}

/* The flags of GET_INFO. An administrator may make a domain lazy at any time, so it is asked each time. */
u32 tp_protection(struct tp_dev *dev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&dev->pdev->dev);
	u32 flags = TEGRA_P2P_INFO_COHERENT;

	if (domain && domain->type != IOMMU_DOMAIN_IDENTITY && domain->type != IOMMU_DOMAIN_BLOCKED)
		flags |= TEGRA_P2P_INFO_IOMMU;
	if (domain && tp_domain_strict(domain))
		flags |= TEGRA_P2P_INFO_STRICT;
	if (!(flags & TEGRA_P2P_INFO_STRICT) || dev->exposed)
		flags |= TEGRA_P2P_INFO_UNSAFE;
	return flags;
}

bool tp_protected(struct tp_dev *dev)
{
	return !(tp_protection(dev) & TEGRA_P2P_INFO_UNSAFE);
}

/* Whether DMA to addr goes to a bounce buffer instead of the memory that was mapped. Not so behind an IOMMU. */
bool tp_bounced(struct device *dev, dma_addr_t addr)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);

	return (!domain || domain->type == IOMMU_DOMAIN_IDENTITY) && dma_need_sync(dev, addr);
}

/* Whether the caller may do DMA. allowed: it has shown its right when it opened the device. */
int tp_may_use(struct tp_dev *dev, bool allowed)
{
	if (tp_protected(dev))
		return 0;
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
