// SPDX-License-Identifier: GPL-2.0
// The kernel's fault injection, for this thread: the N-th of its allocations,
// and of its copies between the process and the kernel, fails, once
// (/proc/PID/fail-nth, CONFIG_FAULT_INJECTION).
#ifndef ROPCIE_TESTS_PROGRAMS_INJECTOR_H_
#define ROPCIE_TESTS_PROGRAMS_INJECTOR_H_

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "failure.h"

namespace ropcie {

class Injector {
 public:
  Injector()
      : fd_(open(
            Text("/proc/self/task/", syscall(SYS_gettid), "/fail-nth").c_str(),
            O_RDWR | O_CLOEXEC)) {}
  ~Injector() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  Injector(const Injector&) = delete;
  Injector(Injector&&) = delete;
  Injector& operator=(const Injector&) = delete;
  Injector& operator=(Injector&&) = delete;

  [[nodiscard]] bool works() const { return fd_ >= 0; }

  void Arm(int nth) const {
    const std::string text = std::to_string(nth);
    const auto length = static_cast<ssize_t>(text.size());
    ssize_t written = pwrite(fd_, text.data(), text.size(), 0);
    if (written < 0 && errno == EFAULT) {
      // It was the copy of this that has failed, once.
      written = pwrite(fd_, text.data(), text.size(), 0);
    }
    CheckErrno(written != length ? errno : 0, "cannot ask for a failure");
  }

  // True if it has failed something.
  [[nodiscard]] bool Disarm() const {
    // The copy of the answer may be what fails.
    std::array<char, 32> text{};
    ssize_t length = pread(fd_, text.data(), text.size() - 1, 0);
    if (length < 0) {
      length = pread(fd_, text.data(), text.size() - 1, 0);
      CheckErrno(length < 0 ? errno : 0, "cannot read fail-nth");
      return false;
    }
    const bool failed = std::atoi(text.data()) == 0;
    if (!failed) {
      Arm(0);
    }
    return failed;
  }

 private:
  int fd_;
};

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_INJECTOR_H_
