// SPDX-License-Identifier: GPL-2.0
/*
 * The function loses its state: a reset, a suspend, a fatal error of its link, another kernel. All
 * of them take the same way: the function is fenced and stopped, its registers are taken out of
 * reach until they answer again, and its users are told why. It stays fenced until user space has
 * started it again.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/delay.h>

#include "p2p.h"

/**
 * tp_has_flr() - Reports whether a function has a reset of its own (FLR).
 * @pdev: the function
 *
 * Return: true if its capabilities of PCI Express or of Advanced Features list one.
 */
bool tp_has_flr(struct pci_dev *pdev)
{
	u32 cap;
	u8 af;
	int pos = pci_find_capability(pdev, PCI_CAP_ID_AF);

	if (!pcie_capability_read_dword(pdev, PCI_EXP_DEVCAP, &cap) && cap & PCI_EXP_DEVCAP_FLR)
		return true;
	return pos && !pci_read_config_byte(pdev, pos + PCI_AF_CAP, &af) && af & PCI_AF_CAP_FLR;
}

/* Tells all open files but one that asked for it. */
static void tp_tell_files(struct tp_dev *dev, u32 error)
{
	struct tp_file *but = READ_ONCE(dev->resetting) == current ? dev->resetter : NULL;
	struct tp_file *file;

	mutex_lock(&dev->fence_lock);
	dev->error = error;
	dev->errors++;
	mutex_unlock(&dev->fence_lock);
	mutex_lock(&dev->files_lock);
	list_for_each_entry(file, &dev->files, entry)
		if (file != but)
			tp_signal_error(file);
	mutex_unlock(&dev->files_lock);
}

/**
 * tp_lost() - Stops the function, whatever becomes of its state, and signals its open files.
 * @dev: the function
 * @error: the cause, TEGRA_P2P_ERROR_*
 *
 * Context: Takes fence_lock, then files_lock, and may sleep.
 */
void tp_lost(struct tp_dev *dev, u32 error)
{
	tp_stop(dev, error, 0);
	tp_tell_files(dev, error);
}

/*
 * With a device tree a function joins its group when a driver takes it. The driver has mapped
 * nothing yet, and what it maps would be within reach: the function is stopped, and RESUME asks for
 * the right to such a one.
 */
static int tp_neighbour_bound(struct notifier_block *nb, unsigned long action, void *data)
{
	struct tp_dev *dev = container_of(nb, struct tp_dev, neighbours);
	struct iommu_group *group, *ours;

	if (action != BUS_NOTIFY_BIND_DRIVER)
		return NOTIFY_DONE;
	ours = iommu_group_get(&dev->pdev->dev);
	group = iommu_group_get(data);
	if (group && group == ours && tp_is_neighbour(dev, data) &&
	    tp_expose(dev, "another function has joined its IOMMU group"))
		tp_lost(dev, TEGRA_P2P_ERROR_EXPOSED);
	iommu_group_put(group);
	iommu_group_put(ours);
	return NOTIFY_OK;
}

/**
 * tp_neighbours_watch() - Registers for functions that join the IOMMU group later.
 * @dev: the function
 *
 * Context: At probe. tp_find_exposure() then looks for those that have joined already.
 * Return: 0 or an errno of the bus.
 */
int tp_neighbours_watch(struct tp_dev *dev)
{
	dev->neighbours.notifier_call = tp_neighbour_bound;
	return bus_register_notifier(&pci_bus_type, &dev->neighbours);
}

/**
 * tp_neighbours_unwatch() - Ends tp_neighbours_watch().
 * @dev: the function
 */
void tp_neighbours_unwatch(struct tp_dev *dev)
{
	bus_unregister_notifier(&pci_bus_type, &dev->neighbours);
}

/* The same as tp_lost, and the registers do not answer until tp_within_reach has been called. */
static void tp_out_of_reach(struct tp_dev *dev, u32 error)
{
	tp_stop(dev, error, BIT(error));
	tp_zap_bars(dev);
	tp_tell_files(dev, error);
}

static void tp_within_reach(struct tp_dev *dev, u32 error)
{
	mutex_lock(&dev->fence_lock);
	dev->away &= ~BIT(error);
	mutex_unlock(&dev->fence_lock);
	tp_zap_bars(dev);
}

/* Configuration space as probe left it: without bus mastering. */
static void tp_restore_config(struct tp_dev *dev)
{
	if (!dev->saved || pci_load_saved_state(dev->pdev, dev->saved))
		return;
	pci_restore_state(dev->pdev);
}

