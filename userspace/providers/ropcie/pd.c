// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Protection domains, and the domains that only user space knows: thread domains
 * and parent domains (a protection domain with a promise about its threads and
 * an allocator). Queues have no memory in user space that an allocator could
 * give, and their locks cost nothing where a system call follows: so both are
 * kept, and nothing depends on them.
 */
#include <errno.h>
#include <stdlib.h>

#include "ropcie.h"

static struct ropcie_pd *new_pd(struct ibv_context *context)
{
	struct ropcie_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return NULL;
	pd->ibv_pd.context = context;
	atomic_init(&pd->users, 0);
	return pd;
}

struct ibv_pd *ropcie_alloc_pd(struct ibv_context *context)
{
	struct ib_uverbs_alloc_pd_resp resp;
	struct ibv_alloc_pd cmd;
	struct ropcie_pd *pd;
	int ret;

	pd = new_pd(context);
	if (!pd)
		return NULL;

	ret = ibv_cmd_alloc_pd(context, &pd->ibv_pd, &cmd, sizeof(cmd), &resp,
			       sizeof(resp));
	if (ret) {
		free(pd);
		errno = ret;
		return NULL;
	}
	return &pd->ibv_pd;
}

int ropcie_dealloc_pd(struct ibv_pd *ibv_pd)
{
	struct ropcie_pd *pd = to_rpd(ibv_pd);
	int ret = 0;

	if (atomic_load(&pd->users))
		return EBUSY;
	if (pd->parent_of)
		atomic_fetch_sub(&pd->parent_of->users, 1);
	else
		ret = ibv_cmd_dealloc_pd(ibv_pd);
	if (ret)
		return ret;
	if (pd->td)
		atomic_fetch_sub(&pd->td->users, 1);
	free(pd);
	return 0;
}

struct ibv_pd *ropcie_import_pd(struct ibv_context *context, uint32_t handle)
{
	struct ropcie_pd *pd = new_pd(context);

	if (!pd)
		return NULL;
	pd->ibv_pd.handle = handle;
	return &pd->ibv_pd;
}

void ropcie_unimport_pd(struct ibv_pd *pd)
{
	free(to_rpd(pd));
}

struct ibv_td *ropcie_alloc_td(struct ibv_context *context,
			       struct ibv_td_init_attr *attr)
{
	struct ropcie_td *td;

	if (attr->comp_mask) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	td = calloc(1, sizeof(*td));
	if (!td)
		return NULL;
	td->ibv_td.context = context;
	atomic_init(&td->users, 0);
	return &td->ibv_td;
}

int ropcie_dealloc_td(struct ibv_td *ibv_td)
{
	struct ropcie_td *td = to_rtd(ibv_td);

	if (atomic_load(&td->users))
		return EBUSY;
	free(td);
	return 0;
}

struct ibv_pd *
ropcie_alloc_parent_domain(struct ibv_context *context,
			   struct ibv_parent_domain_init_attr *attr)
{
	struct ropcie_pd *pd;

	if (attr->comp_mask &
	    ~(uint32_t)(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!attr->pd || to_rpd(attr->pd)->parent_of) {
		errno = EINVAL;
		return NULL;
	}
	pd = new_pd(context);
	if (!pd)
		return NULL;
	pd->ibv_pd.handle = attr->pd->handle;
	pd->parent_of = to_rpd(attr->pd);
	atomic_fetch_add(&pd->parent_of->users, 1);
	if (attr->td) {
		pd->td = to_rtd(attr->td);
		atomic_fetch_add(&pd->td->users, 1);
	}
	return &pd->ibv_pd;
}
