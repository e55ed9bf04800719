// SPDX-License-Identifier: GPL-2.0
// Traffic whose link is lost again and again: what arrived is intact and in
// order, every work request completes exactly once, the queue pairs end in ERR
// with their event, and new ones work when the link is back. Each round begins
// with a fork under traffic, which must not take any memory from the device.
// Prints "running" in each round, when it is time to cut the link.
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
#include <cstring>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "failure.h"
#include "pattern.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr uint32_t kQps = 4;
constexpr uint64_t kOutstanding = 4;  // in each direction of each QP
constexpr std::array<size_t, 6> kLengths = {1, 28, 29, 4096, 65536, 262144};
constexpr size_t kLongest = 262144;
constexpr int kRounds = 20;

using Clock = std::chrono::steady_clock;

size_t LengthOf(uint64_t sequence) {
  return kLengths[sequence % kLengths.size()];
}

// One half of a QP: what was posted, and what of it has completed.
struct Half {
  uint64_t posted = 0;
  uint64_t completed = 0;
  uint64_t good = 0;
  uint64_t mark = 0;
  bool failed = false;
  bool exhausted = false;  // with RETRY_EXC_ERR
  Clock::time_point last_good;
};

class Flow {
 public:
  Flow(Side* side, const Device& device, Arena* arena, const Pattern* pattern,
       uint32_t number)
      : side_(side), arena_(arena), pattern_(pattern), number_(number) {
    for (uint64_t i = 0; i < kOutstanding; ++i) {
      out_.push_back(arena->Take(kLongest, 0, false));
      in_.push_back(arena->Take(kLongest, 0, false));
    }
    QpConfig config;
    if (side->options.peer_may_die) {
      // A peer's queue pairs are destroyed a little before its device goes: it
      // is the link's loss that ends these, not that nobody answers.
      config.timeout = 20;  // 4.3 s
    }
    connection_ = Connect(device, *side, config);
    while (receive_.posted < kOutstanding) {
      Receive();
    }
  }

  void Start() {
    while (send_.posted < kOutstanding) {
      Send();
    }
  }

  // Takes what has completed; posts in its place unless that is over.
  void Poll(bool again) {
    std::array<ibv_wc, 2 * kOutstanding> done{};
    for (const bool receives : {false, true}) {
      ibv_cq* const cq =
          (receives ? connection_.recv_cq : connection_.send_cq).get();
      const int count =
          ibv_poll_cq(cq, static_cast<int>(done.size()), done.data());
      if (count < 0 && side_->options.loses_device) {
        refused_ = true;
        return;
      }
      Check(count >= 0, "ibv_poll_cq failed");
      for (int i = 0; i < count; ++i) {
        Completed(done.at(static_cast<size_t>(i)), receives);
        if (again && !failed() && !refused_) {
          Post(receives);
        }
      }
    }
  }

  // All of it, the work requests of the error state too.
  [[nodiscard]] bool Drained() const {
    return send_.completed == send_.posted &&
           receive_.completed == receive_.posted;
  }

  // What is posted in ERR is flushed as well.
  void PostInError() {
    Check(StateOf(connection_.qp.get()) == IBV_QPS_ERR, "QP ", number_,
          " is in state ", StateOf(connection_.qp.get()), ", not ERR");
    Send();
    Receive();
  }

  // All that is under way will have been posted later.
  void Mark() {
    send_.mark = send_.posted;
    receive_.mark = receive_.posted;
  }

  [[nodiscard]] bool failed() const { return send_.failed || receive_.failed; }
  [[nodiscard]] bool warm() const {
    return send_.good > send_.mark + kOutstanding &&
           receive_.good > receive_.mark + kOutstanding;
  }
  [[nodiscard]] bool over_or_warm() const {
    return failed() || refused_ || warm();
  }
  // From the last success to the first error.
  [[nodiscard]] Clock::duration Silence() const {
    return first_bad_ - std::max(send_.last_good, receive_.last_good);
  }
  [[nodiscard]] bool exhausted() const { return send_.exhausted; }
  [[nodiscard]] uint64_t received() const { return receive_.good; }
  [[nodiscard]] const ibv_qp* qp() const { return connection_.qp.get(); }

 private:
  [[nodiscard]] const uint8_t* Bytes(bool from_leader,
                                     uint64_t sequence) const {
    return pattern_->Bytes(
        ((sequence * kQps) + number_) * 2 + (from_leader ? 1 : 0), 0);
  }

  // A device that goes refuses it, sooner or later.
  void Post(bool receives) {
    try {
      receives ? Receive() : Send();
    } catch (const Failure&) {
      if (!side_->options.loses_device) {
        throw;
      }
      refused_ = true;
    }
  }

