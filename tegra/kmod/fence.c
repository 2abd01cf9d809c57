// SPDX-License-Identifier: GPL-2.0
/*
 * The fence: what happens to the function when memory is taken from it. The IOVA of a revoked pin
 * is given out again at once, so nothing is pinned until user space has reset the engine and says
 * so with RESUME.
 */
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/ktime.h>
#include <linux/nospec.h>
#include <linux/slab.h>

#include "p2p.h"
#include "trace.h"

#define HALT_BUDGET_US	2000

/* Whether the register has come to have the value. */
static bool poll_register(const struct tp_halt_op *op, ktime_t deadline)
{
	while ((readl(op->reg) & op->mask) != op->value) {
		if (!ktime_before(ktime_get(), deadline))
			return false;
		usleep_range(10, 50);
	}
	return true;
}

/* Runs in the notifier. It may sleep for a few milliseconds and allocates nothing. */
static void halt_run(struct tp_dev *dev)
{
	ktime_t deadline = ktime_add_us(ktime_get(), HALT_BUDGET_US);
	bool late = false;
	u32 i;

	if (!dev->halt || dev->away || pci_channel_offline(dev->pdev) ||
	    !pci_device_is_present(dev->pdev))
		return;
	for (i = 0; i < dev->halt->n; i++) {
		const struct tp_halt_op *op = &dev->halt->ops[i];

		switch (op->op) {
		case TEGRA_P2P_HALT_W32:
			writel(op->value, op->reg);
			break;
		case TEGRA_P2P_HALT_W64:
			writeq(op->value, op->reg);
			break;
		case TEGRA_P2P_HALT_POLL32:
			late |= !poll_register(op, deadline);
			break;
		}
	}
	trace_tegra_p2p_halt(dev->name, dev->halt->n, late);
}

/* Both with fence_lock held. */
void tp_master_on(struct tp_dev *dev)
{
	pci_set_master(dev->pdev);
}

void tp_master_off(struct tp_dev *dev)
{
	u16 command;

	pci_clear_master(dev->pdev);
	if (pci_channel_offline(dev->pdev) ||
	    !pci_device_is_present(dev->pdev)) /* it would be waited for in vain */
		return;
	pci_wait_for_pending_transaction(dev->pdev);
	pci_read_config_word(dev->pdev, PCI_COMMAND, &command); /* the write has arrived */
	if (command != U16_MAX && (command & PCI_COMMAND_MASTER))
		dev_err(&dev->pdev->dev, "bus mastering cannot be ended\n");
}

static void record(struct tp_dev *dev, u32 why, u32 halt_us)
{
	dev->fences[dev->fence_gen % TP_FENCES] = (struct tp_fence_record){
		.gen = dev->fence_gen, .why = why, .halt_us = halt_us, .when = ktime_get_real(),
	};
	trace_tegra_p2p_fence(dev->name, dev->fence_gen, why, halt_us);
}

static u64 fence(struct tp_dev *dev, u32 why, unsigned long away, bool stop)
{
	ktime_t begin = ktime_get();
	u32 halt_us;
	u64 gen;

	mutex_lock(&dev->fence_lock);
	gen = ++dev->fence_gen;
	dev->state = TEGRA_P2P_STATE_FENCED;
	if (!dev->halted)
		halt_run(dev);
	halt_us = ktime_us_delta(ktime_get(), begin);
	dev->halted = true;
	dev->away |= away;
	if (stop || !tp_protected(dev))
		tp_master_off(dev);
	record(dev, why, halt_us);
	mutex_unlock(&dev->fence_lock);
	return gen;
}

/*
 * Stops the function as well as it goes and forbids PIN. away: its registers are out of reach from
 * now on, and RESUME fails until that has ended. Returns the generation.
 */
u64 tp_fence(struct tp_dev *dev, u32 why, unsigned long away)
{
	return fence(dev, why, away, false);
}

/* The same without bus mastering. What was mapped for the function may be taken away after this. */
void tp_stop(struct tp_dev *dev, u32 why, unsigned long away)
{
	fence(dev, why, away, true);
}

