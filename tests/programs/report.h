// SPDX-License-Identifier: GPL-2.0
// Findings of a test with many cases. A wrong answer does not end a case, since
// the two sides of a test must stay in step; what is no answer at all throws.
#ifndef ROPCIE_TESTS_PROGRAMS_REPORT_H_
#define ROPCIE_TESTS_PROGRAMS_REPORT_H_

#include <cerrno>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <string>
#include <vector>

#include "failure.h"

namespace ropcie {

class Report {
 public:
  explicit Report(bool verbose) : verbose_(verbose) {}

  void Case(const std::string& name, const std::function<void()>& body) {
    wrong_.clear();
    try {
      body();
    } catch (const Failure& failure) {
      throw Failure(Text(name, ": ", failure.what()));
    }
    if (verbose_ || !wrong_.empty()) {
      std::cout << (wrong_.empty() ? "ok      " : "WRONG   ") << name << "\n";
    }
    for (const std::string& text : wrong_) {
      std::cout << "        " << text << "\n";
    }
    std::cout << std::flush;
    ++cases_;
    failed_ += wrong_.empty() ? 0 : 1;
  }

  template <typename... Parts>
  void Expect(bool good, const Parts&... parts) {
    if (!good) {
      wrong_.push_back(Text(parts...));
    }
  }

  // `error` must be one of `right`.
  void ExpectErrno(int error, std::initializer_list<int> right,
                   const std::string& what) {
    for (const int one : right) {
      if (error == one) {
        return;
      }
    }
    wrong_.push_back(Text(what, ": ",
                          error == 0 ? "accepted" : std::strerror(error),
                          ", expected ", std::strerror(*right.begin())));
  }

  // An object that must not have come into being; it stays the caller's.
  template <typename Pointer>
  void ExpectRefused(Pointer object, std::initializer_list<int> right,
                     const std::string& what) {
    ExpectErrno(object == nullptr ? errno : 0, right, what);
  }

  [[nodiscard]] int cases() const { return cases_; }
  [[nodiscard]] int failed() const { return failed_; }

 private:
  bool verbose_;
  int cases_ = 0;
  int failed_ = 0;
  std::vector<std::string> wrong_;
};

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_REPORT_H_
