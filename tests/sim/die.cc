// SPDX-License-Identifier: GPL-2.0
// The faults that end the program.
#include <bit>
#include <csignal>

#include "env.h"

namespace ropcie::sim {
namespace {

// A frame for each, as its result is needed.
int Deeper(volatile int* depth) {
  volatile char room[4096];
  room[0] = 1;
  *depth = *depth + 1;
  return *depth < 0 ? 0 : Deeper(depth) + room[0];
}

}  // namespace

void Die(Fault fault) {
  volatile int zero = 0;
  volatile uintptr_t nowhere = 64;
  switch (fault) {
    case Fault::kCrash:
      *std::bit_cast<volatile int*>(uintptr_t{nowhere}) = 1;
      break;
    case Fault::kBus:
      static_cast<void>(std::raise(SIGBUS));
      break;
    case Fault::kDivide:
      zero = 100 / zero;
      break;
    case Fault::kOverflow:
      Deeper(&zero);
      break;
    case Fault::kHang:
      while (zero == 0) {
      }
      break;
    default:
      break;
  }
}

}  // namespace ropcie::sim
