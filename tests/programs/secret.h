// SPDX-License-Identifier: GPL-2.0
// What a hostile peer must never be given: memory of a good process that no key
// lets it read has only this byte, and no program ever sends two words of it.
#ifndef ROPCIE_TESTS_PROGRAMS_SECRET_H_
#define ROPCIE_TESTS_PROGRAMS_SECRET_H_

#include <cstdint>

namespace ropcie {

constexpr uint8_t kSecret = 0x5e;
constexpr uint64_t kSecretWord = 0x5e5e5e5e5e5e5e5e;

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_SECRET_H_
