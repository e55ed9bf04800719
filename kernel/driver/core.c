// SPDX-License-Identifier: GPL-2.0
/*
 * The parts of kernel/core that queue pairs and memory regions need. One
 * object of an external build can not belong to two modules, so each module
 * compiles the sources that it uses through a file like this one.
 */
#include "core/datagram.c"
#include "core/event_policy.c"
#include "core/grant.c"
#include "core/mr.c"
#include "core/qp_state.c"
#include "core/requester.c"
#include "core/responder.c"
#include "core/ring.c"
#include "core/wire.c"
