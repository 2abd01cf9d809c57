// SPDX-License-Identifier: GPL-2.0
/*
 * tegra_p2p: DMA between a PCI function that is driven from user space and memory that CUDA sees
 * (GPUDirect RDMA on Tegra). It does what must be in the kernel: pins, IOVAs, revocation,
 * interrupts as eventfds, BARs to map. A function is given to it by name:
 *
 *   echo tegra_p2p > /sys/bus/pci/devices/0000:01:00.0/driver_override
 *   echo 0000:01:00.0 > /sys/bus/pci/drivers_probe
 *
 * docs/module.md describes the interface, and what protects whom.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/idr.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "p2p.h"

#ifndef TEGRA_P2P_NVP2P_SOURCE
#define TEGRA_P2P_NVP2P_SOURCE "the header that was named"
#endif

static char *backend = "auto";
module_param(backend, charp, 0444);
MODULE_PARM_DESC(backend, "how memory is pinned: nvp2p, gup (pin_user_pages) or auto, which takes nvp2p where it is there");

static DEFINE_IDA(tp_ids);
static dev_t tp_devt;

/*
 * Functions whose engines have fewer address lines than 64 say so nowhere in their configuration
 * space.
 */
static const struct pci_device_id tp_dma_bits[] = {
	{ PCI_DEVICE(0x1234, 0x11e8), .driver_data = 28 }, /* QEMU's edu */
	{ }
};

static void tp_destroy_queue(struct workqueue_struct *wq)
{
	if (wq)
		destroy_workqueue(wq);
}

static void tp_dev_release(struct device *device)
{
	struct tp_dev *dev = container_of(device, struct tp_dev, device);

	cleanup_srcu_struct(&dev->srcu);
	pci_dev_put(dev->pdev);
	kfree(dev->saved);
	kfree(dev);
}

/*
 * Who has opened the function to write, the first one first: process and user of each, as the
 * reader sees them. The process is 0 when it has ended and another one has the file. Of very many
 * files the last ones are left out.
 */
#define TP_OWNER_LINE 24 /* two numbers of ten digits */

static ssize_t owners_show(struct device *device, struct device_attribute *attr, char *buf)
{
	struct tp_dev *dev = container_of(device, struct tp_dev, device);
	struct tp_file *file;
	int n = 0;

	mutex_lock(&dev->files_lock);
	list_for_each_entry(file, &dev->files, entry)
		if (file->writer && n < PAGE_SIZE - TP_OWNER_LINE)
			n += sysfs_emit_at(buf, n, "%d %u\n",
					   pid_has_task(file->opener, PIDTYPE_TGID) ?
						   pid_vnr(file->opener) : 0,
					   from_kuid_munged(current_user_ns(), file->user));
	mutex_unlock(&dev->files_lock);
	return n;
}
static DEVICE_ATTR_RO(owners);

static struct attribute *tp_attrs[] = { &dev_attr_owners.attr, NULL };
ATTRIBUTE_GROUPS(tp);

static struct class tp_class = {
	.name = "tegra_p2p",
	.dev_groups = tp_groups,
};

static struct tp_dev *tp_dev_new(struct pci_dev *pdev)
{
	struct tp_dev *dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	int err;

	if (!dev)
		return ERR_PTR(-ENOMEM);
	err = init_srcu_struct(&dev->srcu);
	if (err) {
		kfree(dev);
		return ERR_PTR(err);
	}
	device_initialize(&dev->device);
	dev->device.class = &tp_class;
	dev->device.parent = &pdev->dev;
	dev->device.release = tp_dev_release;
	dev->pdev = pci_dev_get(pdev);
	/* Whoever had the function before may have left its engine running. */
	dev->state = TEGRA_P2P_STATE_FENCED;
	mutex_init(&dev->fence_lock);
	mutex_init(&dev->files_lock);
	mutex_init(&dev->control_lock);
	mutex_init(&dev->bar_lock);
	mutex_init(&dev->irq_lock);
	spin_lock_init(&dev->pins_lock);
	INIT_LIST_HEAD(&dev->files);
	INIT_LIST_HEAD(&dev->writers);
	hash_init(dev->spaces);
	return dev;
}

static int tp_setup_dma(struct tp_dev *dev)
{
	const struct pci_device_id *quirk = pci_match_id(tp_dma_bits, dev->pdev);
	int err;

	dev->dma_bits = quirk ? quirk->driver_data : 64;
	err = dma_set_mask_and_coherent(&dev->pdev->dev, DMA_BIT_MASK(dev->dma_bits));
	if (err)
		return err;
	/* One segment for as much as the IOMMU can make contiguous; the default is 64 KiB. */
	dma_set_max_seg_size(&dev->pdev->dev, UINT_MAX);
	err = tp_protection_probe(dev);
	if (!err)
		err = tp_neighbours_watch(dev); /* before others are looked for */
	if (!err)
		tp_find_exposure(dev);
	return err;
}

