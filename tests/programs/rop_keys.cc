// SPDX-License-Identifier: GPL-2.0
// What keys protect: every operation with every kind of region and window, all
// rights of the region and of the queue pair, protection domains, bounds, and
// keys that are not valid any more. Each case completes as keys_rules.cc says,
// and not a byte changes, at either side, but those that the case may change.
#include <infiniband/verbs.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "failure.h"
#include "keys.h"
#include "keys_links.h"
#include "keys_memory.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie::keys {
namespace {

constexpr uint32_t kImm = 0x01020304;
// One of so many, of the cases in which the sides have changed places, and of
// quick runs.
constexpr size_t kTurnedStride = 7;
constexpr size_t kQuickStride = 30;
constexpr size_t kQuickServiceStride = 60;
constexpr size_t kQuickCrossStride = 90;
constexpr uint64_t kExtraReceive = 1;  // wr_id of what takes an invalidate
constexpr uint64_t kReceive = 2;

ibv_wr_opcode OpcodeOf(Op op) {
  switch (op) {
    case Op::kWrite:
      return IBV_WR_RDMA_WRITE;
    case Op::kWriteImm:
      return IBV_WR_RDMA_WRITE_WITH_IMM;
    case Op::kSendImm:
      return IBV_WR_SEND_WITH_IMM;
    case Op::kSendInv:
      return IBV_WR_SEND_WITH_INV;
    case Op::kRead:
      return IBV_WR_RDMA_READ;
    case Op::kFetchAdd:
      return IBV_WR_ATOMIC_FETCH_AND_ADD;
    case Op::kCompareSwap:
      return IBV_WR_ATOMIC_CMP_AND_SWP;
    case Op::kAtomicWrite:
      return IBV_WR_ATOMIC_WRITE;
    default:
      return IBV_WR_SEND;
  }
}

// What the responder tells of its memory before a case.
struct Target {
  uint64_t address;
  uint32_t key;
};

class Test {
 public:
  explicit Test(Side& side)
      : side_(side),
        device_(OpenDevice(side)),
        random_(AgreeOnSample(side)),
        regions_(side, device_),
        memories_(side, regions_, &findings_),
        links_(side, device_, regions_) {}

  void Run() {
    const Abilities has = Agree();
    const bool quick = side_.options.quick;
    for (const bool leader_requests : {true, false}) {
      requester_ = leader_requests == side_.leads;
      const size_t stride = leader_requests ? 1 : kTurnedStride;
      RunSome(AxisCases(has), stride * (quick ? kQuickStride : 1));
      RunSome(ServiceCases(has), stride * (quick ? kQuickServiceStride : 1));
      RunSome(CrossCases(has), stride * (quick ? kQuickCrossStride : 1));
    }
    RefusedRegistrations(has);
    if (has.windows) {
      EndedByReset();
    }
    if (findings_.failed() == 0) {
      std::cout << "keys: " << findings_.cases() << " cases are right\n";
      return;
    }
    std::cout << "keys: " << findings_.failed() << " of " << findings_.cases()
              << " cases are wrong\n";
    Check(side_.options.tolerate, "keys do not protect what they have to");
  }

 private:
  const Connection& Link() { return links_.Of(service_); }

  // The leader's sample counts.
  static uint64_t AgreeOnSample(const Side& side) {
    uint64_t mine = side.options.sample;
    if (mine == 0) {
      mine = 1 + std::random_device{}() % UINT16_MAX;
    }
    const uint64_t other = side.channel.Exchange(mine);
    const uint64_t sample = side.leads ? mine : other;
    if (side.leads) {
      std::cout << "keys: --sample " << sample << " takes these cases again\n"
                << std::flush;
    }
    return sample;
  }

  // One of `stride` that follow each other; both sides take the same.
  void RunSome(const std::vector<Case>& cases, size_t stride) {
    for (size_t i = 0; i < cases.size(); i += stride) {
      const size_t chosen = i + random_() % std::min(stride, cases.size() - i);
      findings_.Begin(cases[chosen]);
      RunCase(cases[chosen]);
    }
  }

  // RoPCIe has everything, but without mapped queues no windows and no atomic
  // writes. What this kernel has not shall not be left out without a word.
  static void CheckAll(const Abilities& has) {
    const bool all = HasMappedQueues();
    for (int i = 0; i < kKinds; ++i) {
      Check(has.kinds[i] || (!all && IsWindow(Kind{i})),
            "there is no key of the kind ", Name(Kind{i}),
            " (--tolerate leaves it out)");
    }
    Check(has.reregister, "a region can not be re-registered");
    Check(has.windows == all, "windows: ", has.windows);
    Check(has.atomic_write == all, "atomic writes: ", has.atomic_write);
  }

