// SPDX-License-Identifier: GPL-2.0
/*
 * Mappings. BARs and coherent memory come by fault, so that they can be taken away when the function goes; what is
 * touched then is a page of ones. Pages of a pin are inserted at once and keep their own references.
 */
#include <linux/dma-mapping.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "p2p.h"

static struct resource *reserve_rest(struct resource *bar)
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

/* A BAR that is smaller than a page can be mapped when nothing else lies, or will lie, in its page. */
void tp_reserve_pages(struct tp_dev *dev)
{
	int i;

	for (i = 0; i < TP_BARS; i++) {
		struct resource *bar = &dev->pdev->resource[i];

		if (bar->flags & IORESOURCE_MEM && bar->start && PAGE_ALIGNED(bar->start) &&
		    resource_size(bar) < PAGE_SIZE)
			dev->rest[i] = reserve_rest(bar);
	}
}

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
static u64 bar_size(struct tp_dev *dev, u32 bar)
{
	if (!(pci_resource_flags(dev->pdev, bar) & IORESOURCE_MEM) || !PAGE_ALIGNED(pci_resource_start(dev->pdev, bar)))
		return 0;
	if (dev->rest[bar])
		return PAGE_SIZE;
	return min_t(u64, pci_resource_len(dev->pdev, bar) & PAGE_MASK, 1ULL << TP_MMAP_SHIFT);
}

long tp_get_region(struct tp_file *file, void *arg)
{
	struct tegra_p2p_region *a = arg;
	struct tp_dev *dev = file->dev;

	if (a->flags || a->pad || a->index >= TP_BARS)
		return -EINVAL;
	a->size = 0;
	if (pci_resource_flags(dev->pdev, a->index) & IORESOURCE_MEM)
		a->size = pci_resource_len(dev->pdev, a->index);
	if (bar_size(dev, a->index))
		a->flags |= TEGRA_P2P_REGION_MMAP;
	if (a->flags && pci_resource_flags(dev->pdev, a->index) & IORESOURCE_PREFETCH)
		a->flags |= TEGRA_P2P_REGION_WC;
	a->mmap_offset = (u64)a->index << TP_MMAP_SHIFT;
	return 0;
}

static vm_fault_t insert_dummy(struct vm_fault *vmf, struct tp_file *file)
{
	pgprot_t prot = vm_get_page_prot(vmf->vma->vm_flags);

	return vmf_insert_pfn_prot(vmf->vma, vmf->address, page_to_pfn(file->dummy), prot);
}

/* Where in its BAR or object an address of a mapping lies. */
static u64 fault_offset(struct vm_fault *vmf)
{
	return ((u64)vmf->pgoff << PAGE_SHIFT) & GENMASK_ULL(TP_MMAP_SHIFT - 1, 0);
}

static vm_fault_t bar_fault(struct vm_fault *vmf)
{
	struct tp_file *file = vmf->vma->vm_file->private_data;
	u32 bar = vmf->vma->vm_pgoff >> (TP_MMAP_SHIFT - PAGE_SHIFT);
	struct tp_dev *dev = file->dev;
	u64 off = fault_offset(vmf);
	vm_fault_t ret;

	mutex_lock(&dev->bar_lock);
	if (dev->gone || ((int)bar == dev->msix_bar && off >= dev->msix_first && off <= dev->msix_last))
		ret = insert_dummy(vmf, file);
	else
		ret = vmf_insert_pfn(vmf->vma, vmf->address, PHYS_PFN(pci_resource_start(dev->pdev, bar) + off));
	mutex_unlock(&dev->bar_lock);
	return ret;
}

static const struct vm_operations_struct bar_ops = {
	.fault = bar_fault,
};

static void object_vma_open(struct vm_area_struct *vma)
{
	struct tp_object *obj = vma->vm_private_data;

	kref_get(&obj->ref);
	atomic_inc(&obj->vmas);
}

static void object_vma_close(struct vm_area_struct *vma)
{
	struct tp_object *obj = vma->vm_private_data;

	atomic_dec(&obj->vmas);
	tp_object_put(obj);
}

/* dma_alloc_coherent returns memory of either kind for a coherent function. */
static unsigned long mem_pfn(struct tp_mem *mem, u64 off)
{
	void *at = mem->cpu + off;

	return is_vmalloc_addr(at) ? vmalloc_to_pfn(at) : page_to_pfn(virt_to_page(at));
}

