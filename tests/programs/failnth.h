// SPDX-License-Identifier: GPL-2.0
// What the parts of rop_failnth have in common: a call, with everything in it
// failing in turn.
#ifndef ROPCIE_TESTS_PROGRAMS_FAILNTH_H_
#define ROPCIE_TESTS_PROGRAMS_FAILNTH_H_

#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "failure.h"
#include "injector.h"
#include "verbs_util.h"

namespace ropcie {

using DmPtr = std::unique_ptr<ibv_dm, Destroyer<ibv_free_dm>>;
using MwPtr = std::unique_ptr<ibv_mw, Destroyer<ibv_dealloc_mw>>;
using XrcdPtr = std::unique_ptr<ibv_xrcd, Destroyer<ibv_close_xrcd>>;

class Sweep {
 public:
  using Call = std::function<int()>;
  using Step = std::function<void()>;

  static constexpr size_t kMemory = size_t{64} * 4096;
  static constexpr int kEntries = 200;

  Sweep(const Device& device, const Injector& injector)
      : device_(device),
        injector_(injector),
        memory_(static_cast<uint8_t*>(
            mmap(nullptr, kMemory, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0))) {
    CheckErrno(memory_ == MAP_FAILED ? errno : 0, "mmap");
  }
  ~Sweep() { munmap(memory_, kMemory); }
  Sweep(const Sweep&) = delete;
  Sweep(Sweep&&) = delete;
  Sweep& operator=(const Sweep&) = delete;
  Sweep& operator=(Sweep&&) = delete;

  [[nodiscard]] const Device& device() const { return device_; }
  [[nodiscard]] ibv_context* context() const { return device_.context.get(); }
  [[nodiscard]] ibv_pd* pd() const { return device_.pd.get(); }
  [[nodiscard]] uint8_t* memory() const { return memory_; }
  [[nodiscard]] uint64_t address() const {
    return reinterpret_cast<uintptr_t>(memory_);
  }

  // `call` returns an errno; `before` and `after` make and clean up what it
  // needs. It fails at each place in turn until there is no further one.
  // Returns how many there are. `libibverbs`: it has files to look at before
  // it calls the kernel.
  int Each(const std::string& name, const Step& before, const Call& call,
           const Step& after, bool libibverbs = false) {
    int nth = 0;
    bool more = true;
    int told = 0;
    while (more) {
      ++nth;
      Check(nth < kMost, name, ": there is no end of failures");
      before();
      injector_.Arm(nth);
      const int error = call();
      more = injector_.Disarm();
      if (error != 0) {
        const std::string what =
            Text(name, ", failure ", nth, ": ", std::strerror(error));
        Check(more, what, ", although nothing has failed");
        // Linux's table of neighbours says ENOBUFS when it has no memory, and
        // libibverbs that a device which it could not look for is not there.
        if (error != ENOMEM && error != EFAULT && error != ENOBUFS &&
            !(libibverbs && (error == EINVAL || error == ENODEV))) {
          std::cout << "WRONG: " << what << "\n";
          ++wrong_;
        }
        ++told;
        const int again = call();
        CheckErrno(again, what, ", and the next call");
      }
      after();
    }
    std::cout << name << ": " << nth - 1 << " failures, " << told << " told\n"
              << std::flush;
    ++calls_;
    injected_ += nth - 1;
    told_ += told;
    return nth - 1;
  }

  template <typename Pointer>
  void Create(const std::string& name, Pointer* object,
              const std::function<typename Pointer::pointer()>& create) {
    const int failures = Each(
        name, [] {},
        [&] {
          errno = 0;
          object->reset(create());
          return *object == nullptr ? errno : 0;
        },
        [&] { object->reset(); });
    Check(failures > 0, name, ": nothing has failed");
  }

  template <typename Pointer, typename Destroyed>
  void CreateAndDestroy(
      const std::string& name, const Destroyed& destroy,
      const std::function<typename Pointer::pointer()>& create) {
    Pointer object;
    Create("create " + name, &object, create);
    Destroy<Pointer>(name, destroy, create);
  }

  template <typename Pointer, typename Destroyed>
  void Destroy(const std::string& name, const Destroyed& destroy,
               const std::function<typename Pointer::pointer()>& create) {
    Pointer object;
    int last = 0;
    Each(
        "destroy " + name,
        [&] {
          object.reset(create());
          CheckErrno(object == nullptr ? errno : 0, "create ", name);
        },
        [&] {
          int error = destroy(object.get());
          // The copy of the answer has failed, behind the object's end;
          // libropcie still has its part, as it cannot know.
          if (error == ENOENT && last == EFAULT) {
            error = 0;
            ++lost_[name];
          }
          last = error;
          if (error == 0) {
            static_cast<void>(object.release());
          }
          return error;
        },
        [] {});
  }

  void Query(const std::string& name, const Call& call) {
    Each(
        name, [] {}, call, [] {});
  }

  // At the end of all.
  void Report() const {
    std::cout << injected_ << " failures in " << calls_ << " calls, of which "
              << told_ << " were told\n";
    for (const auto& [name, number] : lost_) {
      std::cout << "lost with the answer: " << number << ' ' << name << '\n';
    }
    Check(injected_ > calls_, "hardly anything has failed");
    Check(wrong_ == 0, wrong_, " failures have an errno that does not say so");
  }

 private:
  const Device& device_;
  const Injector& injector_;
  uint8_t* memory_;
  int calls_ = 0;
  int injected_ = 0;
  int told_ = 0;
  int wrong_ = 0;
  std::map<std::string, int> lost_;

  static constexpr int kMost = 5000;  // of one call; none has so many
};

// Regions, memory windows, device memory, dma-bufs, on-demand paging.
void SweepMemory(Sweep& sweep);
// Extended reliable connections; multicast groups.
void SweepXrc(Sweep& sweep);

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_FAILNTH_H_
