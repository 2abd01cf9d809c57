/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VJETSON_PROBE_H
#define VJETSON_PROBE_H

#include <linux/pci.h>

extern struct pci_driver edu_driver;

#endif
