// SPDX-License-Identifier: GPL-2.0
/*
 * The device files of a Jetson's GPU with nothing behind them, in regions that are named as NVIDIA's drivers name them:
 * nvgpu calls its two regions after its device (os/linux/ioctl.c: gk20a_power_node_init, gk20a_user_nodes_init), and makes the
 * second one when the GPU is switched on for the first time; host1x-fence and nvsciipc have regions of their own; nvmap is a
 * misc device.
 */
#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>

struct region {
	const char *name;	/* in /proc/devices */
	const char *class_name;
	char *(*devnode)(struct device *dev, umode_t *mode);
	const struct file_operations *fops;
	const char *files[8];

	struct class *class;
	struct cdev *cdev;
	unsigned int count;
};

static char *in_igpu0(struct device *dev, umode_t *mode)
{
	return kasprintf(GFP_KERNEL, "nvgpu/igpu0/%s", dev_name(dev));
}

static char *for_everybody(struct device *dev, umode_t *mode)
{
	if (mode)
		*mode = 0666;
	return NULL;
}

static ssize_t power_write(struct file *filp, const char __user *buf, size_t size, loff_t *off);

static const struct file_operations power_fops = { .owner = THIS_MODULE, .write = power_write };
static const struct file_operations plain_fops = { .owner = THIS_MODULE };

static struct region power = { "17000000.gpu", "nvidia-gpu-v2-power", in_igpu0, &power_fops, { "power" } };
static struct region user = {
	"17000000.gpu", "nvidia-gpu-v2", in_igpu0, &plain_fops, { "as", "channel", "ctrl", "dbg", "nvsched", "sched", "tsg" }
};
static struct region fence = { "host1x-fence", "host1x-fence", for_everybody, &plain_fops, { "host1x-fence" } };
static struct region ipc = { "nvsciipc", "nvsciipc", NULL, &plain_fops, { "nvsciipc" } };
static struct miscdevice nvmap = { .minor = MISC_DYNAMIC_MINOR, .name = "nvmap", .fops = &plain_fops };

static DEFINE_MUTEX(switching); /* guards user */

static void remove(struct region *r)
{
	unsigned int i;

	if (!r->cdev)
		return;
	for (i = 0; i < r->count; i++)
		device_destroy(r->class, r->cdev->dev + i);
	class_destroy(r->class);
	unregister_chrdev_region(r->cdev->dev, r->count);
	cdev_del(r->cdev);
	r->cdev = NULL;
}

static int create(struct region *r)
{
	struct device *dev;
	dev_t first;
	unsigned int i;
	int err;

	while (r->count < ARRAY_SIZE(r->files) && r->files[r->count])
		r->count++;
	err = alloc_chrdev_region(&first, 0, r->count, r->name);
	if (err)
		return err;
	r->class = class_create(THIS_MODULE, r->class_name);
	if (IS_ERR(r->class)) {
		err = PTR_ERR(r->class);
		goto no_class;
	}
	r->class->devnode = r->devnode;
	r->cdev = cdev_alloc();
	if (!r->cdev) {
		err = -ENOMEM;
		goto no_cdev;
	}
	r->cdev->owner = THIS_MODULE;
	r->cdev->ops = r->fops;
	err = cdev_add(r->cdev, first, r->count);
	if (err) {
		kobject_put(&r->cdev->kobj);
		r->cdev = NULL;
		goto no_cdev;
	}
	for (i = 0; i < r->count; i++) {
		dev = device_create(r->class, NULL, first + i, NULL, "%s", r->files[i]);
		if (IS_ERR(dev)) {
			remove(r); /* what is not there is not missed */
			return PTR_ERR(dev);
		}
	}
	return 0;

no_cdev:
	class_destroy(r->class);
no_class:
	unregister_chrdev_region(first, r->count);
	return err;
}

/* Only "1" is needed here. */
static ssize_t power_write(struct file *filp, const char __user *buf, size_t size, loff_t *off)
{
	int err = 0;

	mutex_lock(&switching);
	if (!user.cdev)
		err = create(&user);
	mutex_unlock(&switching);
	return err ?: size;
}

static int __init gpunodes_init(void)
{
	int err = misc_register(&nvmap);

	if (err)
		return err;
	err = create(&power) ?: create(&fence) ?: create(&ipc);
	if (err) {
		remove(&power);
		remove(&fence);
		misc_deregister(&nvmap);
	}
	return err;
}
module_init(gpunodes_init);

static void __exit gpunodes_exit(void)
{
	remove(&user);
	remove(&ipc);
	remove(&fence);
	remove(&power);
	misc_deregister(&nvmap);
}
module_exit(gpunodes_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("device files of a Jetson's GPU for tests of the service");
