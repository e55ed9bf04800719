// SPDX-License-Identifier: GPL-2.0
#include "mappings.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace ropcie {

std::vector<Mapping> Mappings() {
  std::vector<Mapping> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/dev/infiniband/uverbs") == std::string::npos) {
      continue;
    }
    char* rest = nullptr;
    const uintptr_t begin = std::strtoull(line.c_str(), &rest, 16);
    const uintptr_t end = std::strtoull(rest + 1, &rest, 16);
    // Behind the rights.
    const uint64_t offset = std::strtoull(rest + 6, nullptr, 16);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): that is what the file has
    found.push_back({reinterpret_cast<uint8_t*>(begin), end - begin, offset});
  }
  return found;
}

}  // namespace ropcie
