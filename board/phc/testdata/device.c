/* SPDX-License-Identifier: GPL-2.0 */
#include <linux/err.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/ptp_mock.h>

static struct platform_device *parent;
static struct mock_phc *clock;

static int __init start(void)
{
	parent = platform_device_register_simple("mockclock", PLATFORM_DEVID_NONE, NULL, 0);
	if (IS_ERR(parent))
		return PTR_ERR(parent);
	clock = mock_phc_create(&parent->dev);
	if (!IS_ERR(clock))
		return 0;
	platform_device_unregister(parent);
	return PTR_ERR(clock);
}

static void __exit end(void)
{
	mock_phc_destroy(clock);
	platform_device_unregister(parent);
}

module_init(start);
module_exit(end);
