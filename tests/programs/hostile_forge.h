// SPDX-License-Identifier: GPL-2.0
// Records that a hostile peer writes into the lanes of another node: most of
// them look good, and have the position and epoch that the receiver waits for.
#ifndef ROPCIE_TESTS_PROGRAMS_HOSTILE_FORGE_H_
#define ROPCIE_TESTS_PROGRAMS_HOSTILE_FORGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "hostile_window.h"

namespace ropcie {

using Random = std::mt19937_64;

inline size_t Below(Random* random, size_t bound) {
  return (*random)() % bound;
}
inline bool OneIn(Random* random, size_t n) { return Below(random, n) == 0; }

// Something near what is there, or far from it.
uint32_t Changed(uint32_t word, Random* random);

// Writes the next record of any lane.
void Forge(const Bar& memory, const Victim& victim, Random* random);

// The same, and it is none that a good peer would write.
void ForgeMalformed(const Bar& memory, const Victim& victim, Random* random);

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_HOSTILE_FORGE_H_
