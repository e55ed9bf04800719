// SPDX-License-Identifier: GPL-2.0
#include "mappings.h"

#include <sys/mman.h>
#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "failure.h"

namespace ropcie {

namespace {

// Where the file of the context has it: there is nothing to see in the mapping,
// which is of the memory's own file.
uint64_t OffsetOf(int file, const Mapping& mapping) {
  constexpr uint64_t kPage = 4096;
  constexpr uint64_t kMost = 65536 * kPage;
  for (uint64_t offset = 0; offset < kMost; offset += kPage) {
    void* const at = mmap(nullptr, mapping.length, PROT_READ | PROT_WRITE,
                          MAP_SHARED, file, static_cast<off_t>(offset));
    if (at == MAP_FAILED) {
      continue;
    }
    const std::vector<Mapping> all = Mappings();
    const bool same =
        std::any_of(all.begin(), all.end(), [&](const Mapping& one) {
          return one.begin == at && one.inode == mapping.inode;
        });
    munmap(at, mapping.length);
    if (same) {
      return offset;
    }
  }
  throw Failure("what is mapped can not be mapped again");
}

}  // namespace

std::vector<Mapping> Mappings() {
  std::vector<Mapping> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(" /ropcie (deleted)") == std::string::npos) {
      continue;
    }
    char* rest = nullptr;
    const uintptr_t begin = std::strtoull(line.c_str(), &rest, 16);
    const uintptr_t end = std::strtoull(rest + 1, &rest, 16);
    // Behind the rights, the offset, and the device.
    std::strtoull(rest + 6, &rest, 16);
    std::strtoull(rest, &rest, 16);
    std::strtoull(rest + 1, &rest, 16);
    const uint64_t inode = std::strtoull(rest, nullptr, 10);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): that is what the file has
    found.push_back({reinterpret_cast<uint8_t*>(begin), end - begin, inode, 0});
  }
  return found;
}

std::vector<Mapping> MappingsOf(int file) {
  std::vector<Mapping> found = Mappings();
  for (Mapping& one : found) {
    one.offset = OffsetOf(file, one);
  }
  return found;
}

}  // namespace ropcie
