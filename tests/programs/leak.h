// SPDX-License-Identifier: GPL-2.0
// Memory of the kernel in what it has answered: bytes that its allocators and
// its compiler leave where nobody has written (slub_debug=PZ, page_poison=1,
// CONFIG_INIT_STACK_ALL_PATTERN), and addresses.
#ifndef ROPCIE_TESTS_PROGRAMS_LEAK_H_
#define ROPCIE_TESTS_PROGRAMS_LEAK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace ropcie {

// Where in `now` the first of it is that was not there `before`, which has as
// many bytes. Addresses are looked for at multiples of `step`.
std::optional<size_t> FindLeak(std::span<const uint8_t> before,
                               std::span<const uint8_t> now,
                               size_t step = sizeof(uint64_t));

// Is this a number that, alone or next to others that are none, might be taken
// for it? A test that looks for leaks must not hand it to the kernel.
bool MightLookLeaked(uint64_t word);

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_LEAK_H_
