// SPDX-License-Identifier: GPL-2.0
// Opens a lot of everything and transfers for ever on all QPs, in both
// directions, until it is killed or its peer is gone: for tests of what the
// kernel cleans up. Prints "running" once data flows.
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <thread>
#include <vector>

#include "failure.h"
#include "pattern.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr size_t kMessage = size_t{256} * 1024;
constexpr int kOutstanding = 4;  // in each direction of each QP
constexpr size_t kIdleMrs = 16;

class Hog {
 public:
  explicit Hog(Side& side)
      : side_(side),
        device_(OpenDevice(side)),
        channel_(ibv_create_comp_channel(device_.context.get())),
        arena_(device_, 4 * kMessage) {
    CheckErrno(channel_ == nullptr ? errno : 0, "ibv_create_comp_channel");
    source_ = arena_.Sge(arena_.Take(kMessage, 0, false));
    target_ = arena_.Sge(arena_.Take(kMessage, 0, false));
    for (size_t i = 0; i < kIdleMrs; ++i) {
      idle_.push_back(std::make_unique<Arena>(device_, kMessage));
    }
    const int entries = 2 * kOutstanding * side.options.qps;
    cq_ = CreateCq(device_, entries, channel_.get());
    QpConfig config;
    config.cap.max_send_wr = kOutstanding;
    config.cap.max_recv_wr = kOutstanding;
    for (int i = 0; i < side.options.qps; ++i) {
      qps_.push_back(CreateQp(device_, cq_.get(), cq_.get(), &config));
      ToInit(qps_.back().get(), config);
      const QpAddress mine = AddressOf(device_, qps_.back().get());
      ToRts(qps_.back().get(), device_, mine, side.channel.Exchange(mine),
            config);
      for (int j = 0; j < kOutstanding; ++j) {
        PostRecv(qps_.back().get(), qps_.size() - 1, {target_});
      }
    }
    CheckErrno(ibv_req_notify_cq(cq_.get(), 0), "ibv_req_notify_cq");
    side.channel.Barrier(1);
  }

  // Returns when the peer is gone.
  void Run() {
    for (size_t i = 0; i < qps_.size(); ++i) {
      for (int j = 0; j < kOutstanding; ++j) {
        PostSend(qps_[i].get(), i, {source_});
      }
    }
    uint64_t messages = 0;
    while (!side_.channel.Readable()) {
      std::array<ibv_wc, 64> done{};
      const int count =
          ibv_poll_cq(cq_.get(), static_cast<int>(done.size()), done.data());
      Check(count >= 0, "ibv_poll_cq failed");
      if (count == 0) {
        std::this_thread::yield();
      }
      for (int i = 0; i < count; ++i) {
        if (!Again(done.at(static_cast<size_t>(i)))) {
          return;
        }
      }
      const uint64_t before = messages;
      messages += static_cast<uint64_t>(count);
      if (before < qps_.size() && messages >= qps_.size()) {
        std::cout << "running\n" << std::flush;
      }
    }
  }

 private:
  // False if the message failed, which is what a dead peer looks like.
  bool Again(const ibv_wc& wc) {
    if (wc.status != IBV_WC_SUCCESS) {
      std::cout << "stopped by " << ibv_wc_status_str(wc.status) << "\n";
      return false;
    }
    ibv_qp* qp = qps_.at(wc.wr_id).get();
    if (wc.opcode == IBV_WC_RECV) {
      PostRecv(qp, wc.wr_id, {target_});
    } else {
      PostSend(qp, wc.wr_id, {source_});
    }
    return true;
  }

  Side& side_;
  Device device_;
  ChannelPtr channel_;
  Arena arena_;
  std::vector<std::unique_ptr<Arena>> idle_;
  ibv_sge source_{};
  ibv_sge target_{};
  CqPtr cq_;
  std::vector<QpPtr> qps_;
};

void Run(Side& side) {
  Hog(side).Run();
  Check(side.options.peer_may_die, "the peer is gone");
  std::cout << "the peer is gone\n";
}

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(
      argc, argv, "traffic on many QPs until someone kills it", ropcie::Run);
}
