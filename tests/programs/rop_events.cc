// SPDX-License-Identifier: GPL-2.0
// Completion events: one event for each request for notification and none
// without one, solicited-only requests, moderation, acknowledgement, and a long
// ping-pong that sleeps for every completion, which stops for good if one
// wake-up is lost.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>

#include "failure.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr int kRounds = 10000;
// How long an event that must not come is waited for.
constexpr int kQuietMs = 300;
// How long a moderated event waits for other completions: near the longest.
constexpr uint16_t kPeriodUs = 60000;

using Clock = std::chrono::steady_clock;

class Events {
 public:
  explicit Events(Side& side)
      : side_(side),
        device_(OpenDevice(side)),
        channel_(ibv_create_comp_channel(device_.context.get())) {
    CheckErrno(channel_ == nullptr ? errno : 0, "ibv_create_comp_channel");
    send_cq_ = CreateCq(device_, kDepth);
    recv_cq_ = CreateCq(device_, kDepth, channel_.get());
    QpConfig config;
    qp_ = CreateQp(device_, send_cq_.get(), recv_cq_.get(), &config);
    ToInit(qp_.get(), config);
    const QpAddress mine = AddressOf(device_, qp_.get());
    const QpAddress peer = side.channel.Exchange(mine);
    ToRts(qp_.get(), device_, mine, peer, config);
    PostRecvs(kDepth);
    side.channel.Barrier(1);
  }

  void Run() {
    OneSideWatches("one event for one request", &Events::WatchOneEvent,
                   &Events::SendForOneEvent);
    OneSideWatches("solicited only", &Events::WatchSolicited,
                   &Events::SendForSolicited);
    OneSideWatches("some at a time", &Events::WatchSome, &Events::SendSome);
    OneSideWatches("moderation", &Events::WatchModerated,
                   &Events::SendModerated);
    const int rounds =
        side_.options.rounds > 0 ? side_.options.rounds : kRounds;
    PingPong(rounds);
    ibv_ack_cq_events(recv_cq_.get(), unacknowledged_);
    unacknowledged_ = 0;
  }

 private:
  static constexpr int kDepth = 32;
  static constexpr int kSignalEvery = 50;
  static constexpr int kSome = 5;

  void PostRecvs(int count) {
    for (int i = 0; i < count; ++i) {
      PostRecv(qp_.get(), 0, {});
    }
  }

  void Arm(bool solicited_only) {
    CheckErrno(ibv_req_notify_cq(recv_cq_.get(), solicited_only ? 1 : 0),
               "ibv_req_notify_cq");
  }

  // False if there was no event within this time.
  bool TakeEvent(int timeout_ms) {
    pollfd wait{channel_->fd, POLLIN, 0};
    const int ready = poll(&wait, 1, timeout_ms);
    CheckErrno(ready < 0 ? errno : 0, "poll");
    if (ready == 0) {
      return false;
    }
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    CheckErrno(ibv_get_cq_event(channel_.get(), &cq, &context) != 0 ? errno : 0,
               "ibv_get_cq_event");
    Check(cq == recv_cq_.get(), "an event of another CQ");
    ++unacknowledged_;
    return true;
  }

  void ExpectEvent(const std::string& when) {
    Check(TakeEvent(side_.options.timeout_s * 1000), "no event ", when);
  }

  void ExpectNoEvent(const std::string& when) {
    Check(!TakeEvent(kQuietMs), "an event ", when);
  }

  void TakeReceives(int count) {
    for (int i = 0; i < count; ++i) {
      WaitForSuccess(recv_cq_.get(), side_.options.timeout_s, "receive");
      PostRecv(qp_.get(), 0, {});
    }
  }

  void Send(bool solicited) {
    const unsigned int flags =
        solicited ? unsigned{IBV_SEND_SIGNALED} | unsigned{IBV_SEND_SOLICITED}
                  : unsigned{IBV_SEND_SIGNALED};
    PostSend(qp_.get(), 0, {}, flags);
    WaitForSuccess(send_cq_.get(), side_.options.timeout_s, "send");
  }

