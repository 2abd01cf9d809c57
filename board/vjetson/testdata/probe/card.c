// SPDX-License-Identifier: GPL-2.0
/*
 * The FPGA model in another process, reached by ivshmem-doorbell: registers by mailbox, DMA into this machine's memory,
 * MSI-X. It is AMD's XDMA IP with block RAM behind one memory-mapped channel each way (PG195).
 *
 *   rounds  write n: n times a register, 1 MiB to the card and back with an interrupt each, and compare CRCs. A round
 *           during which the card went away is made again.
 *   counts  read: rounds done, rounds lost with a card that went away, interrupts
 */
#include <linux/completion.h>
#include <linux/crc32.h>
#include <linux/dma-mapping.h>
#include <linux/interrupt.h>
#include <linux/module.h>

#include "probe.h"

#define USER_BYPASS	2	/* the model's BARs */
#define DMA		1

#define XDMA_C2H	0x1000	/* added to channel and SGDMA registers */
#define XDMA_ID		0x0000
#define XDMA_RUN	0x0004
#define XDMA_STATUS	0x0040
#define XDMA_STATUS_RC	0x0044
#define XDMA_IRQ_CHAN	0x2010
#define XDMA_VECTORS	0x20a0
#define XDMA_DESC_LO	0x4080
#define XDMA_DESC_HI	0x4084
#define XDMA_DESC_ADJ	0x4088
#define XDMA_ENABLE	0x0090

#define CTRL_RUN	BIT(0)
#define IE_STOPPED	BIT(1)
#define IE_COMPLETED	BIT(2)
#define ST_BUSY		BIT(0)
#define ST_STOPPED	BIT(1)
#define ST_COMPLETED	BIT(2)
#define DESC_MAGIC	0xad4b0000
#define DESC_STOP	BIT(0)
#define DESC_COMPLETED	BIT(1)
#define DESC_EOP	BIT(4)

#define BYTES		(1 << 20)

struct xdma_desc {
	__le32 control, len;
	__le64 src, dst, next;
};

struct card {
	struct device *dev;
	struct mailbox box;
	struct mutex lock;	/* one run at a time */
	struct completion done[2];
	u32 generation;		/* of the card that was set up */
	u32 *mem;		/* BYTES out, BYTES in, a descriptor each way */
	dma_addr_t bus;
	struct xdma_desc *desc;
	atomic_t rounds, lost, interrupts;
};

static irqreturn_t card_irq(struct card *c, int way)
{
	atomic_inc(&c->interrupts);
	complete(&c->done[way]);
	return IRQ_HANDLED;
}

static irqreturn_t card_irq_h2c(int irq, void *data)
{
	return card_irq(data, 0);
}

static irqreturn_t card_irq_c2h(int irq, void *data)
{
	return card_irq(data, 1);
}

static bool card_changed(struct card *c)
{
	return mailbox_generation(&c->box) != c->generation;
}

/*
 * Sets a card up that has come. It may have been given a part of what was meant for the one before: its engines are
 * stopped and their status is cleared.
 */
static int card_setup(struct card *c)
{
	int way, tries;

	c->generation = mailbox_generation(&c->box);
	for (way = 0; way < 2; way++) {
		u32 id = mailbox_read(&c->box, DMA, XDMA_ID + way * XDMA_C2H);

		if (id >> 20 != 0x1fc)
			return card_changed(c) ? -EAGAIN : -ENODEV;
		mailbox_write(&c->box, DMA, XDMA_RUN + way * XDMA_C2H, 0);
		for (tries = 0; mailbox_read(&c->box, DMA, XDMA_STATUS + way * XDMA_C2H) & ST_BUSY; tries++)
			if (card_changed(c) || tries == 1000)
				return card_changed(c) ? -EAGAIN : -EBUSY;
		mailbox_read(&c->box, DMA, XDMA_STATUS_RC + way * XDMA_C2H);
		mailbox_write(&c->box, DMA, XDMA_ENABLE + way * XDMA_C2H, IE_STOPPED | IE_COMPLETED);
	}
	mailbox_write(&c->box, DMA, XDMA_VECTORS, 1 << 8); /* H2C 0 to vector 0, C2H 0 to vector 1 */
	mailbox_write(&c->box, DMA, XDMA_IRQ_CHAN, 3);
	return 0;
}

static int card_dma(struct card *c, int way)
{
	dma_addr_t bus = c->bus + 2 * BYTES + way * sizeof(*c->desc);
	u32 channel = way * XDMA_C2H, status;
	int tries;

	reinit_completion(&c->done[way]);
	mailbox_write(&c->box, DMA, XDMA_DESC_LO + channel, lower_32_bits(bus));
	mailbox_write(&c->box, DMA, XDMA_DESC_HI + channel, upper_32_bits(bus));
	mailbox_write(&c->box, DMA, XDMA_DESC_ADJ + channel, 0);
	mailbox_write(&c->box, DMA, XDMA_RUN + channel, CTRL_RUN | IE_STOPPED | IE_COMPLETED);
	for (tries = 0; !wait_for_completion_timeout(&c->done[way], HZ / 10); tries++) {
		if (card_changed(c))
			return -EAGAIN;
		if (tries == 200)
			return -ETIMEDOUT;
	}
	/* The message may come with the last descriptor's completion, before the engine has stopped. */
	for (tries = 0; mailbox_read(&c->box, DMA, XDMA_STATUS + channel) & ST_BUSY; tries++)
		if (card_changed(c) || tries == 1000)
			break;
	status = mailbox_read(&c->box, DMA, XDMA_STATUS_RC + channel);
	mailbox_write(&c->box, DMA, XDMA_RUN + channel, 0);
	if (card_changed(c))
		return -EAGAIN;
	if (status != (ST_STOPPED | ST_COMPLETED)) {
		dev_err(c->dev, "way %d: status 0x%x\n", way, status);
		return -EIO;
	}
	return 0;
}

