// SPDX-License-Identifier: GPL-2.0
// Verified traffic of all kinds on queue pairs, reliable and unreliable ones
// and some that are connected with themselves, while others of them come to
// their end: in each round some are put into error, reset or destroyed by one
// side, while the other posts to them, and then connected anew. What completes
// does so in order; what completed with success has arrived, every byte of it;
// and who comes to no end loses nothing.
#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "failure.h"
#include "pattern.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr int kRounds = 40;
constexpr uint32_t kOps = 36;  // of each side of each QP in a round
constexpr uint32_t kBurst = 9;
constexpr int kFetches = 2;  // on their way at a time, less than in a burst
constexpr size_t kShort = size_t{16} * 1024;
constexpr size_t kLong = size_t{128} * 1024;
constexpr uint32_t kLongEach = 12;  // one of so many
constexpr size_t kWord = sizeof(uint64_t);
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                        IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

enum class Kind : uint8_t { kRead, kAdd, kSend, kWrite, kWriteImm, kSendImm };
enum class Fate : uint8_t { kLives, kError, kReset, kDestroyed };

// What a side has at the other's disposal: offsets are the same on both.
struct Memory {
  uint64_t base;
  uint32_t rkey;
};

bool TakesReceive(Kind kind) {
  return kind == Kind::kSend || kind == Kind::kSendImm ||
         kind == Kind::kWriteImm;
}

bool HasImmediate(Kind kind) {
  return kind == Kind::kSendImm || kind == Kind::kWriteImm;
}

// One end of a connection, and its round.
struct End {
  ibv_qp_type type = IBV_QPT_RC;
  bool with_itself = false;
  bool untimed = false;  // lives, and has no timer that would help it on
  QpPtr qp;
  Fate fate = Fate::kLives;
  bool mine = false;       // it is this side that ends it,
  uint32_t at = 0;         // when so many were posted
  bool gone = false;       // that was done, and nothing completes any more
  std::vector<Piece> in;   // where what the peer sends or we fetch arrives
  std::vector<Piece> out;  // what we send and the peer reads
  Piece counter{};         // to which the peer adds
  uint32_t ended = 0;      // sends that completed,
  uint32_t good = 0;       // with success: the first of them
  uint32_t receives = 0;   // that completed
  std::vector<uint32_t> to_receive;

  // The last of all is one of which the other side knows that it has come.
  [[nodiscard]] Kind KindOf(uint32_t op) const {
    return type == IBV_QPT_UC ? static_cast<Kind>(2 + op % 4)
                              : static_cast<Kind>(op % 6);
  }
  [[nodiscard]] bool Fetches(uint32_t op) const {
    return KindOf(op) == Kind::kRead || KindOf(op) == Kind::kAdd;
  }
  [[nodiscard]] uint32_t Adds(uint32_t before) const {
    uint32_t count = 0;
    for (uint32_t op = 0; op < before; ++op) {
      count += KindOf(op) == Kind::kAdd ? 1 : 0;
    }
    return count;
  }
};

class Churn {
 public:
  explicit Churn(Side& side)
      : side_(side),
        device_(OpenDevice(side)),
        pattern_(side.options.seed, kLong),
        arena_(device_, Count(side) * kPerEnd, kAccess),
        mine_{reinterpret_cast<uintptr_t>(arena_.At(0)), arena_.mr()->rkey},
        peer_(side.channel.Exchange(mine_)),
        send_cq_(CreateCq(device_, static_cast<int>(Count(side) * kOps))),
        recv_cq_(CreateCq(device_, static_cast<int>(Count(side) * kOps))),
        ends_(Count(side)) {
    config_.cap.max_send_wr = kOps;
    config_.cap.max_recv_wr = kOps;
    config_.timeout = 13;  // 34 ms
    config_.rd_atomic =
        static_cast<uint8_t>(std::min({kFetches, device_.attr.max_qp_rd_atom,
                                       device_.attr.max_qp_init_rd_atom}));
    for (size_t q = 0; q < ends_.size(); ++q) {
      ends_[q].type = q % 4 == 3 ? IBV_QPT_UC : IBV_QPT_RC;
      ends_[q].with_itself = q % 4 == 2;
      ends_[q].untimed = q % 4 == 1;
      Connect(&ends_[q]);
    }
  }

