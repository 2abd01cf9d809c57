// SPDX-License-Identifier: GPL-2.0
/*
 * Mappings. BARs and coherent memory come by fault, so that they can be taken away when the
 * function goes; what is touched then is a page of ones. Pages of a pin are inserted at once and
 * keep their own references, but only a driver's: all others are looked after by parts of the
 * kernel that do not know of a second mapping, or are not the caller's to write.
 */
#include <linux/dma-mapping.h>
#include <linux/nospec.h>
#include <linux/slab.h>

#include "p2p.h"
#include "trace.h"

static struct resource *tp_reserve_rest(struct resource *bar)
{
	struct resource *rest = kzalloc(sizeof(*rest), GFP_KERNEL);

	if (!rest)
		return NULL;
	rest->name = "tegra_p2p";
	rest->start = bar->end + 1;
	rest->end = ALIGN(bar->end, PAGE_SIZE) - 1;
	rest->flags = bar->flags;
	if (!request_resource(bar->parent, rest))
		return rest;
	kfree(rest);
	return NULL;
}

/**
 * tp_reserve_pages() - Reserves the rest of the page of each BAR that is smaller than a page.
 * @dev: the function
 *
 * Such a BAR can be mapped when nothing else lies, or will lie, in its page.
 */
void tp_reserve_pages(struct tp_dev *dev)
{
	int i;

	for (i = 0; i < TP_BARS; i++) {
		struct resource *bar = &dev->pdev->resource[i];

		if (bar->flags & IORESOURCE_MEM && bar->start && PAGE_ALIGNED(bar->start) &&
		    resource_size(bar) < PAGE_SIZE)
			dev->rest[i] = tp_reserve_rest(bar);
	}
}

/**
 * tp_unreserve_pages() - Gives back what tp_reserve_pages() has reserved.
 * @dev: the function
 */
void tp_unreserve_pages(struct tp_dev *dev)
{
	int i;

	for (i = 0; i < TP_BARS; i++) {
		if (dev->rest[i])
			release_resource(dev->rest[i]);
		kfree(dev->rest[i]);
	}
}

/* What of a BAR can be mapped: whole pages, as far as its offsets reach. */
static u64 tp_bar_size(struct tp_dev *dev, u32 bar)
{
	if (!(pci_resource_flags(dev->pdev, bar) & IORESOURCE_MEM) ||
	    !PAGE_ALIGNED(pci_resource_start(dev->pdev, bar)))
		return 0;
	if (dev->rest[bar])
		return PAGE_SIZE;
	return min_t(u64, pci_resource_len(dev->pdev, bar) & PAGE_MASK, 1ULL << TP_MMAP_SHIFT);
}

/**
 * tp_get_region() - Does GET_REGION: a BAR's size, and where it can be mapped.
 * @file: the caller's open file
 * @arg: struct tegra_p2p_region
 *
 * Context: The function is there. Waits for control_lock: a reset may be under way.
 * Return: 0; -EINVAL; -EINTR.
 */
long tp_get_region(struct tp_file *file, void *arg)
{
	struct tegra_p2p_region *a = arg;
	struct tp_dev *dev = file->dev;

	if (a->flags || a->pad || a->index >= TP_BARS)
		return -EINVAL;
	a->index = array_index_nospec(a->index, TP_BARS);
	/* A reset may be under way, and whoever asks is about to touch registers. */
	if (mutex_lock_killable(&dev->control_lock))
		return -EINTR;
	mutex_unlock(&dev->control_lock);
	a->size = 0;
	if (pci_resource_flags(dev->pdev, a->index) & IORESOURCE_MEM)
		a->size = pci_resource_len(dev->pdev, a->index);
	if (tp_bar_size(dev, a->index))
		a->flags |= TEGRA_P2P_REGION_MMAP;
	a->mmap_offset = (u64)a->index << TP_MMAP_SHIFT;
	return 0;
}

/*
 * The page of ones for a page of the file's mappings: all from the last one on that a file may have
 * are the same.
 */
static struct page *tp_ones_page(struct tp_file *file, unsigned long pgoff)
{
	unsigned long key = file->ones_count < TP_ONES ? pgoff : ULONG_MAX;
	struct page *page = xa_load(&file->ones, pgoff) ?: xa_load(&file->ones, key);