  // The leader watches while the other sends, then the other way round.
  void OneSideWatches(const std::string& name, void (Events::*watch)(),
                      void (Events::*send)()) {
    for (const bool leader_watches : {true, false}) {
      if (leader_watches == side_.leads) {
        (this->*watch)();
      } else {
        (this->*send)();
      }
      side_.channel.Barrier(2);
    }
    if (side_.leads) {
      std::cout << name << ": right\n" << std::flush;
    }
  }

  void WatchOneEvent() {
    side_.channel.Barrier(10);  // the peer sends one
    side_.channel.Barrier(11);
    ExpectNoEvent("although none was requested");
    TakeReceives(1);

    Arm(false);
    side_.channel.Barrier(12);  // the peer sends three
    ExpectEvent("after a completion that was waited for");
    side_.channel.Barrier(13);
    ExpectNoEvent("for the second completion after one request");
    TakeReceives(3);

    Arm(false);
    side_.channel.Barrier(14);  // the peer sends one
    ExpectEvent("after a second request");
    TakeReceives(1);
  }

  void SendForOneEvent() {
    side_.channel.Barrier(10);
    Send(false);
    side_.channel.Barrier(11);
    side_.channel.Barrier(12);
    for (int i = 0; i < 3; ++i) {
      Send(false);
    }
    side_.channel.Barrier(13);
    side_.channel.Barrier(14);
    Send(false);
  }

  void WatchSolicited() {
    Arm(true);
    side_.channel.Barrier(20);  // the peer sends unsolicited ones
    side_.channel.Barrier(21);
    ExpectNoEvent("for unsolicited completions");
    TakeReceives(4);
    side_.channel.Barrier(22);  // the peer sends a solicited one
    ExpectEvent("for a solicited completion");
    TakeReceives(1);

    // A request for all includes one for solicited ones only.
    Arm(true);
    Arm(false);
    side_.channel.Barrier(23);  // the peer sends an unsolicited one
    ExpectEvent("for an unsolicited completion after a request for all");
    TakeReceives(1);
  }

  void SendForSolicited() {
    side_.channel.Barrier(20);
    for (int i = 0; i < 4; ++i) {
      Send(false);
    }
    side_.channel.Barrier(21);
    side_.channel.Barrier(22);
    Send(true);
    side_.channel.Barrier(23);
    Send(false);
  }

  // Whoever takes one, asks for an event and waits has one for those left.
  void WatchSome() {
    Arm(false);
    side_.channel.Barrier(30);  // the peer sends some
    side_.channel.Barrier(31);
    for (int i = 0; i < kSome; ++i) {
      ExpectEvent(Text("with ", kSome - i, " completions to take"));
      TakeReceives(1);
      Arm(false);
    }
    ExpectNoEvent("when all was taken");

    // Who asks when there are more than the event has told of, and takes some.
    side_.channel.Barrier(32);  // the peer sends some
    ExpectEvent("for the first of them");
    side_.channel.Barrier(33);
    Arm(false);
    TakeReceives(1);
    ExpectEvent("for those behind the one that raised an event");
    TakeReceives(kSome - 1);
  }

  void SendSome() {
    side_.channel.Barrier(30);
    for (int i = 0; i < kSome; ++i) {
      Send(false);
    }
    side_.channel.Barrier(31);
    side_.channel.Barrier(32);
    for (int i = 0; i < kSome; ++i) {
      Send(false);
    }
    side_.channel.Barrier(33);
  }

  void Moderate(uint16_t count, uint16_t period_us) {
    ibv_modify_cq_attr attr{};
    attr.attr_mask = IBV_CQ_ATTR_MODERATE;
    attr.moderate.cq_count = count;
    attr.moderate.cq_period = period_us;
    CheckErrno(ibv_modify_cq(recv_cq_.get(), &attr), "ibv_modify_cq");
  }

