// SPDX-License-Identifier: GPL-2.0
/* Eventfds: interrupts of the function, revocations and errors of an open file. */
#include <linux/interrupt.h>
#include <linux/nospec.h>

#include "p2p.h"

static void tp_vector_signal(struct tp_vector *vector)
{
	unsigned long flags;

	spin_lock_irqsave(&vector->lock, flags);
	if (vector->ctx)
		tp_eventfd_signal(vector->ctx);
	spin_unlock_irqrestore(&vector->lock, flags);
}

static irqreturn_t tp_message_handler(int irq, void *data)
{
	tp_vector_signal(data);
	return IRQ_HANDLED;
}

/*
 * The line stays up until user space has been at the registers, and others share it: the function
 * is kept from it.
 */
static irqreturn_t tp_line_handler(int irq, void *data)
{
	struct tp_vector *vector = data;

	if (!pci_check_and_mask_intx(vector->line))
		return IRQ_NONE;
	tp_vector_signal(vector);
	return IRQ_HANDLED;
}

/**
 * tp_vectors_request() - Requests the function's interrupts.
 * @dev: the function, whose n_irqs and intx are set
 *
 * The handlers are there from probe to remove: an MSI that cannot be masked and has no handler goes
 * to address 0. What cannot be had is missing in n_irqs. A function without messages has its legacy
 * line, if that can be masked.
 */
void tp_vectors_request(struct tp_dev *dev)
{
	int i, n = pci_alloc_irq_vectors(dev->pdev, 1, TP_MAX_VECTORS, PCI_IRQ_MSI | PCI_IRQ_MSIX);
	bool line = n < 0 && dev->pdev->pin && !dev->pdev->broken_intx_masking;

	if (line)
		n = pci_alloc_irq_vectors(dev->pdev, 1, 1, PCI_IRQ_INTX);
	for (i = 0; i < n; i++) {
		struct tp_vector *vector = &dev->vectors[i];

		spin_lock_init(&vector->lock);
		vector->line = line ? dev->pdev : NULL;
		if (request_irq(pci_irq_vector(dev->pdev, i),
				line ? tp_line_handler : tp_message_handler, line ? IRQF_SHARED : 0,
				dev->name, vector))
			break;
	}
	dev->n_irqs = i;
	dev->intx = line && i;
}

/**
 * tp_vectors_free() - Frees what tp_vectors_request() has requested.
 * @dev: the function
 */
void tp_vectors_free(struct tp_dev *dev)
{
	u32 i;

	for (i = 0; i < dev->n_irqs; i++)
		free_irq(pci_irq_vector(dev->pdev, i), &dev->vectors[i]);
	pci_free_irq_vectors(dev->pdev);
}

/* With irq_lock held, and the function there. */
static void tp_vector_unmask(struct tp_vector *vector)
{
	if (!pci_check_and_unmask_intx(vector->line)) /* it is up, and stays masked */
		tp_vector_signal(vector);
}

/**
 * tp_unmask() - Does CONTROL's UNMASK: unmasks the legacy line.
 * @file: the caller's open file
 *
 * Context: The function is there. Takes irq_lock.
 * Return: 0; -EOPNOTSUPP: it has messages; -EBUSY: another open file has the vector.
 */
long tp_unmask(struct tp_file *file)
{
	struct tp_dev *dev = file->dev;
	long err = 0;

	if (!dev->intx)
		return -EOPNOTSUPP;
	mutex_lock(&dev->irq_lock);
	if (dev->vectors[0].owner != file)
		err = -EBUSY;
	else
		tp_vector_unmask(&dev->vectors[0]);
	mutex_unlock(&dev->irq_lock);
	return err;
}

/* With irq_lock held. */
static void tp_vector_swap(struct tp_vector *vector, struct tp_file *owner, struct eventfd_ctx *ctx)
{
	spin_lock_irq(&vector->lock);
	swap(vector->ctx, ctx);
	spin_unlock_irq(&vector->lock);
	vector->owner = owner;
	if (ctx)
		eventfd_ctx_put(ctx);
}