  // What both sides have.
  Abilities Agree() {
    Abilities mine = regions_.Probe();
    if (!side_.options.quick && mine.kinds[static_cast<int>(Kind::kNull)]) {
      mine.recycled = regions_.Recycle(mine);
      Check(mine.recycled || side_.options.tolerate,
            "the index of a key is not used again");
    }
    if (!side_.options.tolerate) {
      CheckAll(mine);
    }
    const Abilities other = side_.channel.Exchange(mine);
    for (int i = 0; i < kKinds; ++i) {
      mine.kinds[i] &= other.kinds[i];
    }
    mine.windows &= other.windows;
    mine.atomic_write &= other.atomic_write;
    mine.reregister &= other.reregister;
    mine.recycled &= other.recycled;
    return mine;
  }

  void RunCase(const Case& one) {
    const Outcome right = Judge(one);
    ibv_wc_status status{};
    service_ = one.service;
    if (requester_) {
      Target target{};
      side_.channel.Read(&target, sizeof(target));
      status = Request(one, target);
      if (Follows(right) && status == right.status) {
        Follow();
      }
      findings_.Expect(status == right.status, "'", ibv_wc_status_str(status),
                       "', not '", ibv_wc_status_str(right.status), "'");
      side_.channel.Write(&status, sizeof(status));
      if (service_ == Service::kShared) {
        ExpectEvents(EventsOf(status != IBV_WC_SUCCESS), PatienceOf(side_));
      }
    } else {
      status = Respond(one, right);
    }
    // What is still under way is not placed any more then.
    if (status != IBV_WC_SUCCESS || right.status != IBV_WC_SUCCESS ||
        right.responder_fails || right.dropped) {
      links_.Renew(service_);
    }
    memories_.Check(one, requester_, requester_ ? right.local : right.remote);
  }

  // A work request of the case; returns how it completed.
  ibv_wc_status Request(const Case& one, const Target& target) {
    if (IsBind(one.op)) {
      return regions_.TryBind(one, Link());
    }
    if (one.state == State::kInvalidatedByPeer) {
      ibv_send_wr wr{};
      wr.opcode = IBV_WR_SEND_WITH_INV;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.invalidate_rkey = target.key;
      const ibv_wc_status status = Post(wr);
      findings_.Expect(status == IBV_WC_SUCCESS,
                       "SEND with invalidate: ", ibv_wc_status_str(status));
    }
    const bool local = one.where == Where::kLocal;
    const Subject subject =
        local ? regions_.Prepare(one, Link()) : regions_.Partner(one);
    if (one.op == Op::kLocalInv) {
      ibv_send_wr wr{};
      wr.opcode = IBV_WR_LOCAL_INV;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.invalidate_rkey = subject.key;
      const ibv_wc_status status = Post(wr);
      ExpectKept(one, subject);
      return status;
    }
    ibv_sge sge = {local ? AddressFor(one, subject) : subject.base,
                   static_cast<uint32_t>(one.range.length), subject.key};
    ibv_send_wr wr{};
    wr.opcode = OpcodeOf(one.op);
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (one.op == Op::kFetchAdd || one.op == Op::kCompareSwap) {
      wr.wr.atomic.remote_addr = target.address;
      wr.wr.atomic.rkey = target.key;
      wr.wr.atomic.compare_add =
          one.op == Op::kFetchAdd ? kAdd : memories_.Before(one, requester_);
      wr.wr.atomic.swap = kSwap;
    } else if (service_ == Service::kDatagram) {
      wr.imm_data = kImm;
      links_.Address(&wr);
    } else {
      wr.imm_data = kImm;
      if (one.op == Op::kSendInv) {
        wr.invalidate_rkey = target.key;
      }
      wr.wr.rdma.remote_addr = target.address;
      wr.wr.rdma.rkey = target.key;
    }
    return Post(wr);
  }

  // Only what comes behind says that an unreliable message was dealt with, and
  // that the responder goes on.
  [[nodiscard]] bool Follows(const Outcome& right) const {
    return IsUnreliable(service_) && right.status == IBV_WC_SUCCESS &&
           !right.responder_fails;
  }

  void Follow() {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (service_ == Service::kDatagram) {
      links_.Address(&wr);
    }
    const ibv_wc_status status = Post(wr);
    findings_.Expect(status == IBV_WC_SUCCESS,
                     "a SEND behind it: ", ibv_wc_status_str(status));
  }

