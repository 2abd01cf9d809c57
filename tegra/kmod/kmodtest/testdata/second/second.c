// SPDX-License-Identifier: GPL-2.0
/*
 * What attacks want to know, and other drivers give: /dev/second says how a page of the caller is mapped (ioctl 0), and
 * exports its page, which it maps as well, as a dma-buf that may only be read (ioctl 1).
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/fcntl.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>

static struct page *page;

static struct sg_table *second_map(struct dma_buf_attachment *attach, enum dma_data_direction direction)
{
	struct sg_table *sgt = kzalloc(sizeof(*sgt), GFP_KERNEL);

	if (!sgt)
		return ERR_PTR(-ENOMEM);
	if (!sg_alloc_table_from_pages(sgt, &page, 1, 0, PAGE_SIZE, GFP_KERNEL)) {
		if (!dma_map_sgtable(attach->dev, sgt, direction, 0))
			return sgt;
		sg_free_table(sgt);
	}
	kfree(sgt);
	return ERR_PTR(-ENOMEM);
}

static void second_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt, enum dma_data_direction direction)
{
	dma_unmap_sgtable(attach->dev, sgt, direction, 0);
	sg_free_table(sgt);
	kfree(sgt);
}

static void second_release(struct dma_buf *buf)
{
}

static const struct dma_buf_ops second_buf = {
	.map_dma_buf = second_map,
	.unmap_dma_buf = second_unmap,
	.release = second_release,
};

static long second_export(void)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *buf;
	int fd;

	info.ops = &second_buf;
	info.size = PAGE_SIZE;
	info.flags = O_RDONLY;
	info.priv = page;
	buf = dma_buf_export(&info);
	if (IS_ERR(buf))
		return PTR_ERR(buf);
	fd = dma_buf_fd(buf, O_CLOEXEC);
	if (fd < 0)
		dma_buf_put(buf);
	return fd;
}

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
	return nr ? second_export() : second_pte(arg);
}

static int second_mmap(struct file *filp, struct vm_area_struct *vma)
{
	return vm_insert_page(vma, vma->vm_start, page);
}

static const struct file_operations second_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = second_ioctl,
	.mmap = second_mmap,
};

static struct miscdevice second = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "second",
	.fops = &second_fops,
	.mode = 0600,
};

static int __init second_init(void)
{
	int err;

	page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!page)
		return -ENOMEM;
	err = misc_register(&second);
	if (err)
		__free_page(page);
	return err;
}
module_init(second_init);

static void __exit second_exit(void)
{
	misc_deregister(&second);
	__free_page(page);
}
module_exit(second_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("what attacks of tegra_p2p's tests need");
#ifdef MODULE_IMPORT_NS
MODULE_IMPORT_NS(DMA_BUF);
#endif
