// SPDX-License-Identifier: GPL-2.0
// Traffic of all kinds whose link is lost again and again: what arrived is
// intact and in order, every work request completes exactly once and in the
// right way, each event comes once and in time, datagrams go on by themselves,
// and new queue pairs work when the link is back. Each round begins with a fork
// under traffic, which must not take any memory from the device.
// In turn, one side polls and the other sleeps until there is an event. Where a
// device goes that will be given back, what the peer has sent and written is
// right, too. Prints "running" in each round, when it
// is time to cut the link, how long after the last success each queue pair was
// told, and how long after the first of them the last event came; and "over"
// when a device may be given back.
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "failure.h"
#include "faults_flow.h"
#include "pattern.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr int kRounds = 20;
// Within which an event must not come a second time.
constexpr int kQuietMs = 50;

// Events of the device since the round began. Any that has no reason throws.
class Events {
 public:
  explicit Events(const Device& device) : context_(device.context.get()) {}

  void Forget() {
    Take(0);
    qps_.clear();
    port_errors_ = 0;
    port_actives_ = 0;
    last_first_ = {};
  }

  // All that come within the time, and what is there already.
  void Take(int timeout_ms) {
    pollfd wait = {context_->async_fd, POLLIN, 0};
    // Nothing comes behind the device's end, and who asks would wait for ever.
    while (!device_gone_ && poll(&wait, 1, timeout_ms) == 1) {
      ibv_async_event event{};
      CheckErrno(ibv_get_async_event(context_, &event) == 0 ? 0 : errno,
                 "ibv_get_async_event");
      Note(event);
      ibv_ack_async_event(&event);
    }
  }

  // The device's end is the last.
  void ExpectNoMore() const {
    pollfd wait = {context_->async_fd, POLLIN, 0};
    Check(poll(&wait, 1, kQuietMs) == 0 || (wait.revents & POLLIN) == 0,
          "there is an event behind IBV_EVENT_DEVICE_FATAL");
  }

  [[nodiscard]] int fatal(const Flow& flow) const {
    const auto found = qps_.find(flow.qp());
    return found == qps_.end() ? 0 : found->second.fatal;
  }
  [[nodiscard]] int last_wqe(const Flow& flow) const {
    const auto found = qps_.find(flow.qp());
    return found == qps_.end() ? 0 : found->second.last_wqe;
  }
  [[nodiscard]] int port_errors() const { return port_errors_; }
  [[nodiscard]] int port_actives() const { return port_actives_; }
  [[nodiscard]] bool device_gone() const { return device_gone_; }
  // When the last came of those that tell of the loss, each for the first time.
  [[nodiscard]] Clock::time_point last_first() const { return last_first_; }

 private:
  struct OfQp {
    int fatal = 0;
    int last_wqe = 0;
  };

  void Note(const ibv_async_event& event) {
    switch (event.event_type) {
      case IBV_EVENT_QP_FATAL:
        Count(&qps_[event.element.qp].fatal);
        break;
      case IBV_EVENT_QP_LAST_WQE_REACHED:
        Count(&qps_[event.element.qp].last_wqe);
        break;
      case IBV_EVENT_PORT_ERR:
        Count(&port_errors_);
        break;
      case IBV_EVENT_PORT_ACTIVE:
        ++port_actives_;
        break;
      case IBV_EVENT_DEVICE_FATAL:
        device_gone_ = true;
        last_first_ = Clock::now();
        break;
      case IBV_EVENT_COMM_EST:    // a message that came before RTS
      case IBV_EVENT_GID_CHANGE:  // an interface that is set up
        break;
      default:
        throw Failure(Text("there is an event without a reason: ",
                           ibv_event_type_str(event.event_type)));
    }
  }

  void Count(int* events) {
    if (++*events == 1) {
      last_first_ = Clock::now();
    }
  }

  ibv_context* context_;
  Clock::time_point last_first_;
  std::map<const ibv_qp*, OfQp> qps_;
  int port_errors_ = 0;
  int port_actives_ = 0;
  bool device_gone_ = false;
};

class Round {
 public:
  Round(const Ground& ground, Events* events)
      : ground_(ground),
        options_(ground.side.options),
        events_(events),
        flows_(ground_) {}

