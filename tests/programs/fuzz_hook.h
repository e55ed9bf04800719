// SPDX-License-Identifier: GPL-2.0
// Stands between libibverbs and the kernel: what a program asks of uverbs is
// changed now and then on its way, and what comes back, of uverbs, by read(),
// recv() and mmap(), is searched for memory of the kernel.
#ifndef ROPCIE_TESTS_PROGRAMS_FUZZ_HOOK_H_
#define ROPCIE_TESTS_PROGRAMS_FUZZ_HOOK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ropcie {

// The status of a process that was given memory of the kernel.
constexpr int kLeak = 77;

// A generator of numbers for this thread alone, which look like nothing of the
// kernel's.
void SeedRandom(uint64_t seed);
uint64_t Random();
size_t Below(size_t bound);
bool OneIn(size_t n);
// Something near `word`, or far from it.
uint64_t Changed(uint64_t word);

// Queues, device memory: what is in there by now is not memory of the kernel
// either.
void CheckMapping(const void* begin, size_t length);

// From now on the bytes that have been searched are added there.
void CountSearched(std::atomic<uint64_t>* bytes);

// From now on one call in `calls` of any thread is changed; 0: none is.
void ChangeOneCallIn(size_t calls);

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_FUZZ_HOOK_H_
