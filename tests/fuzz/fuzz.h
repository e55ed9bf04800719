// SPDX-License-Identifier: GPL-2.0
// What the fuzz targets share: their input in portions, and an end with a line
// when an invariant does not hold.
#ifndef ROPCIE_TESTS_FUZZ_FUZZ_H_
#define ROPCIE_TESTS_FUZZ_FUZZ_H_

#include <fuzzer/FuzzedDataProvider.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../core/core.h"

// Ends the program, which makes the input a finding.
#define FUZZ_CHECK(condition)                                              \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                        \
    }                                                                      \
  } while (false)

namespace ropcie::fuzz {

using Input = FuzzedDataProvider;

// A number that is often small, often at an edge, and sometimes anything.
template <typename T>
T Number(Input* input) {
  switch (input->ConsumeIntegralInRange(0, 3)) {
    case 0:
      return input->ConsumeIntegral<uint8_t>();
    case 1:
      return static_cast<T>(0) - input->ConsumeIntegral<uint8_t>();
    case 2:
      return static_cast<T>(T{1} << input->ConsumeIntegralInRange<unsigned>(
                                0, sizeof(T) * 8 - 1));
    default:
      return input->ConsumeIntegral<T>();
  }
}

// A header as it would come out of a lane: what no decoder lets pass is not
// given to the engines either. Returns false when this one does not pass.
inline bool Passes(const ropcie_hdr& hdr, ropcie_hdr* decoded) {
  ropcie_slot slot;
  ropcie_wire_encode(&hdr, &slot);
  return ropcie_wire_decode(&slot, decoded) == 0;
}

}  // namespace ropcie::fuzz

#endif  // ROPCIE_TESTS_FUZZ_FUZZ_H_