  static Piece Part(const Piece& piece, uint64_t sequence) {
    return {piece.offset, LengthOf(sequence)};
  }

  void Send() {
    const Piece& piece = out_.at(send_.posted % kOutstanding);
    std::memcpy(arena_->At(piece.offset), Bytes(side_->leads, send_.posted),
                LengthOf(send_.posted));
    PostSend(connection_.qp.get(), send_.posted,
             {arena_->Sge(Part(piece, send_.posted))});
    ++send_.posted;
  }

  void Receive() {
    PostRecv(connection_.qp.get(), receive_.posted,
             {arena_->Sge(in_.at(receive_.posted % kOutstanding))});
    ++receive_.posted;
  }

  void Completed(const ibv_wc& wc, bool receives) {
    Half* const half = receives ? &receive_ : &send_;
    const std::string what = Text(receives ? "receive " : "send ",
                                  half->completed, " of QP ", number_);
    Check(half->completed < half->posted, what, " was never posted");
    Check(wc.wr_id == half->completed, what, ": ", wc.wr_id, " has completed");
    ++half->completed;
    if (wc.status != IBV_WC_SUCCESS) {
      const bool first = !receives && !half->failed;
      Check(wc.status == IBV_WC_WR_FLUSH_ERR ||
                (first && wc.status == IBV_WC_RETRY_EXC_ERR),
            what, " completed with ", ibv_wc_status_str(wc.status));
      if (!failed()) {
        first_bad_ = Clock::now();
      }
      half->failed = true;
      half->exhausted |= wc.status == IBV_WC_RETRY_EXC_ERR;
      return;
    }
    Check(!half->failed, what, " is a success behind an error");
    ++half->good;
    half->last_good = Clock::now();
    if (!receives) {
      return;
    }
    Check(wc.byte_len == LengthOf(wc.wr_id), what, ": ", wc.byte_len,
          " bytes, not ", LengthOf(wc.wr_id));
    const Piece& piece = in_.at(wc.wr_id % kOutstanding);
    Check(std::memcmp(arena_->At(piece.offset), Bytes(!side_->leads, wc.wr_id),
                      wc.byte_len) == 0,
          what, ": other bytes than were sent");
  }

  Side* side_;
  Arena* arena_;
  const Pattern* pattern_;
  uint32_t number_;
  Connection connection_;
  std::vector<Piece> out_;
  std::vector<Piece> in_;
  Half send_;
  Half receive_;
  Clock::time_point first_bad_;
  bool refused_ = false;
};

// The next event of the device, or none within the time.
bool NextEvent(const Device& device, int timeout_ms, ibv_async_event* event) {
  pollfd wait = {device.context->async_fd, POLLIN, 0};
  if (poll(&wait, 1, timeout_ms) != 1) {
    return false;
  }
  CheckErrno(ibv_get_async_event(device.context.get(), event) == 0 ? 0 : errno,
             "ibv_get_async_event");
  ibv_ack_async_event(event);
  return true;
}

// Waits until each QP has had its IBV_EVENT_QP_FATAL, and sees that none has a
// second one.
void CheckEvents(const Device& device, const std::vector<Flow>& flows,
                 int timeout_s) {
  std::set<const ibv_qp*> waiting;
  for (const Flow& flow : flows) {
    waiting.insert(flow.qp());
  }
  for (;;) {
    ibv_async_event event{};
    if (!NextEvent(device, waiting.empty() ? 50 : timeout_s * 1000, &event)) {
      Check(waiting.empty(), waiting.size(), " QPs have no event after ",
            timeout_s, " s");
      return;
    }
    if (event.event_type == IBV_EVENT_QP_FATAL) {
      Check(waiting.erase(event.element.qp) == 1,
            "IBV_EVENT_QP_FATAL for a QP that has had it");
    }
  }
}

template <typename Condition>
void PollUntil(std::vector<Flow>* flows, bool again, int timeout_s,
               const std::string& what, const Condition& condition) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(timeout_s);
  while (!condition()) {
    for (Flow& flow : *flows) {
      flow.Poll(again);
    }
    Check(std::chrono::steady_clock::now() < end, what, " after ", timeout_s,
          " s");
  }
}

