// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Stands in for libibverbs where a provider registers itself. */
#include "registered.h"

#include <errno.h>
#include <stdio.h>

#include "verbs_private_34.h"

static struct registered last;
static bool (*match_device)(struct verbs_sysfs_dev *);
static struct verbs_context *(*alloc_context)(struct ibv_device *, int, void *);

__attribute__((visibility("default"))) void
verbs_register_driver_34(const struct verbs_device_ops *ops)
{
	last.name = ops->name;
	match_device = ops->match_device;
	alloc_context = ops->alloc_context;
	last.min_abi = ops->match_min_abi_version;
	last.max_abi = ops->match_max_abi_version;
	last.has_all_calls = ops->alloc_context && ops->import_context &&
			     ops->alloc_device && ops->uninit_device;
}

int registered_matches(const char *ibdev_path)
{
	struct verbs_sysfs_dev device = {};

	snprintf(device.ibdev_path, sizeof(device.ibdev_path), "%s",
		 ibdev_path);
	return match_device(&device);
}

/* A library with another struct ibv_qp_ex has its mark elsewhere. */
__attribute__((visibility("default"))) struct ibv_qp_ex *
ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	(void)qp;
	return NULL;
}

int registered_opens(void)
{
	struct ibv_device device = {};

	errno = 0;
	return alloc_context(&device, -1, NULL) ? 0 : errno;
}

const struct registered *registered(void)
{
	return last.name ? &last : NULL;
}