/* Whoever writes the MSI-X table makes the function write anywhere. */
static void tp_find_msix_table(struct tp_dev *dev)
{
	u32 table;
	u16 flags;

	dev->msix_bar = -1;
	if (!dev->pdev->msix_cap)
		return;
	pci_read_config_dword(dev->pdev, dev->pdev->msix_cap + PCI_MSIX_TABLE, &table);
	pci_read_config_word(dev->pdev, dev->pdev->msix_cap + PCI_MSIX_FLAGS, &flags);
	dev->msix_bar = table & PCI_MSIX_TABLE_BIR;
	table &= PCI_MSIX_TABLE_OFFSET;
	dev->msix_first = table & PAGE_MASK;
	dev->msix_last = ((flags & PCI_MSIX_FLAGS_QSIZE) + 1) * PCI_MSIX_ENTRY_SIZE - 1;
	dev->msix_last += table;
	dev->msix_last |= ~PAGE_MASK;
}

static int tp_name_function(struct tp_dev *dev)
{
	int err;

	dev->id = ida_alloc_max(&tp_ids, TP_FUNCTIONS - 1, GFP_KERNEL);
	if (dev->id < 0)
		return dev->id;
	snprintf(dev->name, sizeof(dev->name), "tegra_p2p%d", dev->id);
	cdev_init(&dev->cdev, &tp_fops);
	dev->cdev.owner = THIS_MODULE;
	dev->device.devt = MKDEV(MAJOR(tp_devt), dev->id);
	err = dev_set_name(&dev->device, "%s", dev->name);
	if (err)
		ida_free(&tp_ids, dev->id);
	return err;
}

/*
 * The caches see what the function writes, and it what they hold: No Snoop would let it pass by
 * them.
 */
static void tp_force_snoop(struct tp_dev *dev)
{
	u16 control;

	pcie_capability_clear_word(dev->pdev, PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_NOSNOOP_EN);
	if (!pcie_capability_read_word(dev->pdev, PCI_EXP_DEVCTL, &control) &&
	    control & PCI_EXP_DEVCTL_NOSNOOP_EN)
		tp_expose(dev, "its No Snoop cannot be turned off");
}

/* Takes the function from all who have it open. Nobody opens it any more when this returns. */
static void tp_retire_function(struct tp_dev *dev)
{
	struct tp_file *file;

	tp_zap_gone(dev);
	synchronize_srcu(&dev->srcu);
	tp_stop(dev, TEGRA_P2P_ERROR_UNPLUG, 0);
	mutex_lock(&dev->files_lock);
	list_for_each_entry(file, &dev->files, entry)
		tp_file_unplug(file);
	mutex_unlock(&dev->files_lock);
}

static int tp_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct tp_dev *dev;
	int err;

	if (pdev->hdr_type != PCI_HEADER_TYPE_NORMAL)
		return -EINVAL;
	dev = tp_dev_new(pdev);
	if (IS_ERR(dev))
		return PTR_ERR(dev);
	pci_set_drvdata(pdev, dev);
	err = pci_enable_device(pdev);
	if (err)
		goto put;
	pci_clear_master(pdev);
	tp_report_errors(pdev);
	err = pci_request_regions(pdev, "tegra_p2p");
	if (err)
		goto disable;
	err = tp_setup_dma(dev);
	if (err)
		goto release;
	err = tp_name_function(dev);
	if (err)
		goto neighbours;
	tp_find_msix_table(dev);
	dev->flr = tp_has_flr(pdev);
	dev->used = dev->flr; /* by another driver */
	tp_reserve_pages(dev);
	tp_vectors_request(dev);
	tp_force_snoop(dev);
	pci_save_state(pdev);
	dev->saved = pci_store_saved_state(pdev);
	err = cdev_device_add(&dev->cdev, &dev->device); /* last: it can be opened now */
	if (err)
		goto irqs;
	tp_debug_add(dev);
	dev_info(&pdev->dev, "%s: pins through %s, %s\n", dev->name, tp_backend->name,
		 tp_protected(dev) ? "behind a strict IOMMU" : "without protection by an IOMMU");
	return 0;
irqs:
	tp_retire_function(dev); /* there may have been an open before the failure */
	tp_halt_release(dev, NULL);
	tp_vectors_free(dev);
	tp_unreserve_pages(dev);
	ida_free(&tp_ids, dev->id);
neighbours:
	tp_neighbours_unwatch(dev);
release:
	pci_release_regions(pdev);
disable:
	pci_disable_device(pdev);
put:
	put_device(&dev->device);
	return err;
}

