// SPDX-License-Identifier: GPL-2.0
/*
 * The fence: what happens to the function when memory is taken from it. The IOVA of a revoked pin
 * is given out again at once, so nothing is pinned until user space has reset the engine and says
 * so with RESUME.
 */
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/ktime.h>

#include "p2p.h"
#include "trace.h"

#define HALT_BUDGET_US	2000

/* Whether the register has come to have the value. */
static bool tp_halt_poll(const struct tp_halt_op *op, ktime_t deadline)
{
	while ((readl(op->reg) & op->mask) != op->value) {
		if (!ktime_before(ktime_get(), deadline))
			return false;
		usleep_range(10, 50);
	}
	return true;
}

/* Runs in the notifier. It may sleep for a few milliseconds and allocates nothing. */
static void tp_halt_run(struct tp_dev *dev)
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
			late |= !tp_halt_poll(op, deadline);
			break;
		}
	}
	trace_tegra_p2p_halt(dev->name, dev->halt->n, late);
}

/**
 * tp_master_on() - Turns bus mastering on.
 * @dev: the function
 *
 * Context: fence_lock is held.
 */
void tp_master_on(struct tp_dev *dev)
{
	pci_set_master(dev->pdev);
}

/* With fence_lock held. */
static void tp_master_off(struct tp_dev *dev)
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

static void tp_record_fence(struct tp_dev *dev, u32 why, u32 halt_us)
{
	dev->fences[dev->fence_gen % TP_FENCES] = (struct tp_fence_record){
		.gen = dev->fence_gen, .why = why, .halt_us = halt_us, .when = ktime_get_real(),
	};
	trace_tegra_p2p_fence(dev->name, dev->fence_gen, why, halt_us);
}

static u64 tp_fence_function(struct tp_dev *dev, u32 why, unsigned long away, bool stop)
{
	ktime_t begin = ktime_get();
	u32 halt_us;
	u64 gen;

	mutex_lock(&dev->fence_lock);
	gen = ++dev->fence_gen;
	dev->state = TEGRA_P2P_STATE_FENCED;
	if (!dev->halted)
		tp_halt_run(dev);
	halt_us = ktime_us_delta(ktime_get(), begin);
	dev->halted = true;
	dev->away |= away;
	if (stop || !tp_protected(dev))
		tp_master_off(dev);
	tp_record_fence(dev, why, halt_us);
	mutex_unlock(&dev->fence_lock);
	return gen;
}

/**
 * tp_fence() - Forbids PIN and ALLOC until RESUME, and stops the function as far as it can.
 * @dev: the function
 * @why: TEGRA_P2P_ERROR_* or enum tp_fence_why
 * @away: bits of TEGRA_P2P_ERROR_*: until they end, registers are out of reach and RESUME fails
 *
 * Context: Takes fence_lock. It may sleep for a few milliseconds, and allocates nothing, since it
 * runs in the notifier, too.
 * Return: the generation of the fence.
 */
u64 tp_fence(struct tp_dev *dev, u32 why, unsigned long away)
{
	return tp_fence_function(dev, why, away, false);
}

/**
 * tp_stop() - Does what tp_fence() does, and turns bus mastering off.
 * @dev: the function
 * @why: as for tp_fence()
 * @away: as for tp_fence()
 *
 * Context: As tp_fence(). What was mapped for the function may be taken away after this.
 */
void tp_stop(struct tp_dev *dev, u32 why, unsigned long away)
{
	tp_fence_function(dev, why, away, true);
}

/**
 * tp_fence_only() - Forbids PIN and ALLOC and stops nothing: CONTROL's FENCE.
 * @dev: the function
 *
 * Context: Takes fence_lock.
 */
void tp_fence_only(struct tp_dev *dev)
{
	mutex_lock(&dev->fence_lock);
	dev->state = TEGRA_P2P_STATE_FENCED;
	dev->fence_gen++;
	tp_record_fence(dev, TP_FENCE_ASKED, 0);
	mutex_unlock(&dev->fence_lock);
}
