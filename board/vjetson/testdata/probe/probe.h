/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VJETSON_PROBE_H
#define VJETSON_PROBE_H

#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/version.h>

/* A pci_driver has attributes of its own since 5.14. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 14, 0)
#define ATTRIBUTES(groups) .dev_groups = groups
#else
#define ATTRIBUTES(groups) .driver = { .dev_groups = groups }
#endif

extern struct pci_driver edu_driver, card_driver;

/* Register accesses of the FPGA model, through ivshmem's shared memory and doorbell. */
struct mailbox {
	void __iomem *shared;	/* BAR 2 */
	void __iomem *doorbell;	/* BAR 0 */
	struct mutex lock;
};

u32 mailbox_generation(struct mailbox *m);
u32 mailbox_read(struct mailbox *m, int bar, u32 off);
void mailbox_write(struct mailbox *m, int bar, u32 off, u32 v);

#endif
