// SPDX-License-Identifier: GPL-2.0
/*
 * EXPORT: a pin as a dma-buf, for the drivers of other devices: cameras (V4L2), displays (DRM), GPUs. The buffer holds
 * references of its own to the pages, so a device that still uses them after the pin has ended reaches no page that was
 * given to somebody else. Devices that follow a buffer are told of that end, and nobody maps it any more then. It is
 * mapped for devices alone, not for programs: those have the memory itself.
 */
#include <linux/cred.h>
#include <linux/dma-mapping.h>
#include <linux/slab.h>

#include "p2p.h"

#if IS_ENABLED(CONFIG_DMA_SHARED_BUFFER)

struct tp_export {
	struct page **pages;
	unsigned long n;
	bool writable;
	bool revoked;		/* under the buffer's reservation lock */
	const struct cred *cred; /* whose user is charged for the pages */
};

static struct sg_table *export_map(struct dma_buf_attachment *attach, enum dma_data_direction direction)
{
	struct tp_export *x = attach->dmabuf->priv;
	struct sg_table *sgt;
	int err;

	if (x->revoked)
		return ERR_PTR(-ENODEV);
	if (!x->writable && direction != DMA_TO_DEVICE)
		return ERR_PTR(-EACCES);
	sgt = kzalloc(sizeof(*sgt), GFP_KERNEL);
	if (!sgt)
		return ERR_PTR(-ENOMEM);
	err = sg_alloc_table_from_pages(sgt, x->pages, x->n, 0, x->n << PAGE_SHIFT, GFP_KERNEL);
	if (err)
		goto free;
	err = dma_map_sgtable(attach->dev, sgt, direction, 0);
	if (!err)
		return sgt;
	sg_free_table(sgt);
free:
	kfree(sgt);
	return ERR_PTR(err);
}

static void export_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt, enum dma_data_direction direction)
{
	dma_unmap_sgtable(attach->dev, sgt, direction, 0);
	sg_free_table(sgt);
	kfree(sgt);
}

/* The pages never move. */
static int export_pin(struct dma_buf_attachment *attach)
{
	return 0;
}

static void export_unpin(struct dma_buf_attachment *attach)
{
}

static void export_free(struct tp_export *x)
{
	unsigned long i;

	for (i = 0; i < x->n; i++) {
		if (x->writable && !PageDirty(x->pages[i])) /* a device may have written it */
			set_page_dirty_lock(x->pages[i]);
		put_page(x->pages[i]);
	}
	if (x->cred)
		tp_uncharge_user(x->cred, x->n);
	kvfree(x->pages);
	kfree(x);
}

static void export_release(struct dma_buf *buf)
{
	export_free(buf->priv);
}

static const struct dma_buf_ops export_ops = {
	.pin = export_pin,
	.unpin = export_unpin,
	.map_dma_buf = export_map,
	.unmap_dma_buf = export_unmap,
	.release = export_release,
};

/* Whoever holds the buffer keeps the pages, so they count against RLIMIT_MEMLOCK once more. */
static struct tp_export *export_new(struct tp_pin *pin)
{
	unsigned long n = pin->obj.size >> PAGE_SHIFT;
	struct tp_export *x = kzalloc(sizeof(*x), GFP_KERNEL_ACCOUNT);
	int err = -ENOMEM;

	if (!x)
		return ERR_PTR(err);
	x->writable = pin->writable;
	x->pages = kvmalloc_array(n, sizeof(*x->pages), GFP_KERNEL_ACCOUNT);
	if (x->pages)
		x->cred = tp_charge_user(n);
	if (x->cred)
		err = tp_pin_hold_pages(pin, x->pages, n, false);
	if (!err) {
		x->n = n;
		return x;
	}
	if (x->cred)
		tp_uncharge_user(x->cred, n);
	x->cred = NULL;
	export_free(x);
	return ERR_PTR(err);
}

/* The pin's buffer, which is made when it is asked for first. The pin keeps a reference until it ends. */
static struct dma_buf *export_of(struct tp_pin *pin)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct tp_export *x;
	struct dma_buf *buf;

	mutex_lock(&pin->export_lock);
	buf = pin->export;
	if (buf || pin->export_over) {
		if (buf)
			get_dma_buf(buf);
		mutex_unlock(&pin->export_lock);
		return buf ?: ERR_PTR(-ESTALE);
	}
	x = export_new(pin);
	buf = ERR_CAST(x);
	if (!IS_ERR(x)) {
		info.ops = &export_ops;
		info.size = pin->obj.size;
		info.flags = pin->writable ? O_RDWR : O_RDONLY;
		info.priv = x;
		buf = dma_buf_export(&info);
		if (IS_ERR(buf)) {
			export_free(x);
		} else {
			get_dma_buf(buf);
			pin->export = buf;
		}
	}
	mutex_unlock(&pin->export_lock);
	return buf;
}

/* The pin has ended: nobody maps its buffer any more, and who follows it lets go of it. */
void tp_export_end(struct tp_pin *pin)
{
	struct dma_buf *buf;

	mutex_lock(&pin->export_lock);
	buf = pin->export;
	pin->export = NULL;
	pin->export_over = true;
	mutex_unlock(&pin->export_lock);
	if (!buf)
		return;
	dma_resv_lock(buf->resv, NULL);
	((struct tp_export *)buf->priv)->revoked = true;
	dma_buf_move_notify(buf);
	dma_resv_unlock(buf->resv);
	dma_buf_put(buf);
}

long tp_export(struct tp_file *file, void *arg)
{
	struct tegra_p2p_export *a = arg;
	struct tp_object *obj;
	struct dma_buf *buf;
	long err = 0;

	if (a->flags)
		return -EINVAL;
	obj = tp_object_get(file, a->handle);
	if (!obj)
		return -ENOENT;
	buf = obj->is_pin ? export_of(tp_to_pin(obj)) : ERR_PTR(-EINVAL);
	tp_object_put(obj);
	if (IS_ERR(buf))
		return PTR_ERR(buf);
	a->fd = dma_buf_fd(buf, O_CLOEXEC);
	if (a->fd < 0) {
		err = a->fd;
		dma_buf_put(buf);
	}
	return err;
}

#else

void tp_export_end(struct tp_pin *pin)
{
}

long tp_export(struct tp_file *file, void *arg)
{
	return -EOPNOTSUPP;
}

#endif
