// SPDX-License-Identifier: GPL-2.0
// Does the device keep what ibv_query_device() promises? Each limit is reached,
// or a part of it where all would be more than a small machine has, and one
// more is refused with an errno; objects can be made again and again; what a
// process may lock or make is respected. One process is enough.
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "failure.h"
#include "report.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr int kSample = 2000;  // of limits that a small machine can not reach
constexpr size_t kPage = 4096;

using MwPtr = std::unique_ptr<ibv_mw, Destroyer<ibv_dealloc_mw>>;
using DmPtr = std::unique_ptr<ibv_dm, Destroyer<ibv_free_dm>>;

struct Limits {
  const Device& device;
  const Options& options;
  Report& report;
  CqPtr cq;
  std::vector<uint8_t> page = std::vector<uint8_t>(2 * kPage);

  [[nodiscard]] ibv_qp* NewQp(const ibv_qp_cap& cap,
                              ibv_qp_type type = IBV_QPT_RC) const {
    ibv_qp_init_attr init{};
    init.send_cq = cq.get();
    init.recv_cq = cq.get();
    init.cap = cap;
    init.qp_type = type;
    return ibv_create_qp(device.pd.get(), &init);
  }
};

constexpr ibv_qp_cap kSmall{.max_send_wr = 1,
                            .max_recv_wr = 1,
                            .max_send_sge = 1,
                            .max_recv_sge = 1,
                            .max_inline_data = 0};

// `make(n)` gives an object of size n, or null.
template <typename Pointer, typename Make>
void SizeCase(const Limits& at, const std::string& name, uint64_t limit,
              const Make& make) {
  at.report.Case(name + " " + std::to_string(limit), [&] {
    const Pointer most(make(limit));
    at.report.Expect(most != nullptr,
                     "the limit is refused: ", std::strerror(errno));
    errno = 0;
    const Pointer more(make(limit + 1));
    at.report.ExpectRefused(more.get(), {EINVAL, ENOMEM}, "one more");
  });
}

// So many objects at a time, one more only if that is all of them.
template <typename Pointer, typename Make>
void CountCase(const Limits& at, const std::string& name, int limit, int sample,
               const Make& make) {
  const int num = std::min(limit, sample);
  at.report.Case(
      name + ": " + std::to_string(num) + " of " + std::to_string(limit), [&] {
        std::vector<Pointer> objects;
        objects.reserve(static_cast<size_t>(num));
        for (int i = 0; i < num; ++i) {
          objects.emplace_back(make());
          if (objects.back() == nullptr) {
            at.report.Expect(false, "number ", i + 1,
                             " is refused: ", std::strerror(errno));
            return;
          }
        }
        if (num < limit) {
          return;
        }
        errno = 0;
        const Pointer more(make());
        at.report.ExpectRefused(more.get(), {ENOMEM}, "one more");
        objects.pop_back();
        const Pointer again(make());
        at.report.Expect(again != nullptr, "none after one was destroyed: ",
                         std::strerror(errno));
      });
}

void QueueSizes(const Limits& at) {
  const ibv_device_attr& attr = at.device.attr;
  const auto qp = [&at](auto field) {
    return [&at, field](uint64_t n) {
      ibv_qp_cap cap = kSmall;
      cap.*field = static_cast<uint32_t>(n);
      return at.NewQp(cap);
    };
  };
  const auto wr = static_cast<uint64_t>(attr.max_qp_wr);
  const auto sge = static_cast<uint64_t>(attr.max_sge);
  SizeCase<QpPtr>(at, "max_qp_wr, sends", wr, qp(&ibv_qp_cap::max_send_wr));
  SizeCase<QpPtr>(at, "max_qp_wr, receives", wr, qp(&ibv_qp_cap::max_recv_wr));
  SizeCase<QpPtr>(at, "max_sge, sends", sge, qp(&ibv_qp_cap::max_send_sge));
  SizeCase<QpPtr>(at, "max_sge, receives", sge, qp(&ibv_qp_cap::max_recv_sge));
  SizeCase<CqPtr>(
      at, "max_cqe", static_cast<uint64_t>(attr.max_cqe), [&at](uint64_t n) {
        return ibv_create_cq(at.device.context.get(), static_cast<int>(n),
                             nullptr, nullptr, 0);
      });
  const auto srq = [&at](uint64_t num_wr, uint64_t num_sge) {
    ibv_srq_init_attr init{};
    init.attr.max_wr = static_cast<uint32_t>(num_wr);
    init.attr.max_sge = static_cast<uint32_t>(num_sge);
    return ibv_create_srq(at.device.pd.get(), &init);
  };
  SizeCase<SrqPtr>(at, "max_srq_wr", static_cast<uint64_t>(attr.max_srq_wr),
                   [&](uint64_t n) { return srq(n, 1); });
  SizeCase<SrqPtr>(at, "max_srq_sge", static_cast<uint64_t>(attr.max_srq_sge),
                   [&](uint64_t n) { return srq(1, n); });
}

