// SPDX-License-Identifier: GPL-2.0
/* ALLOC: coherent memory of the kernel. */
#include <linux/dma-mapping.h>
#include <linux/slab.h>

#include "p2p.h"

/* With file->lock held, or the memory known to nobody else. The function is there. */
static void tp_mem_end(struct tp_object *obj)
{
	struct tp_mem *mem = tp_to_mem(obj);
	struct tp_dev *dev = obj->file->dev;

	if (mem->cpu && !READ_ONCE(dev->over))
		dma_free_coherent(&dev->pdev->dev, obj->size, mem->cpu, mem->iova);
	if (mem->cpu)
		sg_free_table(&mem->pages);
	mem->cpu = NULL;
}

static void tp_mem_finish(struct tp_object *obj)
{
	tp_object_uncharge(obj, false);
}

static void tp_mem_free(struct tp_object *obj)
{
	kfree(tp_to_mem(obj));
}

static bool tp_mem_busy(struct tp_object *obj)
{
	return tp_to_mem(obj)->cpu;
}

const struct tp_object_ops tp_mem_ops = {
	.first_slot = TP_FIRST_HANDLE_SLOT,
	.charges_user = true,
	.end = tp_mem_end,
	.finish = tp_mem_finish,
	.free = tp_mem_free,
	.busy = tp_mem_busy,
	.unplug = tp_mem_end,
};

/* Nobody has seen the memory yet, so a fence that comes in between does no harm. */
static int tp_mem_alloc(struct tp_mem *mem)
{
	struct tp_dev *dev = mem->obj.file->dev;
	u64 gen;
	int err;

	err = tp_may_use(dev, mem->obj.file->unsafe);
	if (err)
		return err;
	mutex_lock(&dev->fence_lock);
	gen = dev->fence_gen;
	if (dev->state != TEGRA_P2P_STATE_LIVE)
		err = -ESTALE;
	mutex_unlock(&dev->fence_lock);
	if (err)
		return err;
	/*
	 * Refused when there is no room: nobody is killed for it. It is charged to the user, and
	 * not to a memory cgroup as well: that would hold the caller up, and whoever unbinds with
	 * it.
	 */
	mem->cpu = dma_alloc_coherent(&dev->pdev->dev, mem->obj.size, &mem->iova,
				      GFP_KERNEL | __GFP_RETRY_MAYFAIL | __GFP_NOWARN);
	if (!mem->cpu)
		return -ENOMEM;
	err = dma_get_sgtable(&dev->pdev->dev, &mem->pages, mem->cpu, mem->iova, mem->obj.size);
	if (err) {
		dma_free_coherent(&dev->pdev->dev, mem->obj.size, mem->cpu, mem->iova);
		mem->cpu = NULL;
		return -ENOMEM;
	}
	mutex_lock(&dev->fence_lock);
	if (gen != dev->fence_gen)
		err = -ESTALE;
	mutex_unlock(&dev->fence_lock);
	if (err)
		tp_mem_end(&mem->obj);
	return err;
}

/**
 * tp_alloc() - Does ALLOC: coherent memory for the function and the caller.
 * @file: the caller's open file
 * @arg: struct tegra_p2p_alloc
 *
 * Context: The function is there. Takes file->lock and fence_lock, and may sleep.
 * Return: 0 or an errno; -ESTALE: the function is fenced, or was in between.
 */
long tp_alloc(struct tp_file *file, void *arg)
{
	struct tegra_p2p_alloc *a = arg;
	struct tp_mem *mem;
	int err;

	if (a->flags || a->pad || !a->size || !PAGE_ALIGNED(a->size))
		return -EINVAL;
	if (a->size > TP_MAX_ALLOC)
		return -E2BIG;
	mem = kzalloc(sizeof(*mem), GFP_KERNEL_ACCOUNT);
	if (!mem)
		return -ENOMEM;
	err = tp_object_init(&mem->obj, file, a->size, &tp_mem_ops);
	if (err) {
		kfree(mem);
		return err;
	}
	err = tp_mem_alloc(mem);
	if (err) {
		tp_object_withdraw(&mem->obj);
		tp_object_uncharge(&mem->obj, false);
		tp_object_put(&mem->obj);
		return err;
	}
	a->iova = mem->iova;
	a->handle = mem->obj.handle;
	a->mmap_offset = tp_object_offset(&mem->obj);
	tp_object_publish(&mem->obj);
	return 0;
}
