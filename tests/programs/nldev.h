// SPDX-License-Identifier: GPL-2.0
// What `rdma` asks of the kernel (RDMA_NL_NLDEV), without a look at the
// answers: the recv() that they come by has one (fuzz_hook.h).
#ifndef ROPCIE_TESTS_PROGRAMS_NLDEV_H_
#define ROPCIE_TESTS_PROGRAMS_NLDEV_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace ropcie {

// Questions that change nothing.
extern const std::array<uint16_t, 17> kNldevQuestions;

// A socket for them, or -1.
int OpenNldev();

// About all (dump), or about one: the first port of a device, by its number.
// Returns how many answers there were that are no errors.
size_t AskNldev(int socket, uint16_t question, bool dump, uint32_t device);

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_NLDEV_H_
