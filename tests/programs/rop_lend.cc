// SPDX-License-Identifier: GPL-2.0
// Memory that was given back to its program is not sent any more: it is
// overwritten at once, and the other side never sees what it was overwritten
// with. It is given back when a request has completed, in error too, when its
// region has been deregistered, and when its queue pair is reset or destroyed.
// A device that copies late has to wait for its copies there.
#include <infiniband/verbs.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "failure.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr size_t kLength = size_t{1} << 20;
constexpr uint32_t kRequests = 4;
constexpr uint8_t kGivenBack = 0xff;
constexpr uint8_t kNothing = 0xfe;
constexpr int kMaxWait = 4000;  // us
constexpr uint32_t kFences = 4;

// How the peer's memory is reached.
struct Target {
  uint64_t addr;
  uint32_t rkey;
};

// A send queue's memory, and all that may be taken from under it.
struct Lender {
  Side& side;
  Connection connection;
  MrPtr mr;

  void AwaitAll() const {
    WaitFor(connection.send_cq.get(), kRequests, side.options.timeout_s,
            "completions of requests");
  }
};

struct Way {
  std::string name;
  std::function<void(Lender&)> give_back;
  bool arrives = false;
};

uint8_t Lent(size_t i) { return static_cast<uint8_t>(i % kGivenBack); }

const std::vector<Way>& Ways() {
  static const std::vector<Way> ways = {
      {"completed",
       [](Lender& l) {
         for (uint32_t i = 0; i < kRequests; i++) {
           WaitForSuccess(l.connection.send_cq.get(), l.side.options.timeout_s,
                          "a request");
         }
       },
       true},
      {"flushed",
       [](Lender& l) {
         ToState(l.connection.qp.get(), IBV_QPS_ERR);
         l.AwaitAll();
       }},
      {"deregistered", [](Lender& l) { l.mr.reset(); }},
      {"reset",
       [](Lender& l) { ToState(l.connection.qp.get(), IBV_QPS_RESET); }},
      {"destroyed", [](Lender& l) { l.connection.qp.reset(); }},
  };
  return ways;
}

void PostWrite(const Lender& lender, const uint8_t* memory,
               const Target& target) {
  ibv_sge sge = {reinterpret_cast<uintptr_t>(memory), kLength, lender.mr->lkey};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma.remote_addr = target.addr;
  wr.wr.rdma.rkey = target.rkey;
  ibv_send_wr* bad = nullptr;
  CheckErrno(ibv_post_send(lender.connection.qp.get(), &wr, &bad), "posting");
}

class Test {
 public:
  explicit Test(Side& side)
      : side_(side),
        device_(OpenDevice(side)),
        random_(side.options.seed),
        memory_(kLength),
        fence_bytes_(64) {
    fence_mr_ = RegisterMr(device_, fence_bytes_.data(), fence_bytes_.size());
    for (uint32_t i = 0; i < kFences; i++) {
      fences_.push_back(Connect(device_, side_, QpConfig{}));
    }
  }

  void Run(const Way& way) {
    for (size_t i = 0; i < kLength; i++) {
      memory_[i] = side_.leads ? Lent(i) : kNothing;
    }
    QpConfig config;
    config.access |= IBV_ACCESS_REMOTE_WRITE;
    Lender lender = {
        .side = side_,
        .connection = Connect(device_, side_, config),
        .mr = RegisterMr(device_, memory_.data(), kLength,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)};
    const Target peer = side_.channel.Exchange(
        Target{.addr = reinterpret_cast<uintptr_t>(memory_.data()),
               .rkey = lender.mr->rkey});
    if (!side_.leads) {
      AwaitFences();
      const auto late = std::find(memory_.begin(), memory_.end(), kGivenBack);
      Check(late == memory_.end(), way.name, ": byte ", late - memory_.begin(),
            " was sent after it was given back");
      for (size_t i = 0; way.arrives && i < kLength; i++) {
        Check(memory_[i] == Lent(i), way.name, ": byte ", i, " is ",
              int{memory_[i]});
      }
    } else {
      for (uint32_t i = 0; i < kRequests; i++) {
        PostWrite(lender, memory_.data(), peer);
      }
      std::this_thread::sleep_for(
          std::chrono::microseconds(random_() % kMaxWait));
      way.give_back(lender);
      std::fill(memory_.begin(), memory_.end(), kGivenBack);
      SendFences();
    }
    side_.channel.Barrier(++round_);
  }

 private:
  // A message that was sent later on each way that records may take.
  void SendFences() {
    side_.channel.Barrier(++round_);
    for (const Connection& fence : fences_) {
      PostSend(fence.qp.get(), 0, {FenceSge()});
      WaitForSuccess(fence.send_cq.get(), side_.options.timeout_s, "a fence");
    }
  }

  void AwaitFences() {
    for (const Connection& fence : fences_) {
      PostRecv(fence.qp.get(), 0, {FenceSge()});
    }
    side_.channel.Barrier(++round_);
    for (const Connection& fence : fences_) {
      WaitForSuccess(fence.recv_cq.get(), side_.options.timeout_s, "a fence");
    }
  }

  [[nodiscard]] ibv_sge FenceSge() const {
    return {reinterpret_cast<uintptr_t>(fence_bytes_.data()),
            static_cast<uint32_t>(fence_bytes_.size()), fence_mr_->lkey};
  }

  Side& side_;
  Device device_;
  std::mt19937 random_;
  std::vector<uint8_t> memory_;
  std::vector<uint8_t> fence_bytes_;
  MrPtr fence_mr_;
  std::vector<Connection> fences_;
  uint32_t round_ = 0;
};

void Run(Side& side) {
  const int rounds = side.options.rounds != 0 ? side.options.rounds : 3;
  Test test(side);
  for (int round = 0; round < rounds; round++) {
    for (const Way& way : Ways()) {
      test.Run(way);
    }
  }
  if (side.leads) {
    std::cout << "ok: memory given back in " << Ways().size() << " ways, "
              << rounds << " times\n";
  }
}

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(
      argc, argv, "memory that was given back is not sent", ropcie::Run);
}
