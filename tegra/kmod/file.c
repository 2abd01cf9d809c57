// SPDX-License-Identifier: GPL-2.0
/* The char device: open files and their calls. */
#include <linux/cred.h>
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/nospec.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "p2p.h"

u32 tp_nvp2p_info;

static long tp_get_info(struct tp_file *file, void *arg)
{
	struct tegra_p2p_info *a = arg;
	struct tp_dev *dev = file->dev;
	int idx;

	if (a->flags)
		return -EINVAL;
	a->api_version = TEGRA_P2P_API_VERSION;
	a->vendor = dev->pdev->vendor;
	a->device = dev->pdev->device;
	a->subvendor = dev->pdev->subsystem_vendor;
	a->subdevice = dev->pdev->subsystem_device;
	a->dma_bits = dev->dma_bits;
	a->n_irqs = dev->n_irqs;
	a->pin_align = PAGE_SIZE;
	a->max_pins = TP_MAX_PINS;
	a->max_pin_bytes = TP_MAX_BYTES;
	a->pinned_bytes = atomic64_read(&file->bytes);
	mutex_lock(&dev->fence_lock);
	a->state = dev->state;
	a->fence_gen = dev->fence_gen;
	a->error = dev->error;
	a->errors = dev->errors;
	mutex_unlock(&dev->fence_lock);
	a->flags = tp_backend->info | tp_nvp2p_info;
	idx = srcu_read_lock(&dev->srcu);
	if (READ_ONCE(dev->gone))
		a->state = TEGRA_P2P_STATE_GONE;
	else
		a->flags |= tp_protection(dev) | (dev->flr ? TEGRA_P2P_INFO_FLR : 0) |
			    (dev->intx ? TEGRA_P2P_INFO_INTX : 0);
	srcu_read_unlock(&dev->srcu, idx);
	return 0;
}

#define SIZE(name, last)                                                                    \
	{                                                                                   \
		sizeof(struct tegra_p2p_##name), offsetofend(struct tegra_p2p_##name, last) \
	}

/*
 * What a call takes: its structure's size now and in version 1. present: only while the function is
 * there, which it then stays until the call has ended. writes: not by a descriptor that was opened
 * for reading.
 */
static const struct tp_call {
	struct {
		u32 now, first;
	} size;
	bool present, writes;
	long (*call)(struct tp_file *file, void *arg);
} tp_calls[] = {
	[_IOC_NR(TEGRA_P2P_GET_INFO)] = { SIZE(info, pinned_bytes), false, false, tp_get_info },
	[_IOC_NR(TEGRA_P2P_GET_REGION)] = { SIZE(region, mmap_offset), true, false, tp_get_region },
	[_IOC_NR(TEGRA_P2P_PIN)] = { SIZE(pin, mmap_offset), false, true, tp_pin },
	[_IOC_NR(TEGRA_P2P_QUERY)] = { SIZE(query, fence_gen), false, false, tp_query },
	[_IOC_NR(TEGRA_P2P_PUT)] = { SIZE(put, pad), false, true, tp_put },
	[_IOC_NR(TEGRA_P2P_ALLOC)] = { SIZE(alloc, pad), true, true, tp_alloc },
	[_IOC_NR(TEGRA_P2P_SET_EVENT)] = { SIZE(event, pad), true, true, tp_set_event },
	[_IOC_NR(TEGRA_P2P_SET_HALT)] = { SIZE(halt, pad), false, true, tp_set_halt },
	[_IOC_NR(TEGRA_P2P_CONTROL)] = { SIZE(control, fence_gen), true, true, tp_control },
};

static long tp_call(struct tp_file *file, const struct tp_call *call, void *arg)
{
	long err = -ENODEV;
	int idx;

	if (!call->present)
		return call->call(file, arg);
	idx = srcu_read_lock(&file->dev->srcu);
	if (!READ_ONCE(file->dev->gone))
		err = call->call(file, arg);
	srcu_read_unlock(&file->dev->srcu, idx);
	return err;
}

static long tp_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	union {
		u32 argsz;
		struct tegra_p2p_info info;
		struct tegra_p2p_region region;
		struct tegra_p2p_pin pin;
		struct tegra_p2p_query query;
		struct tegra_p2p_put put;
		struct tegra_p2p_alloc alloc;
		struct tegra_p2p_event event;
		struct tegra_p2p_halt halt;
		struct tegra_p2p_control control;
	} u;
	void __user *user = (void __user *)arg;
	const struct tp_call *call;
	u32 argsz;
	long err;

	if (_IOC_TYPE(cmd) != TEGRA_P2P_IOC || _IOC_NR(cmd) >= ARRAY_SIZE(tp_calls) ||
	    _IOC_SIZE(cmd) || _IOC_DIR(cmd))
		return -ENOTTY;
	call = &tp_calls[array_index_nospec(_IOC_NR(cmd), ARRAY_SIZE(tp_calls))];
	if (get_user(argsz, (u32 __user *)user))
		return -EFAULT;
	if (call->writes && !(filp->f_mode & FMODE_WRITE))
		return -EACCES;
	if (argsz < call->size.first)
		return -EINVAL;
	if (argsz > PAGE_SIZE)
		return -E2BIG;
	memset(&u, 0, sizeof(u));
	err = copy_struct_from_user(&u, call->size.now, user, argsz);
	if (err)
		return err;
	u.argsz = argsz;
	err = tp_call(filp->private_data, call, &u);
	/* A refused RESUME tells the generation. */
	if (err && !(err == -EAGAIN && cmd == TEGRA_P2P_CONTROL))
		return err;
	return copy_to_user(user, &u, min(argsz, call->size.now)) ? -EFAULT : err;
}