void Counts(Limits& at) {
  const ibv_device_attr& attr = at.device.attr;
  ibv_context* context = at.device.context.get();
  ibv_pd* pd = at.device.pd.get();
  CountCase<PdPtr>(at, "max_pd", attr.max_pd, 5 * kSample,
                   [&] { return ibv_alloc_pd(context); });
  CountCase<CqPtr>(at, "max_cq", attr.max_cq, kSample, [&] {
    return ibv_create_cq(context, 1, nullptr, nullptr, 0);
  });
  CountCase<QpPtr>(at, "max_qp", attr.max_qp, kSample,
                   [&] { return at.NewQp(kSmall); });
  CountCase<SrqPtr>(at, "max_srq", attr.max_srq, kSample, [&] {
    ibv_srq_init_attr init{};
    init.attr = {.max_wr = 1, .max_sge = 1, .srq_limit = 0};
    return ibv_create_srq(pd, &init);
  });
  CountCase<MrPtr>(at, "max_mr", attr.max_mr, 5 * kSample,
                   [&] { return ibv_reg_mr(pd, at.page.data(), 1, 0); });
  if (attr.max_mw > 0) {
    CountCase<MwPtr>(at, "max_mw", attr.max_mw, attr.max_mw,
                     [&] { return ibv_alloc_mw(pd, IBV_MW_TYPE_1); });
  }
  ibv_ah_attr address = AddressTo(at.device, at.device.gid);
  CountCase<AhPtr>(at, "max_ah", attr.max_ah, 5 * kSample,
                   [&] { return ibv_create_ah(pd, &address); });
}

void DeviceMemory(const Limits& at) {
  ibv_device_attr_ex attr{};
  CheckErrno(ibv_query_device_ex(at.device.context.get(), nullptr, &attr),
             "ibv_query_device_ex");
  if (attr.max_dm_size == 0) {
    return;
  }
  SizeCase<DmPtr>(at, "max_dm_size", attr.max_dm_size, [&at](uint64_t n) {
    ibv_alloc_dm_attr dm{.length = n, .log_align_req = 0, .comp_mask = 0};
    return ibv_alloc_dm(at.device.context.get(), &dm);
  });
}

void ReadsAndAtomics(const Limits& at) {
  const int limit = at.device.attr.max_qp_rd_atom;
  at.report.Case("max_qp_rd_atom " + std::to_string(limit), [&] {
    for (const int over : {0, 1}) {
      QpConfig config;
      config.rd_atomic = static_cast<uint8_t>(limit + over);
      const QpPtr qp(at.NewQp(kSmall));
      Check(qp != nullptr, "ibv_create_qp: ", std::strerror(errno));
      ToInit(qp.get(), config);
      QpAddress peer = AddressOf(at.device, qp.get());
      ibv_qp_attr attr = RtrAttr(at.device, peer, config);
      at.report.ExpectErrno(ibv_modify_qp(qp.get(), &attr, kRtrMask),
                            {over != 0 ? EINVAL : 0}, "to answer");
      config.rd_atomic = static_cast<uint8_t>(limit);
      attr = RtrAttr(at.device, peer, config);
      if (over != 0) {
        CheckErrno(ibv_modify_qp(qp.get(), &attr, kRtrMask), "to RTR");
      }
      config.rd_atomic = static_cast<uint8_t>(limit + over);
      attr = RtsAttr(peer.psn, config);
      at.report.ExpectErrno(ibv_modify_qp(qp.get(), &attr, kRtsMask),
                            {over != 0 ? EINVAL : 0}, "to ask for");
    }
  });
}

// In a child: its status is the errno of what it tried.
int Errno(const std::function<int()>& body) {
  std::cout << std::flush;
  const pid_t child = fork();
  Check(child >= 0, "fork: ", std::strerror(errno));
  if (child == 0) {
    _exit(body());
  }
  int status = 0;
  Check(waitpid(child, &status, 0) == child && WIFEXITED(status),
        "the child was killed");
  return WEXITSTATUS(status);
}

