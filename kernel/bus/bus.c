// SPDX-License-Identifier: GPL-2.0
/*
 * The virtual bus "ropcie": one device for each adapter, one kind of driver.
 *
 * Owns the bus type, the devices' numbers and their lifetime. It does not look
 * into an adapter, and knows neither who makes devices nor what a driver does
 * with them.
 */
#include <linux/idr.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "bus.h"
#include "ropcie_compat.h"

static DEFINE_IDA(ropcie_bus_ids);

static inline struct ropcie_driver *to_ropcie_driver(struct device_driver *drv)
{
	return container_of(drv, struct ropcie_driver, driver);
}

static int ropcie_bus_match(struct device *dev,
			    ROPCIE_BUS_MATCH_CONST struct device_driver *drv)
{
	return 1;
}

static int ropcie_bus_uevent(ROPCIE_BUS_UEVENT_CONST struct device *dev,
			     struct kobj_uevent_env *env)
{
	return add_uevent_var(env, "MODALIAS=" ROPCIE_BUS_MODALIAS);
}

static int ropcie_bus_probe(struct device *dev)
{
	return to_ropcie_driver(dev->driver)->probe(to_ropcie_device(dev));
}

static void ropcie_bus_remove(struct device *dev)
{
	to_ropcie_driver(dev->driver)->remove(to_ropcie_device(dev));
}

static void ropcie_bus_shutdown(struct device *dev)
{
	if (dev->driver)
		to_ropcie_driver(dev->driver)->shutdown(to_ropcie_device(dev));
}

static int __maybe_unused ropcie_bus_suspend(struct device *dev)
{
	ropcie_bus_shutdown(dev);
	return 0;
}

static int __maybe_unused ropcie_bus_resume(struct device *dev)
{
	if (!dev->driver)
		return 0;
	return to_ropcie_driver(dev->driver)->resume(to_ropcie_device(dev));
}

static SIMPLE_DEV_PM_OPS(ropcie_bus_pm, ropcie_bus_suspend, ropcie_bus_resume);

static ssize_t modalias_show(struct device *dev, struct device_attribute *attr,
			     char *buf)
{
	return sysfs_emit(buf, ROPCIE_BUS_MODALIAS "\n");
}
static DEVICE_ATTR_RO(modalias);

static struct attribute *ropcie_bus_dev_attrs[] = {
	&dev_attr_modalias.attr,
	NULL
};
ATTRIBUTE_GROUPS(ropcie_bus_dev);

static struct bus_type ropcie_bus_type = {
	.name = "ropcie",
	.match = ropcie_bus_match,
	.uevent = ropcie_bus_uevent,
	.probe = ropcie_bus_probe,
	.remove = ropcie_bus_remove,
	.shutdown = ropcie_bus_shutdown,
	.pm = &ropcie_bus_pm,
	.dev_groups = ropcie_bus_dev_groups,
};

static void ropcie_device_release(struct device *dev)
{
	struct ropcie_device *rdev = to_ropcie_device(dev);

	ida_free(&ropcie_bus_ids, rdev->id);
	kfree(rdev);
}

/**
 * ropcie_device_add() - make and register a device
 * @adapter: what it stands on; stays until ropcie_device_del()
 * @parent: its parent in sysfs
 *
 * Context: may sleep. A driver that is there already is bound to the device,
 * if its probe succeeds, before this returns.
 *
 * Return: the device, named "ropcie.N" with the lowest N that is free, or
 * ERR_PTR().
 */
struct ropcie_device *ropcie_device_add(struct ropcie_adapter *adapter,
					struct device *parent)
{
	struct ropcie_device *rdev;
	int err;

	rdev = kzalloc(sizeof(*rdev), GFP_KERNEL);
	if (!rdev)
		return ERR_PTR(-ENOMEM);
	rdev->id = ida_alloc(&ropcie_bus_ids, GFP_KERNEL);
	if (rdev->id < 0) {
		err = rdev->id;
		kfree(rdev);
		return ERR_PTR(err);
	}
	rdev->adapter = adapter;
	rdev->dev.parent = parent;
	rdev->dev.bus = &ropcie_bus_type;
	rdev->dev.release = ropcie_device_release;
	device_initialize(&rdev->dev);

	err = dev_set_name(&rdev->dev, "ropcie.%d", rdev->id);
	if (!err)
		err = device_add(&rdev->dev);
	if (err) {
		put_device(&rdev->dev);
		return ERR_PTR(err);
	}
	return rdev;
}
EXPORT_SYMBOL_GPL(ropcie_device_add);

/**
 * ropcie_device_del() - unregister a device
 * @rdev: from ropcie_device_add(); not to be used afterwards
 *
 * Context: may sleep. Its driver is unbound when this returns.
 */
void ropcie_device_del(struct ropcie_device *rdev)
{
	device_unregister(&rdev->dev);
}
EXPORT_SYMBOL_GPL(ropcie_device_del);

/**
 * ropcie_driver_register() - offer a driver to all devices, now and later
 * @drv: stays until ropcie_driver_unregister()
 *
 * Context: may sleep.
 *
 * Return: 0, or -EBUSY when the bus has a driver of that name.
 */
int ropcie_driver_register(struct ropcie_driver *drv)
{
	drv->driver.bus = &ropcie_bus_type;
	return driver_register(&drv->driver);
}
EXPORT_SYMBOL_GPL(ropcie_driver_register);

/**
 * ropcie_driver_unregister() - take it back
 * @drv: driver; unbound from every device when this returns
 *
 * Context: may sleep.
 */
void ropcie_driver_unregister(struct ropcie_driver *drv)
{
	driver_unregister(&drv->driver);
}
EXPORT_SYMBOL_GPL(ropcie_driver_unregister);

static int __init ropcie_bus_init(void)
{
	return bus_register(&ropcie_bus_type);
}
module_init(ropcie_bus_init);

static void __exit ropcie_bus_exit(void)
{
	bus_unregister(&ropcie_bus_type);
	ida_destroy(&ropcie_bus_ids);
}
module_exit(ropcie_bus_exit);

MODULE_AUTHOR("RoPCIe developers");
MODULE_DESCRIPTION("RoPCIe: virtual bus of devices and the verbs driver");
MODULE_LICENSE("GPL");