  ibv_wc_status Post(ibv_send_wr wr) {
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(Link().qp.get(), &wr, &bad);
    findings_.Expect(error == 0, "ibv_post_send: ", std::strerror(error));
    if (error != 0) {
      return IBV_WC_GENERAL_ERR;
    }
    const std::vector<ibv_wc> done =
        WaitUpTo(Link().send_cq.get(), 1, PatienceOf(side_), "a request");
    return done.empty() ? IBV_WC_GENERAL_ERR : done.front().status;
  }

  // A key that others may not take away is as good as before.
  void ExpectKept(const Case& one, const Subject& subject) {
    const bool others = !IsWindow(one.kind) || one.kind == Kind::kWindow1 ||
                        one.domain != Domain::kSame ||
                        one.state == State::kOtherQueuePair;
    const bool good = one.state == State::kValid || one.state == State::kTag ||
                      one.state == State::kIndex ||
                      one.state == State::kOtherQueuePair ||
                      one.state == State::kRecycled;
    if (others && good && one.kind != Kind::kNull &&
        (one.access & IBV_ACCESS_REMOTE_READ) != 0) {
      findings_.Expect(regions_.StillWorks(one, subject),
                       "what it did not invalidate can not be used any more");
    }
  }

  ibv_wc_status Respond(const Case& one, const Outcome& right) {
    links_.SetAccess(service_, one.qp_access);
    const bool subject_is_here = one.where != Where::kLocal;
    const Subject subject =
        subject_is_here ? regions_.Prepare(one, Link()) : regions_.Partner(one);
    const uint64_t address =
        subject_is_here ? AddressFor(one, subject) : subject.base;
    if (one.state == State::kInvalidatedByPeer) {
      links_.PostReceive(service_, kExtraReceive, {});
    }
    if (one.op == Op::kSendInv) {
      const Subject partner = regions_.Partner(one);
      const auto length = static_cast<uint32_t>(one.range.length);
      links_.PostReceive(service_, kReceive,
                         {partner.base, length, partner.key});
    } else if (TakesReceive(one.op)) {
      // A WRITE with immediate data has no use for the receive's memory.
      const auto length = static_cast<uint32_t>(
          std::min<uint64_t>(one.range.length, kArea - kPartner));
      links_.PostReceive(service_, kReceive, {address, length, subject.key});
    }
    if (Follows(right)) {
      links_.PostReceive(service_, kExtraReceive, {});
    }
    const Target target = {address, subject.key};
    side_.channel.Write(&target, sizeof(target));
    ibv_wc_status status{};
    side_.channel.Read(&status, sizeof(status));
    // Nothing is worth waiting for when it has gone wrong already.
    const int patience = status == right.status ? PatienceOf(side_) : 0;
    ExpectReceives(one, right, target.key, patience);
    if (one.op == Op::kSendInv) {
      ExpectKept(one, subject);
    }
    std::set<ibv_event_type> events = EventsOf(right.responder_fails);
    if (right.event) {
      events.insert(*right.event);
    }
    ExpectEvents(events, patience);
    const ibv_qp_state state = StateOf(Link().qp.get());
    findings_.Expect(
        state == (right.responder_fails ? IBV_QPS_ERR : IBV_QPS_RTS),
        "the responder's QP is in state ", int{state});
    return status;
  }

  void ExpectReceives(const Case& one, const Outcome& right, uint32_t key,
                      int patience) {
    const bool ends = right.responder_fails || right.status == IBV_WC_SUCCESS;
    const bool extra = one.state == State::kInvalidatedByPeer || Follows(right);
    // What follows takes the receive of what is dropped.
    const bool takes = ends && TakesReceive(one.op) && !right.dropped;
    const size_t count = (extra ? 1 : 0) + (takes ? 1 : 0);
    const std::vector<ibv_wc> done =
        WaitUpTo(Link().recv_cq.get(), count, patience, "receives");
    findings_.Expect(done.size() == count, done.size(), " of ", count,
                     " receives completed");
    const size_t header = service_ == Service::kDatagram ? sizeof(ibv_grh) : 0;
    for (const ibv_wc& wc : done) {
      const bool other = wc.wr_id == kExtraReceive || right.dropped;
      const ibv_wc_status status = other ? IBV_WC_SUCCESS : right.receive;
      findings_.Expect(wc.status == status, "the receive: '",
                       ibv_wc_status_str(wc.status), "', not '",
                       ibv_wc_status_str(status), "'");
      findings_.Expect(
          wc.status != IBV_WC_SUCCESS ||
              wc.byte_len == header + (other ? 0 : one.range.length),
          "a receive of ", wc.byte_len, " bytes");
      if (wc.status == IBV_WC_SUCCESS && !other) {
        ExpectImmediate(one, wc, key);
      }
    }
    ibv_wc more{};
    findings_.Expect(ibv_poll_cq(Link().recv_cq.get(), 1, &more) == 0,
                     "a receive completed that must not: '",
                     ibv_wc_status_str(more.status), "'");
  }

