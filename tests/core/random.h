// SPDX-License-Identifier: GPL-2.0
// The tests' random numbers: the same sequence for the same seed, everywhere.
#ifndef ROPCIE_TESTS_CORE_RANDOM_H
#define ROPCIE_TESTS_CORE_RANDOM_H

#include <cstddef>
#include <cstdint>
#include <span>

namespace ropcie {

// xorshift64* (Vigna), started through a mixer so that neighbouring seeds
// have nothing in common.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(Mix(seed) | 1) {}

  uint64_t Next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1dULL;
  }

  uint32_t Word() { return static_cast<uint32_t>(Next() >> 32); }

  // 0 to bound - 1.
  uint64_t Below(uint64_t bound) { return (Next() >> 11) % bound; }

  // low to high, both included.
  uint64_t Between(uint64_t low, uint64_t high) {
    return low + Below(high - low + 1);
  }

  // True once in `times` on average.
  bool OneIn(uint64_t times) { return Below(times) == 0; }

  void Fill(std::span<uint8_t> bytes) {
    for (uint8_t& byte : bytes) {
      byte = static_cast<uint8_t>(Next() >> 56);
    }
  }

 private:
  static uint64_t Mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }

  uint64_t state_;
};

}  // namespace ropcie

#endif  // ROPCIE_TESTS_CORE_RANDOM_H
