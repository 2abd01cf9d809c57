// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/second tells attacks how a page of the caller is mapped (ioctl 0).
 */
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>

/* Without its upper bits, which make an address: the lower twelve. */
static long second_pte(unsigned long address)
{
	spinlock_t *lock; /* of the page table */
	pte_t *pte;
	long bits;
	int err;

	mmap_read_lock(current->mm);
	err = follow_pte(current->mm, address, &pte, &lock);
	if (!err) {
		bits = pte_val(*pte) & ~PAGE_MASK;
		pte_unmap_unlock(pte, lock);
	}
	mmap_read_unlock(current->mm);
	return err ?: bits;
}

static long second_ioctl(struct file *filp, unsigned int nr, unsigned long arg)
{
	return second_pte(arg);
}

static const struct file_operations second_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = second_ioctl,
};

static struct miscdevice second = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "second",
	.fops = &second_fops,
	.mode = 0600,
};

static int __init second_init(void)
{
	return misc_register(&second);
}
module_init(second_init);

static void __exit second_exit(void)
{
	misc_deregister(&second);
}
module_exit(second_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("what attacks of tegra_p2p's tests need");
