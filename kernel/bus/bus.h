/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What ropcie_bus.ko exports: the virtual bus that matches RoPCIe devices
 * (one for each adapter, registered by ropcie_device.ko) to the verbs driver
 * (ropcie.ko).
 */
#ifndef ROPCIE_BUS_H
#define ROPCIE_BUS_H

#include <linux/device.h>
#include <linux/pci.h>

struct ropcie_adapter;

/*
 * Every driver fits every device; the alias makes user space load the driver's
 * module: MODULE_ALIAS(ROPCIE_BUS_MODALIAS).
 */
#define ROPCIE_BUS_MODALIAS "ropcie:device"

/**
 * struct ropcie_device - a device on the bus
 * @no_pci: zeros, where SMC (smc_ib.c) looks for the identity of a PCI device, for
 *	which it takes the parent of every RDMA device
 * @dev: embedded; parent is the adapter's device
 * @adapter: what it stands on
 * @id: number, part of its name ("ropcie.0")
 */
struct ropcie_device {
	u8 no_pci[offsetof(struct pci_dev, dev)];
	struct device dev;
	struct ropcie_adapter *adapter;
	int id;
};

/**
 * struct ropcie_driver - a driver for them
 * @driver: embedded; name and owner are set
 * @probe: bind; may sleep
 * @remove: unbind; must not fail; may sleep
 * @shutdown: the machine reboots, starts another kernel, sleeps, or has its memory saved or
 *	replaced (hibernation): leave the peers; may sleep
 * @resume: it goes on after all: find them again; may sleep
 */
struct ropcie_driver {
	struct device_driver driver;
	int (*probe)(struct ropcie_device *rdev);
	void (*remove)(struct ropcie_device *rdev);
	void (*shutdown)(struct ropcie_device *rdev);
	int (*resume)(struct ropcie_device *rdev);
};

static inline struct ropcie_device *to_ropcie_device(struct device *dev)
{
	return container_of(dev, struct ropcie_device, dev);
}

/* Make and register a device; may sleep. Return: device or ERR_PTR(). */
struct ropcie_device *ropcie_device_add(struct ropcie_adapter *adapter,
					struct device *parent);
/* Unregister it; its driver is unbound when this returns. May sleep. */
void ropcie_device_del(struct ropcie_device *rdev);

int ropcie_driver_register(struct ropcie_driver *drv);
void ropcie_driver_unregister(struct ropcie_driver *drv);

#endif /* ROPCIE_BUS_H */
