// SPDX-License-Identifier: GPL-2.0
/* The halt list: the register accesses that stop the engine. fence.c runs them. */
#include <linux/io.h>
#include <linux/nospec.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "p2p.h"

static void tp_halt_free(struct tp_halt_list *list)
{
	u32 i;

	if (!list)
		return;
	for (i = 0; i < list->n; i++)
		iounmap(list->ops[i].page);
	kfree(list);
}

static int tp_halt_make_op(struct tp_dev *dev, struct tp_halt_op *op,
			   const struct tegra_p2p_halt_op *u)
{
	unsigned int width = u->op == TEGRA_P2P_HALT_W64 ? 8 : 4;
	bool poll = u->op == TEGRA_P2P_HALT_POLL32;
	resource_size_t size, at;
	u32 bar;

	if (u->op > TEGRA_P2P_HALT_POLL32 || u->bar >= TP_BARS)
		return -EINVAL;
	bar = array_index_nospec(u->bar, TP_BARS);
	if (!(pci_resource_flags(dev->pdev, bar) & IORESOURCE_MEM))
		return -EINVAL;
	size = pci_resource_len(dev->pdev, bar);
	if (u->offset % width || size < width || u->offset > size - width)
		return -EINVAL;
	if (tp_hidden(dev, bar, u->offset))
		return -EACCES;
	if (width == 4 && u->value > U32_MAX)
		return -EINVAL;
	if (poll ? !u->mask || u->mask > U32_MAX || u->value & ~u->mask : u->mask)
		return -EINVAL;
	at = pci_resource_start(dev->pdev, bar) + u->offset;
	op->page = ioremap(at & PAGE_MASK, PAGE_SIZE);
	if (!op->page)
		return -ENOMEM;
	op->reg = op->page + offset_in_page(at);
	op->op = u->op;
	op->value = u->value;
	op->mask = u->mask;
	return 0;
}

static struct tp_halt_list *tp_halt_make(struct tp_dev *dev, const struct tegra_p2p_halt_op *ops,
					 u32 n)
{
	struct tp_halt_list *list = kzalloc(sizeof(*list), GFP_KERNEL_ACCOUNT);
	int err = 0;

	if (!list)
		return ERR_PTR(-ENOMEM);
	for (; list->n < n && !err; list->n += !err)
		err = tp_halt_make_op(dev, &list->ops[list->n], &ops[list->n]);
	if (err) {
		tp_halt_free(list);
		return ERR_PTR(err);
	}
	return list;
}

/* Puts list in the place of the one that is there, which must be the caller's. */
static int tp_halt_swap(struct tp_dev *dev, struct tp_file *owner, struct tp_halt_list *list)
{
	int err = 0;

	mutex_lock(&dev->fence_lock);
	if (dev->halt && dev->halt_owner != owner) {
		err = -EBUSY;
	} else {
		swap(dev->halt, list);
		dev->halt_owner = owner;
	}
	mutex_unlock(&dev->fence_lock);
	tp_halt_free(list);
	return err;
}

/**
 * tp_set_halt() - Does SET_HALT: replaces the list of accesses that stop the engine.
 * @file: the caller's open file, whose list it is then
 * @arg: struct tegra_p2p_halt; without operations the list is cleared
 *
 * Context: Takes fence_lock and may sleep.
 * Return: 0 or an errno; -EBUSY: the list is another open file's.
 */
long tp_set_halt(struct tp_file *file, void *arg)
{
	struct tegra_p2p_halt_op ops[TEGRA_P2P_HALT_OPS];
	struct tegra_p2p_halt *a = arg;
	struct tp_dev *dev = file->dev;
	struct tp_halt_list *list;
	int idx, err = -ENODEV;

	if (a->flags || a->pad || a->n > TEGRA_P2P_HALT_OPS)
		return -EINVAL;
	if (copy_from_user(ops, u64_to_user_ptr(a->ops), a->n * sizeof(ops[0])))
		return -EFAULT;
	idx = srcu_read_lock(&dev->srcu);
	if (!READ_ONCE(dev->gone)) {
		list = a->n ? tp_halt_make(dev, ops, a->n) : NULL;
		err = PTR_ERR_OR_ZERO(list);
		if (!err)
			err = tp_halt_swap(dev, file, list);
	}
	srcu_read_unlock(&dev->srcu, idx);
	return err;
}

/**
 * tp_halt_release() - Frees the halt list.
 * @dev: the function
 * @owner: the open file whose list is freed, or NULL for any file's
 *
 * Context: Takes fence_lock and may sleep.
 */
void tp_halt_release(struct tp_dev *dev, struct tp_file *owner)
{
	struct tp_halt_list *list = NULL;

	mutex_lock(&dev->fence_lock);
	if (!owner || dev->halt_owner == owner) {
		swap(dev->halt, list);
		dev->halt_owner = NULL;
	}
	mutex_unlock(&dev->fence_lock);
	tp_halt_free(list);
}