  void Run() {
    const int rounds =
        side_.options.rounds > 0 ? side_.options.rounds : kRounds;
    for (round_ = 0; round_ < static_cast<uint32_t>(rounds); ++round_) {
      Prepare();
      side_.channel.Barrier(2 * round_);
      Transfer();
      Await();
      side_.channel.Barrier(2 * round_ + 1);
      Verify();
      for (End& end : ends_) {
        if (end.fate != Fate::kLives) {
          Connect(&end);
        }
      }
    }
    side_.channel.Barrier(0);
    std::cout << (side_.leads ? "leading side: " : "other side: ") << rounds
              << " rounds, " << messages_ << " messages are right, "
              << failures_ << " failed with queue pairs that came to an end\n";
    Check(messages_ > 0, "nothing was sent");
  }

 private:
  static constexpr size_t kPerEnd =
      2 * (kOps * (kShort + 512) + kOps / kLongEach * kLong);

  static size_t Count(const Side& side) {
    return static_cast<size_t>(side.options.qps);
  }

  [[nodiscard]] std::string NameOf(const End& end, uint32_t op) const {
    static constexpr std::array kNames = {"READ",  "FETCH_ADD", "SEND",
                                          "WRITE", "WRITE_IMM", "SEND_IMM"};
    static constexpr std::array kFates = {"lives", "error", "reset",
                                          "destroyed"};
    return Text("round ", round_, ", QP ", &end - ends_.data(),
                end.type == IBV_QPT_UC ? " (UC)" : "",
                end.with_itself ? " (with itself)" : "", ", ",
                kFates.at(static_cast<size_t>(end.fate)),
                end.mine ? " here" : "", ", ",
                kNames.at(static_cast<size_t>(end.KindOf(op))), " ", op);
  }

  // From RESET, or from nothing.
  void Connect(End* end) {
    QpConfig config = config_;
    config.type = end->type;
    config.timeout = end->untimed ? 0 : config.timeout;
    config.access = end->type == IBV_QPT_UC
                        ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
                        : kAccess;
    if (!end->qp) {
      end->qp = CreateQp(device_, send_cq_.get(), recv_cq_.get(), &config);
    } else {
      ToState(end->qp.get(), IBV_QPS_RESET);
    }
    ToInit(end->qp.get(), config);
    const QpAddress mine = AddressOf(device_, end->qp.get());
    const QpAddress peer = side_.channel.Exchange(mine);
    ToRts(end->qp.get(), device_, mine, end->with_itself ? mine : peer, config);
  }

  // Both sides draw the same.
  void Prepare() {
    std::mt19937_64 random(side_.options.seed * 1000003 + round_);
    arena_.Clear();
    for (End& end : ends_) {
      const uint64_t fate = random() % 4;
      end.fate = end.untimed ? Fate::kLives : static_cast<Fate>(fate);
      // Each side ends those that are its own alone.
      end.mine = (random() % 2 == 0) == side_.leads || end.with_itself;
      end.at = static_cast<uint32_t>(random() % (kOps / kBurst) * kBurst);
      end.gone = false;
      end.ended = 0;
      end.good = 0;
      end.receives = 0;
      end.to_receive.clear();
      end.in.clear();
      end.out.clear();
      for (uint32_t op = 0; op < kOps; ++op) {
        PrepareOp(&end, op, random() % kShort, random());
      }
      end.counter = arena_.Take(kWord, 0, false);
      std::memset(arena_.At(end.counter.offset), 0, kWord);
    }
  }

  void PrepareOp(End* end, uint32_t op, size_t length, uint64_t random) {
    const Kind kind = end->KindOf(op);
    size_t misaligned = random % 64;
    if (op % kLongEach == kLongEach - 1) {
      length = kLong - random % 3;
    }
    if (kind == Kind::kAdd) {
      length = kWord;
      misaligned = 0;
    }
    end->in.push_back(arena_.Take(length, misaligned, false));
    end->out.push_back(arena_.Take(length, random / 64 % 64, false));
    std::memcpy(arena_.At(end->out[op].offset), Right(*end, op, side_.leads),
                length);
    if (TakesReceive(kind)) {
      end->to_receive.push_back(op);
      PostRecv(end->qp.get(), IdOf(*end, op), {arena_.Sge(end->in[op])});
    }
  }

  // The bytes that a side sends, or that can be read from it.
  [[nodiscard]] const uint8_t* Right(const End& end, uint32_t op,
                                     bool leader) const {
    return pattern_.Bytes((IdOf(end, op) << 1) + (leader ? 1 : 0), 0);
  }

