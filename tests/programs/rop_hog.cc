// SPDX-License-Identifier: GPL-2.0
// Opens a lot of everything and transfers for ever on all QPs, in both
// directions, until it is killed or its peer is gone: for tests of what the
// kernel cleans up, and of what must not disturb anybody. Every message is
// verified. Prints "running" once data flows, and after each SIGUSR1 "all go
// on" once each of its QPs has sent and received messages that were posted
// since, and for how long at most nothing at all had completed since the last
// such line. With --peer-may-die its work requests must end as they should when
// the peer's program has died: with one QP on a link without other traffic in
// the time to the point; or before that, if the port fails meanwhile, as the
// peer's modules go with its program. Otherwise an error or an event of a queue
// is a failure.
#include <infiniband/verbs.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
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
constexpr auto kAckTime = std::chrono::nanoseconds(4096 << kAckTimeout);
// A time-out's longest, where a lane is busy with others.
constexpr int kStretch = 16;
// Within which an event that there must not be would come.
constexpr int kQuietMs = 50;
constexpr size_t kIdleMrs = 16;
constexpr size_t kPage = 4096;  // as far apart as messages begin in a pattern

volatile std::sig_atomic_t asked = 0;  // by a signal, whether all goes on

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
    tries_ = 1 + config.retry_cnt;
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
      flows_.at(i).answered = Clock::now();
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
      Listen(count > 0);
      if (count == 0) {
        Check(side_.options.peer_may_die || !EventComes(0),
              "there is an event without a reason");
        std::this_thread::yield();
      }
      for (int i = 0; i < count; ++i) {
        const ibv_wc& wc = done.at(static_cast<size_t>(i));
        if (wc.status == IBV_WC_SUCCESS) {
          Again(wc);
          continue;
        }
        // The peer may die before its end of the channel is seen to close.
        std::cout << "stopped by " << ibv_wc_status_str(wc.status) << "\n";
        Check(side_.options.peer_may_die, "the peer is gone");
        for (; i < count; ++i) {
          Ended(done.at(static_cast<size_t>(i)));
        }
        SeeDeath();
        return;
      }
      Answer();
      const uint64_t before = messages;
      messages += static_cast<uint64_t>(count);
      if (before < qps_.size() && messages >= qps_.size()) {
        std::cout << "running\n" << std::flush;
      }
    }
    Check(side_.options.peer_may_die, "the peer is gone");
    SeeDeath();
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Somebody has asked: messages that were posted since, in each direction of
  // each queue pair. Of those that come, kOutstanding may have been here, and
  // as many posted by the peer, before.
  void Answer() {
    if (asked != 0) {
      asked = 0;
      asked_ = true;
      for (Flow& flow : flows_) {
        flow.sent_since = flow.received_since = 0;
      }
    }
    if (asked_ &&
        std::all_of(flows_.begin(), flows_.end(), [](const Flow& flow) {
          return flow.sent_since > kOutstanding &&
                 flow.received_since > 2 * kOutstanding;
        })) {
      asked_ = false;
      std::cout << "all go on; silent for "
                << std::chrono::duration_cast<std::chrono::milliseconds>(
                       most_quiet_)
                       .count()
                << " ms at most\n"
                << std::flush;
      most_quiet_ = {};
    }
  }

  // How long nothing has come. While others have the processor, nobody listens.
  void Listen(bool comes) {
    const Clock::time_point now = Clock::now();
    quiet_ += std::min<Clock::duration>(now - listened_,
                                        std::chrono::milliseconds(10));
    listened_ = now;
    most_quiet_ = std::max(most_quiet_, quiet_);
    if (comes) {
      quiet_ = {};
    }
  }

  // The peer's queue pairs are destroyed, and nobody answers: each queue pair
  // has one RETRY_EXC_ERR when its time is over, and flushes what is left.
  // There is no event, but where the port fails.
  void SeeDeath() {
    const Clock::time_point end = Clock::now() + 2 * Most();
    while (!std::all_of(flows_.begin(), flows_.end(), [](const Flow& flow) {
      return flow.failed && flow.posted_sends == 0 && flow.posted_receives == 0;
    })) {
      std::array<ibv_wc, 64> done{};
      const int count =
          ibv_poll_cq(cq_.get(), static_cast<int>(done.size()), done.data());
      Check(count >= 0, "ibv_poll_cq failed");
      for (int i = 0; i < count; ++i) {
        Ended(done.at(static_cast<size_t>(i)));
      }
      Check(Clock::now() < end, "work requests to a dead program do not end");
    }
    Check(!EventComes(kQuietMs) || PortFails(),
          "the death of a program is an event");
  }

  // The longest that nobody answers before that is an error.
  [[nodiscard]] Clock::duration Most() const {
    return (flows_.size() > 1 ? kStretch : 1) * tries_ * kAckTime +
           std::chrono::milliseconds(SoonMs());
  }

  // What happens at the same time; a slow machine has longer.
  [[nodiscard]] int SoonMs() const { return side_.options.timeout_s * 20; }

  [[nodiscard]] bool PortFails() {
    const Clock::time_point end =
        Clock::now() + std::chrono::milliseconds(SoonMs());
    while (!port_failed_ && Clock::now() < end) {
      EventComes(kQuietMs);
    }
    return port_failed_;
  }

  // It may have been answered until the peer was quite dead.
  void Ended(const ibv_wc& wc) {
    Flow& flow = flows_.at(wc.wr_id / 2);
    const bool receives = wc.wr_id % 2 == 1;
    if (wc.status == IBV_WC_SUCCESS) {
      Check(receives || !flow.failed, "a success behind an error");
      Again(wc);
      return;
    }
    --(receives ? flow.posted_receives : flow.posted_sends);
    const bool first = !receives && !flow.failed;
    Check(wc.status == (first ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR),
          "a work request to a dead program completed with ",
          ibv_wc_status_str(wc.status));
    if (!first) {
      return;
    }
    flow.failed = true;
    // This program may have seen the last answer late.
    const Clock::duration time = Clock::now() - flow.answered;
    const auto ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
    std::cout << "nobody answered for " << ms << " ms\n";
    Check((time > tries_ * kAckTime / 2 && time < Most()) || PortFails(),
          "that nobody answers is an error after ", ms, " ms");
  }

  // Does one that means a queue pair or a CQ? Others, as of addresses, are
  // nothing to it.
  bool EventComes(int timeout_ms) {
    pollfd wait = {device_.context->async_fd, POLLIN, 0};
    bool comes = false;
    while (poll(&wait, 1, timeout_ms) == 1) {
      ibv_async_event event{};
      CheckErrno(
          ibv_get_async_event(device_.context.get(), &event) == 0 ? 0 : errno,
          "ibv_get_async_event");
      comes |= event.event_type == IBV_EVENT_QP_FATAL ||
               event.event_type == IBV_EVENT_QP_REQ_ERR ||
               event.event_type == IBV_EVENT_QP_ACCESS_ERR ||
               event.event_type == IBV_EVENT_CQ_ERR;
      port_failed_ |= event.event_type == IBV_EVENT_PORT_ERR;
      const bool last = event.event_type == IBV_EVENT_DEVICE_FATAL;
      ibv_ack_async_event(&event);
      Check(!last, "the device has gone");
    }
    return comes;
  }

  // The next of its kind.
  void Again(const ibv_wc& wc) {
    const uint64_t qp = wc.wr_id / 2;
    Flow& flow = flows_.at(qp);
    if (wc.opcode == IBV_WC_RECV) {
      Verify(wc);
      ++flow.received_since;
      --flow.posted_receives;
      Receive(qp);
    } else {
      flow.answered = Clock::now();
      ++flow.sent_since;
      --flow.posted_sends;
      Send(qp);
    }
  }

  // A queue pair in one direction; messages are numbered.
  struct Flow {
    std::array<Piece, kOutstanding> targets;
    uint64_t sent = 0;
    uint64_t to_receive = 0;
    uint64_t received = 0;
    int posted_sends = 0;
    int posted_receives = 0;
    Clock::time_point answered;  // the last of the sends
    bool failed = false;
    int sent_since = 0;  // somebody asked
    int received_since = 0;
  };

  [[nodiscard]] const uint8_t* Bytes(bool mine, uint64_t qp,
                                     uint64_t message) const {
    return pattern_.Bytes(
        (message * flows_.size() + qp) * 2 + (mine == side_.leads ? 1 : 0), 0);
  }

  void Send(uint64_t qp) {
    const auto phase = static_cast<size_t>(
        Bytes(true, qp, flows_.at(qp).sent++) - pattern_.Bytes(0, 0));
    PostSend(qps_.at(qp).get(), 2 * qp,
             {source_.Sge({whole_.offset + phase, kMessage})});
    ++flows_.at(qp).posted_sends;
  }

  void Receive(uint64_t qp) {
    Flow& flow = flows_.at(qp);
    PostRecv(qps_.at(qp).get(), 2 * qp + 1,
             {targets_.Sge(flow.targets.at(flow.to_receive++ % kOutstanding))});
    ++flow.posted_receives;
  }

  void Verify(const ibv_wc& wc) {
    const uint64_t qp = wc.wr_id / 2;
    Flow& flow = flows_.at(qp);
    const uint64_t message = flow.received++;
    Check(wc.byte_len == kMessage &&
              std::memcmp(
                  targets_.At(flow.targets.at(message % kOutstanding).offset),
                  Bytes(false, qp, message), kMessage) == 0,
          "message ", message, " of QP ", qp, ": other bytes than were sent");
  }

  Side& side_;
  Device device_;
  ChannelPtr channel_;
  Pattern pattern_;
  Arena source_;
  Arena targets_;
  Piece whole_{};
  int tries_ = 0;
  std::vector<std::unique_ptr<Arena>> idle_;
  std::vector<Flow> flows_;
  CqPtr cq_;
  std::vector<QpPtr> qps_;
  bool port_failed_ = false;
  bool asked_ = false;
  Clock::time_point listened_ = Clock::now();
  Clock::duration quiet_{};
  Clock::duration most_quiet_{};
};

void Run(Side& side) {
  Hog(side).Run();
  Check(side.options.peer_may_die, "the peer is gone");
  std::cout << "the peer is gone\n";
}

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  std::signal(SIGUSR1, [](int) { ropcie::asked = 1; });
  return ropcie::RunProgram(
      argc, argv, "traffic on many QPs until someone kills it", ropcie::Run);
}
