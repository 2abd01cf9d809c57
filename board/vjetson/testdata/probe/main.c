// SPDX-License-Identifier: GPL-2.0
/*
 * vjetson_probe proves that the virtual Jetson's devices do DMA and MSI: QEMU's edu behind the SMMU. It does its work
 * on writes to sysfs attributes of the device.
 */
#include <linux/module.h>

#include "probe.h"

static int __init probe_init(void)
{
	return pci_register_driver(&edu_driver);
}
module_init(probe_init);

static void __exit probe_exit(void)
{
	pci_unregister_driver(&edu_driver);
}
module_exit(probe_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("probe of the virtual Jetson's devices");
