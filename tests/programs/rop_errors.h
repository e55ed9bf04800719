// SPDX-License-Identifier: GPL-2.0
// The groups of cases of rop_errors.
#ifndef ROPCIE_TESTS_PROGRAMS_ROP_ERRORS_H_
#define ROPCIE_TESTS_PROGRAMS_ROP_ERRORS_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pattern.h"
#include "report.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {

// Calls with wrong arguments: each side for itself.
void RunControlCases(Side& side, const Device& device, Report* report);

// A case that two connected sides go through, one as the requester.
struct ErrorCase {
  Side& side;
  const Device& device;
  Report& report;
  Arena& arena;
  bool requester;
  uint32_t step = 0;

  // Both sides pass it together.
  void Step() { side.channel.Barrier(++step); }
};

struct NamedCase {
  std::string name;
  std::function<void(ErrorCase&)> run;
};

// Work requests that must complete in error, and with which status.
std::vector<NamedCase> CompletionCases();

// Queues: order of flushes, full queues, unsignaled requests, wrong states.
std::vector<NamedCase> QueueCases();

// RDMA WRITE, READ and atomics, allowed and refused.
std::vector<NamedCase> RemoteCases();

// Atomic writes, for devices that have them.
std::vector<NamedCase> AtomicWriteCases();

// Memory windows, for devices that have them.
std::vector<NamedCase> WindowCases();

// Extended reliable connections, for devices that have them.
std::vector<NamedCase> XrcCases();

// Posts one request. A refusal is reported: it has to fail when it is carried
// out.
void Post(const ErrorCase& test, ibv_qp* qp, ibv_send_wr wr);

// Seconds after which something awaited counts as missing.
int PatienceOf(const ErrorCase& test);

// Waits for as many completions, whatever they say. Those that do not come are
// reported, and have IBV_WC_GENERAL_ERR.
std::vector<ibv_wc> AwaitCompletions(const ErrorCase& test, ibv_cq* cq,
                                     size_t count, const std::string& what);

struct Completion {
  uint64_t wr_id;
  ibv_wc_status status;
};

// Waits for exactly these completions, in this order, and that there is no
// more.
void ExpectCompletions(const ErrorCase& test, ibv_cq* cq,
                       const std::vector<Completion>& right,
                       const std::string& what);
void ExpectState(const ErrorCase& test, ibv_qp* qp, ibv_qp_state right);

// The next asynchronous event of the context, acknowledged. Reports if none
// comes.
std::optional<ibv_event_type> NextEvent(const ErrorCase& test);
// Waits for an event of this kind; a peer that was quicker may raise another.
void ExpectEvent(const ErrorCase& test, ibv_event_type right);

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_ROP_ERRORS_H_