  [[nodiscard]] uint64_t IdOf(const End& end, uint32_t op) const {
    return (uint64_t{round_} * ends_.size() +
            static_cast<uint64_t>(&end - ends_.data())) *
               kOps +
           op;
  }

  End* EndOf(const ibv_wc& wc, uint32_t* op) {
    const uint64_t number = wc.wr_id / kOps;
    *op = static_cast<uint32_t>(wc.wr_id % kOps);
    End& end = ends_[number % ends_.size()];
    Check(number / ends_.size() == round_, NameOf(end, *op),
          ": completed, but was posted in round ", number / ends_.size());
    Check(!end.gone, NameOf(end, *op), ": completed after the QP's end");
    return &end;
  }

  // All queue pairs in turn, so that none is idle when another ends.
  void Transfer() {
    for (uint32_t op = 0; op < kOps; op += kBurst) {
      for (End& end : ends_) {
        if (end.mine && end.at == op) {
          ComeToEnd(&end);
        }
        if (!end.gone) {
          PostBurst(&end, op);
        }
      }
      Poll();
    }
  }

  static void ComeToEnd(End* end) {
    switch (end->fate) {
      case Fate::kLives:
        return;
      case Fate::kError:
        ToState(end->qp.get(), IBV_QPS_ERR);
        return;
      case Fate::kReset:
        ToState(end->qp.get(), IBV_QPS_RESET);
        break;
      case Fate::kDestroyed:
        end->qp.reset();
        break;
    }
    end->gone = true;
  }

  // One list of them: those that have to wait for an answer wait in the queue.
  void PostBurst(End* end, uint32_t first) {
    std::array<ibv_sge, kBurst> sges{};
    std::array<ibv_send_wr, kBurst> wrs{};
    for (uint32_t i = 0; i < kBurst; ++i) {
      Fill(*end, first + i, &wrs.at(i), &sges.at(i));
      wrs.at(i).next = i + 1 < kBurst ? &wrs.at(i + 1) : nullptr;
    }
    ibv_send_wr* bad = nullptr;
    CheckErrno(ibv_post_send(end->qp.get(), wrs.data(), &bad),
               "ibv_post_send of ", NameOf(*end, first));
  }

  void Fill(const End& end, uint32_t op, ibv_send_wr* wr, ibv_sge* sge) {
    const Memory& peer = end.with_itself ? mine_ : peer_;
    const Kind kind = end.KindOf(op);
    *sge = arena_.Sge(end.Fetches(op) ? end.in[op] : end.out[op]);
    wr->wr_id = IdOf(end, op);
    wr->sg_list = sge;
    wr->num_sge = 1;
    wr->send_flags = IBV_SEND_SIGNALED;
    wr->imm_data = htonl(op);
    switch (kind) {
      case Kind::kRead:
        wr->opcode = IBV_WR_RDMA_READ;
        wr->wr.rdma = {peer.base + end.out[op].offset, peer.rkey};
        break;
      case Kind::kAdd:
        wr->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        wr->wr.atomic = {peer.base + end.counter.offset, 1, 0, peer.rkey};
        break;
      case Kind::kSend:
      case Kind::kSendImm:
        wr->opcode = HasImmediate(kind) ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
        break;
      case Kind::kWrite:
      case Kind::kWriteImm:
        wr->opcode =
            HasImmediate(kind) ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
        wr->wr.rdma = {peer.base + end.in[op].offset, peer.rkey};
        break;
    }
  }

