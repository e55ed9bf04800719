// SPDX-License-Identifier: GPL-2.0
/*
 * An adapter without links: its node reaches itself and nobody else. For machines
 * that have no NTB.
 */
#include <linux/cpumask.h>

#include "backend.h"

static int self_start(struct ropcie_adapter *a)
{
	return 0;
}

static void self_stop(struct ropcie_adapter *a)
{
}

/* Without peers, nothing else is asked for. */
static const struct ropcie_backend ropcie_self_backend = {
	.start = self_start,
	.stop = self_stop,
};

struct ropcie_adapter *ropcie_self_create(struct device *dev, const char *name)
{
	return ropcie_adapter_alloc(dev, name, &ropcie_self_backend, 0,
				    ropcie_num_lanes(U32_MAX));
}
EXPORT_SYMBOL_GPL(ropcie_self_create);

void ropcie_self_destroy(struct ropcie_adapter *a)
{
	ropcie_adapter_free(a);
}
EXPORT_SYMBOL_GPL(ropcie_self_destroy);
