// SPDX-License-Identifier: GPL-2.0
// kernel/core for C++. Include it behind the standard headers: the kernel's
// macros have short names.
#ifndef ROPCIE_TESTS_CORE_CORE_H
#define ROPCIE_TESTS_CORE_CORE_H

extern "C" {
#include "control.h"
#include "datagram.h"
#include "event_policy.h"
#include "grant.h"
#include "mq_id.h"
#include "mr.h"
#include "peer_link.h"
#include "poll_policy.h"
#include "poller.h"
#include "qp_state.h"
#include "requester.h"
#include "responder.h"
#include "ring.h"
#include "status.h"
#include "wire.h"
#include "word_pass.h"
}

// Would turn [[fallthrough]] into something else.
#undef fallthrough

#endif  // ROPCIE_TESTS_CORE_CORE_H
