// SPDX-License-Identifier: GPL-2.0
// Many RC QPs at once, all of them with traffic in both directions, on shared
// CQs: each message must arrive on its own QP, in order, with its own bytes.
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <random>
#include <unordered_map>
#include <vector>

#include "failure.h"
#include "pattern.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr size_t kLongest = size_t{16} * 1024;
constexpr uint64_t kPerRound = 4;  // messages of each QP
constexpr int kRounds = 20;

struct Expected {
  uint64_t number;
  Piece piece;
};

class ManyQps {
 public:
  explicit ManyQps(Side& side)
      : side_(side),
        count_(static_cast<size_t>(side.options.qps)),
        device_(OpenDevice(side)),
        pattern_(side.options.seed, kLongest),
        arena_(device_, 2 * count_ * kPerRound * (kLongest + kGap)) {
    const int entries = static_cast<int>(count_ * kPerRound);
    Check(entries <= device_.attr.max_cqe, "the device's CQs are too short");
    Check(side.options.qps <= device_.attr.max_qp, "the device has only ",
          device_.attr.max_qp, " QPs");
    send_cq_ = CreateCq(device_, entries);
    recv_cq_ = CreateCq(device_, entries);
    QpConfig config;
    config.cap.max_send_wr = kPerRound;
    config.cap.max_recv_wr = kPerRound;
    for (size_t i = 0; i < count_; ++i) {
      qps_.push_back(
          CreateQp(device_, send_cq_.get(), recv_cq_.get(), &config));
      ToInit(qps_[i].get(), config);
      const QpAddress mine = AddressOf(device_, qps_[i].get());
      ToRts(qps_[i].get(), device_, mine, side.channel.Exchange(mine), config);
      Check(index_.emplace(qps_[i]->qp_num, i).second, "QPN ", qps_[i]->qp_num,
            " was given twice");
    }
    expected_.resize(count_);
  }

  void Run() {
    const int rounds =
        side_.options.rounds > 0 ? side_.options.rounds : kRounds;
    for (int round = 0; round < rounds; ++round) {
      Round(static_cast<uint64_t>(round));
    }
    side_.channel.Barrier(0);
    if (side_.leads) {
      std::cout << count_ << " QPs, "
                << static_cast<uint64_t>(rounds) * count_ * kPerRound
                << " messages each way are right\n";
    }
  }

 private:
  static constexpr size_t kGap = 256;

  [[nodiscard]] uint64_t Number(uint64_t round, uint64_t message, size_t qp,
                                bool from_leader) const {
    return (((round * kPerRound + message) * count_ + qp) << 1) |
           (from_leader ? 1U : 0U);
  }

  static size_t LengthOf(uint64_t number) {
    return std::mt19937_64(number)() % kLongest;
  }

  void PostReceives(uint64_t round, uint64_t message) {
    for (size_t qp = 0; qp < count_; ++qp) {
      const uint64_t number = Number(round, message, qp, !side_.leads);
      const Piece piece = arena_.Take(LengthOf(number), number % 64, false);
      PostRecv(qps_[qp].get(), number, {arena_.Sge(piece)});
      expected_[qp].push_back({number, piece});
    }
  }

  void PostSends(uint64_t round, uint64_t message) {
    for (size_t qp = 0; qp < count_; ++qp) {
      const uint64_t number = Number(round, message, qp, side_.leads);
      const Piece piece = arena_.Take(LengthOf(number), number % 64, false);
      std::memcpy(arena_.At(piece.offset), pattern_.Bytes(number, 0),
                  piece.length);
      PostSend(qps_[qp].get(), number, {arena_.Sge(piece)});
    }
  }

  void Round(uint64_t round) {
    arena_.Clear();
    for (auto& list : expected_) {
      list.clear();
    }
    for (uint64_t message = 0; message < kPerRound; ++message) {
      PostReceives(round, message);
    }
    side_.channel.Barrier(static_cast<uint32_t>(round) + 1);
    for (uint64_t message = 0; message < kPerRound; ++message) {
      PostSends(round, message);
    }
    for (const ibv_wc& wc : WaitFor(send_cq_.get(), count_ * kPerRound,
                                    side_.options.timeout_s, "sends")) {
      CheckSuccess(wc, "send");
    }
    std::vector<size_t> taken(count_);
    for (const ibv_wc& wc : Received()) {
      Verify(wc, &taken);
    }
    arena_.CheckGuards(Text("round ", round));
  }

  // The end of a peer completes no receive: its channel tells.
  [[nodiscard]] std::vector<ibv_wc> Received() {
    const size_t count = count_ * kPerRound;
    std::vector<ibv_wc> done;
    for (int s = 0; done.size() < count && s < side_.options.timeout_s; ++s) {
      const bool gone = side_.channel.PeerIsGone();
      const std::vector<ibv_wc> more =
          WaitUpTo(recv_cq_.get(), count - done.size(), 1, "receives");
      done.insert(done.end(), more.begin(), more.end());
      Check(!gone || done.size() == count, "the peer is gone after ",
            done.size(), " of ", count, " receives");
    }
    Check(done.size() == count, "receives: ", done.size(), " of ", count,
          " completions after ", side_.options.timeout_s, " s");
    return done;
  }

  void Verify(const ibv_wc& wc, std::vector<size_t>* taken) {
    CheckSuccess(wc, "receive");
    const auto found = index_.find(wc.qp_num);
    Check(found != index_.end(), "a completion of the unknown QPN ", wc.qp_num);
    const size_t qp = found->second;
    const size_t turn = (*taken)[qp]++;
    Check(turn < kPerRound, "QP ", qp, " completed too much");
    const Expected& right = expected_[qp][turn];
    Check(wc.wr_id == right.number, "QP ", qp, ": message ", wc.wr_id,
          " out of order, ", right.number, " is next");
    Check(wc.byte_len == right.piece.length, "QP ", qp, ": ", wc.byte_len,
          " bytes instead of ", right.piece.length);
    Check(std::memcmp(arena_.At(right.piece.offset),
                      pattern_.Bytes(right.number, 0), right.piece.length) == 0,
          "QP ", qp, ": message ", wc.wr_id, " has wrong bytes");
  }

  Side& side_;
  size_t count_;
  Device device_;
  Pattern pattern_;
  Arena arena_;
  CqPtr send_cq_;
  CqPtr recv_cq_;
  std::vector<QpPtr> qps_;
  std::unordered_map<uint32_t, size_t> index_;
  std::vector<std::vector<Expected>> expected_;
};

void Run(Side& side) { ManyQps(side).Run(); }

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(argc, argv, "verified traffic on many QPs at once",
                            ropcie::Run);
}
