// SPDX-License-Identifier: GPL-2.0
// How the test programs give up: an exception whose text says what was expected
// and what was found.
#ifndef ROPCIE_TESTS_PROGRAMS_FAILURE_H_
#define ROPCIE_TESTS_PROGRAMS_FAILURE_H_

#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>

namespace ropcie {

class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Parts>
std::string Text(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

// Throws unless `good`.
template <typename... Parts>
void Check(bool good, const Parts&... parts) {
  if (!good) {
    throw Failure(Text(parts...));
  }
}

// For functions that return an errno.
template <typename... Parts>
void CheckErrno(int error, const Parts&... parts) {
  if (error != 0) {
    throw Failure(Text(parts..., ": ", std::strerror(error)));
  }
}

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_FAILURE_H_
