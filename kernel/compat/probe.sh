#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# probe.sh KDIR OUTHEADER: finds out, by compiling a snippet for each question,
# what the kernel tree KDIR offers, and writes ROPCIE_HAVE_* to OUTHEADER.
# Owns the questions; kernel/include/ropcie_compat.h, the only reader of the
# answers, hides the differences. No version numbers: kernels get backports.
set -euo pipefail

kdir=${1:?usage: probe.sh KDIR OUTHEADER}
header=${2:?usage: probe.sh KDIR OUTHEADER}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
names=()
declare -A meaning

# probe NAME MEANING <snippet: the answer is yes when it compiles
probe() {
	names+=("$1")
	meaning[$1]=$2
	cat >"$work/$1.c"
}

# Must compile: else the tree or the compiler is at fault, not an answer "no".
probe control "a module can be compiled" <<'END'
#include <linux/module.h>
#include <linux/netdevice.h>
#include <rdma/ib_verbs.h>
END

probe BUS_MATCH_CONST_DRIVER "bus_type.match takes a const driver" <<'END'
#include <linux/device.h>
static int match(struct device *dev, const struct device_driver *drv);
const struct bus_type bus = { .match = match };
END

probe BUS_UEVENT_CONST_DEVICE "bus_type.uevent takes a const device" <<'END'
#include <linux/device.h>
static int uevent(const struct device *dev, struct kobj_uevent_env *env);
const struct bus_type bus = { .uevent = uevent };
END

probe CREATE_CQ_ATTRS "create_cq takes the attribute bundle" <<'END'
#include <rdma/ib_verbs.h>
static int create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr,
		     struct uverbs_attr_bundle *attrs);
const struct ib_device_ops ops = { .create_cq = create_cq };
END

probe CALL_RCU_HURRY "call_rcu() may be lazy, and has a form that is not" <<'END'
#include <linux/rcupdate.h>
void (*const hurry)(struct rcu_head *, rcu_callback_t) = call_rcu_hurry;
END

probe REG_DMABUF_ATTRS "reg_user_mr_dmabuf takes the attribute bundle" <<'END'
#include <rdma/ib_verbs.h>
static struct ib_mr *reg(struct ib_pd *pd, u64 offset, u64 length, u64 virt_addr,
			 int fd, int access, struct uverbs_attr_bundle *attrs);
const struct ib_device_ops ops = { .reg_user_mr_dmabuf = reg };
END

probe DMA_BUF_VMAP_UNLOCKED "dma_buf_vmap() has a form that takes the lock" <<'END'
#include <linux/dma-buf.h>
int (*const vmap)(struct dma_buf *, struct iosys_map *) = dma_buf_vmap_unlocked;
END

probe ATOMIC_WRITE "verbs has the atomic write" <<'END'
#include <rdma/ib_verbs.h>
const int names[] = { IB_WR_ATOMIC_WRITE, IB_WC_ATOMIC_WRITE };
END

probe LINUX_UNALIGNED_H "linux/unaligned.h exists" <<'END'
#include <linux/unaligned.h>
END

{
	printf 'obj-m :='
	printf ' %s.o' "${names[@]}"
	printf '\nccflags-y := -Werror=incompatible-pointer-types -Wno-unused\n'
} >"$work/Kbuild"
make -k -C "$kdir" M="$work" -j"$(nproc)" "${names[@]/%/.o}" \
	>"$work/log" 2>&1 || true

[ -e "$work/control.o" ] || {
	cat "$work/log" >&2
	echo "probe.sh: nothing compiles against $kdir" >&2
	exit 1
}

{
	echo "/* SPDX-License-Identifier: GPL-2.0 */"
	echo "/* Written by kernel/compat/probe.sh for one kernel. */"
	for name in "${names[@]:1}"; do
		answer=no
		[ ! -e "$work/$name.o" ] || answer=yes
		printf '\n/* %s: %s */\n' "${meaning[$name]}" "$answer"
		[ "$answer" = no ] || printf '#define ROPCIE_HAVE_%s 1\n' "$name"
	done
} >"$header"
