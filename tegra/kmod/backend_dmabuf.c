// SPDX-License-Identifier: GPL-2.0
/*
 * IMPORT: a dma-buf of another driver as a pin. Where the exporter can move its buffers it is asked to leave this one
 * where it is; if it takes it away all the same (its device goes, or a pin of this module that was exported ends), its
 * move_notify is a revocation.
 *
 * The reservation lock of the buffer comes before the pin's: the exporter holds it when it calls move_notify.
 */
#include <linux/dma-mapping.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "p2p.h"

#if IS_ENABLED(CONFIG_DMA_SHARED_BUFFER)

/* Whether both sides follow the buffer. An exporter that cannot gets an attachment that maps when it is asked to. */
static bool follows(struct dma_buf *buf)
{
	return buf->ops->pin;
}

static void import_lock(struct tp_pin *pin)
{
	if (tp_dma_buf_locks(follows(pin->dmabuf.buf)))
		dma_resv_lock(pin->dmabuf.buf->resv, NULL);
}

static void import_unlock(struct tp_pin *pin)
{
	if (tp_dma_buf_locks(follows(pin->dmabuf.buf)))
		dma_resv_unlock(pin->dmabuf.buf->resv);
}

/* With the reservation lock held, by the exporter. */
static void import_move_notify(struct dma_buf_attachment *attach)
{
	tp_pin_revoke(attach->importer_priv, TEGRA_P2P_REASON_INVALIDATE, true);
}

static const struct dma_buf_attach_ops import_ops = {
	.move_notify = import_move_notify,
};

/* With pin->dmabuf.buf, whose reference stays the caller's on an error. */
static int import_get(struct tp_pin *pin)
{
	struct dma_buf *buf = pin->dmabuf.buf;
	struct device *dev = &pin->obj.file->dev->pdev->dev;
	struct dma_buf_attachment *attach;
	int err = 0;

	attach = follows(buf) ? dma_buf_dynamic_attach(buf, dev, &import_ops, pin) : dma_buf_attach(buf, dev);
	if (IS_ERR(attach))
		return PTR_ERR(attach);
	pin->dmabuf.attach = attach;
	if (!follows(buf))
		return 0;
	dma_resv_lock(buf->resv, NULL);
	err = dma_buf_pin(attach);
	if (!err) {
		err = tp_dma_buf_wait(buf); /* the exporter may still be filling it */
		if (err)
			dma_buf_unpin(attach);
	}
	dma_resv_unlock(buf->resv);
	if (err)
		dma_buf_detach(buf, attach);
	return err;
}

static bool import_valid(struct tp_pin *pin)
{
	return !pin->doomed;
}

static void import_unmap(struct tp_pin *pin, bool in_callback)
{
	dma_buf_unmap_attachment(pin->dmabuf.attach, pin->dmabuf.sgt, pin->direction);
	pin->dmabuf.sgt = NULL;
}

static int import_segments(struct tp_pin *pin, struct device *dev)
{
	struct sg_table *sgt = pin->dmabuf.sgt;
	struct scatterlist *sg;
	u64 left = pin->obj.size;
	int i, err;

	err = tp_pin_segments(pin, sgt->nents);
	if (err)
		return err;
	for_each_sgtable_dma_sg(sgt, sg, i) {
		u64 len = min_t(u64, sg_dma_len(sg), left);

		if (tp_bounced(dev, sg_dma_address(sg)))
			return -EIO;
		if (len)
			tp_pin_segment(pin, sg_dma_address(sg), len);
		left -= len;
	}
	return left ? -EIO : 0;
}

static int import_map(struct tp_pin *pin, struct device *dev)
{
	unsigned int noreclaim = memalloc_noreclaim_save(); /* the exporter allocates as it likes */
	struct sg_table *sgt = dma_buf_map_attachment(pin->dmabuf.attach, pin->direction);
	int err;

	if (IS_ERR(sgt)) {
		err = PTR_ERR(sgt) == -EINTR ? -EINTR : PTR_ERR(sgt) == -EACCES ? -EACCES : -EIO;
	} else {
		pin->dmabuf.sgt = sgt;
		err = import_segments(pin, dev);
		if (err)
			import_unmap(pin, false);
	}
	memalloc_noreclaim_restore(noreclaim);
	return err;
}

static void import_put(struct tp_pin *pin)
{
	struct dma_buf *buf = pin->dmabuf.buf;

	if (follows(buf)) {
		dma_resv_lock(buf->resv, NULL);
		dma_buf_unpin(pin->dmabuf.attach);
		dma_resv_unlock(buf->resv);
	}
	dma_buf_detach(buf, pin->dmabuf.attach);
}

static void import_free(struct tp_pin *pin)
{
	if (pin->dmabuf.buf)
		dma_buf_put(pin->dmabuf.buf);
}

const struct tp_backend tp_backend_dmabuf = {
	.name = "dma-buf",
	.get = import_get,
	.lock = import_lock,
	.unlock = import_unlock,
	.valid = import_valid,
	.map = import_map,
	.unmap = import_unmap,
	.put = import_put,
	.free = import_free,
};

long tp_import(struct tp_file *file, void *arg)
{
	struct tegra_p2p_import *a = arg;
	struct tegra_p2p_pin p = {
		.flags = a->flags, .cookie = a->cookie, .segs = a->segs, .seg_cap = a->seg_cap,
	};
	struct dma_buf *buf;
	long err;

	if (a->pad || a->pad2 || a->flags & ~TP_DIRECTIONS || !(a->flags & TP_DIRECTIONS))
		return -EINVAL;
	buf = dma_buf_get(a->fd);
	if (IS_ERR(buf))
		return PTR_ERR(buf);
	p.size = buf->size;
	if (a->flags & TEGRA_P2P_PIN_FROM_DEVICE && !(buf->file->f_mode & FMODE_WRITE))
		err = -EACCES;
	else if (!p.size || !PAGE_ALIGNED(p.size))
		err = -EINVAL;
	else if (p.size > TP_MAX_BYTES)
		err = -E2BIG;
	else
		err = 0;
	if (err) {
		dma_buf_put(buf);
		return err;
	}
	err = tp_pin_import(file, &p, buf);
	a->size = p.size;
	a->nsegs = p.nsegs;
	a->handle = p.handle;
	return err;
}

#else

long tp_import(struct tp_file *file, void *arg)
{
	return -EOPNOTSUPP;
}

#endif