/* Takes ctx over, unless it fails. */
static int tp_vector_set(struct tp_dev *dev, struct tp_file *file, u32 i, struct eventfd_ctx *ctx)
{
	struct tp_vector *vector = &dev->vectors[i];
	int err = 0;

	mutex_lock(&dev->irq_lock);
	if (vector->owner && vector->owner != file)
		err = -EBUSY;
	else
		tp_vector_swap(vector, ctx ? file : NULL, ctx);
	if (!err && ctx && vector->line) /* what came before has nobody been told of */
		tp_vector_unmask(vector);
	mutex_unlock(&dev->irq_lock);
	return err;
}

/**
 * tp_vectors_release() - Takes the eventfds of a file from the function's vectors.
 * @owner: the open file
 *
 * Context: Takes irq_lock.
 */
void tp_vectors_release(struct tp_file *owner)
{
	struct tp_dev *dev = owner->dev;
	u32 i;

	mutex_lock(&dev->irq_lock);
	for (i = 0; i < dev->n_irqs; i++)
		if (dev->vectors[i].owner == owner)
			tp_vector_swap(&dev->vectors[i], NULL, NULL);
	mutex_unlock(&dev->irq_lock);
}

static void tp_event_swap(struct tp_file *file, struct eventfd_ctx **slot, struct eventfd_ctx *ctx)
{
	spin_lock_irq(&file->event_lock);
	swap(*slot, ctx);
	spin_unlock_irq(&file->event_lock);
	if (ctx)
		eventfd_ctx_put(ctx);
}

static void tp_event_signal(struct tp_file *file, struct eventfd_ctx **slot)
{
	unsigned long flags;

	spin_lock_irqsave(&file->event_lock, flags);
	if (*slot)
		tp_eventfd_signal(*slot);
	spin_unlock_irqrestore(&file->event_lock, flags);
}

/**
 * tp_signal_revoke() - Signals a revocation to an open file.
 * @file: the open file
 *
 * Context: Takes event_lock and does not sleep.
 */
void tp_signal_revoke(struct tp_file *file)
{
	tp_event_signal(file, &file->revoke);
}

/**
 * tp_signal_error() - Signals an error of the function to an open file.
 * @file: the open file
 *
 * Context: Takes event_lock and does not sleep.
 */
void tp_signal_error(struct tp_file *file)
{
	tp_event_signal(file, &file->error);
}

/**
 * tp_events_release() - Takes the eventfds for revocations and errors from a file.
 * @file: the open file
 *
 * Context: Takes event_lock.
 */
void tp_events_release(struct tp_file *file)
{
	tp_event_swap(file, &file->revoke, NULL);
	tp_event_swap(file, &file->error, NULL);
}

/**
 * tp_set_event() - Does SET_EVENT: sets an eventfd, or takes it away.
 * @file: the caller's open file
 * @arg: struct tegra_p2p_event
 *
 * Context: The function is there. Takes irq_lock or event_lock.
 * Return: 0; -EINVAL; -EBUSY: another open file has the vector; an errno of the eventfd.
 */
long tp_set_event(struct tp_file *file, void *arg)
{
	struct tegra_p2p_event *a = arg;
	u32 limit = a->kind == TEGRA_P2P_EVENT_MSI ? file->dev->n_irqs : 1;
	struct eventfd_ctx *ctx = NULL;
	long err = 0;

	if (a->flags || a->pad || a->kind > TEGRA_P2P_EVENT_ERROR || a->index >= limit ||
	    a->eventfd < -1)
		return -EINVAL;
	if (a->eventfd >= 0)
		ctx = eventfd_ctx_fdget(a->eventfd);
	if (IS_ERR(ctx))
		return PTR_ERR(ctx);
	if (a->kind == TEGRA_P2P_EVENT_REVOKE)
		tp_event_swap(file, &file->revoke, ctx);
	else if (a->kind == TEGRA_P2P_EVENT_ERROR)
		tp_event_swap(file, &file->error, ctx);
	else
		err = tp_vector_set(file->dev, file, array_index_nospec(a->index, TP_MAX_VECTORS),
				    ctx);
	if (err && ctx)
		eventfd_ctx_put(ctx);
	return err;
}
