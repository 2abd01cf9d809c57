// SPDX-License-Identifier: GPL-2.0
/* What stands between the function and the memory that is not pinned for it. */
#include <linux/capability.h>
#include <linux/kernel.h>

#include "p2p.h"

/* Marks the function as one that no IOMMU holds back. Reports whether it was not. */
bool tp_expose(struct tp_dev *dev, const char *why)
{
	if (xchg(&dev->exposed, true))
		return false;
	dev_warn(&dev->pdev->dev, "%s: not protected\n", why);
	return true;
}

static bool is_function(struct device *dev)
{
	return !dev_is_pci(dev) || to_pci_dev(dev)->hdr_type == PCI_HEADER_TYPE_NORMAL;
}

/*
 * The function itself, and what it hangs on. A Jetson Orin's PCIe controller is in the group of its
 * slot.
 */
static bool is_above(struct device *dev, struct device *other)
{
	for (; dev; dev = dev->parent)
		if (dev == other)
			return true;
	return false;
}

/*
 * Bridges do no DMA of their own, nor does the controller above them, but for the address of its
 * messages.
 */
static bool is_neighbour(struct tp_dev *dev, struct device *other)
{
	return is_function(other) && !is_above(&dev->pdev->dev, other);
}

static int expose_to(struct device *other, void *data)
{
	struct tp_dev *dev = data;

	if (is_neighbour(dev, other))
		tp_expose(dev, "its IOMMU group has other functions");
	return 0;
}

/*
 * With a device tree a function joins its group when a driver takes it. The driver has mapped
 * nothing yet, and what it maps would be within reach: the function is stopped, and RESUME asks for
 * the right to such a one.
 */
static int neighbour(struct notifier_block *nb, unsigned long action, void *data)
{
	struct tp_dev *dev = container_of(nb, struct tp_dev, neighbours);
	struct iommu_group *group, *ours;

	if (action != BUS_NOTIFY_BIND_DRIVER)
		return NOTIFY_DONE;
	ours = iommu_group_get(&dev->pdev->dev);
	group = iommu_group_get(data);
	if (group && group == ours && is_neighbour(dev, data) &&
	    tp_expose(dev, "another function has joined its IOMMU group"))
		tp_lost(dev, TEGRA_P2P_ERROR_EXPOSED);
	iommu_group_put(group);
	iommu_group_put(ours);
	return NOTIFY_OK;
}

/*
 * At probe, and when a neighbour comes, since the group's mutex must not be taken in a revocation.
 */
int tp_protection_probe(struct tp_dev *dev)
{
	struct iommu_group *group;
	int err;

	if (!dev_is_dma_coherent(&dev->pdev->dev)) {
		dev_err(&dev->pdev->dev, "DMA is not coherent with the caches: not supported\n");
		return -EOPNOTSUPP;
	}
	dev->isolated_msi = tp_isolated_msi(&dev->pdev->dev);
	dev->neighbours.notifier_call = neighbour;
	err = bus_register_notifier(&pci_bus_type, &dev->neighbours);
	if (err)
		return err;
	group = iommu_group_get(&dev->pdev->dev);
	if (group) {
		iommu_group_for_each_dev(group, dev, expose_to);
		iommu_group_put(group);
	}
#ifdef CONFIG_PCI_ATS
	if (dev->pdev->ats_enabled)
		tp_expose(dev, "its ATS is enabled, which the IOMMU trusts");
#endif
	return 0;
}

void tp_protection_remove(struct tp_dev *dev)
{
	bus_unregister_notifier(&pci_bus_type, &dev->neighbours);
}

/*
 * The flags of GET_INFO. An administrator may make a domain lazy at any time, so it is asked each
 * time.
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
	 * (docs/security.md).
	 */
	if (domain && tp_domain_strict(domain) && (dev->isolated_msi || !IS_ENABLED(CONFIG_X86)))
		flags |= TEGRA_P2P_INFO_STRICT;
	if (!(flags & TEGRA_P2P_INFO_STRICT) || READ_ONCE(dev->exposed))
		flags |= TEGRA_P2P_INFO_UNSAFE;
	return flags;
}

bool tp_protected(struct tp_dev *dev)
{
	return !(tp_protection(dev) & TEGRA_P2P_INFO_UNSAFE);
}

/*
 * Whether DMA to addr goes to a bounce buffer instead of the memory that was mapped. Not so behind
 * an IOMMU.
 */
bool tp_bounced(struct device *dev, dma_addr_t addr)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);

	return (!domain || domain->type == IOMMU_DOMAIN_IDENTITY) && dma_need_sync(dev, addr);
}

/* Whether the caller may do DMA by a function that no IOMMU holds back. */
static int may_use_unsafe(struct tp_dev *dev, bool allowed)
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

/*
 * Whether the caller may open the device. unsafe: it has shown its right to an unprotected
 * function. That is decided once, here: a function that loses its protection later is not for those
 * who opened it before.
 */
int tp_may_open(struct tp_dev *dev, bool *unsafe)
{
	*unsafe = !tp_protected(dev);
	return *unsafe ? may_use_unsafe(dev, false) : 0;
}

/* Whether the caller may do DMA. allowed: it has shown its right when it opened the device. */
int tp_may_use(struct tp_dev *dev, bool allowed)
{
	return tp_protected(dev) ? 0 : may_use_unsafe(dev, allowed);
}