/* Whether the function answers as a function does whose memory may be touched. */
static bool answers(struct tp_dev *dev)
{
	u16 command;

	return !dev->away && pci_device_is_present(dev->pdev) &&
	       !pci_read_config_word(dev->pdev, PCI_COMMAND, &command) &&
	       command & PCI_COMMAND_MEMORY;
}

static long resume(struct tp_file *file, u64 gen)
{
	struct tp_dev *dev = file->dev;
	long err;

	mutex_lock(&dev->fence_lock);
	err = tp_may_use(dev, file->unsafe); /* here, where no neighbour can come in between */
	if (err)
		goto out;
	if (gen != dev->fence_gen) {
		err = -EAGAIN;
	} else if (!answers(dev)) {
		err = -EIO;
	} else if (dev->state == TEGRA_P2P_STATE_FENCED) {
		dev->state = TEGRA_P2P_STATE_LIVE;
		dev->halted = false;
		tp_master_on(dev);
	}
out:
	mutex_unlock(&dev->fence_lock);
	return err;
}

long tp_control(struct tp_file *file, void *arg)
{
	struct tegra_p2p_control *a = arg;
	struct tp_dev *dev = file->dev;
	bool reset = a->op == TEGRA_P2P_RESET;
	long err = 0;

	if (a->flags || a->pad)
		return -EINVAL;
	if (a->op == TEGRA_P2P_UNMASK)
		return tp_unmask(file);
	/* A reset takes its time: who opens or resumes does not wait for many. */
	if (reset && atomic_cmpxchg(&dev->reset_asked, 0, 1))
		return -EBUSY;
	if (mutex_lock_killable(&dev->control_lock)) {
		err = -EINTR;
		goto out;
	}
	switch (a->op) {
	case TEGRA_P2P_RESUME:
		err = resume(file, a->fence_gen);
		break;
	case TEGRA_P2P_FENCE:
		mutex_lock(&dev->fence_lock);
		dev->state = TEGRA_P2P_STATE_FENCED;
		dev->fence_gen++;
		record(dev, TP_FENCE_ASKED, 0);
		mutex_unlock(&dev->fence_lock);
		break;
	case TEGRA_P2P_RESET:
		err = tp_reset(file);
		break;
	default:
		err = -EINVAL;
	}
	mutex_lock(&dev->fence_lock);
	a->fence_gen = dev->fence_gen;
	mutex_unlock(&dev->fence_lock);
	mutex_unlock(&dev->control_lock);
out:
	if (reset)
		atomic_set(&dev->reset_asked, 0);
	return err;
}

static void halt_free(struct tp_halt_list *list)
{
	u32 i;

	if (!list)
		return;
	for (i = 0; i < list->n; i++)
		iounmap(list->ops[i].page);
	kfree(list);
}

static int halt_op(struct tp_dev *dev, struct tp_halt_op *op, const struct tegra_p2p_halt_op *u)
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

static struct tp_halt_list *halt_make(struct tp_dev *dev, const struct tegra_p2p_halt_op *ops,
				      u32 n)
{
	struct tp_halt_list *list = kzalloc(sizeof(*list), GFP_KERNEL_ACCOUNT);
	int err = 0;

	if (!list)
		return ERR_PTR(-ENOMEM);
	for (; list->n < n && !err; list->n += !err)
		err = halt_op(dev, &list->ops[list->n], &ops[list->n]);
	if (err) {
		halt_free(list);
		return ERR_PTR(err);
	}
	return list;
}

/* Puts list in the place of the one that is there, which must be the caller's. */
static int halt_swap(struct tp_dev *dev, struct tp_file *owner, struct tp_halt_list *list)
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
	halt_free(list);
	return err;
}

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
		list = a->n ? halt_make(dev, ops, a->n) : NULL;
		err = PTR_ERR_OR_ZERO(list);
		if (!err)
			err = halt_swap(dev, file, list);
	}
	srcu_read_unlock(&dev->srcu, idx);
	return err;
}

/* owner NULL: whoever's it is. */
void tp_halt_release(struct tp_dev *dev, struct tp_file *owner)
{
	struct tp_halt_list *list = NULL;

	mutex_lock(&dev->fence_lock);
	if (!owner || dev->halt_owner == owner) {
		swap(dev->halt, list);
		dev->halt_owner = NULL;
	}
	mutex_unlock(&dev->fence_lock);
	halt_free(list);
}
