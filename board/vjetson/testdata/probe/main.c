// SPDX-License-Identifier: GPL-2.0
/*
 * vjetson_probe proves that the virtual Jetson's devices do DMA and interrupts: QEMU's edu behind the SMMU (edu.c) and
 * the FPGA model outside the machine (card.c). It does its work on writes to sysfs attributes of the devices.
 */
#include <linux/module.h>

#include "probe.h"

static int __init probe_init(void)
{
	int err = pci_register_driver(&edu_driver);

	if (err)
		return err;
	err = pci_register_driver(&card_driver);
	if (err)
		pci_unregister_driver(&edu_driver);
	return err;
}
module_init(probe_init);

static void __exit probe_exit(void)
{
	pci_unregister_driver(&card_driver);
	pci_unregister_driver(&edu_driver);
}
module_exit(probe_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("probe of the virtual Jetson's devices");