	if (page)
		return page;
	page = alloc_page(GFP_KERNEL_ACCOUNT);
	if (!page)
		return NULL;
	memset(page_address(page), 0xff, PAGE_SIZE);
	if (xa_err(xa_store(&file->ones, key, page, GFP_KERNEL_ACCOUNT))) {
		__free_page(page);
		return NULL;
	}
	file->ones_count++;
	return page;
}

/*
 * What is touched is a page of its own: a write to one register does not show in another. With
 * bar_lock held.
 */
static vm_fault_t tp_insert_ones(struct vm_fault *vmf, struct tp_file *file)
{
	struct page *page = tp_ones_page(file, vmf->pgoff);

	if (!page)
		return VM_FAULT_OOM;
	return vmf_insert_pfn_prot(vmf->vma, vmf->address, page_to_pfn(page),
				   vm_get_page_prot(vmf->vma->vm_flags));
}

/**
 * tp_free_ones() - Frees a file's pages of ones, which nothing maps any more.
 * @file: the open file
 *
 * Context: bar_lock is held, or nobody else knows the file.
 */
void tp_free_ones(struct tp_file *file)
{
	struct page *page;
	unsigned long i;

	xa_for_each(&file->ones, i, page)
		__free_page(page);
	xa_destroy(&file->ones);
	file->ones_count = 0;
}

/**
 * tp_hidden() - Reports whether a place in a BAR is in a page of the MSI-X table.
 * @dev: the function
 * @bar: the BAR's index
 * @off: the place, in bytes
 *
 * Return: true if so: whoever writes the table makes the function write anywhere.
 */
bool tp_hidden(struct tp_dev *dev, u32 bar, u64 off)
{
	return (int)bar == dev->msix_bar && off >= dev->msix_first && off <= dev->msix_last;
}

/* Where in its BAR or object an address of a mapping lies. */
static u64 tp_fault_offset(struct vm_fault *vmf)
{
	return ((u64)vmf->pgoff << PAGE_SHIFT) & GENMASK_ULL(TP_MMAP_SHIFT - 1, 0);
}

static vm_fault_t tp_bar_fault(struct vm_fault *vmf)
{
	struct tp_file *file = vmf->vma->vm_file->private_data;
	u32 bar = vmf->vma->vm_pgoff >> (TP_MMAP_SHIFT - PAGE_SHIFT);
	struct tp_dev *dev = file->dev;
	u64 off = tp_fault_offset(vmf);
	vm_fault_t ret;

	mutex_lock(&dev->bar_lock);
	if (dev->gone || READ_ONCE(dev->away) || tp_hidden(dev, bar, off))
		ret = tp_insert_ones(vmf, file);
	else
		ret = vmf_insert_pfn(vmf->vma, vmf->address,
				     PHYS_PFN(pci_resource_start(dev->pdev, bar) + off));
	mutex_unlock(&dev->bar_lock);
	return ret;
}

/*
 * The new right would come with the cache attribute of registers, which a page of ones has not: it
 * is taken out.
 */
static int __maybe_unused tp_bar_mprotect(struct vm_area_struct *vma, unsigned long start,
					  unsigned long end, unsigned long flags)
{
	zap_vma_ptes(vma, start, end - start);
	return 0;
}

static const struct vm_operations_struct tp_bar_vm_ops = {
	.fault = tp_bar_fault,
	TP_VM_OP_MPROTECT(tp_bar_mprotect)
};

static void tp_object_vma_open(struct vm_area_struct *vma)
{
	struct tp_object *obj = vma->vm_private_data;

	kref_get(&obj->ref);
	atomic_inc(&obj->vmas);
}

static void tp_object_vma_close(struct vm_area_struct *vma)
{
	struct tp_object *obj = vma->vm_private_data;

	atomic_dec(&obj->vmas);
	tp_object_put(obj);
}

/* The page of coherent memory at an offset. */
static unsigned long tp_mem_pfn(struct tp_mem *mem, u64 off)
{
	struct scatterlist *sg;
	int i;

	for_each_sgtable_sg(&mem->pages, sg, i) {
		if (off < sg->length)
			break;
		off -= sg->length;
	}
	return page_to_pfn(sg_page(sg)) + (off >> PAGE_SHIFT);
}

/*
 * Not by dma_mmap_coherent in mmap: a mapping is found by unmap_mapping_range only after that, so
 * the memory could be freed under it when the function goes.
 */
