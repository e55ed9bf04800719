// SPDX-License-Identifier: GPL-2.0
/*
 * The parts of kernel/core that this module uses, compiled into it. (Each
 * module has its own copy: Kbuild has no objects that two modules share.)
 */
#include "../core/peer_link.c"
#include "../core/poll_policy.c"
#include "../core/ring.c"
#include "../core/wire.c"
