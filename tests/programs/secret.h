// SPDX-License-Identifier: GPL-2.0
// Bytes by which a hostile peer tells what it has been given. Memory of a good
// process that no key lets it read has only the secret one, and no program ever
// sends two words of it; a page that may be read has the public one, so that
// one who looks at the right places must see it.
#ifndef ROPCIE_TESTS_PROGRAMS_SECRET_H_
#define ROPCIE_TESTS_PROGRAMS_SECRET_H_

#include <cstdint>

namespace ropcie {

constexpr uint8_t kSecret = 0x5e;
constexpr uint64_t kSecretWord = 0x5e5e5e5e5e5e5e5e;
constexpr uint8_t kPublic = 0x3c;
constexpr uint64_t kPublicWord = 0x3c3c3c3c3c3c3c3c;

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_SECRET_H_
