// SPDX-License-Identifier: GPL-2.0
// Says which seed was under way when the program crashes, aborts or hangs.
#ifndef ROPCIE_TESTS_SIM_WATCH_H
#define ROPCIE_TESTS_SIM_WATCH_H

#include <cstdint>

namespace ropcie::sim {

// Processor time that a seed may take.
inline constexpr uint64_t kSeedSeconds = 120;

// From now on; once.
void BeginWatch();
// This seed begins, with so many seconds of processor time; FAULT's name or "".
void WatchSeed(uint64_t seed, uint64_t seconds, const char* fault);
// How to run that seed again.
const char* Replay();

}  // namespace ropcie::sim

#endif  // ROPCIE_TESTS_SIM_WATCH_H
