// SPDX-License-Identifier: GPL-2.0
/*
 * Memory as cudaHostAlloc gives it: pages of a driver, mapped write-back by /dev/hostmem at offset
 * 0 and write-combined at offset 4096.
 */
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>

#define MAX_PAGES 64

struct buffer {
	refcount_t users;
	struct page *pages[MAX_PAGES];
};

static void buffer_open(struct vm_area_struct *vma)
{
	struct buffer *b = vma->vm_private_data;

	refcount_inc(&b->users);
}

static void buffer_free(struct buffer *b)
{
	int i;

	if (!refcount_dec_and_test(&b->users))
		return;
	for (i = 0; i < MAX_PAGES && b->pages[i]; i++)
		__free_page(b->pages[i]);
	kfree(b);
}

static void buffer_close(struct vm_area_struct *vma)
{
	buffer_free(vma->vm_private_data);
}

static const struct vm_operations_struct buffer_ops = {
	.open = buffer_open,
	.close = buffer_close,
};

static int hostmem_mmap(struct file *filp, struct vm_area_struct *vma)
{
	unsigned long i, left, n = vma_pages(vma);
	struct buffer *b;
	int err = 0;

	if (vma->vm_pgoff > 1 || n > MAX_PAGES)
		return -EINVAL;
	b = kzalloc(sizeof(*b), GFP_KERNEL);
	if (!b)
		return -ENOMEM;
	refcount_set(&b->users, 1);
	for (i = 0; i < n && !err; i++) {
		b->pages[i] = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!b->pages[i])
			err = -ENOMEM;
	}
	if (vma->vm_pgoff)
		vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	left = n;
	if (!err)
		err = vm_insert_pages(vma, vma->vm_start, b->pages, &left);
	if (err) {
		buffer_free(b);
		return err;
	}
	vma->vm_private_data = b;
	vma->vm_ops = &buffer_ops;
	return 0;
}

static const struct file_operations hostmem_fops = {
	.owner = THIS_MODULE,
	.mmap = hostmem_mmap,
};

static struct miscdevice hostmem = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "hostmem",
	.fops = &hostmem_fops,
	.mode = 0600,
};
module_misc_device(hostmem);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("memory as cudaHostAlloc gives it");