// The device is taken away under traffic. What was posted may end in any way,
// but not wrongly, and what is left can be closed.
void LoseDevice(const Device& device, std::vector<Flow>* flows, int timeout_s) {
  ibv_async_event event{};
  bool gone = false;
  PollUntil(flows, true, timeout_s, "no IBV_EVENT_DEVICE_FATAL", [&] {
    while (!gone && NextEvent(device, 0, &event)) {
      gone = event.event_type == IBV_EVENT_DEVICE_FATAL;
    }
    return gone;
  });
  ibv_port_attr port{};
  const int error = ibv_query_port(device.context.get(), Device::kPort, &port);
  Check(error == EIO, "ibv_query_port of a device that has gone returns ",
        error);
  for (Flow& flow : *flows) {
    flow.Poll(true);
  }
}

// A child with all of the parent's memory, which writes to it. The traffic goes
// on, and the device does not have the child's copies.
void Fork(std::vector<Flow>* flows, Arena* arena) {
  const pid_t child = fork();
  CheckErrno(child < 0 ? errno : 0, "fork");
  if (child == 0) {
    arena->Clear();
    _exit(0);
  }
  for (int i = 0; i < 100; ++i) {
    for (Flow& flow : *flows) {
      flow.Poll(true);
    }
  }
  int status = 0;
  CheckErrno(waitpid(child, &status, 0) < 0 ? errno : 0, "waitpid");
  Check(WIFEXITED(status) && WEXITSTATUS(status) == 0,
        "a child that writes to its own memory ended with status ", status);
  for (Flow& flow : *flows) {
    flow.Mark();
  }
}

// What a round has seen.
struct Seen {
  uint64_t received = 0;
  Clock::duration silence{};
};

Seen Round(Side& side, const Device& device, Arena* arena,
           const Pattern& pattern) {
  const int timeout = side.options.timeout_s;
  arena->Clear();
  std::vector<Flow> flows;
  flows.reserve(kQps);
  for (uint32_t i = 0; i < kQps; ++i) {
    flows.emplace_back(&side, device, arena, &pattern, i);
  }
  side.channel.Barrier(1);
  for (Flow& flow : flows) {
    flow.Start();
  }
  const auto all = [&](bool (Flow::*is)() const) {
    return [&flows, is] {
      return std::all_of(flows.begin(), flows.end(),
                         [is](const Flow& flow) { return (flow.*is)(); });
    };
  };
  PollUntil(&flows, true, timeout, "too little traffic", all(&Flow::warm));
  side.channel.Barrier(2);
  // From here on nobody waits but for completions. The other end may have had
  // its fork, and the link be cut.
  Fork(&flows, arena);
  PollUntil(&flows, true, timeout, "too little traffic after a fork",
            all(&Flow::over_or_warm));
  std::cout << "running\n" << std::flush;
  if (side.options.loses_device) {
    LoseDevice(device, &flows, timeout);
    return {};
  }
  PollUntil(&flows, true, timeout, "the link was not cut", all(&Flow::failed));
  PollUntil(&flows, false, timeout, "work requests are lost",
            all(&Flow::Drained));
  // The others may have had nothing under way when they were told to stop.
  Check(std::any_of(flows.begin(), flows.end(),
                    [](const Flow& flow) { return flow.exhausted(); }),
        "no send has completed with IBV_WC_RETRY_EXC_ERR");
  CheckEvents(device, flows, timeout);
  for (Flow& flow : flows) {
    flow.PostInError();
  }
  PollUntil(&flows, false, timeout, "what is posted in ERR is lost",
            all(&Flow::Drained));
  Seen seen;
  for (const Flow& flow : flows) {
    seen.received += flow.received();
    seen.silence = std::max(seen.silence, flow.Silence());
  }
  arena->CheckGuards("the round");
  return seen;
}

void Run(Side& side) {
  const Device device = OpenDevice(side);
  const Pattern pattern(side.options.seed, kLongest);
  Arena arena(device, (kLongest + 4096) * 2 * kOutstanding * kQps);
  const int rounds = side.options.rounds > 0 ? side.options.rounds : kRounds;
  Seen all;
  for (int i = 0; i < rounds; ++i) {
    const Seen seen = Round(side, device, &arena, pattern);
    all.received += seen.received;
    all.silence = std::max(all.silence, seen.silence);
  }
  if (side.options.loses_device) {
    std::cout << "the device has gone\n";
    return;
  }
  if (!side.options.peer_may_die) {
    side.channel.Barrier(3);
  }
  std::cout << "the link was lost " << rounds << " times, noticed within "
            << std::chrono::duration_cast<std::chrono::milliseconds>(
                   all.silence)
                   .count()
            << " ms; " << all.received
            << " messages arrived before, every byte right\n";
}

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(
      argc, argv, "traffic on links that are cut and come back", ropcie::Run);
}
