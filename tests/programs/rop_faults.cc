// SPDX-License-Identifier: GPL-2.0
// Traffic whose link is lost again and again: what arrived is intact and in
// order, every work request completes exactly once, the queue pairs end in ERR
// with their event, and new ones work when the link is back. Prints "running"
// in each round, when it is time to cut the link.
#include <infiniband/verbs.h>
#include <poll.h>

#include <algorithm>
#include <array>
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

size_t LengthOf(uint64_t sequence) {
  return kLengths[sequence % kLengths.size()];
}

// One half of a QP: what was posted, and what of it has completed.
struct Half {
  uint64_t posted = 0;
  uint64_t completed = 0;
  uint64_t good = 0;
  bool failed = false;
  bool exhausted = false;  // with RETRY_EXC_ERR
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
    connection_ = Connect(device, *side, QpConfig());
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
      Check(count >= 0, "ibv_poll_cq failed");
      for (int i = 0; i < count; ++i) {
        Completed(done.at(static_cast<size_t>(i)), receives);
        if (again && !failed()) {
          receives ? Receive() : Send();
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

  [[nodiscard]] bool failed() const { return send_.failed || receive_.failed; }
  [[nodiscard]] bool warm() const {
    return send_.good > kOutstanding && receive_.good > kOutstanding;
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
      half->failed = true;
      half->exhausted |= wc.status == IBV_WC_RETRY_EXC_ERR;
      return;
    }
    Check(!half->failed, what, " is a success behind an error");
    ++half->good;
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
};

// Waits until each QP has had its IBV_EVENT_QP_FATAL, and sees that none has a
// second one.
void CheckEvents(const Device& device, const std::vector<Flow>& flows,
                 int timeout_s) {
  std::set<const ibv_qp*> waiting;
  for (const Flow& flow : flows) {
    waiting.insert(flow.qp());
  }
  for (;;) {
    pollfd wait = {device.context->async_fd, POLLIN, 0};
    const int ready = poll(&wait, 1, waiting.empty() ? 50 : timeout_s * 1000);
    if (ready == 0 && waiting.empty()) {
      return;
    }
    Check(ready == 1, waiting.size(), " QPs have no event after ", timeout_s,
          " s");
    ibv_async_event event{};
    CheckErrno(
        ibv_get_async_event(device.context.get(), &event) == 0 ? 0 : errno,
        "ibv_get_async_event");
    ibv_ack_async_event(&event);
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

uint64_t Round(Side& side, const Device& device, Arena* arena,
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
  std::cout << "running\n" << std::flush;
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
  uint64_t received = 0;
  for (const Flow& flow : flows) {
    received += flow.received();
  }
  arena->CheckGuards("the round");
  return received;
}

void Run(Side& side) {
  const Device device = OpenDevice(side);
  const Pattern pattern(side.options.seed, kLongest);
  Arena arena(device, (kLongest + 4096) * 2 * kOutstanding * kQps);
  const int rounds = side.options.rounds > 0 ? side.options.rounds : kRounds;
  uint64_t received = 0;
  for (int i = 0; i < rounds; ++i) {
    received += Round(side, device, &arena, pattern);
  }
  side.channel.Barrier(3);
  std::cout << "the link was lost " << rounds << " times; " << received
            << " messages arrived before, every byte right\n";
}

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(
      argc, argv, "traffic on links that are cut and come back", ropcie::Run);
}
