// SPDX-License-Identifier: GPL-2.0
// Opens a lot of everything and transfers for ever on all QPs, in both
// directions, until it is killed or its peer is gone: for tests of what the
// kernel cleans up, and of what must not disturb anybody. Every message is
// verified. Prints "running" once data flows.
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
// 0.54 s: what the other node gets over in a third of a second may take it
// longer where other programs want the machine's processors.
constexpr uint8_t kAckTimeout = 17;
constexpr size_t kIdleMrs = 16;
constexpr size_t kPage = 4096;  // as far apart as messages begin in a pattern

class Hog {
 public:
  explicit Hog(Side& side)
      : side_(side),
        device_(OpenDevice(side)),
        channel_(ibv_create_comp_channel(device_.context.get())),
        pattern_(side.options.seed, kMessage),
        source_(device_, 2 * kMessage),
        targets_(device_,
                 (kOutstanding * static_cast<size_t>(side.options.qps) + 1) *
                     (kMessage + kPage)) {
    CheckErrno(channel_ == nullptr ? errno : 0, "ibv_create_comp_channel");
    // All messages overlap there.
    whole_ = source_.Take(kMessage + kPage, 0, false);
    std::memcpy(source_.At(whole_.offset), pattern_.Bytes(0, 0), whole_.length);
    for (size_t i = 0; i < kIdleMrs; ++i) {
      idle_.push_back(std::make_unique<Arena>(device_, kMessage));
    }
    const int entries = 2 * kOutstanding * side.options.qps;
    cq_ = CreateCq(device_, entries, channel_.get());
    QpConfig config;
    config.timeout = kAckTimeout;
    config.cap.max_send_wr = kOutstanding;
    config.cap.max_recv_wr = kOutstanding;
    for (int i = 0; i < side.options.qps; ++i) {
      flows_.emplace_back();
      for (Piece& piece : flows_.back().targets) {
        piece = targets_.Take(kMessage, 0, false);
      }
      qps_.push_back(CreateQp(device_, cq_.get(), cq_.get(), &config));
      ToInit(qps_.back().get(), config);
      const QpAddress mine = AddressOf(device_, qps_.back().get());
      ToRts(qps_.back().get(), device_, mine, side.channel.Exchange(mine),
            config);
      for (int j = 0; j < kOutstanding; ++j) {
        Receive(qps_.size() - 1);
      }
    }
    CheckErrno(ibv_req_notify_cq(cq_.get(), 0), "ibv_req_notify_cq");
    side.channel.Barrier(1);
  }

  // Returns when the peer is gone.
  void Run() {
    for (size_t i = 0; i < qps_.size(); ++i) {
      for (int j = 0; j < kOutstanding; ++j) {
        Send(i);
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
    if (wc.opcode == IBV_WC_RECV) {
      Verify(wc);
      Receive(wc.wr_id);
    } else {
      Send(wc.wr_id);
    }
    return true;
  }

  // A queue pair in one direction; messages are numbered.
  struct Flow {
    std::array<Piece, kOutstanding> targets;
    uint64_t sent = 0;
    uint64_t to_receive = 0;
    uint64_t received = 0;
  };

  [[nodiscard]] const uint8_t* Bytes(bool mine, uint64_t qp,
                                     uint64_t message) const {
    return pattern_.Bytes(
        (message * flows_.size() + qp) * 2 + (mine == side_.leads ? 1 : 0), 0);
  }

  void Send(uint64_t qp) {
    const auto phase = static_cast<size_t>(
        Bytes(true, qp, flows_.at(qp).sent++) - pattern_.Bytes(0, 0));
    PostSend(qps_.at(qp).get(), qp,
             {source_.Sge({whole_.offset + phase, kMessage})});
  }

  void Receive(uint64_t qp) {
    Flow& flow = flows_.at(qp);
    PostRecv(qps_.at(qp).get(), qp,
             {targets_.Sge(flow.targets.at(flow.to_receive++ % kOutstanding))});
  }

  void Verify(const ibv_wc& wc) {
    Flow& flow = flows_.at(wc.wr_id);
    const uint64_t message = flow.received++;
    Check(wc.byte_len == kMessage &&
              std::memcmp(
                  targets_.At(flow.targets.at(message % kOutstanding).offset),
                  Bytes(false, wc.wr_id, message), kMessage) == 0,
          "message ", message, " of QP ", wc.wr_id,
          ": other bytes than were sent");
  }

  Side& side_;
  Device device_;
  ChannelPtr channel_;
  Pattern pattern_;
  Arena source_;
  Arena targets_;
  Piece whole_{};
  std::vector<std::unique_ptr<Arena>> idle_;
  std::vector<Flow> flows_;
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
