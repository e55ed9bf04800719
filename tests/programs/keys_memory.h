// SPDX-License-Identifier: GPL-2.0
// What rop_keys found wrong, and the comparison of all memory after each case.
#ifndef ROPCIE_TESTS_PROGRAMS_KEYS_MEMORY_H_
#define ROPCIE_TESTS_PROGRAMS_KEYS_MEMORY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "failure.h"
#include "keys.h"
#include "pattern.h"
#include "side.h"

namespace ropcie::keys {

// What atomics do.
constexpr uint64_t kAdd = 0x0101010101010101;
constexpr uint64_t kSwap = 0x1122334455667788;

// Wrong answers, and how many cases there were.
class Findings {
 public:
  void Begin(const std::string& name) {
    name_ = name;
    one_ = std::nullopt;
    Count();
  }

  // Its name is asked for only if something is wrong.
  void Begin(const Case& one) {
    one_ = one;
    Count();
  }

  template <typename... Parts>
  void Expect(bool good, const Parts&... parts) {
    if (good) {
      return;
    }
    failed_ += wrong_ ? 0 : 1;
    if (!wrong_ && failed_ <= kShown) {
      std::cout << "WRONG " << (one_ ? Name(*one_) : name_) << ": "
                << Text(parts...) << "\n"
                << std::flush;
    }
    wrong_ = true;
  }

  [[nodiscard]] int cases() const { return cases_; }
  [[nodiscard]] int failed() const { return failed_; }

 private:
  static constexpr int kShown = 20;

  void Count() {
    wrong_ = false;
    ++cases_;
  }

  std::optional<Case> one_;
  std::string name_;
  bool wrong_ = false;
  int cases_ = 0;
  int failed_ = 0;
};

enum class Memory { kHost, kDeviceMemory, kDmaBuf };
inline constexpr std::array kMemories = {Memory::kHost, Memory::kDeviceMemory,
                                         Memory::kDmaBuf};

// Which memory of a side, and from where on.
struct Place {
  Memory memory = Memory::kHost;
  size_t offset = 0;
};

// A side's memory as it is between cases; each side knows the other's.
class Baseline {
 public:
  explicit Baseline(uint64_t seed) : pattern_(seed, kArea) {}

  [[nodiscard]] const uint8_t* At(bool leads, const Place& place) const;
  [[nodiscard]] uint64_t WordAt(bool leads, const Place& place) const;

 private:
  Pattern pattern_;
};

// All memory of a side.
class Memories {
 public:
  Memories(const Side& side, const Regions& regions, Findings* findings);

  // As it is between cases.
  void Restore();
  // It is as it was but for what the case places.
  void Check(const Case& one, bool requester, Placed placed);
  // The word that an atomic finds at the responder.
  [[nodiscard]] uint64_t Before(const Case& one, bool requester) const;

 private:
  [[nodiscard]] std::vector<uint8_t> Placing(const Case& one,
                                             bool requester) const;
  bool CheckArea(Memory memory, std::optional<size_t> offset,
                 const std::vector<uint8_t>& placing, Placed placed);
  bool ExpectSame(Memory memory, const uint8_t* now, size_t from, size_t to);
  [[nodiscard]] bool Exists(Memory memory) const;

  const Side& side_;
  const Regions& regions_;
  Findings& findings_;
  Baseline baseline_;
  std::vector<uint8_t> copy_;
};

}  // namespace ropcie::keys

#endif  // ROPCIE_TESTS_PROGRAMS_KEYS_MEMORY_H_
