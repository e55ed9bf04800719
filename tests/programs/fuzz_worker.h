// SPDX-License-Identifier: GPL-2.0
// What a thread of a hostile process does: random verbs with random arguments.
#ifndef ROPCIE_TESTS_PROGRAMS_FUZZ_WORKER_H_
#define ROPCIE_TESTS_PROGRAMS_FUZZ_WORKER_H_

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ropcie {

// Bytes of the memory that all of them register, send and take away.
constexpr size_t kFuzzMemory = size_t{1} << 20;

// Adds the objects that it creates to `created`.
[[noreturn]] void FuzzForever(ibv_context* context, uint8_t* memory,
                              uint64_t seed, std::atomic<uint64_t>* created);

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_FUZZ_WORKER_H_