  void ExpectImmediate(const Case& one, const ibv_wc& wc, uint32_t key) {
    const bool inv = one.op == Op::kSendInv;
    const bool imm = one.op == Op::kSendImm || one.op == Op::kWriteImm;
    findings_.Expect(((wc.wc_flags & IBV_WC_WITH_IMM) != 0) == imm &&
                         ((wc.wc_flags & IBV_WC_WITH_INV) != 0) == inv,
                     "the receive's flags are ", wc.wc_flags);
    findings_.Expect(
        (!imm || wc.imm_data == kImm) && (!inv || wc.invalidated_rkey == key),
        "other immediate data, or another key");
  }

  // A queue pair that fails takes no more from its shared receive queue.
  [[nodiscard]] std::set<ibv_event_type> EventsOf(bool fails) const {
    return fails && service_ == Service::kShared
               ? std::set{IBV_EVENT_QP_LAST_WQE_REACHED}
               : std::set<ibv_event_type>{};
  }

  // These events, and no others.
  void ExpectEvents(std::set<ibv_event_type> right, int patience) {
    do {
      pollfd ready = {device_.context->async_fd, POLLIN, 0};
      const int wait = !right.empty() && events_come_ ? patience * 1000 : 0;
      if (poll(&ready, 1, wait) != 1) {
        findings_.Expect(right.empty(), "no asynchronous event");
        // A device that has none is not waited for each time.
        events_come_ &= right.empty() || !side_.options.tolerate;
        return;
      }
      ibv_async_event event{};
      CheckErrno(
          ibv_get_async_event(device_.context.get(), &event) != 0 ? errno : 0,
          "ibv_get_async_event");
      ibv_ack_async_event(&event);
      findings_.Expect(right.erase(event.event_type) == 1, "the event '",
                       ibv_event_type_str(event.event_type), "'");
    } while (!right.empty());
  }

  // A window of type 2 is bound to the connection that its queue pair has then.
  void EndedByReset() {
    findings_.Begin(
        {.kind = Kind::kWindow2, .access = IBV_ACCESS_REMOTE_WRITE});
    const auto [before, after] = regions_.WriteAroundReset();
    findings_.Expect(before == IBV_WC_SUCCESS,
                     "a WRITE through a window: ", ibv_wc_status_str(before));
    // Who is refused is who refuses, and may end before it hears that.
    findings_.Expect(
        after == IBV_WC_REM_ACCESS_ERR || after == IBV_WC_WR_FLUSH_ERR,
        "and when its queue pair was reset: ", ibv_wc_status_str(after));
  }

  // Who may write may write here: nothing else makes a region (IBTA 10.6.3.1).
  void RefusedRegistrations(const Abilities& has) {
    const unsigned int writes =
        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    for (const Kind kind : {Kind::kPinned, Kind::kOnDemand, Kind::kLow,
                            Kind::kHigh, Kind::kDmaBuf}) {
      if (kind == Kind::kDmaBuf && !has.kinds[static_cast<int>(kind)]) {
        continue;
      }
      for (unsigned int access = 0; access <= kAllAccess; ++access) {
        if ((access & writes) == 0 || (access & IBV_ACCESS_LOCAL_WRITE) != 0) {
          continue;
        }
        findings_.Begin({.kind = kind, .access = access});
        const MrPtr mr = regions_.Register(kind, access, Domain::kSame);
        findings_.Expect(mr == nullptr, "registered without LOCAL_WRITE");
        findings_.Expect(mr != nullptr || errno == EINVAL,
                         "registering: ", std::strerror(errno));
      }
    }
  }

  Side& side_;
  Device device_;
  std::mt19937_64 random_;
  Findings findings_;
  Regions regions_;
  Memories memories_;
  Links links_;
  Service service_ = Service::kReliable;  // of the case
  bool requester_ = false;
  bool events_come_ = true;
};

void Run(Side& side) { Test(side).Run(); }

}  // namespace
}  // namespace ropcie::keys

int main(int argc, char** argv) {
  return ropcie::RunProgram(argc, argv, "what keys protect, case by case",
                            ropcie::keys::Run);
}