static vm_fault_t mem_fault(struct vm_fault *vmf)
{
	struct tp_mem *mem = tp_to_mem(vmf->vma->vm_private_data);
	struct tp_dev *dev = mem->obj.file->dev;
	vm_fault_t ret;

	mutex_lock(&dev->bar_lock);
	if (dev->gone)
		ret = insert_dummy(vmf, mem->obj.file);
	else
		ret = vmf_insert_pfn(vmf->vma, vmf->address, mem_pfn(mem, fault_offset(vmf)));
	mutex_unlock(&dev->bar_lock);
	return ret;
}

static const struct vm_operations_struct mem_ops = {
	.open = object_vma_open,
	.close = object_vma_close,
	.fault = mem_fault,
};

static const struct vm_operations_struct pin_ops = {
	.open = object_vma_open,
	.close = object_vma_close,
};

static int mmap_bar(struct tp_dev *dev, struct vm_area_struct *vma, u32 bar, u64 off, u64 len)
{
	if (off + len > bar_size(dev, bar))
		return -EINVAL;
	if (pci_resource_flags(dev->pdev, bar) & IORESOURCE_PREFETCH)
		vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	else
		vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	tp_vm_flags_set(vma, VM_IO | VM_PFNMAP);
	vma->vm_ops = &bar_ops;
	return 0;
}

/* References of the pages of a live pin: inserting them allocates, which the pin's lock forbids. */
static int pin_hold_pages(struct tp_pin *pin, struct page **pages, unsigned long n)
{
	struct page **from;
	unsigned long i;
	int err = 0;

	mutex_lock(&pin->lock);
	if (pin->state == TP_LIVE) {
		from = tp_backend->pages(pin);
		for (i = 0; i < n; i++) {
			pages[i] = from[i];
			get_page(pages[i]);
		}
	} else {
		err = -ESTALE;
	}
	mutex_unlock(&pin->lock);
	return err;
}

static int mmap_pin(struct tp_pin *pin, struct vm_area_struct *vma)
{
	unsigned long i, left, n = pin->obj.size >> PAGE_SHIFT;
	struct page **pages = kvmalloc_array(n, sizeof(*pages), GFP_KERNEL_ACCOUNT);
	int err;

	if (!pages)
		return -ENOMEM;
	err = pin_hold_pages(pin, pages, n);
	if (err)
		goto out;
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

static int mmap_object(struct tp_file *file, struct vm_area_struct *vma, u32 handle, u64 off, u64 len)
{
	struct tp_object *obj;
	int err = 0;

	mutex_lock(&file->lock);
	obj = xa_load(&file->objects, handle);
	if (!obj || off || len != obj->size) {
		mutex_unlock(&file->lock);
		return -EINVAL;
	}
	kref_get(&obj->ref);
	atomic_inc(&obj->vmas);
	mutex_unlock(&file->lock);
	vma->vm_private_data = obj;
	if (obj->is_pin) {
		err = mmap_pin(tp_to_pin(obj), vma);
		vma->vm_ops = &pin_ops;
	} else {
		tp_vm_flags_set(vma, VM_IO | VM_PFNMAP);
		vma->vm_ops = &mem_ops;
	}
	if (err) { /* such a mapping is not closed */
		vma->vm_ops = NULL;
		object_vma_close(vma);
	}
	return err;
}

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
			err = mmap_bar(file->dev, vma, slot, off, len);
		else if (slot > TP_FIRST_HANDLE_SLOT && slot <= TP_FIRST_HANDLE_SLOT + TP_LAST_HANDLE)
			err = mmap_object(file, vma, slot - TP_FIRST_HANDLE_SLOT, off, len);
		else
			err = -EINVAL;
	}
	srcu_read_unlock(&file->dev->srcu, idx);
	return err;
}

/* With files_lock and bar_lock held: the next touch of a BAR is a fault. */
void tp_zap_bars(struct tp_dev *dev)
{
	struct tp_file *file;

	list_for_each_entry(file, &dev->files, entry)
		unmap_mapping_range(file->mapping, 0, (u64)TP_FIRST_HANDLE_SLOT << TP_MMAP_SHIFT, 1);
}
