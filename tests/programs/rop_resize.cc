// SPDX-License-Identifier: GPL-2.0
// Queues that are resized again and again while they are in use, by queue pairs
// that are connected with themselves: no entry is lost, comes twice, or at
// another's place, and completions of a queue pair that was reset do not come
// at all. Each node by itself.
#include <infiniband/verbs.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <iostream>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "failure.h"
#include "mappings.h"
#include "pattern.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr int kRounds = 100;
constexpr int kLeast = 1500;  // entries; more than are ever in use
constexpr int kMost = 6000;
constexpr uint32_t kBurst = 400;  // more than are moved at once

// Does it in another thread, until it is destroyed.
class Repeater {
 public:
  explicit Repeater(std::function<void(int)> action)
      : thread_([this, action = std::move(action)] {
          for (int turn = 0; !over_; ++turn) {
            action(turn);
            ++turns_;
          }
        }) {}
  ~Repeater() {
    over_ = true;
    thread_.join();
  }
  Repeater(const Repeater&) = delete;
  Repeater(Repeater&&) = delete;
  Repeater& operator=(const Repeater&) = delete;
  Repeater& operator=(Repeater&&) = delete;

  [[nodiscard]] uint64_t turns() const { return turns_; }

 private:
  std::atomic<bool> over_ = false;
  std::atomic<uint64_t> turns_ = 0;
  std::thread thread_;
};

int SizeOf(int turn) { return kLeast + turn * 733 % (kMost - kLeast); }

// Its first errno.
class Errno {
 public:
  void Note(int error) {
    int none = 0;
    if (error != 0) {
      value_.compare_exchange_strong(none, error);
    }
  }
  void Expect0(const std::string& what) const { CheckErrno(value_, what); }

 private:
  std::atomic<int> value_ = 0;
};

struct Bench {
  Side& side;
  Device device = OpenDevice(side);
  Arena arena = Arena(device, 4096);
  Piece piece = arena.Take(8, 0, false);
  int rounds = side.options.rounds > 0 ? side.options.rounds : kRounds;

  void ConnectWithItself(ibv_qp* qp, const QpConfig& config) const {
    const QpAddress own = AddressOf(device, qp);
    ToInit(qp, config);
    ToRts(qp, device, own, own, config);
  }
};

// `reset` goes to RESET with completions of it in the queue.
void ResizeCq(Bench& at) {
  QpConfig config;
  config.cap.max_send_wr = kBurst;
  config.cap.max_recv_wr = 2 * kBurst;
  const CqPtr cq = CreateCq(at.device, kMost);
  const CqPtr receives = CreateCq(at.device, 2 * kBurst);
  const QpPtr keeps = CreateQp(at.device, cq.get(), receives.get(), &config);
  const QpPtr reset = CreateQp(at.device, cq.get(), receives.get(), &config);
  at.ConnectWithItself(keeps.get(), config);
  Errno error;
  const Repeater resizer(
      [&](int turn) { error.Note(ibv_resize_cq(cq.get(), SizeOf(turn))); });
  uint64_t next = 0;
  uint64_t posted = 0;
  const auto post = [&](uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      PostRecv(keeps.get(), posted, {at.arena.Sge(at.piece)});
      PostSend(keeps.get(), posted++, {at.arena.Sge(at.piece)});
    }
    (void)WaitFor(receives.get(), count, at.side.options.timeout_s,
                  "messages of a queue pair to itself");
  };
  for (int round = 0; round < at.rounds; ++round) {
    at.ConnectWithItself(reset.get(), config);
    for (uint32_t i = 0; i < kBurst; ++i) {
      PostRecv(reset.get(), i, {at.arena.Sge(at.piece)});
      PostSend(reset.get(), i, {at.arena.Sge(at.piece)});
      if (i % 2 == 0) {
        PostRecv(keeps.get(), posted, {at.arena.Sge(at.piece)});
        PostSend(keeps.get(), posted++, {at.arena.Sge(at.piece)});
      }
    }
    (void)WaitFor(receives.get(), kBurst + kBurst / 2,
                  at.side.options.timeout_s, "messages of both queue pairs");
    ToState(reset.get(), IBV_QPS_RESET);
    post(kBurst / 2);
    const std::vector<ibv_wc> done = WaitFor(
        cq.get(), kBurst, at.side.options.timeout_s, "a CQ that is resized");
    for (const ibv_wc& wc : done) {
      Check(wc.qp_num == keeps->qp_num, "round ", round,
            ": a completion of a queue pair that was reset");
      CheckSuccess(wc, "a send");
      Check(wc.wr_id == next, "round ", round, ": completion ", wc.wr_id,
            ", not ", next);
      ++next;
    }
    ibv_wc more{};
    Check(ibv_poll_cq(cq.get(), 1, &more) == 0, "round ", round,
          ": a completion too many");
  }
  error.Expect0("ibv_resize_cq");
  Check(resizer.turns() > 0, "the CQ was not resized");
  std::cout << next << " completions, resized " << resizer.turns()
            << " times\n";
}