  uint64_t Run() {
    ground_.side.channel.Barrier(1);
    flows_.ForEach([](Flow& flow) { flow.Start(); });
    PollUntil("too little traffic", [this] {
      flows_.ForEach([](const Flow& flow) {
        if (flow.failed() || flow.refused()) {
          throw Failure(flow.Progress() +
                        ": it failed before anything was cut");
        }
      });
      return flows_.All([](const Flow& flow) { return flow.warm(); });
    });
    WaitWhileRunning(2, "too little traffic at the other end");
    // From here on nobody waits but for completions. The other end may have
    // had its fork, and the link be cut.
    Fork();
    PollUntil("too little traffic after a fork", [this] {
      return flows_.All([](const Flow& flow) {
        return flow.failed() || flow.refused() || flow.warm();
      });
    });
    std::cout << "running\n" << std::flush;
    if (options_.loses_device) {
      LoseDevice();
    } else {
      LoseLink();
    }
    // The side channel runs over the device's interface: what follows waits
    // until both are back. The old device is still open here.
    if (options_.device_returns) {
      std::cout << "over\n" << std::flush;
      flows_.ForEach([](Flow& flow) { flow.CompareWithPeer(); });
    }
    return Verified();
  }

 private:
  using Condition = std::function<bool()>;

  void PollUntil(const std::string& what, const Condition& condition,
                 int fd = -1) {
    PollFor(std::chrono::seconds(options_.timeout_s), what, condition, fd);
  }

  // For what happens together with something else: a slow machine has longer.
  void PollSoon(const std::string& what, const Condition& condition) {
    PollFor(MostOfSoon(), what, condition);
  }

  [[nodiscard]] std::chrono::milliseconds MostOfSoon() const {
    return options_.timeout_s * std::chrono::milliseconds(20);
  }

  // A barrier at which all goes on: the other end may lack what this one sends.
  void WaitWhileRunning(uint32_t number, const std::string& what) {
    const Channel& channel = ground_.side.channel;
    uint32_t other = 0;
    channel.Write(&number, sizeof(number));
    PollUntil(
        what, [&channel] { return channel.Readable(); }, channel.fd());
    channel.Read(&other, sizeof(other));
    Check(other == number, "out of step: at ", number, ", the peer at ", other);
  }

  // What may make the condition true: completions, events, and the descriptor.
  void PollFor(Clock::duration most, const std::string& what,
               const Condition& condition, int fd = -1) {
    const Clock::time_point end = Clock::now() + most;
    for (;;) {
      flows_.Poll();
      events_->Take(0);
      if (condition()) {
        return;
      }
      if (Clock::now() >= end) {
        throw Failure(Text(
            what, " after ",
            std::chrono::duration_cast<std::chrono::milliseconds>(most).count(),
            " ms", Progress()));
      }
      if (ground_.channel != nullptr) {
        Sleep(end, fd);
      }
    }
  }

  // Each queue that was empty and no more is has raised an event.
  void Sleep(Clock::time_point end, int fd) {
    std::set<const ibv_cq*> told;
    TakeCqEvents(0, &told);
    told.clear();
    flows_.ForEach([](const Flow& flow) { flow.Arm(); });
    // What completed before raises none.
    const std::vector<const ibv_cq*> before = flows_.Poll();
    const int most = before.empty() ? MsUntil(end) : 0;
    std::array<pollfd, 3> wait = {
        {{ground_.channel->fd, POLLIN, 0},
         {ground_.device.context->async_fd, POLLIN, 0},
         {fd, POLLIN, 0}}};
    CheckErrno(poll(wait.data(), wait.size(), most) < 0 ? errno : 0, "poll");
    const std::vector<const ibv_cq*> busy = flows_.Poll();
    TakeCqEvents(0, &told);
    for (const ibv_cq* const cq : busy) {
      if (std::find(before.begin(), before.end(), cq) != before.end()) {
        continue;
      }
      // It may come a little later than what it tells of can be seen.
      const Clock::time_point soon = Clock::now() + MostOfSoon();
      while (!told.contains(cq) && Clock::now() < soon) {
        TakeCqEvents(MsUntil(soon), &told);
      }
      Check(told.contains(cq), "something has completed, and no event told",
            Progress());
    }
  }