static vm_fault_t tp_mem_fault(struct vm_fault *vmf)
{
	struct tp_mem *mem = tp_to_mem(vmf->vma->vm_private_data);
	struct tp_dev *dev = mem->obj.file->dev;
	vm_fault_t ret;

	mutex_lock(&dev->bar_lock);
	if (dev->gone)
		ret = tp_insert_ones(vmf, mem->obj.file);
	else
		ret = vmf_insert_pfn(vmf->vma, vmf->address, tp_mem_pfn(mem, tp_fault_offset(vmf)));
	mutex_unlock(&dev->bar_lock);
	return ret;
}

static const struct vm_operations_struct tp_mem_vm_ops = {
	.open = tp_object_vma_open,
	.close = tp_object_vma_close,
	.fault = tp_mem_fault,
};

static const struct vm_operations_struct tp_pin_vm_ops = {
	.open = tp_object_vma_open,
	.close = tp_object_vma_close,
};

static int tp_mmap_bar(struct tp_dev *dev, struct vm_area_struct *vma, u32 bar, u64 off, u64 len)
{
	if (off + len > tp_bar_size(dev, bar))
		return -EINVAL;
	/*
	 * Prefetchable ones, too: they may hold registers, which are not read by guess, and whose
	 * writes stay apart.
	 */
	vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	tp_vm_flags_set(vma, VM_IO | VM_PFNMAP);
	vma->vm_ops = &tp_bar_vm_ops;
	return 0;
}

/*
 * Whether a page is a driver's own: no file, no swap, no huge page and no image of the kernel
 * counts its mappings.
 */
static bool tp_is_drivers_own(struct page *page)
{
	return !PageCompound(page) && !PageReserved(page) && !PageAnon(page) &&
	       !READ_ONCE(page->mapping) && !tp_page_reclaimed(page) &&
	       !is_zero_pfn(page_to_pfn(page)) && !is_zone_device_page(page);
}

/* Takes references of the n pages of a live pin, which must be a driver's own. */
static int tp_hold_pages(struct tp_pin *pin, struct page **pages, unsigned long n)
{
	struct page **from;
	unsigned long i;
	int err = 0;

	mutex_lock(&pin->lock);
	if (pin->state != TP_LIVE)
		err = -ESTALE;
	else if (!pin->of_driver)
		err = -EOPNOTSUPP;
	from = err ? NULL : tp_backend->pages(pin);
	for (i = 0; i < n && !err; i++)
		if (!tp_is_drivers_own(from[i]))
			err = -EOPNOTSUPP;
	for (i = 0; i < n && !err; i++) {
		pages[i] = from[i];
		if (!try_get_page(pages[i])) { /* so many references that the counter would wrap */
			err = -ENOMEM;
			break;
		}
	}
	mutex_unlock(&pin->lock);
	while (err && i--)
		put_page(pages[i]);
	return err;
}

static int tp_mmap_pin(struct tp_pin *pin, struct vm_area_struct *vma)
{
	unsigned long i, left, n = pin->obj.size >> PAGE_SHIFT;
	struct page **pages;
	int err;

	if (!pin->writable) {
		if (vma->vm_flags & VM_WRITE)
			return -EACCES;
		tp_vm_flags_clear(vma, VM_MAYWRITE);
	}
	pages = kvmalloc_array(n, sizeof(*pages), GFP_KERNEL_ACCOUNT);
	if (!pages)
		return -ENOMEM;
	/* inserting them allocates, which the pin's lock forbids */
	err = tp_hold_pages(pin, pages, n);
	if (err)
		goto out;
	tp_vm_flags_set(vma, VM_IO); /* else MADV_DOFORK would let children inherit it */
	if (pin->attr == TEGRA_P2P_ATTR_WC)
		vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	left = n;
	err = vm_insert_pages(vma, vma->vm_start, pages, &left);
	for (i = 0; i < n; i++)
		put_page(pages[i]);
out:
	kvfree(pages);
	return err;
}

static int tp_mmap_object(struct tp_file *file, struct vm_area_struct *vma, u32 handle,
			  const struct tp_object_ops *ops, u64 off, u64 len)
{
	struct tp_object *obj;
	int err = 0;

	mutex_lock(&file->lock);
	obj = xa_load(&file->objects, handle);
	if (!obj || obj->ops != ops || off || len != obj->size) {
		mutex_unlock(&file->lock);
		return -EINVAL;
	}
	kref_get(&obj->ref);
	atomic_inc(&obj->vmas);
	mutex_unlock(&file->lock);
	vma->vm_private_data = obj;
	if (ops == &tp_pin_ops) {
		err = tp_mmap_pin(tp_to_pin(obj), vma);
		vma->vm_ops = &tp_pin_vm_ops;
	} else {
		tp_vm_flags_set(vma, VM_IO | VM_PFNMAP);
		vma->vm_ops = &tp_mem_vm_ops;
	}
	if (err) { /* such a mapping is not closed */
		vma->vm_ops = NULL;
		tp_object_vma_close(vma);
	}
	return err;
}

