// SPDX-License-Identifier: GPL-2.0
// What it costs to register memory, from 4 KiB to as much as there is: pages
// that are there already, small ones and huge ones; ibv_dereg_mr for itself.
// The device is RDMA_DEV of the environment, or the first; BENCH_OPS is how
// often, if it is set.
#include <benchmark/benchmark.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

namespace ropcie {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSmallest = 4096;
constexpr size_t kLargest = size_t{1} << 30;
constexpr size_t kHuge = size_t{2} << 20;

struct CloseDevice {
  void operator()(ibv_context* context) const { ibv_close_device(context); }
};
struct DeallocPd {
  void operator()(ibv_pd* pd) const { ibv_dealloc_pd(pd); }
};

class Domain {
 public:
  Domain() {
    const char* name = std::getenv("RDMA_DEV");
    ibv_device** list = ibv_get_device_list(nullptr);
    for (ibv_device** at = list; at != nullptr && *at != nullptr; ++at) {
      if (name == nullptr || std::strcmp(ibv_get_device_name(*at), name) == 0) {
        context_.reset(ibv_open_device(*at));
        break;
      }
    }
    if (list != nullptr) {
      ibv_free_device_list(list);
    }
    if (context_ != nullptr) {
      pd_.reset(ibv_alloc_pd(context_.get()));
    }
  }
  [[nodiscard]] ibv_pd* pd() const { return pd_.get(); }

 private:
  std::unique_ptr<ibv_context, CloseDevice> context_;
  std::unique_ptr<ibv_pd, DeallocPd> pd_;
};

// Memory whose pages are there; huge ones are aligned.
class Memory {
 public:
  Memory(size_t length, bool huge) : length_(length + kHuge) {
    void* map = mmap(nullptr, length_, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
      return;
    }
    map_ = map;
    size_t room = length_;
    start_ = std::align(kHuge, length, map, room);
    madvise(start_, length, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    std::memset(start_, 1, length);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (map_ != nullptr) {
      munmap(map_, length_);
    }
  }
  [[nodiscard]] void* start() const { return start_; }

 private:
  size_t length_;
  void* map_ = nullptr;
  void* start_ = nullptr;
};

double Seconds(Clock::time_point from) {
  return std::chrono::duration<double>(Clock::now() - from).count();
}

// Times one of the two calls; the other is not counted.
void Time(benchmark::State& state, bool huge, bool dereg) {
  const Domain domain;
  const auto length = static_cast<size_t>(state.range(0));
  const Memory memory(length, huge);
  if (domain.pd() == nullptr || memory.start() == nullptr) {
    state.SkipWithError("no device, or no memory");
    return;
  }
  for ([[maybe_unused]] auto _ : state) {
    Clock::time_point from = Clock::now();
    ibv_mr* mr = ibv_reg_mr(domain.pd(), memory.start(), length,
                            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    const double registered = Seconds(from);
    if (mr == nullptr) {
      state.SkipWithError("ibv_reg_mr failed");
      return;
    }
    from = Clock::now();
    ibv_dereg_mr(mr);
    state.SetIterationTime(dereg ? Seconds(from) : registered);
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

// Half of the memory at most: the device needs some for itself.
void Sizes(benchmark::internal::Benchmark* bench, size_t smallest) {
  struct sysinfo info {};
  sysinfo(&info);
  const uint64_t limit = uint64_t{info.totalram} * info.mem_unit / 2;
  for (size_t length = smallest; length <= std::min<uint64_t>(kLargest, limit);
       length *= 4) {
    bench->Arg(static_cast<int64_t>(length));
  }
  bench->UseManualTime()->Unit(benchmark::kMicrosecond);
  const char* const count = std::getenv("BENCH_OPS");
  if (count != nullptr) {
    bench->Iterations(std::strtol(count, nullptr, 10));
  } else {
    bench->MinTime(0.2);
  }
}

void AllSizes(benchmark::internal::Benchmark* bench) {
  Sizes(bench, kSmallest);
}
void HugeSizes(benchmark::internal::Benchmark* bench) {
  Sizes(bench, 2 * kHuge);
}

BENCHMARK_CAPTURE(Time, register, false, false)->Apply(AllSizes);
BENCHMARK_CAPTURE(Time, register_huge, true, false)->Apply(HugeSizes);
BENCHMARK_CAPTURE(Time, deregister, false, true)->Apply(AllSizes);

}  // namespace
}  // namespace ropcie
