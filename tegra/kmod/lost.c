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
static void tell(struct tp_dev *dev, u32 error)
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

/* The function is stopped, whatever becomes of its state. */
void tp_lost(struct tp_dev *dev, u32 error)
{
	tp_stop(dev, error, 0);
	tell(dev, error);
}

/* The same, and its registers do not answer until found() says so. */
static void lost(struct tp_dev *dev, u32 error)
{
	tp_stop(dev, error, BIT(error));
	tp_zap_bars(dev);
	tell(dev, error);
}

static void found(struct tp_dev *dev, u32 error)
{
	mutex_lock(&dev->fence_lock);
	dev->away &= ~BIT(error);
	mutex_unlock(&dev->fence_lock);
	tp_zap_bars(dev);
}

/* Configuration space as probe left it: without bus mastering. */
static void restore(struct tp_dev *dev)
{
	if (!dev->saved || pci_load_saved_state(dev->pdev, dev->saved))
		return;
	pci_restore_state(dev->pdev);
}

/* The link has reported an error. A fatal one has the core reset the bus. */
static pci_ers_result_t error_detected(struct pci_dev *pdev, pci_channel_state_t state)
{
	struct tp_dev *dev = pci_get_drvdata(pdev);

	if (state == pci_channel_io_normal) {
		tp_lost(dev, TEGRA_P2P_ERROR_LINK);
		return PCI_ERS_RESULT_CAN_RECOVER;
	}
	lost(dev, TEGRA_P2P_ERROR_FATAL);
	return state == pci_channel_io_perm_failure ? PCI_ERS_RESULT_DISCONNECT :
						      PCI_ERS_RESULT_NEED_RESET;
}

static pci_ers_result_t slot_reset(struct pci_dev *pdev)
{
	restore(pci_get_drvdata(pdev));
	return pci_device_is_present(pdev) ? PCI_ERS_RESULT_RECOVERED : PCI_ERS_RESULT_DISCONNECT;
}

static void error_resume(struct pci_dev *pdev)
{
	found(pci_get_drvdata(pdev), TEGRA_P2P_ERROR_FATAL);
}

/* Somebody resets the function: tp_reset, sysfs, or a reset of its bus. */
static void reset_prepare(struct pci_dev *pdev)
{
	lost(pci_get_drvdata(pdev), TEGRA_P2P_ERROR_RESET);
}

static void reset_done(struct pci_dev *pdev)
{
	struct tp_dev *dev = pci_get_drvdata(pdev);

	restore(dev);
	if (!pci_device_is_present(pdev))
		return;
	found(dev, TEGRA_P2P_ERROR_FATAL); /* what a reset could not repair, this one has */
	found(dev, TEGRA_P2P_ERROR_RESET);
}

const struct pci_error_handlers tp_errors = {
	.error_detected = error_detected,
	.slot_reset = slot_reset,
	.resume = error_resume,
	.reset_prepare = reset_prepare,
	.reset_done = reset_done,
};

static int __maybe_unused tp_suspend(struct device *device)
{
	lost(dev_get_drvdata(device), TEGRA_P2P_ERROR_SUSPEND);
	return 0;
}

static int __maybe_unused tp_resume(struct device *device)
{
	found(dev_get_drvdata(device), TEGRA_P2P_ERROR_SUSPEND);
	return 0;
}

const struct dev_pm_ops tp_pm = { SET_SYSTEM_SLEEP_PM_OPS(tp_suspend, tp_resume) };

/*
 * Another kernel must not find an engine at work in what is its memory then. Nothing is unmapped
 * from now on: the IOMMU is shut down next, and a driver that waits for its answer waits for ever,
 * or a second each time.
 */
void tp_shutdown(struct pci_dev *pdev)
{
	struct tp_dev *dev = pci_get_drvdata(pdev);

	lost(dev, TEGRA_P2P_ERROR_SHUTDOWN);
	WRITE_ONCE(dev->over, true);
	dev_info(&pdev->dev, "stopped: the machine ends, or starts another kernel\n");
}

/* With control_lock held. reset_prepare and reset_done are called in it. */
static int reset_function(struct tp_dev *dev, struct tp_file *file)
{
	int err;

	dev->resetter = file;
	WRITE_ONCE(dev->resetting, current);
	err = pci_try_reset_function(dev->pdev);
	if (!err)
		dev->used = false; /* reset_done comes after a failure, too */
	WRITE_ONCE(dev->resetting, NULL);
	dev->resetter = NULL;
	return err;
}

/* CONTROL's RESET, with control_lock held and the function there. */
long tp_reset(struct tp_file *file)
{
	int err;

	if (!file->dev->flr)
		return -EOPNOTSUPP;
	err = reset_function(file->dev, file);
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
static int clean(struct tp_dev *dev)
{
	int err;

	if (!dev->used || dev->opens || READ_ONCE(dev->away) || !pci_device_is_present(dev->pdev))
		return 0;
	err = reset_function(dev, NULL);
	if (err == -ENOTTY) /* it has timed out, or the administrator or a quirk forbids it */
		return tp_has_reset(dev->pdev) ? -EIO : 0;
	return err;
}

/*
 * A function has one owner at a time, since all its holders share one IOMMU domain: the user who
 * has held it the longest. Others who may write are of the same user, or administrators that ask to
 * share it. With fence_lock held.
 */
static bool may_join(struct tp_dev *dev, bool share)
{
	struct tp_file *first = list_first_entry_or_null(&dev->writers, struct tp_file, writing);

	return !first || uid_eq(first->user, current_euid()) || (share && capable(CAP_SYS_RAWIO));
}

static int join(struct tp_file *file, bool share)
{
	struct tp_dev *dev = file->dev;

	if (!may_join(dev, share))
		return -EBUSY;
	list_add_tail(&file->writing, &dev->writers);
	if (dev->opens++)
		return 0;
	if (!dev->away && (dev->state == TEGRA_P2P_STATE_LIVE || tp_protected(dev)))
		tp_master_on(dev);
	return 0;
}

/*
 * One more who can write opens the function, which is there and may need to be cleaned still.
 * -EAGAIN: somebody else has its lock.
 */
int tp_writer_in(struct tp_file *file, bool share)
{
	struct tp_dev *dev = file->dev;
	int err;

	if (mutex_lock_killable(&dev->control_lock))
		return -EINTR;
	err = clean(dev);
	if (!err) {
		mutex_lock(&dev->fence_lock);
		err = join(file, share);
		mutex_unlock(&dev->fence_lock);
	}
	mutex_unlock(&dev->control_lock);
	return err;
}

/* One less. Also with the function gone, since another's close may still find it there. */
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

/* After a close: the next one must not read what the last one left in the function's memory. */
void tp_reset_for_next(struct tp_dev *dev)
{
	int i, idx, err = -EAGAIN;

	for (i = 0; i < TP_RESET_TRIES && err == -EAGAIN; i++) {
		if (i)
			msleep(TP_RESET_WAIT);
		idx = srcu_read_lock(&dev->srcu);
		mutex_lock(&dev->control_lock);
		err = READ_ONCE(dev->gone) ? 0 : clean(dev);
		mutex_unlock(&dev->control_lock);
		srcu_read_unlock(&dev->srcu, idx);
	}
	if (err)
		dev_warn(&dev->pdev->dev,
			 "not reset after its last close: error %d; the next open tries again\n",
			 err);
}