  static int MsUntil(Clock::time_point end) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - Clock::now());
    return static_cast<int>(std::max<int64_t>(ms.count(), 0));
  }

  // All that come within the time, and what is there already.
  void TakeCqEvents(int timeout_ms, std::set<const ibv_cq*>* told) const {
    pollfd wait = {ground_.channel->fd, POLLIN, 0};
    for (; poll(&wait, 1, timeout_ms) == 1; timeout_ms = 0) {
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      CheckErrno(
          ibv_get_cq_event(ground_.channel, &cq, &context) != 0 ? errno : 0,
          "ibv_get_cq_event");
      ibv_ack_cq_events(cq, 1);
      told->insert(cq);
    }
  }

  std::string Progress() {
    std::string text;
    flows_.ForEach(
        [&text](const Flow& flow) { text += "\n  " + flow.Progress(); });
    return text;
  }

  // A child with all of the parent's memory, which writes to it. The traffic
  // goes on, and the device does not have the child's copies.
  void Fork() {
    const pid_t child = fork();
    CheckErrno(child < 0 ? errno : 0, "fork");
    if (child == 0) {
      ground_.arena.Clear();
      _exit(0);
    }
    for (int i = 0; i < 100; ++i) {
      flows_.Poll();
    }
    int status = 0;
    CheckErrno(waitpid(child, &status, 0) < 0 ? errno : 0, "waitpid");
    Check(WIFEXITED(status) && WEXITSTATUS(status) == 0,
          "a child that writes to its own memory ended with status ", status);
    flows_.ForEach([](Flow& flow) { flow.Mark(); });
  }

  void LoseLink() {
    PollUntil("the link was not cut", [this] {
      return flows_.AnyConnected(
          [](const Flow& flow) { return flow.failed(); });
    });
    PollSoon("a queue pair has not failed with the others", [this] {
      return flows_.AllConnected(
          [](const Flow& flow) { return flow.failed(); });
    });
    PollSoon("work requests are lost", [this] {
      return flows_.AllConnected(
          [](const Flow& flow) { return flow.drained(); });
    });
    CheckEvents();
    TellWhen();
    flows_.ForEach([](Flow& flow) {
      if (flow.connected()) {
        flow.PostInError();
      }
    });
    PollSoon("what is posted in ERR is lost", [this] {
      return flows_.AllConnected(
          [](const Flow& flow) { return flow.drained(); });
    });
    if (!options_.peer_may_die) {
      ComeBack();
    }
    flows_.ForEach([](Flow& flow) {
      if (!flow.connected()) {
        flow.PostInError();
      }
    });
    PollSoon("work requests of datagrams are lost", [this] {
      return flows_.All([](const Flow& flow) { return flow.drained(); });
    });
    events_->Take(kQuietMs);
    flows_.Poll();  // throws if anything completes again
    CheckEventCounts();
    flows_.ExpectNoReceiveLost();
    ground_.arena.CheckGuards("the round");
  }

  void TellWhen() const {
    Clock::duration least = Clock::duration::max();
    Clock::duration most = Clock::duration::min();
    Clock::time_point first = Clock::time_point::max();
    flows_.ForEach([&](const Flow& flow) {
      if (flow.connected()) {
        least = std::min(least, flow.Silence());
        most = std::max(most, flow.Silence());
        first = std::min(first, flow.first_bad());
      }
    });
    Tell(least, most, events_->last_first() - first);
  }

  static void Tell(Clock::duration least, Clock::duration most,
                   Clock::duration events) {
    const auto ms = [](Clock::duration time) {
      return std::chrono::duration_cast<std::chrono::milliseconds>(time)
          .count();
    };
    std::cout << "noticed after " << ms(least) << " to " << ms(most)
              << " ms, events " << ms(std::max(events, Clock::duration::zero()))
              << " ms later\n"
              << std::flush;
  }

  [[nodiscard]] bool port_goes() const { return !options_.port_stays; }

  void CheckEvents() {
    PollSoon("a queue pair or the port has no event", [this] {
      return flows_.AllConnected([this](const Flow& flow) {
        return events_->fatal(flow) > 0 &&
               (!flow.shares_receives() || events_->last_wqe(flow) > 0);
      }) && (!port_goes() || events_->port_errors() > 0);
    });
  }

  // Each once, and none but these.
  void CheckEventCounts() const {
    flows_.ForEach([this](const Flow& flow) {
      const int fatal = flow.connected() ? 1 : 0;
      Check(events_->fatal(flow) == fatal, flow.name(), " had ",
            events_->fatal(flow), " IBV_EVENT_QP_FATAL, not ", fatal);
      const int last = flow.shares_receives() ? 1 : 0;
      Check(events_->last_wqe(flow) == last, flow.name(), " had ",
            events_->last_wqe(flow), " IBV_EVENT_QP_LAST_WQE_REACHED, not ",
            last);
    });
    const int errors = port_goes() ? 1 : 0;
    Check(events_->port_errors() == errors, "the port had ",
          events_->port_errors(), " IBV_EVENT_PORT_ERR, not ", errors);
    const int actives = port_goes() && !options_.peer_may_die ? 1 : 0;
    // The peer may be back sooner than this is over.
    Check(events_->port_actives() == actives ||
              (options_.peer_may_die && events_->port_actives() <= errors),
          "the port had ", events_->port_actives(),
          " IBV_EVENT_PORT_ACTIVE, not ", actives);
  }

  // The link is there again: datagrams arrive as before, in both directions.
  void ComeBack() {
    flows_.ForEach([](Flow& flow) { flow.Mark(); });
    PollUntil("no datagrams although the link is back", [this] {
      return flows_.All(
          [](const Flow& flow) { return flow.connected() || flow.warm(); });
    });
    PollUntil("the port is not active although the link is back",
              [this] { return !port_goes() || events_->port_actives() > 0; });
    WaitWhileRunning(3, "the peer has no datagrams");
    flows_.ForEach([](Flow& flow) { flow.CompareWithPeer(); });
    // What one end has posted may all have been answered, where its program had
    // no processor before the cut; the other end then waits for its receives.
    const bool mine =
        flows_.AnyConnected([](const Flow& flow) { return flow.exhausted(); });
    const bool peers = ground_.side.channel.Exchange(mine);
    Check(mine || peers,
          "no send of either end has completed with IBV_WC_RETRY_EXC_ERR");
  }

  // The device is taken away under traffic. What was posted may end in any way,
  // but not wrongly. Nothing works then, and all can be closed.
  void LoseDevice() {
    PollUntil("no IBV_EVENT_DEVICE_FATAL",
              [this] { return events_->device_gone(); });
    Clock::time_point good;
    flows_.ForEach(
        [&good](const Flow& flow) { good = std::max(good, flow.last_good()); });
    const Clock::duration silence = events_->last_first() - good;
    Tell(silence, silence, {});
    flows_.ForEach([this](const Flow& flow) {
      Soon(flow.name() + ": ibv_post_send", [&] { return flow.PostedSend(); });
      Soon(flow.name() + ": ibv_post_recv",
           [&] { return flow.PostedReceive(); });
      ibv_wc wc{};
      int count = 1;
      while (count > 0) {
        count = ibv_poll_cq(flow.cq(), 1, &wc);
      }
      Check(count < 0, flow.name(), ": ibv_poll_cq finds nothing wrong");
      Gone(ibv_req_notify_cq(flow.cq(), 0), "ibv_req_notify_cq");
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_ERR;
      Gone(ibv_modify_qp(flow.qp(), &attr, IBV_QP_STATE), "ibv_modify_qp");
    });
    const Device& device = ground_.device;
    ibv_port_attr port{};
    Gone(ibv_query_port(device.context.get(), Device::kPort, &port),
         "ibv_query_port");
    Refused(ibv_alloc_pd(device.context.get()), "ibv_alloc_pd");
    Refused(ibv_create_cq(device.context.get(), 1, nullptr, nullptr, 0),
            "ibv_create_cq");
    char byte = 0;
    Refused(ibv_reg_mr_iova2(device.pd.get(), &byte, sizeof(byte),
                             reinterpret_cast<uintptr_t>(&byte), 0),
            "ibv_reg_mr");
    events_->ExpectNoMore();
  }

  static void Gone(int error, const std::string& what) {
    Check(error == EIO, what, " of a device that has gone returns ", error,
          ", not EIO");
  }

  static void Refused(const void* object, const char* what) {
    Gone(object == nullptr ? errno : 0, what);
  }

  // Its queue is destroyed a little later than the event comes; what is posted
  // until then is taken.
  void Soon(const std::string& what, const std::function<int()>& post) const {
    int error = post();
    for (auto pause = std::chrono::milliseconds(1);
         error == 0 && pause < MostOfSoon(); pause *= 2) {
      std::this_thread::sleep_for(pause);
      error = post();
    }
    Gone(error, what);
  }

  [[nodiscard]] uint64_t Verified() const {
    uint64_t verified = 0;
    flows_.ForEach([&](const Flow& flow) { verified += flow.verified(); });
    return verified;
  }

  Ground ground_;
  const Options& options_;
  Events* events_;
  Flows flows_;
};

