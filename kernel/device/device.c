// SPDX-License-Identifier: GPL-2.0
/*
 * One device on the RoPCIe bus for each adapter that ropcie_ntb_if.ko reports.
 *
 * Owns the list of what it made. It is all that ties the bus to the NTB
 * interface: neither of the two knows of the other.
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include "bus.h"
#include "ntb_if.h"

/* A device that this module made. */
struct ropcie_made_device {
	struct list_head list;
	struct ropcie_device *rdev;
};

static LIST_HEAD(ropcie_made_devices);
static DEFINE_MUTEX(ropcie_made_lock); /* guards the list */

static void ropcie_device_adapter_added(struct ropcie_adapter_watcher *w,
					struct ropcie_adapter *a)
{
	struct ropcie_made_device *made;
	struct ropcie_device *rdev;

	made = kzalloc(sizeof(*made), GFP_KERNEL);
	rdev = made ? ropcie_device_add(a, ropcie_adapter_dev(a)) :
		      ERR_PTR(-ENOMEM);
	if (IS_ERR(rdev)) {
		dev_err(ropcie_adapter_dev(a), "no RoPCIe device for %s: %ld\n",
			ropcie_adapter_name(a), PTR_ERR(rdev));
		kfree(made);
		return;
	}
	made->rdev = rdev;
	mutex_lock(&ropcie_made_lock);
	list_add_tail(&made->list, &ropcie_made_devices);
	mutex_unlock(&ropcie_made_lock);
}

/* Takes the device of an adapter off the list. */
static struct ropcie_made_device *ropcie_device_take(struct ropcie_adapter *a)
{
	struct ropcie_made_device *made;

	mutex_lock(&ropcie_made_lock);
	list_for_each_entry(made, &ropcie_made_devices, list) {
		if (made->rdev->adapter == a) {
			list_del(&made->list);
			mutex_unlock(&ropcie_made_lock);
			return made;
		}
	}
	mutex_unlock(&ropcie_made_lock);
	return NULL;
}

static void ropcie_device_adapter_removed(struct ropcie_adapter_watcher *w,
					  struct ropcie_adapter *a)
{
	struct ropcie_made_device *made = ropcie_device_take(a);

	if (!made)
		return;
	ropcie_device_del(made->rdev);
	kfree(made);
}

static struct ropcie_adapter_watcher ropcie_device_watcher = {
	.added = ropcie_device_adapter_added,
	.removed = ropcie_device_adapter_removed,
};

static int __init ropcie_device_init(void)
{
	ropcie_adapter_watch(&ropcie_device_watcher);
	return 0;
}
module_init(ropcie_device_init);

static void __exit ropcie_device_exit(void)
{
	ropcie_adapter_unwatch(&ropcie_device_watcher);
}
module_exit(ropcie_device_exit);

MODULE_AUTHOR("RoPCIe developers");
MODULE_DESCRIPTION("RoPCIe: a device on the RoPCIe bus for each adapter");
MODULE_LICENSE("GPL");
