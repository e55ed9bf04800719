// SPDX-License-Identifier: GPL-2.0
#ifndef ROPCIE_TESTS_PROGRAMS_MAPPINGS_H_
#define ROPCIE_TESTS_PROGRAMS_MAPPINGS_H_

#include <cstdint>
#include <vector>

namespace ropcie {

struct Mapping {
  uint8_t* begin;
  uint64_t length;
  uint64_t inode;
  uint64_t offset;  // MappingsOf(): in the file of the context
};

// What this process has mapped of devices: queues, device memory.
std::vector<Mapping> Mappings();
// All of it that is of one context: every mapping has to be.
std::vector<Mapping> MappingsOf(int file);

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_MAPPINGS_H_
