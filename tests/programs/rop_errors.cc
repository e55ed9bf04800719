// SPDX-License-Identifier: GPL-2.0
// What must fail, and how: refused calls, completions in error, flushes. After
// each case a neighbouring QP proves that nobody else was disturbed.
#include "rop_errors.h"

#include <infiniband/verbs.h>
#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "failure.h"
#include "pattern.h"
#include "report.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr size_t kArena = size_t{1} << 20;

// A QP that lives through all cases and always works.
class Neighbour {
 public:
  Neighbour(Side& side, const Device& device)
      : side_(side),
        pattern_(side.options.seed, kLength),
        arena_(device, 4 * kLength),
        connection_(Connect(device, side, QpConfig())) {}

  void Prove(const std::string& after) {
    ++number_;
    arena_.Clear();
    const Piece in = arena_.Take(kLength, 3, false);
    const Piece out = arena_.Take(kLength, 5, false);
    std::memcpy(arena_.At(out.offset), pattern_.Bytes(number_, 0), kLength);
    PostRecv(connection_.qp.get(), number_, {arena_.Sge(in)});
    side_.channel.Barrier(number_);
    PostSend(connection_.qp.get(), number_, {arena_.Sge(out)});
    const std::string what =
        Text("the neighbour's message after '", after, "'");
    WaitForSuccess(connection_.send_cq.get(), side_.options.timeout_s, what);
    WaitForSuccess(connection_.recv_cq.get(), side_.options.timeout_s, what);
    Check(std::memcmp(arena_.At(in.offset), pattern_.Bytes(number_, 0),
                      kLength) == 0,
          what, " has wrong bytes");
    arena_.CheckGuards(what);
    side_.channel.Barrier(number_);
  }

 private:
  static constexpr size_t kLength = 10000;
  Side& side_;
  Pattern pattern_;
  Arena arena_;
  Connection connection_;
  uint32_t number_ = 0;
};

// <infiniband/verbs.h> has no name for it yet.
bool HasAtomicWrite(const Device& device) {
  ibv_device_attr_ex attr{};
  CheckErrno(ibv_query_device_ex(device.context.get(), nullptr, &attr),
             "ibv_query_device_ex");
  return (attr.device_cap_flags_ex & uint64_t{1} << 40) != 0;
}

void Run(Side& side) {
  const Device device = OpenDevice(side);
  Arena arena(device, kArena);
  Neighbour neighbour(side, device);
  Report report(side.leads);

  RunControlCases(side, device, &report);
  neighbour.Prove("control cases");

  std::vector<NamedCase> cases = CompletionCases();
  for (NamedCase& one : QueueCases()) {
    cases.push_back(std::move(one));
  }
  for (NamedCase& one : RemoteCases()) {
    cases.push_back(std::move(one));
  }
  constexpr unsigned int kAll =
      unsigned{IBV_DEVICE_MEM_WINDOW_TYPE_2B} | unsigned{IBV_DEVICE_XRC};
  Check(side.options.tolerate || !HasMappedQueues() ||
            (HasAtomicWrite(device) &&
             (device.attr.device_cap_flags & kAll) == kAll),
        "the device does not say that it has all that it is to have");
  if (HasAtomicWrite(device)) {
    for (NamedCase& one : AtomicWriteCases()) {
      cases.push_back(std::move(one));
    }
  }
  if ((device.attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0) {
    for (NamedCase& one : WindowCases()) {
      cases.push_back(std::move(one));
    }
  }
  if ((device.attr.device_cap_flags & IBV_DEVICE_XRC) != 0) {
    for (NamedCase& one : XrcCases()) {
      cases.push_back(std::move(one));
    }
  }
  for (const NamedCase& one : cases) {
    for (const bool leader_requests : {true, false}) {
      arena.Clear();
      ErrorCase test{side, device, report, arena,
                     leader_requests == side.leads};
      const std::string name =
          one.name + (test.requester ? " (requester)" : " (responder)");
      report.Case(name, [&] { one.run(test); });
      neighbour.Prove(name);
    }
  }

  std::cout << (side.leads ? "leading side: " : "other side: ")
            << report.cases() - report.failed() << " of " << report.cases()
            << " cases are right\n";
  Check(report.failed() == 0 || side.options.tolerate, report.failed(),
        " cases are wrong");
}

}  // namespace

void Post(const ErrorCase& test, ibv_qp* qp, ibv_send_wr wr) {
  ibv_send_wr* bad = nullptr;
  test.report.ExpectErrno(ibv_post_send(qp, &wr, &bad), {0},
                          Text("ibv_post_send of opcode ", wr.opcode));
}

int PatienceOf(const ErrorCase& test) {
  constexpr int kTolerant = 5;  // seconds: much of it may not come
  const Options& options = test.side.options;
  return options.tolerate ? std::min(options.timeout_s, kTolerant)
                          : options.timeout_s;
}

std::vector<ibv_wc> AwaitCompletions(const ErrorCase& test, ibv_cq* cq,
                                     size_t count, const std::string& what) {
  std::vector<ibv_wc> done = WaitUpTo(cq, count, PatienceOf(test), what);
  test.report.Expect(done.size() == count, what, ": ", done.size(), " of ",
                     count, " completions came");
  ibv_wc none{};
  none.status = IBV_WC_GENERAL_ERR;
  done.resize(count, none);
  return done;
}

void ExpectCompletions(const ErrorCase& test, ibv_cq* cq,
                       const std::vector<Completion>& right,
                       const std::string& what) {
  const std::vector<ibv_wc> done =
      AwaitCompletions(test, cq, right.size(), what);
  for (size_t i = 0; i < right.size(); ++i) {
    if (done[i].status == IBV_WC_GENERAL_ERR) {
      break;
    }
    test.report.Expect(done[i].wr_id == right[i].wr_id, what, ": completion ",
                       i, " is of wr_id ", done[i].wr_id, ", expected ",
                       right[i].wr_id);
    test.report.Expect(done[i].status == right[i].status, what, ": wr_id ",
                       done[i].wr_id, " has '",
                       ibv_wc_status_str(done[i].status), "', expected '",
                       ibv_wc_status_str(right[i].status), "'");
  }
  ibv_wc more{};
  test.report.Expect(ibv_poll_cq(cq, 1, &more) == 0, what,
                     ": one completion too many, of wr_id ", more.wr_id);
}

std::optional<ibv_event_type> NextEvent(const ErrorCase& test) {
  pollfd ready = {test.device.context->async_fd, POLLIN, 0};
  if (poll(&ready, 1, PatienceOf(test) * 1000) != 1) {
    test.report.Expect(false, "no asynchronous event");
    return std::nullopt;
  }
  ibv_async_event event{};
  CheckErrno(
      ibv_get_async_event(test.device.context.get(), &event) != 0 ? errno : 0,
      "ibv_get_async_event");
  ibv_ack_async_event(&event);
  return event.event_type;
}

void ExpectEvent(const ErrorCase& test, ibv_event_type right) {
  std::optional<ibv_event_type> event;
  do {
    event = NextEvent(test);
  } while (event && *event == IBV_EVENT_COMM_EST && *event != right);
  test.report.Expect(event == right, "the event is not '",
                     ibv_event_type_str(right), "'");
}

void ExpectState(const ErrorCase& test, ibv_qp* qp, ibv_qp_state right) {
  const ibv_qp_state state = StateOf(qp);
  test.report.Expect(state == right, "the QP is in state ", state,
                     ", expected ", right);
}

}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(
      argc, argv, "refused calls and completions in error", ropcie::Run);
}
