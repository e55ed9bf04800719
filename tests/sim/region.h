// SPDX-License-Identifier: GPL-2.0
// A program's memory region: pages in any order between guard pages, and a
// copy of what they must contain. Knows nothing of queue pairs.
#ifndef ROPCIE_TESTS_SIM_REGION_H
#define ROPCIE_TESTS_SIM_REGION_H

#include <cstdint>
#include <span>
#include <vector>

#include "core/core.h"
#include "env.h"

namespace ropcie::sim {

class Region {
 public:
  // With a `shift` of 0 its pages are of any size.
  Region(Env* env, uint32_t size, uint32_t pd, uint32_t access,
         uint32_t shift = 0);
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  ropcie_mr_core* mr() { return &mr_; }
  [[nodiscard]] uint64_t Address(uint32_t off) const { return mr_.iova + off; }

  // The program writes.
  void Write(uint32_t off, std::span<const uint8_t> bytes);
  // Are these the bytes, and may they be? Then they must stay.
  bool Arrived(uint32_t off, std::span<const uint8_t> bytes);
  // The bytes that are there now.
  [[nodiscard]] std::vector<uint8_t> Read(uint32_t off, uint32_t len) const;
  // Whatever is there now may be there.
  void Accept(uint32_t off, uint32_t len);
  // Is every byte, guards included, what it must be?
  [[nodiscard]] bool Intact() const { return memory_ == expected_; }

 private:
  // Calls fn(position, offset in the range, length) for each run of bytes.
  template <class Fn>
  void ForRuns(uint32_t off, uint32_t len, const Fn& fn) const;

  std::vector<uint8_t> memory_;
  std::vector<uint8_t> expected_;
  std::vector<uint32_t> order_;  // where page n lies in the memory
  std::vector<void*> pages_;
  ropcie_mr_core mr_{};
};

// The bytes that belong to a key: the payload of a message.
void FillFromKey(uint64_t key, std::span<uint8_t> bytes);

// A scatter/gather list over a part of a region, cut at random, with empty
// entries in between whose keys are of no use.
std::vector<ropcie_sge> CutIntoSges(Env* env, Region* region, uint32_t off,
                                    uint32_t len, uint32_t most);

}  // namespace ropcie::sim

#endif  // ROPCIE_TESTS_SIM_REGION_H