void LockedMemory(const Limits& at, const std::string& name) {
  at.report.Case("RLIMIT_MEMLOCK", [&] {
    const auto lock = [&name](size_t limit, size_t length) {
      return Errno([&name, limit, length]() -> int {
        // What a fork has of a context is not its own: it opens one.
        const rlimit most{.rlim_cur = limit, .rlim_max = limit};
        int num = 0;
        ibv_device** list = ibv_get_device_list(&num);
        for (int i = 0; list != nullptr && i < num; ++i) {
          if (name != ibv_get_device_name(list[i])) {
            continue;
          }
          ibv_context* context = ibv_open_device(list[i]);
          ibv_pd* pd = context != nullptr ? ibv_alloc_pd(context) : nullptr;
          void* memory = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
          if (pd == nullptr || memory == MAP_FAILED ||
              setrlimit(RLIMIT_MEMLOCK, &most) != 0 || setuid(65534) != 0) {
            return 255;
          }
          errno = 0;
          return ibv_reg_mr(pd, memory, length, IBV_ACCESS_LOCAL_WRITE) !=
                         nullptr
                     ? 0
                     : errno;
        }
        return 255;
      });
    };
    at.report.ExpectErrno(lock(size_t{1} << 20, size_t{1} << 19), {0},
                          "within the limit");
    at.report.ExpectErrno(lock(size_t{1} << 20, size_t{1} << 21), {ENOMEM},
                          "twice the limit");
  });
}

// What the kernel's general caches hold, without what is only kept ready or is
// about to be freed.
int64_t KmallocKib() {
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  for (const auto& cache :
       std::filesystem::directory_iterator("/sys/kernel/slab")) {
    if (!cache.is_symlink()) {  // one that shares another's objects
      std::ofstream(cache.path() / "shrink") << "1";
    }
  }
  std::ifstream file("/proc/slabinfo");
  int64_t bytes = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t active = 0;
    int64_t all = 0;
    int64_t size = 0;
    words >> name >> active >> all >> size;
    if (name.find("kmalloc") != std::string::npos) {
      bytes += active * size;
    }
  }
  Check(bytes > 0, "/proc/slabinfo tells nothing: it is for root");
  return bytes / 1024;
}

void Recycling(Limits& at) {
  const int rounds = at.options.rounds != 0 ? at.options.rounds : 4000;
  at.report.Case("recycled " + std::to_string(rounds) + " times", [&] {
    ibv_context* context = at.device.context.get();
    int64_t before = 0;
    uint32_t last = 0;
    for (int i = 0; i < rounds; ++i) {
      if (i == rounds / 10) {
        before = KmallocKib();
      }
      const PdPtr pd(ibv_alloc_pd(context));
      const CqPtr cq(ibv_create_cq(context, 4, nullptr, nullptr, 0));
      const QpPtr qp(at.NewQp(kSmall));
      Check(pd != nullptr && cq != nullptr && qp != nullptr, "round ", i, ": ",
            std::strerror(errno));
      const MrPtr mr(ibv_reg_mr(pd.get(), at.page.data(), kPage, 0));
      Check(mr != nullptr, "ibv_reg_mr, round ", i, ": ", std::strerror(errno));
      at.report.Expect(qp->qp_num != last, "number ", last,
                       " is given again at once");
      last = qp->qp_num;
    }
    // They move by some 130 KiB by themselves; 96 bytes of each round are more.
    const int64_t grown = KmallocKib() - before;
    at.report.Expect(grown < 320, "kernel memory grows by ", grown, " KiB");
  });
}

void Run(Side& side) {
  if (!side.leads) {
    return;  // they are limits of a device: one at a time
  }
  const Device device = OpenDevice(side);
  Report report(true);
  Limits at{device, side.options, report, CreateCq(device, 16)};
  QueueSizes(at);
  DeviceMemory(at);
  ReadsAndAtomics(at);
  Counts(at);
  LockedMemory(at, side.device);
  Recycling(at);
  std::cout << report.cases() - report.failed() << " of " << report.cases()
            << " limits hold\n";
  Check(report.failed() == 0 || side.options.tolerate, report.failed(),
        " limits do not hold");
}

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(argc, argv, "the device's limits, and one beyond",
                            ropcie::Run);
}