/* The link has reported an error. A fatal one has the core reset the bus. */
static pci_ers_result_t tp_error_detected(struct pci_dev *pdev, pci_channel_state_t state)
{
	struct tp_dev *dev = pci_get_drvdata(pdev);

	if (state == pci_channel_io_normal) {
		tp_lost(dev, TEGRA_P2P_ERROR_LINK);
		return PCI_ERS_RESULT_CAN_RECOVER;
	}
	tp_out_of_reach(dev, TEGRA_P2P_ERROR_FATAL);
	return state == pci_channel_io_perm_failure ? PCI_ERS_RESULT_DISCONNECT :
						      PCI_ERS_RESULT_NEED_RESET;
}

static pci_ers_result_t tp_slot_reset(struct pci_dev *pdev)
{
	tp_restore_config(pci_get_drvdata(pdev));
	return pci_device_is_present(pdev) ? PCI_ERS_RESULT_RECOVERED : PCI_ERS_RESULT_DISCONNECT;
}

static void tp_error_resume(struct pci_dev *pdev)
{
	tp_within_reach(pci_get_drvdata(pdev), TEGRA_P2P_ERROR_FATAL);
}

/* Somebody resets the function: tp_reset, sysfs, or a reset of its bus. */
static void tp_reset_prepare(struct pci_dev *pdev)
{
	tp_out_of_reach(pci_get_drvdata(pdev), TEGRA_P2P_ERROR_RESET);
}

static void tp_reset_done(struct pci_dev *pdev)
{
	struct tp_dev *dev = pci_get_drvdata(pdev);

	tp_restore_config(dev);
	if (!pci_device_is_present(pdev))
		return;
	/* what a reset could not repair, this one has */
	tp_within_reach(dev, TEGRA_P2P_ERROR_FATAL);
	tp_within_reach(dev, TEGRA_P2P_ERROR_RESET);
}

const struct pci_error_handlers tp_errors = {
	.error_detected = tp_error_detected,
	.slot_reset = tp_slot_reset,
	.resume = tp_error_resume,
	.reset_prepare = tp_reset_prepare,
	.reset_done = tp_reset_done,
};

static int __maybe_unused tp_suspend(struct device *device)
{
	tp_out_of_reach(dev_get_drvdata(device), TEGRA_P2P_ERROR_SUSPEND);
	return 0;
}

static int __maybe_unused tp_resume(struct device *device)
{
	tp_within_reach(dev_get_drvdata(device), TEGRA_P2P_ERROR_SUSPEND);
	return 0;
}

const struct dev_pm_ops tp_pm = { SET_SYSTEM_SLEEP_PM_OPS(tp_suspend, tp_resume) };

/**
 * tp_shutdown() - Stops the function before the machine ends or starts another kernel.
 * @pdev: the function
 *
 * Another kernel must not find an engine at work in what is its memory then. Nothing is unmapped
 * from now on: the IOMMU is shut down next, and a driver that waits for its answer waits for ever,
 * or a second each time.
 */
void tp_shutdown(struct pci_dev *pdev)
{
	struct tp_dev *dev = pci_get_drvdata(pdev);

	tp_out_of_reach(dev, TEGRA_P2P_ERROR_SHUTDOWN);
	WRITE_ONCE(dev->over, true);
	dev_info(&pdev->dev, "stopped: the machine ends, or starts another kernel\n");
}

/* With control_lock held. tp_reset_prepare and tp_reset_done are called in it. */
static int tp_reset_function(struct tp_dev *dev, struct tp_file *file)
{
	int err;

	dev->resetter = file;
	WRITE_ONCE(dev->resetting, current);
	err = pci_try_reset_function(dev->pdev);
	if (!err)
		dev->used = false; /* tp_reset_done comes after a failure, too */
	WRITE_ONCE(dev->resetting, NULL);
	dev->resetter = NULL;
	return err;
}

/**
 * tp_reset() - Does CONTROL's RESET.
 * @file: the caller's open file, which gets no error event for it
 *
 * Context: control_lock is held, and the function is there. Sleeps.
 * Return: 0; -EOPNOTSUPP without FLR; -EBUSY: it is being unbound, or reset already; -EIO.
 */
long tp_reset(struct tp_file *file)
{
	int err;

	if (!file->dev->flr)
		return -EOPNOTSUPP;
	err = tp_reset_function(file->dev, file);
	if (!err)
		return 0;
	/* EAGAIN: the driver is being unbound, or another reset is under way */
	return err == -EAGAIN ? -EBUSY : -EIO;
}