/**
 * tp_mmap() - Maps a BAR, an allocation or a pin.
 * @filp: the open file
 * @vma: the mapping; its offset is the slot, from bit TP_MMAP_SHIFT on, and the byte in it
 *
 * Context: mmap_lock is held. Takes file->lock or pin->lock, and may sleep.
 * Return: 0 or an errno.
 */
int tp_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct tp_file *file = filp->private_data;
	u64 slot = vma->vm_pgoff >> (TP_MMAP_SHIFT - PAGE_SHIFT);
	u64 off = ((u64)vma->vm_pgoff << PAGE_SHIFT) & GENMASK_ULL(TP_MMAP_SHIFT - 1, 0);
	u64 len = vma->vm_end - vma->vm_start;
	int idx, err = -ENODEV;

	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	tp_vm_flags_set(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	idx = srcu_read_lock(&file->dev->srcu);
	if (!READ_ONCE(file->dev->gone)) {
		if (slot < TP_BARS)
			err = tp_mmap_bar(file->dev, vma, array_index_nospec(slot, TP_BARS), off,
					  len);
		else if (slot > TP_FIRST_HANDLE_SLOT &&
			 slot <= TP_FIRST_HANDLE_SLOT + TP_LAST_HANDLE)
			err = tp_mmap_object(file, vma, slot - TP_FIRST_HANDLE_SLOT, &tp_mem_ops,
					     off, len);
		else if (slot > TP_FIRST_PIN_SLOT && slot <= TP_FIRST_PIN_SLOT + TP_LAST_HANDLE)
			err = tp_mmap_object(file, vma, slot - TP_FIRST_PIN_SLOT, &tp_pin_ops,
					     off, len);
		else
			err = -EINVAL;
	}
	srcu_read_unlock(&file->dev->srcu, idx);
	trace_tegra_p2p_map(file->dev->name, slot, off, len, err);
	return err;
}

/*
 * The next touch of a BAR, and of an allocation when the function has gone, is a fault, which finds
 * what is there then. The files of a device node have one mapping: it is gone through once, since
 * there may be many mappings of many files. With files_lock and bar_lock held.
 */
static void tp_zap_files(struct tp_dev *dev)
{
	struct address_space *done = NULL;
	struct tp_file *file;
	u64 end;

	end = (u64)(dev->gone ? TP_FIRST_PIN_SLOT : TP_FIRST_HANDLE_SLOT) << TP_MMAP_SHIFT;
	list_for_each_entry(file, &dev->files, entry) {
		if (file->mapping != done)
			unmap_mapping_range(file->mapping, 0, end, 1);
		done = file->mapping;
		if (!dev->gone) /* then allocations have such pages, too */
			tp_free_ones(file);
	}
}

/**
 * tp_zap_bars() - Unmaps the BARs: the next access is a fault, which finds the present state.
 * @dev: the function
 *
 * Context: Takes files_lock, then bar_lock, and may sleep.
 */
void tp_zap_bars(struct tp_dev *dev)
{
	mutex_lock(&dev->files_lock);
	mutex_lock(&dev->bar_lock);
	tp_zap_files(dev);
	mutex_unlock(&dev->bar_lock);
	mutex_unlock(&dev->files_lock);
}

/**
 * tp_zap_gone() - Marks the function as gone, and unmaps its BARs and allocations.
 * @dev: the function
 *
 * Registers go in one step with allocations: else a program would write descriptors into a page of
 * ones, and start the engine, which finds none.
 *
 * Context: Takes files_lock, then bar_lock, and may sleep.
 */
void tp_zap_gone(struct tp_dev *dev)
{
	mutex_lock(&dev->files_lock);
	mutex_lock(&dev->bar_lock);
	WRITE_ONCE(dev->gone, true);
	tp_zap_files(dev);
	mutex_unlock(&dev->bar_lock);
	mutex_unlock(&dev->files_lock);
}
