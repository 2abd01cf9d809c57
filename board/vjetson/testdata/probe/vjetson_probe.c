// SPDX-License-Identifier: GPL-2.0
/*
 * vjetson_probe proves that the virtual Jetson's devices do DMA and interrupts. It drives QEMU's edu device
 * (docs/specs/edu), a DMA engine with a buffer of 4 KiB and one MSI, on writes to sysfs attributes:
 *
 *   transfer  write: move 4088 bytes to the device and back and compare
 *   unmapped  write: let the device read an IOVA that was unmapped
 *   counts    read: transfers and interrupts so far
 */
#include <linux/completion.h>
#include <linux/dma-mapping.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/version.h>

/* A pci_driver has attributes of its own since 5.14. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 14, 0)
#define ATTRIBUTES(groups) .dev_groups = groups
#else
#define ATTRIBUTES(groups) .driver = { .dev_groups = groups }
#endif

#define EDU_ID		0x00
#define EDU_LIVENESS	0x04
#define EDU_IRQ_STATUS	0x24
#define EDU_IRQ_ACK	0x64
#define EDU_DMA_SRC	0x80
#define EDU_DMA_DST	0x88
#define EDU_DMA_COUNT	0x90
#define EDU_DMA_CMD	0x98
#define EDU_DMA_START	1
#define EDU_DMA_TO_RAM	2
#define EDU_DMA_IRQ	4
#define EDU_BUFFER	0x40000

/* One of 4096 bytes ends QEMU 7.2 (it takes the buffer's last byte for outside). */
#define EDU_BYTES	4088

struct edu {
	struct pci_dev *pdev;
	void __iomem *regs;
	struct mutex lock; /* one transfer at a time */
	struct completion done;
	unsigned int transfers, interrupts;
};

static irqreturn_t edu_irq(int irq, void *data)
{
	struct edu *e = data;
	u32 status = readl(e->regs + EDU_IRQ_STATUS);

	if (!status || status == ~0u)
		return IRQ_NONE;
	writel(status, e->regs + EDU_IRQ_ACK);
	e->interrupts++;
	complete(&e->done);
	return IRQ_HANDLED;
}

static int edu_dma(struct edu *e, u64 src, u64 dst, u32 cmd)
{
	reinit_completion(&e->done);
	writeq(src, e->regs + EDU_DMA_SRC);
	writeq(dst, e->regs + EDU_DMA_DST);
	writeq(EDU_BYTES, e->regs + EDU_DMA_COUNT);
	writeq(cmd | EDU_DMA_START | EDU_DMA_IRQ, e->regs + EDU_DMA_CMD);
	if (!wait_for_completion_timeout(&e->done, 10 * HZ))
		return -ETIMEDOUT;
	return 0;
}

static ssize_t transfer_store(struct device *dev, struct device_attribute *attr, const char *buf, size_t len)
{
	struct edu *e = dev_get_drvdata(dev);
	dma_addr_t bus;
	u8 *mem;
	int i, err;

	mem = dma_alloc_coherent(dev, 2 * EDU_BYTES, &bus, GFP_KERNEL);
	if (!mem)
		return -ENOMEM;
	mutex_lock(&e->lock);
	for (i = 0; i < EDU_BYTES; i++) {
		mem[i] = i * 7 + e->transfers + (i >> 8);
		mem[EDU_BYTES + i] = ~mem[i];
	}
	err = edu_dma(e, bus, EDU_BUFFER, 0);
	if (!err)
		err = edu_dma(e, EDU_BUFFER, bus + EDU_BYTES, EDU_DMA_TO_RAM);
	if (!err && memcmp(mem, mem + EDU_BYTES, EDU_BYTES))
		err = -EIO;
	e->transfers++;
	mutex_unlock(&e->lock);
	dma_free_coherent(dev, 2 * EDU_BYTES, mem, bus);
	return err ?: len;
}
static DEVICE_ATTR_WO(transfer);

static ssize_t unmapped_store(struct device *dev, struct device_attribute *attr, const char *buf, size_t len)
{
	struct edu *e = dev_get_drvdata(dev);
	dma_addr_t bus;
	void *mem;
	int err;

	mem = dma_alloc_coherent(dev, EDU_BYTES, &bus, GFP_KERNEL);
	if (!mem)
		return -ENOMEM;
	dma_free_coherent(dev, EDU_BYTES, mem, bus);
	mutex_lock(&e->lock);
	err = edu_dma(e, bus, EDU_BUFFER, 0);
	mutex_unlock(&e->lock);
	return err ?: len;
}
static DEVICE_ATTR_WO(unmapped);

static ssize_t counts_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct edu *e = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%u %u\n", e->transfers, e->interrupts);
}
static DEVICE_ATTR_RO(counts);

static struct attribute *edu_attrs[] = {
	&dev_attr_transfer.attr, &dev_attr_unmapped.attr, &dev_attr_counts.attr, NULL,
};
ATTRIBUTE_GROUPS(edu);

static void edu_free_vectors(void *pdev)
{
	pci_free_irq_vectors(pdev);
}

static int edu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct edu *e;
	int err;

	e = devm_kzalloc(&pdev->dev, sizeof(*e), GFP_KERNEL);
	if (!e)
		return -ENOMEM;
	e->pdev = pdev;
	mutex_init(&e->lock);
	init_completion(&e->done);
	pci_set_drvdata(pdev, e);
	err = pcim_enable_device(pdev);
	if (!err)
		err = pcim_iomap_regions(pdev, BIT(0), "vjetson_probe");
	if (!err)
		err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(28));
	if (err)
		return err;
	e->regs = pcim_iomap_table(pdev)[0];
	writel(0x12345678, e->regs + EDU_LIVENESS);
	if (readl(e->regs + EDU_LIVENESS) != ~0x12345678u)
		return dev_err_probe(&pdev->dev, -ENODEV, "liveness register does not answer\n");
	pci_set_master(pdev);
	err = pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_MSI);
	if (err < 0)
		return err;
	err = devm_add_action_or_reset(&pdev->dev, edu_free_vectors, pdev);
	if (!err)
		err = devm_request_irq(&pdev->dev, pci_irq_vector(pdev, 0), edu_irq, 0, "vjetson_probe", e);
	if (err)
		return err;
	dev_info(&pdev->dev, "edu 0x%08x ready\n", readl(e->regs + EDU_ID));
	return 0;
}

/* Ends bus mastering before the managed resources are freed. */
static void edu_remove(struct pci_dev *pdev)
{
	pci_clear_master(pdev);
}

static const struct pci_device_id edu_ids[] = {
	{ PCI_DEVICE(0x1234, 0x11e8) },
	{ }
};
MODULE_DEVICE_TABLE(pci, edu_ids);

static struct pci_driver edu_driver = {
	.name = "vjetson_probe_edu",
	.id_table = edu_ids,
	.probe = edu_probe,
	.remove = edu_remove,
	ATTRIBUTES(edu_groups),
};
module_pci_driver(edu_driver);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("probe of the virtual Jetson's devices");
