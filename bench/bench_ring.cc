// SPDX-License-Identifier: GPL-2.0
// What a lane costs, next to what the machine costs anyway: a bare cache line
// that two threads pass to and fro, a bare 64-byte slot, and memcpy. With
// BENCH_OPS in the environment that many iterations of what one thread does.
#include <benchmark/benchmark.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <thread>
#include <vector>

#include "core/lane.h"

namespace ropcie {
namespace {

constexpr ropcie_lane_geom kGeom = {.slots = 1024, .bytes = 4U << 20};
constexpr uint32_t kFrag = ROPCIE_MAX_FRAG;

// The processors that the program may use: asked before any thread is pinned,
// because threads inherit the mask.
std::vector<int> AllowedCpus() {
  cpu_set_t allowed;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
      if (CPU_ISSET(cpu, &allowed)) {
        cpus.push_back(cpu);
      }
    }
  }
  return cpus;
}

// Puts the calling thread on the n-th of them.
void PinToCpu(size_t n) {
  static const std::vector<int> cpus = AllowedCpus();
  if (!cpus.empty()) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpus[n % cpus.size()], &one);
    pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
  }
}

void Relax() { __builtin_ia32_pause(); }

// A second thread on a processor of its own; asked to stop, then joined.
class Partner {
 public:
  explicit Partner(const std::function<void(const std::atomic<bool>&)>& body)
      : thread_([this, body] {
          PinToCpu(1);
          body(stop_);
        }) {
    PinToCpu(0);
  }
  Partner(const Partner&) = delete;
  Partner& operator=(const Partner&) = delete;
  ~Partner() {
    stop_.store(true);
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// One iteration is a round trip. Besides the mean, `best` tells the fastest of
// many short stretches: what it takes when nobody else wants the processors.
class OneWay {
 public:
  explicit OneWay(benchmark::State* state) : state_(state) {}
  OneWay(const OneWay&) = delete;
  OneWay& operator=(const OneWay&) = delete;
  ~OneWay() {
    state_->counters["one_way"] = benchmark::Counter(
        2 * static_cast<double>(state_->iterations()),
        benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
    if (best_ < 1) {
      state_->counters["best"] = best_;
    }
  }

  void Tick() {
    if (++count_ % kStretch != 0) {
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> took = now - start_;
    if (count_ > kStretch) {
      best_ = std::min(best_, took.count() / (2 * kStretch));
    }
    start_ = now;
  }

 private:
  static constexpr uint64_t kStretch = 256;

  benchmark::State* state_;
  uint64_t count_ = 0;
  std::chrono::steady_clock::time_point start_;
  double best_ = 1;
};

// A second process on a processor of its own, over memory that both have.
class PartnerProcess {
 public:
  explicit PartnerProcess(
      const std::function<void(const std::atomic<bool>&)>& body)
      : stop_(new (SharedMemory(sizeof(*stop_))) std::atomic<bool>(false)),
        child_(fork()) {
    if (child_ == 0) {
      PinToCpu(1);
      body(*stop_);
      _exit(0);
    }
    PinToCpu(0);
  }
  PartnerProcess(const PartnerProcess&) = delete;
  PartnerProcess& operator=(const PartnerProcess&) = delete;
  ~PartnerProcess() {
    stop_->store(true);
    waitpid(child_, nullptr, 0);
    munmap(stop_, sizeof(*stop_));
  }

  static void* SharedMemory(size_t size) {
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw std::bad_alloc();
    }
    return memory;
  }

 private:
  std::atomic<bool>* stop_;
  pid_t child_;
};

// Both halves of a lane over memory that a forked process shares.
class SharedLane {
 public:
  explicit SharedLane(uint32_t epoch)
      : size_(kLine + ropcie_lane_size(&kGeom)),
        memory_(static_cast<uint8_t*>(PartnerProcess::SharedMemory(size_))),
        ends_(kGeom.slots) {
    auto* cons = reinterpret_cast<__le32*>(memory_);
    ropcie_lane_tx_init(&tx_, memory_ + kLine, &kGeom, cons, ends_.data(),
                        epoch, false);
    ropcie_lane_rx_init(&rx_, memory_ + kLine, &kGeom, cons, epoch);
  }
  SharedLane(const SharedLane&) = delete;
  SharedLane& operator=(const SharedLane&) = delete;
  ~SharedLane() { munmap(memory_, size_); }

  ropcie_lane_tx* tx() { return &tx_; }
  ropcie_lane_rx* rx() { return &rx_; }

 private:
  static constexpr size_t kLine = 64;

  size_t size_;
  uint8_t* memory_;
  std::vector<u64> ends_;
  ropcie_lane_tx tx_{};
  ropcie_lane_rx rx_{};
};

template <typename AnyLane>
bool Send(AnyLane* lane, std::vector<uint8_t>* payload) {
  const auto len = static_cast<uint32_t>(payload->size());
  const ropcie_hdr hdr = SendHeader(len);
  const ropcie_vec vec = {.base = payload->data(), .len = len};
  return ropcie_lane_send(lane->tx(), &hdr, &vec, 1) == 0;
}

// Waits for a record and copies its payload out. False when told to stop.
template <typename AnyLane>
bool Receive(AnyLane* lane, std::vector<uint8_t>* out,
             const std::atomic<bool>* stop) {
  while (!ropcie_lane_peek(lane->rx())) {
    if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
      return false;
    }
    Relax();
  }
  ropcie_rec rec;
  if (ropcie_lane_recv(lane->rx(), &rec) != 1) {
    return false;
  }
  const ropcie_vec vec = {.base = out->data(),
                          .len = static_cast<uint32_t>(out->size())};
  ropcie_rec_scatter(&rec, 0, &vec, 1);
  ropcie_lane_consume(lane->rx(), &rec);
  return true;
}

void SetIterations(benchmark::internal::Benchmark* what) {
  if (const char* ops = getenv("BENCH_OPS")) {
    what->Iterations(std::strtol(ops, nullptr, 10));
  }
}

void BM_LaneOneThread(benchmark::State& state) {
  Lane lane(7, kGeom);
  std::vector<uint8_t> payload(state.range(0), 0x5a);
  std::vector<uint8_t> out(state.range(0) + 1);
  while (state.KeepRunning()) {
    if (!Send(&lane, &payload) || !Receive(&lane, &out, nullptr)) {
      state.SkipWithError("lane refuses");
      break;
    }
  }
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_LaneOneThread)
    ->Arg(0)
    ->Arg(28)
    ->Arg(64)
    ->Arg(1024)
    ->Arg(4096)
    ->Apply(SetIterations);

void BM_PingPongCacheLine(benchmark::State& state) {
  struct alignas(64) Line {
    std::atomic<uint64_t> value{0};
  };
  std::array<Line, 2> lines;
  const Partner partner([&](const std::atomic<bool>& stop) {
    for (uint64_t turn = 1; !stop.load(std::memory_order_relaxed);) {
      if (lines[0].value.load(std::memory_order_acquire) == turn) {
        lines[1].value.store(turn++, std::memory_order_release);
      } else {
        Relax();
      }
    }
  });
  uint64_t turn = 0;
  OneWay one_way(&state);
  while (state.KeepRunning()) {
    one_way.Tick();
    lines[0].value.store(++turn, std::memory_order_release);
    while (lines[1].value.load(std::memory_order_acquire) != turn) {
      Relax();
    }
  }
}
BENCHMARK(BM_PingPongCacheLine)->UseRealTime();

// The least that a record can cost: a full line written, its last word last.
void BM_PingPongSlot(benchmark::State& state) {
  constexpr size_t kBody = offsetof(ropcie_slot, valid);
  struct alignas(64) Slot {
    std::array<uint8_t, kBody> body{};
    std::atomic<uint64_t> valid{0};
  };
  constexpr uint64_t kSlots = 64;
  std::vector<Slot> there(kSlots);
  std::vector<Slot> back(kSlots);
  const auto put = [](std::vector<Slot>* ring, uint64_t turn,
                      const std::array<uint8_t, kBody>& body) {
    Slot& slot = (*ring)[turn % kSlots];
    slot.body = body;
    slot.valid.store(turn, std::memory_order_release);
  };
  const auto is_there = [](const std::vector<Slot>& ring, uint64_t turn) {
    return ring[turn % kSlots].valid.load(std::memory_order_acquire) == turn;
  };
  const Partner partner([&](const std::atomic<bool>& stop) {
    for (uint64_t turn = 1; !stop.load(std::memory_order_relaxed);) {
      if (is_there(there, turn)) {
        put(&back, turn, there[turn % kSlots].body);
        turn++;
      } else {
        Relax();
      }
    }
  });
  std::array<uint8_t, kBody> body{};
  uint64_t turn = 0;
  OneWay one_way(&state);
  while (state.KeepRunning()) {
    one_way.Tick();
    put(&there, ++turn, body);
    while (!is_there(back, turn)) {
      Relax();
    }
    body = back[turn % kSlots].body;
    benchmark::DoNotOptimize(body);
  }
}
BENCHMARK(BM_PingPongSlot)->UseRealTime();

template <typename AnyLane, typename AnyPartner>
void PingPong(benchmark::State& state, AnyLane& there, AnyLane& back) {
  std::vector<uint8_t> payload(state.range(0), 0x5a);
  std::vector<uint8_t> out(state.range(0) + 1);
  const AnyPartner partner([&](const std::atomic<bool>& stop) {
    std::vector<uint8_t> echo(state.range(0), 0);
    while (Receive(&there, &echo, &stop)) {
      if (!Send(&back, &echo)) {
        return;
      }
    }
  });
  OneWay one_way(&state);
  while (state.KeepRunning()) {
    one_way.Tick();
    if (!Send(&there, &payload) || !Receive(&back, &out, nullptr)) {
      state.SkipWithError("lane refuses");
      break;
    }
  }
}

void BM_PingPongLanes(benchmark::State& state) {
  Lane there(7, kGeom);
  Lane back(8, kGeom);
  PingPong<Lane, Partner>(state, there, back);
}
BENCHMARK(BM_PingPongLanes)
    ->Arg(0)
    ->Arg(28)
    ->Arg(64)
    ->Arg(1024)
    ->Arg(4096)
    ->UseRealTime();

void BM_PingPongProcesses(benchmark::State& state) {
  SharedLane there(7);
  SharedLane back(8);
  PingPong<SharedLane, PartnerProcess>(state, there, back);
}
BENCHMARK(BM_PingPongProcesses)->Arg(28)->Arg(64)->Arg(4096)->UseRealTime();

// The least that a stream of slots can cost: each is written, its last word
// last, and read; a position that comes back keeps the writer from lapping the
// reader.
void BM_MessageRateSlot(benchmark::State& state) {
  constexpr size_t kBody = offsetof(ropcie_slot, valid);
  struct alignas(64) Slot {
    std::array<uint8_t, kBody> body{};
    std::atomic<uint64_t> valid{0};
  };
  struct alignas(64) Position {
    std::atomic<uint64_t> value{0};
  };
  const uint64_t slots = kGeom.slots;
  std::vector<Slot> ring(slots);
  Position taken;
  const Partner partner([&](const std::atomic<bool>& stop) {
    std::array<uint8_t, kBody> body{};
    for (uint64_t turn = 1; !stop.load(std::memory_order_relaxed);) {
      if (ring[turn % slots].valid.load(std::memory_order_acquire) != turn) {
        Relax();
        continue;
      }
      body = ring[turn % slots].body;
      benchmark::DoNotOptimize(body);
      if (turn % (slots / 4) == 0) {
        taken.value.store(turn, std::memory_order_release);
      }
      turn++;
    }
  });
  const std::array<uint8_t, kBody> body{};
  uint64_t turn = 0;
  while (state.KeepRunning()) {
    turn++;
    while (turn - taken.value.load(std::memory_order_acquire) >= slots) {
      Relax();
    }
    Slot& slot = ring[turn % slots];
    slot.body = body;
    slot.valid.store(turn, std::memory_order_release);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_MessageRateSlot)->UseRealTime();

// Records per second in one direction, the receiver copying them out.
template <typename AnyLane, typename AnyPartner>
void MessageRate(benchmark::State& state, AnyLane& lane) {
  std::vector<uint8_t> payload(state.range(0), 0x5a);
  const AnyPartner partner([&](const std::atomic<bool>& stop) {
    std::vector<uint8_t> out(state.range(0) + 1);
    while (Receive(&lane, &out, &stop)) {
    }
  });
  while (state.KeepRunning()) {
    while (!Send(&lane, &payload)) {
      Relax();
    }
  }
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void BM_MessageRate(benchmark::State& state) {
  Lane lane(7, kGeom);
  MessageRate<Lane, Partner>(state, lane);
}
BENCHMARK(BM_MessageRate)->Arg(0)->Arg(28)->Arg(64)->Arg(4096)->UseRealTime();

void BM_MessageRateProcesses(benchmark::State& state) {
  SharedLane lane(7);
  MessageRate<SharedLane, PartnerProcess>(state, lane);
}
BENCHMARK(BM_MessageRateProcesses)->Arg(28)->Arg(64)->Arg(4096)->UseRealTime();

void BM_Memcpy(benchmark::State& state) {
  const std::vector<uint8_t> from(state.range(0), 0x5a);
  std::vector<uint8_t> to(state.range(0));
  while (state.KeepRunning()) {
    memcpy(to.data(), from.data(), from.size());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_Memcpy)->Arg(64)->Arg(4096)->Arg(65536)->Arg(1 << 20);

// In and out through a buffer as large as a lane's ring: what copying costs
// that goes the way of a lane.
void BM_MemcpyTwice(benchmark::State& state) {
  const size_t size = state.range(0);
  const std::vector<uint8_t> from(size, 0x5a);
  std::vector<uint8_t> ring(kGeom.bytes);
  std::vector<uint8_t> to(size);
  size_t at = 0;
  while (state.KeepRunning()) {
    for (size_t off = 0; off < size; off += kFrag) {
      const size_t len = std::min<size_t>(kFrag, size - off);
      memcpy(ring.data() + at, from.data() + off, len);
      benchmark::ClobberMemory();
      memcpy(to.data() + off, ring.data() + at, len);
      at = (at + kFrag) % ring.size();
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_MemcpyTwice)->Arg(65536)->Arg(1 << 20);

// A message through the lane, in one thread: copied in, copied out.
void BM_LaneCopy(benchmark::State& state) {
  Lane lane(7, kGeom);
  const auto size = static_cast<uint32_t>(state.range(0));
  std::vector<uint8_t> from(size, 0x5a);
  std::vector<uint8_t> to(size);
  while (state.KeepRunning()) {
    for (uint32_t off = 0; off < size; off += kFrag) {
      ropcie_hdr hdr = SendHeader(size);
      hdr.frag_len = std::min(kFrag, size - off);
      hdr.flags = static_cast<u8>((off == 0 ? ROPCIE_F_FIRST : 0) |
                                  (off + kFrag >= size ? ROPCIE_F_LAST : 0));
      const ropcie_vec in = {.base = from.data() + off, .len = hdr.frag_len};
      const ropcie_vec out = {.base = to.data() + off, .len = hdr.frag_len};
      ropcie_rec rec;
      if (ropcie_lane_send(lane.tx(), &hdr, &in, 1) != 0 ||
          ropcie_lane_recv(lane.rx(), &rec) != 1) {
        state.SkipWithError("lane refuses");
        return;
      }
      ropcie_rec_scatter(&rec, 0, &out, 1);
      ropcie_lane_consume(lane.rx(), &rec);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_LaneCopy)->Arg(65536)->Arg(1 << 20);

// The same between two threads: the copies overlap.
void BM_LaneStream(benchmark::State& state) {
  Lane lane(7, kGeom);
  const auto size = static_cast<uint32_t>(state.range(0));
  std::vector<uint8_t> piece(std::min(kFrag, size), 0x5a);
  const Partner partner([&](const std::atomic<bool>& stop) {
    std::vector<uint8_t> out(kFrag);
    while (Receive(&lane, &out, &stop)) {
    }
  });
  while (state.KeepRunning()) {
    for (uint32_t off = 0; off < size; off += kFrag) {
      while (!Send(&lane, &piece)) {
        Relax();
      }
    }
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_LaneStream)->Arg(65536)->Arg(1 << 20)->UseRealTime();

}  // namespace
}  // namespace ropcie
