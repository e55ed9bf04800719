// SPDX-License-Identifier: GPL-2.0
#include "leak.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace ropcie {
namespace {

constexpr std::array<uint8_t, 6> kPoison = {
    0x6b,        // objects of a slab
    0x5a,        // what is between them
    0xbb, 0xcc,  // their red zones, free and in use
    0xaa,        // pages
    0xfe,        // the stack, as gcc fills it
};
constexpr size_t kRun = 4;  // equal bytes of poison that are no accident

// Upper halves of addresses, of the first 64 GiB of what begins there: the map
// of all memory, vmalloc()'s, and page structures, with 4 and with 5 levels of
// page tables. The guests have no address randomization. Of the kernel's text,
// nothing: a number below ~0 looks like it.
constexpr std::array<uint32_t, 6> kAddresses = {
    0xffff8880, 0xffffc900, 0xffffea00, 0xff110000, 0xffa00000, 0xffd40000};
constexpr uint32_t kReach = 16;

bool IsPoison(uint8_t byte) {
  return std::find(kPoison.begin(), kPoison.end(), byte) != kPoison.end();
}

bool IsAddress(uint32_t upper) {
  return std::any_of(
      kAddresses.begin(), kAddresses.end(),
      [upper](uint32_t begin) { return upper - begin < kReach; });
}

bool Differs(std::span<const uint8_t> before, std::span<const uint8_t> now,
             size_t at, size_t length) {
  return std::memcmp(before.data() + at, now.data() + at, length) != 0;
}

bool PoisonAt(std::span<const uint8_t> now, size_t at) {
  if (at + kRun > now.size() || !IsPoison(now[at])) {
    return false;
  }
  const std::span<const uint8_t> run = now.subspan(at, kRun);
  return std::all_of(run.begin(), run.end(),
                     [&run](uint8_t byte) { return byte == run[0]; });
}

bool AddressAt(std::span<const uint8_t> now, size_t at, size_t step) {
  uint64_t word = 0;
  if (at % step != 0 || at + sizeof(word) > now.size()) {
    return false;
  }
  std::memcpy(&word, now.data() + at, sizeof(word));
  return IsAddress(static_cast<uint32_t>(word >> 32));
}

}  // namespace

std::optional<size_t> FindLeak(std::span<const uint8_t> before,
                               std::span<const uint8_t> now, size_t step) {
  if (now.empty() || !Differs(before, now, 0, now.size())) {
    return std::nullopt;  // most calls, and large memory
  }
  for (size_t at = 0; at < now.size(); ++at) {
    if ((PoisonAt(now, at) && Differs(before, now, at, kRun)) ||
        (AddressAt(now, at, step) &&
         Differs(before, now, at, sizeof(uint64_t)))) {
      return at;
    }
  }
  return std::nullopt;
}

bool MightLookLeaked(uint64_t word) {
  for (int shift = 0; shift < 56; shift += 8) {
    const auto byte = static_cast<uint8_t>(word >> shift);
    if (IsPoison(byte) && byte == static_cast<uint8_t>(word >> (shift + 8))) {
      return true;
    }
  }
  return IsAddress(static_cast<uint32_t>(word)) ||
         IsAddress(static_cast<uint32_t>(word >> 32));
}

}  // namespace ropcie
