// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Stands in for libibverbs where a provider registers itself. */
#include "registered.h"
#include "verbs_private_34.h"

static struct registered last;

__attribute__((visibility("default"))) void
verbs_register_driver_34(const struct verbs_device_ops *ops)
{
	last.name = ops->name;
	last.modalias = ops->match_table->kind == VERBS_MATCH_MODALIAS ?
				ops->match_table->u.modalias :
				NULL;
	last.min_abi = ops->match_min_abi_version;
	last.max_abi = ops->match_max_abi_version;
	last.has_all_calls = ops->alloc_context && ops->import_context &&
			     ops->alloc_device && ops->uninit_device;
}

const struct registered *registered(void)
{
	return last.name ? &last : NULL;
}
