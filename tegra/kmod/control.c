// SPDX-License-Identifier: GPL-2.0
/* CONTROL: ends the fence, sets it, resets the function, unmasks its line. */
#include "p2p.h"

/* Whether the function answers as a function does whose memory may be touched. */
static bool tp_function_answers(struct tp_dev *dev)
{
	u16 command;

	return !dev->away && pci_device_is_present(dev->pdev) &&
	       !pci_read_config_word(dev->pdev, PCI_COMMAND, &command) &&
	       command & PCI_COMMAND_MEMORY;
}

static long tp_resume_function(struct tp_file *file, u64 gen)
{
	struct tp_dev *dev = file->dev;
	long err;

	mutex_lock(&dev->fence_lock);
	err = tp_may_use(dev, file->unsafe); /* here, where no neighbour can come in between */
	if (err)
		goto out;
	if (gen != dev->fence_gen) {
		err = -EAGAIN;
	} else if (!tp_function_answers(dev)) {
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

/**
 * tp_control() - Does CONTROL: RESUME, FENCE, RESET or UNMASK.
 * @file: the caller's open file
 * @arg: struct tegra_p2p_control; its fence_gen becomes the present generation, but for UNMASK
 *
 * Context: The function is there. Takes control_lock, but for UNMASK, and may sleep.
 * Return: 0 or an errno; -EAGAIN: RESUME has named another generation.
 */
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
		err = tp_resume_function(file, a->fence_gen);
		break;
	case TEGRA_P2P_FENCE:
		tp_fence_only(dev);
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