  bool Poll() {
    std::array<ibv_wc, 64> done{};
    bool any = false;
    for (const bool sends : {true, false}) {
      ibv_cq* cq = sends ? send_cq_.get() : recv_cq_.get();
      const int count =
          ibv_poll_cq(cq, static_cast<int>(done.size()), done.data());
      Check(count >= 0, "ibv_poll_cq failed");
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        if (sends) {
          Sent(done.at(i));
        } else {
          Received(done.at(i));
        }
      }
      any = any || count > 0;
    }
    return any;
  }

  void Sent(const ibv_wc& wc) {
    uint32_t op = 0;
    End* end = EndOf(wc, &op);
    Check(op == end->ended, NameOf(*end, op), ": completed out of order, ",
          end->ended, " is next");
    if (wc.status == IBV_WC_SUCCESS) {
      Check(end->good == op, NameOf(*end, op), ": succeeded after an error");
      ++end->good;
      ++messages_;
    } else {
      const bool first = end->good == op && !end->mine;
      Check(end->fate != Fate::kLives, NameOf(*end, op), ": completed with ",
            ibv_wc_status_str(wc.status));
      Check(wc.status == (first ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR),
            NameOf(*end, op), ": failed with ", ibv_wc_status_str(wc.status));
      ++failures_;
    }
    ++end->ended;
  }

  void Received(const ibv_wc& wc) {
    uint32_t op = 0;
    End* end = EndOf(wc, &op);
    const Kind kind = end->KindOf(op);
    Check(end->receives < end->to_receive.size() &&
              end->to_receive[end->receives] == op,
          NameOf(*end, op), ": received out of order");
    ++end->receives;
    if (wc.status != IBV_WC_SUCCESS) {
      Check(end->fate != Fate::kLives && wc.status == IBV_WC_WR_FLUSH_ERR,
            NameOf(*end, op), ": received with ", ibv_wc_status_str(wc.status));
      return;
    }
    Check(wc.byte_len == end->in[op].length, NameOf(*end, op), ": received ",
          wc.byte_len, " bytes, not ", end->in[op].length);
    Check(((wc.wc_flags & IBV_WC_WITH_IMM) != 0) == HasImmediate(kind) &&
              (!HasImmediate(kind) || ntohl(wc.imm_data) == op),
          NameOf(*end, op), ": received with wrong immediate data");
  }

  // The first that has not ended, or nullptr.
  [[nodiscard]] const End* Unfinished() const {
    for (const End& end : ends_) {
      const bool all_come = end.fate == Fate::kLives;
      if (!end.gone && (end.ended < kOps ||
                        (all_come && end.receives < end.to_receive.size()))) {
        return &end;
      }
    }
    return nullptr;
  }

  void Await() {
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::seconds(side_.options.timeout_s);
    const End* waits = Unfinished();
    while (waits != nullptr) {
      if (!Poll()) {
        Check(std::chrono::steady_clock::now() < end,
              NameOf(*waits, std::min(waits->ended, kOps - 1)),
              " is next and does not come; ", waits->receives, " of ",
              waits->to_receive.size(), " receives completed");
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
      waits = Unfinished();
    }
  }

  void Verify() {
    for (End& end : ends_) {
      const uint32_t peers_good = side_.channel.Exchange(end.good);
      const uint32_t landed = end.with_itself ? end.good : peers_good;
      const bool from_leader = side_.leads == end.with_itself;
      uint64_t added = 0;
      for (uint32_t op = 0; op < kOps; ++op) {
        const Kind kind = end.KindOf(op);
        const uint8_t* in = arena_.At(end.in[op].offset);
        if (kind == Kind::kAdd) {
          uint64_t value = 0;
          std::memcpy(&value, in, kWord);
          Check(op >= end.good || value == added, NameOf(end, op),
                ": there was ", value, " instead of ", added);
          ++added;
          continue;
        }
        // What an unreliable one has sent has come when all has.
        const bool came = end.Fetches(op)
                              ? op < end.good
                              : op < landed && (end.type != IBV_QPT_UC ||
                                                end.fate == Fate::kLives);
        Check(!came || std::memcmp(in, Right(end, op, from_leader),
                                   end.in[op].length) == 0,
              NameOf(end, op), ": has wrong bytes");
      }
      uint64_t count = 0;
      std::memcpy(&count, arena_.At(end.counter.offset), kWord);
      Check(count >= end.Adds(landed) &&
                count <= (end.fate == Fate::kLives ? end.Adds(landed)
                                                   : end.Adds(kOps)),
            NameOf(end, 1), ": the sum is ", count, ", of ", end.Adds(landed),
            " that succeeded");
    }
    arena_.CheckGuards(Text("round ", round_));
  }

  Side& side_;
  Device device_;
  Pattern pattern_;
  Arena arena_;
  Memory mine_;
  Memory peer_;
  CqPtr send_cq_;
  CqPtr recv_cq_;
  std::vector<End> ends_;  // after what they use
  QpConfig config_;
  uint32_t round_ = 0;
  uint64_t messages_ = 0;
  uint64_t failures_ = 0;
};

void Run(Side& side) { Churn(side).Run(); }

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(
      argc, argv, "verified traffic while queue pairs come to their end",
      ropcie::Run);
}
