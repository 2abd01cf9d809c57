// SPDX-License-Identifier: GPL-2.0
/* /sys/kernel/debug/tegra_p2p/tegra_p2pN: what support asks for first. */
#include <linux/debugfs.h>
#include <linux/seq_file.h>

#include "p2p.h"

static struct dentry *tp_debug_root;

static const char *const tp_why_texts[TP_FENCE_WHYS] = {
	[TEGRA_P2P_ERROR_NONE] = "the driver has taken the function",
	[TEGRA_P2P_ERROR_LINK] = "an error of the link",
	[TEGRA_P2P_ERROR_FATAL] = "a fatal error of the link",
	[TEGRA_P2P_ERROR_RESET] = "a reset",
	[TEGRA_P2P_ERROR_SUSPEND] = "the machine was suspended",
	[TEGRA_P2P_ERROR_SHUTDOWN] = "the machine ends",
	[TEGRA_P2P_ERROR_EXPOSED] = "another function joined the IOMMU group",
	[TEGRA_P2P_ERROR_UNPLUG] = "unplugged or unbound",
	[TP_FENCE_REVOKED] = "a pin was revoked",
	[TP_FENCE_CLOSED] = "closed with memory left behind",
	[TP_FENCE_ASKED] = "CONTROL's FENCE",
};

static const char *tp_state_name(struct tp_dev *dev)
{
	if (dev->away)
		return "fenced, its registers are out of reach";
	return dev->state == TEGRA_P2P_STATE_LIVE ? "live" : "fenced";
}

static void tp_show_fences(struct seq_file *m, struct tp_dev *dev)
{
	u64 gen = dev->fence_gen > TP_FENCES ? dev->fence_gen - TP_FENCES + 1 : 1;

	for (; gen <= dev->fence_gen; gen++) {
		const struct tp_fence_record *f = &dev->fences[gen % TP_FENCES];

		if (f->gen == gen)
			seq_printf(m, "fence %llu: %s, %lld.%03ld, halted in %u us\n", gen,
				   tp_why_texts[f->why], ktime_divns(f->when, NSEC_PER_SEC),
				   (long)(ktime_to_ns(f->when) % NSEC_PER_SEC / NSEC_PER_MSEC),
				   f->halt_us);
	}
}

static void tp_show_file(struct seq_file *m, struct tp_file *file)
{
	u32 pins = 0, live = 0, allocations = 0;
	struct tp_object *obj;
	unsigned long i;
	bool is_pin;

	mutex_lock(&file->lock);
	xa_for_each(&file->objects, i, obj) {
		is_pin = obj->ops == &tp_pin_ops;
		pins += is_pin;
		allocations += !is_pin;
		live += is_pin && READ_ONCE(tp_to_pin(obj)->state) == TP_LIVE;
	}
	mutex_unlock(&file->lock);
	seq_printf(m, "open %s: %u pins (%u live), %u allocations, %lld bytes\n",
		   file->writer ? "to write" : "to read", pins, live, allocations,
		   atomic64_read(&file->bytes));
}

static int tp_device_show(struct seq_file *m, void *unused)
{
	struct tp_dev *dev = m->private;
	struct tp_file *file;

	seq_printf(m, "function %s, pins through %s, %u vectors, %u address bits\n",
		   pci_name(dev->pdev), tp_backend->name, dev->n_irqs, dev->dma_bits);
	seq_printf(m, "protection: %s\n", tp_protected(dev) ? "strict IOMMU" : "none");
	mutex_lock(&dev->fence_lock);
	seq_printf(m, "state: %s, generation %llu, %u errors\n", tp_state_name(dev), dev->fence_gen,
		   dev->errors);
	tp_show_fences(m, dev);
	mutex_unlock(&dev->fence_lock);
	mutex_lock(&dev->files_lock);
	list_for_each_entry(file, &dev->files, entry)
		tp_show_file(m, file);
	mutex_unlock(&dev->files_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(tp_device);

/**
 * tp_debug_init() - Makes the module's folder in debugfs.
 */
void tp_debug_init(void)
{
	tp_debug_root = debugfs_create_dir("tegra_p2p", NULL);
}

/**
 * tp_debug_exit() - Removes the module's folder from debugfs.
 */
void tp_debug_exit(void)
{
	debugfs_remove_recursive(tp_debug_root);
}

/**
 * tp_debug_add() - Makes the function's file in debugfs.
 * @dev: the function, with its name
 */
void tp_debug_add(struct tp_dev *dev)
{
	dev->debug = debugfs_create_file(dev->name, 0400, tp_debug_root, dev, &tp_device_fops);
}

/**
 * tp_debug_remove() - Removes the function's file. Readers have ended when this returns.
 * @dev: the function
 */
void tp_debug_remove(struct tp_dev *dev)
{
	debugfs_remove(dev->debug);
}