// Each side has its turn. Not who loses its device: its events are another
// test's (rop_stage).
bool SleepsIn(int round, const Side& side) {
  return !side.options.loses_device && (round % 2 == 0) != side.leads;
}

ChannelPtr OpenChannel(const Device& device) {
  ChannelPtr channel(ibv_create_comp_channel(device.context.get()));
  CheckErrno(channel == nullptr ? errno : 0, "ibv_create_comp_channel");
  return channel;
}

void Run(Side& side) {
  const Device device = OpenDevice(side);
  const Pattern pattern(side.options.seed, LongestMessage());
  Arena arena(device, Flows::ArenaSize(),
              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
  Events events(device);
  const int rounds = side.options.rounds > 0 ? side.options.rounds : kRounds;
  uint64_t verified = 0;
  for (int i = 0; i < rounds; ++i) {
    arena.Clear();
    events.Forget();
    const ChannelPtr channel =
        SleepsIn(i, side) ? OpenChannel(device) : nullptr;
    verified +=
        Round({side, device, arena, pattern, channel.get()}, &events).Run();
  }
  if (!side.options.loses_device && !side.options.peer_may_die) {
    side.channel.Barrier(3);
  }
  std::cout << (side.options.loses_device ? "the device has gone"
                                          : "the link was lost ");
  if (!side.options.loses_device) {
    std::cout << rounds << " times";
  }
  std::cout << "; " << verified
            << " messages of all kinds arrived, every byte right\n";
}

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(
      argc, argv, "traffic on links that are cut and come back", ropcie::Run);
}