/*
 * Makes the file one of the function's, if that is there. -EAGAIN: another has the function's lock.
 */
static int tp_file_join(struct tp_file *file, bool share)
{
	struct tp_dev *dev = file->dev;
	int idx = srcu_read_lock(&dev->srcu);
	int err = -ENODEV;

	if (!READ_ONCE(dev->gone))
		err = tp_may_open(dev, &file->unsafe);
	if (!err && file->writer)
		err = tp_writer_in(file, share);
	if (!err) {
		mutex_lock(&dev->files_lock);
		list_add_tail(&file->entry, &dev->files);
		mutex_unlock(&dev->files_lock);
	}
	srcu_read_unlock(&dev->srcu, idx);
	return err;
}

static int tp_open(struct inode *inode, struct file *filp)
{
	struct tp_dev *dev = container_of(inode->i_cdev, struct tp_dev, cdev);
	struct tp_file *file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);
	int i, err = -EAGAIN;

	if (!file)
		return -ENOMEM;
	kref_init(&file->ref);
	get_device(&dev->device);
	file->dev = dev;
	file->writer = filp->f_mode & FMODE_WRITE;
	file->opener = get_pid(task_tgid(current));
	file->user = current_euid();
	file->mapping = filp->f_mapping;
	mutex_init(&file->lock);
	spin_lock_init(&file->event_lock);
	xa_init_flags(&file->objects, XA_FLAGS_ALLOC1);
	xa_init(&file->ones);
	for (i = 0; i < TP_RESET_TRIES && err == -EAGAIN; i++) {
		if (i && (msleep(TP_RESET_WAIT), fatal_signal_pending(current)))
			err = -EINTR;
		else
			err = tp_file_join(file, filp->f_flags & O_NONBLOCK);
	}
	if (!err) {
		filp->private_data = file;
		return 0;
	}
	tp_file_put(file);
	return err == -EAGAIN ? -EBUSY : err;
}

/* What the file has of the function goes back, if the function is there. */
static void tp_file_leave(struct tp_file *file)
{
	struct tp_dev *dev = file->dev;
	int idx = srcu_read_lock(&dev->srcu);

	tp_file_end(file);
	if (file->writer) {
		tp_writer_out(file);
		if (!READ_ONCE(dev->gone)) /* else remove() has done that, or does */
			tp_halt_release(dev, file);
	}
	srcu_read_unlock(&dev->srcu, idx);
	if (file->writer)
		tp_reset_for_next(dev);
	mutex_lock(&dev->files_lock);
	list_del(&file->entry);
	mutex_unlock(&dev->files_lock);
}

static int tp_release(struct inode *inode, struct file *filp)
{
	struct tp_file *file = filp->private_data;

	tp_file_leave(file);
	tp_file_finish(file);
	tp_vectors_release(file);
	tp_events_release(file);
	tp_free_ones(file);
	tp_file_put(file);
	return 0;
}

const struct file_operations tp_fops = {
	.owner = THIS_MODULE,
	.open = tp_open,
	.release = tp_release,
	.unlocked_ioctl = tp_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = tp_mmap,
};