/*
 * Has nothing left in the function of those who could write it, if they have all closed it. With
 * control_lock held. A function that is out of reach is reset by those who bring it back. -EAGAIN:
 * somebody has its lock, and unbinds it or resets it, too.
 */
static int tp_reset_if_used(struct tp_dev *dev)
{
	int err;

	if (!dev->used || dev->opens || READ_ONCE(dev->away) || !pci_device_is_present(dev->pdev))
		return 0;
	err = tp_reset_function(dev, NULL);
	if (err == -ENOTTY) /* it has timed out, or the administrator or a quirk forbids it */
		return tp_has_reset(dev->pdev) ? -EIO : 0;
	return err;
}

/*
 * A function has one owner at a time, since all its holders share one IOMMU domain: the user who
 * has held it the longest. Others who may write are of the same user, or administrators that ask to
 * share it. With fence_lock held.
 */
static bool tp_writer_may_join(struct tp_dev *dev, bool share)
{
	struct tp_file *first = list_first_entry_or_null(&dev->writers, struct tp_file, writing);

	return !first || uid_eq(first->user, current_euid()) || (share && capable(CAP_SYS_RAWIO));
}

static int tp_writer_join(struct tp_file *file, bool share)
{
	struct tp_dev *dev = file->dev;

	if (!tp_writer_may_join(dev, share))
		return -EBUSY;
	list_add_tail(&file->writing, &dev->writers);
	if (dev->opens++)
		return 0;
	if (!dev->away && (dev->state == TEGRA_P2P_STATE_LIVE || tp_protected(dev)))
		tp_master_on(dev);
	return 0;
}

/**
 * tp_writer_in() - Adds an open file that can write, after a reset of the function if that is due.
 * @file: the file
 * @share: its opener asks to share the function with another user
 *
 * Context: The function is there. Takes control_lock, then fence_lock, and sleeps.
 * Return: 0 or an errno; -EBUSY: another user has it; -EAGAIN: somebody else has its lock.
 */
int tp_writer_in(struct tp_file *file, bool share)
{
	struct tp_dev *dev = file->dev;
	int err;

	if (mutex_lock_killable(&dev->control_lock))
		return -EINTR;
	err = tp_reset_if_used(dev);
	if (!err) {
		mutex_lock(&dev->fence_lock);
		err = tp_writer_join(file, share);
		mutex_unlock(&dev->fence_lock);
	}
	mutex_unlock(&dev->control_lock);
	return err;
}

/**
 * tp_writer_out() - Removes an open file that can write. After the last one it stops the function.
 * @file: the file
 *
 * Context: Also with the function gone, since another's close may still find the file in the list.
 * Takes control_lock, then fence_lock, and sleeps.
 */
void tp_writer_out(struct tp_file *file)
{
	struct tp_dev *dev = file->dev;
	bool last;

	mutex_lock(&dev->control_lock);
	mutex_lock(&dev->fence_lock);
	list_del(&file->writing);
	last = !--dev->opens;
	mutex_unlock(&dev->fence_lock);
	/* The engine may be at work on memory that was put. Whoever opens next starts it again. */
	if (last && !READ_ONCE(dev->gone)) {
		tp_stop(dev, TP_FENCE_CLOSED, 0);
		dev->used = dev->flr;
	}
	mutex_unlock(&dev->control_lock);
}

/**
 * tp_reset_for_next() - Resets the function after its last close, if it has FLR.
 * @dev: the function, which may have gone
 *
 * The next one must not read what the last one left in the function's memory. After a failure the
 * next open tries again.
 *
 * Context: Takes control_lock and sleeps, for a while if somebody has the function's lock.
 */
void tp_reset_for_next(struct tp_dev *dev)
{
	int i, idx, err = -EAGAIN;

	for (i = 0; i < TP_RESET_TRIES && err == -EAGAIN; i++) {
		if (i)
			msleep(TP_RESET_WAIT);
		idx = srcu_read_lock(&dev->srcu);
		mutex_lock(&dev->control_lock);
		err = READ_ONCE(dev->gone) ? 0 : tp_reset_if_used(dev);
		mutex_unlock(&dev->control_lock);
		srcu_read_unlock(&dev->srcu, idx);
	}
	if (err)
		dev_warn(&dev->pdev->dev,
			 "not reset after its last close: error %d; the next open tries again\n",
			 err);
}
