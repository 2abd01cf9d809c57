// SPDX-License-Identifier: GPL-2.0
/* The guest's end of the mailbox: fpga/mailbox/layout.go has the layout. */
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/jiffies.h>

#include "probe.h"

#define MB_GENERATION	0x04
#define MB_REQUEST	0x40
#define MB_OPERATION	0x44
#define MB_OFFSET	0x48
#define MB_VALUE	0x4c
#define MB_RESPONSE	0x80
#define MB_RESULT	0x84
#define MB_READ		1
#define MB_WRITE	2

#define IVSHMEM_DOORBELL	12
#define CARD_PEER		1

/* A card that is away is waited for: with the answer to what was asked while it was away come all ones. */
#define MB_TIMEOUT	(20 * HZ)

u32 mailbox_generation(struct mailbox *m)
{
	return readl(m->shared + MB_GENERATION);
}

static u32 mailbox_call(struct mailbox *m, u32 operation, u32 off, u32 v)
{
	unsigned long deadline = jiffies + MB_TIMEOUT;
	unsigned int spins = 0;
	u32 sequence, result = ~0u;

	mutex_lock(&m->lock);
	sequence = readl(m->shared + MB_REQUEST) + 1;
	writel(operation, m->shared + MB_OPERATION);
	writel(off, m->shared + MB_OFFSET);
	writel(v, m->shared + MB_VALUE);
	writel(sequence, m->shared + MB_REQUEST);
	writel(CARD_PEER << 16, m->doorbell + IVSHMEM_DOORBELL);
	while (readl(m->shared + MB_RESPONSE) != sequence) {
		if (time_after(jiffies, deadline))
			goto out;
		if (++spins > 20)
			usleep_range(20, 100);
		else
			cpu_relax();
	}
	result = readl(m->shared + MB_RESULT);
out:
	mutex_unlock(&m->lock);
	return result;
}

u32 mailbox_read(struct mailbox *m, int bar, u32 off)
{
	return mailbox_call(m, MB_READ | bar << 8, off, 0);
}

void mailbox_write(struct mailbox *m, int bar, u32 off, u32 v)
{
	mailbox_call(m, MB_WRITE | bar << 8, off, v);
}
