// SPDX-License-Identifier: GPL-2.0
// Traffic with a node whose kernel may lie, until SIGTERM: SENDs, WRITEs, READs
// and atomics on several queue pairs, in both directions. What ends with an
// error begins again on the same queue pairs, without a word to the other side.
// What arrives may be anything; but memory that nobody may write to stays as it
// is to the last byte: what lies around regions and around receives, regions
// without remote rights to write, and one of another protection domain; what
// may not be read either has secrets (secret.h). Each work request completes,
// at the latest when the queue pairs are given up at the end. Prints "running"
// once data flows; some has to flow afterwards, too.
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "failure.h"
#include "secret.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPage = 4096;
constexpr size_t kRegion = 8 * kPage;
constexpr size_t kGap = 128;  // between receives
constexpr uint32_t kDepth = 4;
constexpr unsigned int kRemote =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<bool> over = false;

struct Target {
  uint64_t address;
  uint32_t key;
};

// A region with a page at each end that is not of it. What is not free must
// keep what it has; the pages at the ends, and all of one that nobody may read,
// are secret. The first page of another is public.
class Guarded {
 public:
  enum class Content { kSecret, kPattern };

  Guarded(const Device& device, std::string name, unsigned int access,
          Content content = Content::kSecret)
      : name_(std::move(name)),
        memory_(
            static_cast<uint8_t*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
        copy_(kBytes, kSecret) {
    CheckErrno(memory_ == MAP_FAILED ? errno : 0, "mmap");
    std::mt19937 random(access);
    for (size_t i = 0; i < kRegion && content == Content::kPattern; ++i) {
      copy_.at(kPage + i) =
          i < kPage ? kPublic : static_cast<uint8_t>(random());
    }
    std::memcpy(memory_, copy_.data(), kBytes);
    mr_ =
        RegisterMr(device, memory_ + kPage, kRegion, static_cast<int>(access));
  }
  ~Guarded() {
    mr_.reset();
    munmap(memory_, kBytes);
  }
  Guarded(const Guarded&) = delete;
  Guarded(Guarded&&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  Guarded& operator=(Guarded&&) = delete;

  // A part of it that may change from now on.
  ibv_sge Free(size_t offset, size_t length) {
    for (size_t i = 0; i < length; ++i) {
      free_.at(offset + i) = true;
    }
    return Sge(offset, length);
  }
  [[nodiscard]] ibv_sge Sge(size_t offset, size_t length) const {
    return {AsTarget().address + offset, static_cast<uint32_t>(length),
            mr_->lkey};
  }
  [[nodiscard]] Target AsTarget() const {
    return {reinterpret_cast<uintptr_t>(memory_ + kPage), mr_->rkey};
  }

  void Check() const {
    for (size_t i = 0; i < kBytes; ++i) {
      const bool of_it = i >= kPage && i < kPage + kRegion;
      ropcie::Check(memory_[i] == copy_[i] || (of_it && free_.at(i - kPage)),
                    name_, ": byte ",
                    static_cast<ptrdiff_t>(i) - static_cast<ptrdiff_t>(kPage),
                    " of ", kRegion, " has become ", int{memory_[i]});
    }
  }

 private:
  static constexpr size_t kBytes = kRegion + 2 * kPage;

  std::string name_;
  uint8_t* memory_;
  std::vector<uint8_t> copy_;
  std::array<bool, kRegion> free_{};
  MrPtr mr_;
};

// What the other side may name; what is forbidden it may not. That is tried all
// the same, now and then, so that who watches learns its key.
struct Targets {
  Target read;
  Target write;
  Target atomic;
  std::array<Target, 2> forbidden;
};

// A queue pair with memory of its own.
class Flow {
 public:
  Flow(const Device& device, Side& side, const ibv_sge& source)
      : device_(device),
        source_(source),
        patience_(side.options.timeout_s),
        receives_(device, "receives", IBV_ACCESS_LOCAL_WRITE),
        answers_(device, "answers of READs", IBV_ACCESS_LOCAL_WRITE),
        cq_(CreateCq(device, 2 * kDepth)) {
    for (size_t i = 0; i < kDepth; ++i) {
      constexpr size_t kPart = kRegion / kDepth;
      receive_.at(i) =
          receives_.Free(i * kPart + kGap, kPart - 2 * kGap - 8 * i);
      answer_.at(i) = answers_.Free(i * kPart + kGap, kPart - 2 * kGap - 8 * i);
    }
    config_.cap.max_send_wr = config_.cap.max_recv_wr = kDepth;
    config_.access = IBV_ACCESS_LOCAL_WRITE | kRemote;
    config_.rd_atomic = kDepth;
    config_.retry_cnt = 2;
    qp_ = CreateQp(device, cq_.get(), cq_.get(), &config_);
    mine_ = AddressOf(device, qp_.get());
    peer_ = side.channel.Exchange(mine_);
  }

  // Does all that there is to do now.
  void Go(const Targets& targets, std::mt19937_64* random) {
    Poll();
    if (failed_) {
      Revive();
    } else {
      Post(targets, random);
    }
  }

  // Nothing that was posted is forgotten.
  void End() {
    failed_ = true;
    since_ = Clock::now();
    ToState(qp_.get(), IBV_QPS_ERR);
    while (Waits()) {
      Poll();
    }
  }

  void Check() const {
    receives_.Check();
    answers_.Check();
  }
  [[nodiscard]] uint64_t messages() const { return messages_; }
  [[nodiscard]] uint64_t lives() const { return lives_; }

 private:
  // wr_id: twice its place, and one more for a receive.
  void Completed(const ibv_wc& wc) {
    bool& posted =
        (wc.wr_id % 2 == 1 ? receiving_ : sending_).at(wc.wr_id / 2 % kDepth);
    ropcie::Check(wc.wr_id < size_t{2} * kDepth && posted,
                  "a completion of what was not posted: ", wc.wr_id);
    posted = false;
    if (wc.status == IBV_WC_SUCCESS) {
      ++messages_;
    } else if (!failed_) {
      failed_ = true;
      since_ = Clock::now();
    }
  }

  void Poll() {
    std::array<ibv_wc, size_t{2} * kDepth> done{};
    const int count =
        ibv_poll_cq(cq_.get(), static_cast<int>(done.size()), done.data());
    ropcie::Check(count >= 0, "ibv_poll_cq failed");
    for (int i = 0; i < count; ++i) {
      Completed(done.at(static_cast<size_t>(i)));
    }
  }

  // Has a queue pair with an error work requests that have not completed?
  [[nodiscard]] bool Waits() const {
    const auto is_posted = [](bool posted) { return posted; };
    const bool waits =
        std::any_of(sending_.begin(), sending_.end(), is_posted) ||
        std::any_of(receiving_.begin(), receiving_.end(), is_posted);
    ropcie::Check(!waits || Clock::now() < since_ + patience_,
                  "work requests of a queue pair with an error do not end");
    return waits;
  }

  // All that is posted completes; then the queue pair is as good as new.
  void Revive() {
    const bool waits = Waits();
    const Clock::time_point now = Clock::now();
    if (waits || now < next_try_) {
      return;
    }
    next_try_ = now + std::chrono::milliseconds(20);
    ToState(qp_.get(), IBV_QPS_RESET);
    ToInit(qp_.get(), config_);
    ibv_qp_attr attr = RtrAttr(device_, peer_, config_);
    // There may be no link now, or no more.
    if (ibv_modify_qp(qp_.get(), &attr, kRtrMask) != 0) {
      return;
    }
    attr = RtsAttr(mine_.psn, config_);
    if (ibv_modify_qp(qp_.get(), &attr, kRtsMask) != 0) {
      return;
    }
    failed_ = false;
    ++lives_;
  }

  void Post(const Targets& targets, std::mt19937_64* random) {
    for (size_t i = 0; i < kDepth; ++i) {
      if (!receiving_.at(i)) {
        receiving_.at(i) = true;
        PostRecv(qp_.get(), 2 * i + 1, {receive_.at(i)});
      }
      if (!sending_.at(i)) {
        sending_.at(i) = true;
        PostRequest(i, targets, random);
      }
    }
  }

  void PostRequest(size_t i, const Targets& targets, std::mt19937_64* random) {
    const size_t length = (*random)() % answer_.at(i).length;
    ibv_sge sge = source_;
    Target target{};
    ibv_send_wr wr{};
    wr.wr_id = 2 * i;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_SIGNALED;
    switch ((*random)() % 4) {
      case 0:
        wr.opcode = IBV_WR_SEND;
        break;
      case 1:
        wr.opcode = IBV_WR_RDMA_WRITE;
        target = targets.write;
        break;
      case 2:
        wr.opcode = IBV_WR_RDMA_READ;
        target = targets.read;
        sge = answer_.at(i);
        break;
      default:
        wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        target = targets.atomic;
        sge = answer_.at(i);
    }
    if ((*random)() % 16 == 0) {
      target = targets.forbidden.at((*random)() % targets.forbidden.size());
    }
    if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      wr.wr.atomic.remote_addr = target.address;
      wr.wr.atomic.rkey = target.key;
      wr.wr.atomic.compare_add = 1;
    } else {
      wr.wr.rdma.remote_addr = target.address;
      wr.wr.rdma.rkey = target.key;
    }
    sge.length = wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD
                     ? 8
                     : static_cast<uint32_t>(length);
    ibv_send_wr* bad = nullptr;
    CheckErrno(ibv_post_send(qp_.get(), &wr, &bad), "ibv_post_send");
  }

  const Device& device_;
  ibv_sge source_;
  std::chrono::seconds patience_;
  Guarded receives_;
  Guarded answers_;
  std::array<ibv_sge, kDepth> receive_{};
  std::array<ibv_sge, kDepth> answer_{};
  std::array<bool, kDepth> receiving_{};
  std::array<bool, kDepth> sending_{};
  CqPtr cq_;
  QpConfig config_;
  QpPtr qp_;
  QpAddress mine_{};
  QpAddress peer_{};
  bool failed_ = true;  // at first it is not connected
  Clock::time_point since_;
  Clock::time_point next_try_;
  uint64_t messages_ = 0;
  uint64_t lives_ = 0;
};

void Run(Side& side) {
  // Before "running" is said.
  std::signal(SIGTERM, [](int) { over = true; });
  const Device device = OpenDevice(side);
  Device stranger = OpenDevice(side);
  Guarded source(device, "what is sent", 0, Guarded::Content::kPattern);
  Guarded own(device, "a region without remote rights", IBV_ACCESS_LOCAL_WRITE);
  Guarded readable(device, "a region to read", IBV_ACCESS_REMOTE_READ,
                   Guarded::Content::kPattern);
  Guarded writable(device, "a region to write",
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  Guarded atomic(device, "a region for atomics",
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
                 Guarded::Content::kPattern);
  Guarded foreign(stranger, "a region of another domain",
                  IBV_ACCESS_LOCAL_WRITE | kRemote);
  writable.Free(0, kRegion);
  atomic.Free(0, kRegion);
  std::vector<std::unique_ptr<Flow>> flows;
  flows.reserve(static_cast<size_t>(side.options.qps));
  for (int i = 0; i < side.options.qps; ++i) {
    flows.push_back(
        std::make_unique<Flow>(device, side, source.Sge(0, kRegion)));
  }
  const Targets targets =
      side.channel.Exchange(Targets{readable.AsTarget(),
                                    writable.AsTarget(),
                                    atomic.AsTarget(),
                                    {own.AsTarget(), foreign.AsTarget()}});

  std::mt19937_64 random(side.options.seed);
  const auto messages = [&flows] {
    uint64_t sum = 0;
    for (const auto& flow : flows) {
      sum += flow->messages();
    }
    return sum;
  };
  uint64_t at_first = 0;  // when data flowed
  while (!over) {
    for (const auto& flow : flows) {
      flow->Go(targets, &random);
    }
    // The others' programs want the processor, too.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (at_first == 0 && messages() > flows.size() * kDepth) {
      at_first = messages();
      std::cout << "running\n" << std::flush;
    }
  }

  uint64_t lives = 0;
  const uint64_t meanwhile = messages() - at_first;
  for (const auto& flow : flows) {
    flow->End();
    flow->Check();
    lives += flow->lives();
  }
  Check(meanwhile >= flows.size() * kDepth, "only ", meanwhile,
        " work requests were done after \"running\"");
  for (const Guarded* region :
       {&source, &own, &readable, &writable, &atomic, &foreign}) {
    region->Check();
  }
  std::cout << "guarded: " << messages() << " work requests were done, "
            << flows.size() << " queue pairs began " << lives
            << " times, not a byte beside them has changed\n";
}

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(
      argc, argv, "traffic with a node whose kernel may lie, memory guarded",
      ropcie::Run);
}