static void tp_remove(struct pci_dev *pdev)
{
	struct tp_dev *dev = pci_get_drvdata(pdev);

	tp_debug_remove(dev);
	cdev_device_del(&dev->cdev, &dev->device);
	tp_retire_function(dev);
	tp_lost(dev, TEGRA_P2P_ERROR_UNPLUG);
	tp_halt_release(dev, NULL);
	tp_vectors_free(dev);
	tp_unreserve_pages(dev);
	tp_neighbours_unwatch(dev);
	pci_release_regions(pdev);
	pci_disable_device(pdev);
	ida_free(&tp_ids, dev->id);
	put_device(&dev->device);
}

/* No ids: only driver_override gives it a function. */
static struct pci_driver tp_driver = {
	.name = "tegra_p2p",
	.probe = tp_probe,
	.remove = tp_remove,
	.shutdown = tp_shutdown,
	.err_handler = &tp_errors,
	.driver.pm = &tp_pm,
};

/* Fills in the flags of GET_INFO for what there is of nv-p2p, used or not. */
static bool __init tp_look_for_nvp2p(void)
{
	bool present = tp_backend_nvp2p.present(), foreign = tp_nvp2p_foreign();

	tp_nvp2p_info = (tp_backend_nvp2p.get ? TEGRA_P2P_INFO_NVP2P_BUILT : 0) |
			(present ? TEGRA_P2P_INFO_NVP2P_PRESENT : 0) |
			(foreign ? TEGRA_P2P_INFO_NVP2P_FOREIGN : 0);
	if (foreign && strcmp(backend, "gup"))
		pr_warn("nv-p2p: the symbols that are loaded are the desktop driver's, whose calls are others: not used\n");
	return present;
}

static int __init tp_choose_backend(void)
{
	bool present;

	if (strcmp(backend, "auto") && strcmp(backend, "nvp2p") && strcmp(backend, "gup")) {
		pr_err("backend=%s: want auto, nvp2p or gup\n", backend);
		return -EINVAL;
	}
	present = tp_look_for_nvp2p();
	if (!strcmp(backend, "nvp2p") && !present) {
		pr_err("backend=nvp2p: %s\n", tp_backend_nvp2p.get ?
		       "no module with Tegra's nvidia_p2p_get_pages was loaded before this one" :
		       "this module was built without nv-p2p");
		return -EOPNOTSUPP;
	}
	tp_backend = present && strcmp(backend, "gup") ? &tp_backend_nvp2p : &tp_backend_gup;
	pr_info("pins go through %s; declarations of nv-p2p: %s; provider: %s\n", tp_backend->name,
		TEGRA_P2P_NVP2P_SOURCE, present ? "loaded" : "none");
	return 0;
}

/* Frees what tp_init has made. Ending an address space may revoke pins. */
static void tp_free_shared(void)
{
	tp_destroy_queue(tp_check_wq);
	tp_destroy_queue(tp_mm_wq);
	tp_destroy_queue(tp_wq);
	tp_nvp2p_exit();
	tp_debug_exit();
	kmem_cache_destroy(tp_pin_cache);
}

static int __init tp_init(void)
{
	int err = tp_choose_backend();

	if (err)
		return err;
	tp_pin_cache =
		kmem_cache_create("tegra_p2p_pin", sizeof(struct tp_pin), 0, SLAB_ACCOUNT, NULL);
	if (!tp_pin_cache)
		return -ENOMEM;
	tp_debug_init();
	tp_wq = alloc_workqueue("tegra_p2p", WQ_UNBOUND | WQ_MEM_RECLAIM, TP_WORKERS);
	tp_check_wq = alloc_workqueue("tegra_p2p_check", WQ_UNBOUND | WQ_MEM_RECLAIM,
				      WQ_MAX_ACTIVE);
	tp_mm_wq = alloc_workqueue("tegra_p2p_mm", WQ_UNBOUND, 0);
	err = tp_wq && tp_check_wq && tp_mm_wq ? 0 : -ENOMEM;
	if (!err)
		err = class_register(&tp_class);
	if (err)
		goto free;
	err = alloc_chrdev_region(&tp_devt, 0, TP_FUNCTIONS, "tegra_p2p");
	if (err)
		goto class;
	err = pci_register_driver(&tp_driver);
	if (!err)
		return 0;
	unregister_chrdev_region(tp_devt, TP_FUNCTIONS);
class:
	class_unregister(&tp_class);
free:
	tp_free_shared();
	return err;
}
module_init(tp_init);

static void __exit tp_exit(void)
{
	pci_unregister_driver(&tp_driver);
	unregister_chrdev_region(tp_devt, TP_FUNCTIONS);
	class_unregister(&tp_class);
	tp_free_shared();
	ida_destroy(&tp_ids);
}
module_exit(tp_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("GPUDirect RDMA on Tegra for PCI functions driven from user space");
MODULE_SOFTDEP("pre: nvidia-p2p");
MODULE_INFO(nvp2p, TEGRA_P2P_NVP2P_SOURCE); /* where its declarations come from */