void ResizeSrq(Bench& at) {
  ibv_srq_init_attr init{};
  init.attr.max_wr = kMost;
  init.attr.max_sge = 1;
  SrqPtr srq(ibv_create_srq(at.device.pd.get(), &init));
  CheckErrno(srq == nullptr ? errno : 0, "ibv_create_srq");
  QpConfig config;
  config.cap.max_send_wr = kBurst;
  config.srq = srq.get();
  config.recv_cqe = 2 * kBurst;
  const CqPtr sends = CreateCq(at.device, kBurst);
  const CqPtr receives = CreateCq(at.device, 2 * kBurst);
  const QpPtr qp = CreateQp(at.device, sends.get(), receives.get(), &config);
  at.ConnectWithItself(qp.get(), config);
  Errno error;
  const Repeater resizer([&](int turn) {
    ibv_srq_attr attr{};
    attr.max_wr = static_cast<uint32_t>(SizeOf(turn));
    error.Note(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_MAX_WR));
  });
  uint64_t posted = 0;
  uint64_t next = 0;
  for (int round = 0; round < at.rounds; ++round) {
    // Some are left from round to round.
    while (posted < next + uint64_t{2} * kBurst + 100) {
      PostSrqRecv(srq.get(), posted++, {at.arena.Sge(at.piece)});
    }
    for (uint32_t i = 0; i < kBurst; ++i) {
      PostSend(qp.get(), i, {at.arena.Sge(at.piece)});
    }
    for (const ibv_wc& wc :
         WaitFor(receives.get(), kBurst, at.side.options.timeout_s,
                 "an SRQ that is resized")) {
      CheckSuccess(wc, "a receive");
      Check(wc.wr_id == next, "round ", round, ": receive ", wc.wr_id, ", not ",
            next);
      ++next;
    }
    (void)WaitFor(sends.get(), kBurst, at.side.options.timeout_s, "sends");
  }
  error.Expect0("ibv_modify_srq");
  Check(resizer.turns() > 0, "the SRQ was not resized");
  std::cout << next << " shared receives, resized " << resizer.turns()
            << " times\n";
}

// The index of what is posted, in memory that the process has mapped, says that
// there are more receives than the SRQ may have: not all of them can be moved.
void ResizeOverfull(Bench& at) {
  constexpr uint32_t kOdd = 48;  // of a ring of 64
  std::set<const uint8_t*> before;
  for (const Mapping& mapping : Mappings()) {
    before.insert(mapping.begin);
  }
  ibv_srq_init_attr init{};
  init.attr.max_wr = kOdd;
  init.attr.max_sge = 1;
  const SrqPtr srq(ibv_create_srq(at.device.pd.get(), &init));
  CheckErrno(srq == nullptr ? errno : 0, "ibv_create_srq");
  uint32_t* posted = nullptr;
  for (const Mapping& mapping : Mappings()) {
    if (!before.contains(mapping.begin)) {
      posted = reinterpret_cast<uint32_t*>(mapping.begin);
    }
  }
  Check((posted != nullptr) == HasMappedQueues(),
        "an SRQ that is mapped, or is not to be");
  if (posted == nullptr) {
    return;
  }
  ibv_srq_attr attr{};
  attr.max_wr = 2 * kOdd;
  const auto resize = [&] {
    return ibv_modify_srq(srq.get(), &attr, IBV_SRQ_MAX_WR);
  };
  __atomic_store_n(posted, std::bit_ceil(kOdd), __ATOMIC_RELEASE);
  Check(resize() == EAGAIN, "an SRQ with more receives than fit is resized");
  // An index that is impossible is none.
  __atomic_store_n(posted, ~uint32_t{0} / 2, __ATOMIC_RELEASE);
  CheckErrno(resize(), "resizing an SRQ whose index is impossible");
}

void Run(Side& side) {
  Bench bench{side};
  ResizeOverfull(bench);
  ResizeCq(bench);
  ResizeSrq(bench);
}

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(argc, argv, "queues that are resized in use",
                            ropcie::Run);
}