  // Arms, lets the peer send, and waits for the event. Returns true if that
  // came no sooner than the period says.
  bool EventIsLate(int barrier) {
    Arm(false);
    const auto start = Clock::now();
    side_.channel.Barrier(barrier);
    ExpectEvent("of a moderated queue");
    return Clock::now() - start >= std::chrono::microseconds(kPeriodUs);
  }

  // An event waits for some completions, or for its time.
  void WatchModerated() {
    Moderate(kSome, kPeriodUs);
    Check(EventIsLate(40), "one completion did not wait for others");
    TakeReceives(1);

    const bool late = EventIsLate(41);
    std::array<ibv_wc, kSome> wc{};
    const int there = ibv_poll_cq(recv_cq_.get(), kSome, wc.data());
    Check(late || there == kSome, "an event came early, with ", there, " of ",
          kSome, " completions");
    PostRecvs(there);
    TakeReceives(kSome - there);

    Moderate(0, 0);
    Arm(false);
    side_.channel.Barrier(42);
    ExpectEvent("of a queue that is not moderated any more");
    TakeReceives(1);
  }

  void SendModerated() {
    side_.channel.Barrier(40);
    Send(false);
    side_.channel.Barrier(41);
    for (int i = 0; i < kSome; ++i) {
      Send(false);
    }
    side_.channel.Barrier(42);
    Send(false);
  }

  // Signaled now and then only: nothing but an event may wake this program.
  void SendQuietly(int round) {
    const bool signaled = round % kSignalEvery == kSignalEvery - 1;
    PostSend(qp_.get(), 0, {},
             unsigned{IBV_SEND_SOLICITED} |
                 (signaled ? unsigned{IBV_SEND_SIGNALED} : 0U));
    if (signaled) {
      WaitForSuccess(send_cq_.get(), side_.options.timeout_s, "send");
    }
  }

  // Arm, look once more, sleep: what every event-driven program does.
  void SleepForReceive(int round) {
    ibv_wc wc{};
    for (;;) {
      int got = ibv_poll_cq(recv_cq_.get(), 1, &wc);
      if (got == 0) {
        Arm(round % 2 == 0);
        got = ibv_poll_cq(recv_cq_.get(), 1, &wc);
      }
      Check(got >= 0, "ibv_poll_cq failed");
      if (got == 1) {
        CheckSuccess(wc, "receive");
        return;
      }
      if (!TakeEvent(side_.options.timeout_s * 1000)) {
        got = ibv_poll_cq(recv_cq_.get(), 1, &wc);
        throw Failure(Text("round ", round, ": slept for ",
                           side_.options.timeout_s, " s, and there is ",
                           got == 1 ? "a completion: its wake-up was lost"
                                    : "no completion: a message was lost"));
      }
    }
  }

  void PingPong(int rounds) {
    const auto start = Clock::now();
    for (int round = 0; round < rounds; ++round) {
      if (side_.leads) {
        SendQuietly(round);
      }
      SleepForReceive(round);
      PostRecv(qp_.get(), 0, {});
      if (!side_.leads) {
        SendQuietly(round);
      }
      if (unacknowledged_ >= 100) {
        ibv_ack_cq_events(recv_cq_.get(), unacknowledged_);
        unacknowledged_ = 0;
      }
    }
    side_.channel.Barrier(3);
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    if (side_.leads) {
      std::cout << "ping-pong: " << rounds << " rounds without a lost wake-up, "
                << took.count() / rounds << " us each\n";
    }
  }

  Side& side_;
  Device device_;
  ChannelPtr channel_;
  CqPtr send_cq_;
  CqPtr recv_cq_;
  QpPtr qp_;
  unsigned int unacknowledged_ = 0;
};

void Run(Side& side) { Events(side).Run(); }

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(argc, argv, "completion events and wake-ups",
                            ropcie::Run);
}