static int card_round(struct card *c, u32 n)
{
	u32 *out = c->mem, *in = c->mem + BYTES / 4, word = n * 2654435761u, got;
	int i, err;

	mailbox_write(&c->box, USER_BYPASS, 4 * (n % 1024), word);
	got = mailbox_read(&c->box, USER_BYPASS, 4 * (n % 1024));
	if (got != word) {
		if (card_changed(c))
			return -EAGAIN;
		dev_err(c->dev, "register: 0x%x, want 0x%x\n", got, word);
		return -EIO;
	}
	for (i = 0; i < BYTES / 4; i++)
		out[i] = word + i * 2246822519u;
	memset(in, 0, BYTES);
	err = card_dma(c, 0);
	if (!err)
		err = card_dma(c, 1);
	if (err)
		return err;
	if (crc32_le(~0, (u8 *)out, BYTES) == crc32_le(~0, (u8 *)in, BYTES))
		return 0;
	if (card_changed(c))
		return -EAGAIN;
	dev_err(c->dev, "CRC differs in round %u\n", n);
	return -EIO;
}

static ssize_t rounds_store(struct device *dev, struct device_attribute *attr, const char *buf, size_t len)
{
	struct card *c = dev_get_drvdata(dev);
	unsigned int n, i;
	int err;

	err = kstrtouint(buf, 0, &n);
	if (err)
		return err;
	mutex_lock(&c->lock);
	err = card_setup(c);
	for (i = 0; (!err || err == -EAGAIN) && i < n;) {
		if (!err)
			err = card_round(c, i);
		if (signal_pending(current)) {
			err = -EINTR;
		} else if (err == -EAGAIN) {
			atomic_inc(&c->lost);
			err = card_setup(c);
		} else if (!err) {
			atomic_inc(&c->rounds);
			i++;
		}
	}
	mutex_unlock(&c->lock);
	return err ?: len;
}
static DEVICE_ATTR_WO(rounds);

static ssize_t counts_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct card *c = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%d %d %d\n", atomic_read(&c->rounds), atomic_read(&c->lost), atomic_read(&c->interrupts));
}
static DEVICE_ATTR_RO(counts);

static struct attribute *card_attrs[] = {
	&dev_attr_rounds.attr, &dev_attr_counts.attr, NULL,
};
ATTRIBUTE_GROUPS(card);

static void card_free_vectors(void *pdev)
{
	pci_free_irq_vectors(pdev);
}

static int card_irqs(struct card *c, struct pci_dev *pdev)
{
	int err = pci_alloc_irq_vectors(pdev, 2, 32, PCI_IRQ_MSIX);

	if (err < 0)
		return err;
	err = devm_add_action_or_reset(&pdev->dev, card_free_vectors, pdev);
	if (!err)
		err = devm_request_irq(&pdev->dev, pci_irq_vector(pdev, 0), card_irq_h2c, 0, "vjetson_probe h2c", c);
	if (!err)
		err = devm_request_irq(&pdev->dev, pci_irq_vector(pdev, 1), card_irq_c2h, 0, "vjetson_probe c2h", c);
	return err;
}

static void card_describe(struct card *c)
{
	c->desc = (void *)c->mem + 2 * BYTES;
	c->desc[0].control = cpu_to_le32(DESC_MAGIC | DESC_STOP | DESC_COMPLETED | DESC_EOP);
	c->desc[0].len = cpu_to_le32(BYTES);
	c->desc[1] = c->desc[0];
	c->desc[0].src = cpu_to_le64(c->bus);
	c->desc[1].dst = cpu_to_le64(c->bus + BYTES);
}

static int card_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct card *c;
	int err;

	c = devm_kzalloc(&pdev->dev, sizeof(*c), GFP_KERNEL);
	if (!c)
		return -ENOMEM;
	c->dev = &pdev->dev;
	mutex_init(&c->lock);
	mutex_init(&c->box.lock);
	init_completion(&c->done[0]);
	init_completion(&c->done[1]);
	pci_set_drvdata(pdev, c);
	err = pcim_enable_device(pdev);
	if (!err)
		err = pcim_iomap_regions(pdev, BIT(0) | BIT(2), "vjetson_probe");
	if (!err)
		err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err)
		return err;
	c->box.doorbell = pcim_iomap_table(pdev)[0];
	c->box.shared = pcim_iomap_table(pdev)[2];
	c->mem = dmam_alloc_coherent(&pdev->dev, 2 * BYTES + 4096, &c->bus, GFP_KERNEL);
	if (!c->mem)
		return -ENOMEM;
	card_describe(c);
	pci_set_master(pdev);
	err = card_irqs(c, pdev);
	if (!err)
		dev_info(&pdev->dev, "card ready, generation %u\n", mailbox_generation(&c->box));
	return err;
}

/* Stops the engines before their memory is freed. */
static void card_remove(struct pci_dev *pdev)
{
	struct card *c = pci_get_drvdata(pdev);

	mailbox_write(&c->box, DMA, XDMA_RUN, 0);
	mailbox_write(&c->box, DMA, XDMA_RUN + XDMA_C2H, 0);
	pci_clear_master(pdev);
}

static const struct pci_device_id card_ids[] = {
	{ PCI_DEVICE(0x1af4, 0x1110) },
	{ }
};
MODULE_DEVICE_TABLE(pci, card_ids);

struct pci_driver card_driver = {
	.name = "vjetson_probe_card",
	.id_table = card_ids,
	.probe = card_probe,
	.remove = card_remove,
	ATTRIBUTES(card_groups),
};
