// SPDX-License-Identifier: GPL-2.0
#include "region.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace ropcie::sim {
namespace {

constexpr uint8_t kPattern = 0xc3;

}  // namespace

Region::Region(Env* env, uint32_t size, uint32_t pd, uint32_t access,
               uint32_t page_shift) {
  const auto any =
      static_cast<uint32_t>(env->random.Between(6, env->crowd ? 6 : 12));
  const uint32_t shift = page_shift != 0 ? page_shift : any;
  const uint32_t page = 1U << shift;
  mr_.page_shift = shift;
  mr_.offset = static_cast<uint32_t>(env->random.Below(page));
  mr_.length = size;
  mr_.iova = env->random.Next() >> 2;
  mr_.pd = pd;
  mr_.access = access;

  const uint32_t count = (mr_.offset + size + page - 1) / page;
  memory_.assign(size_t{count + 2} * page, kPattern);
  expected_ = memory_;
  order_.resize(count);
  std::iota(order_.begin(), order_.end(), 1);  // page 0 is a guard
  // Mostly in order, so that neighbours often touch.
  for (uint64_t swaps = env->random.Below(4); swaps > 0; swaps--) {
    std::swap(order_[env->random.Below(count)],
              order_[env->random.Below(count)]);
  }
  for (const uint32_t place : order_) {
    pages_.push_back(memory_.data() + size_t{place} * page);
  }
  mr_.pages = pages_.data();
}

template <class Fn>
void Region::ForRuns(uint32_t off, uint32_t len, const Fn& fn) const {
  const uint32_t page = 1U << mr_.page_shift;
  uint32_t done = 0;
  while (done < len) {
    const uint32_t pos = mr_.offset + off + done;
    const uint32_t run = std::min(len - done, page - pos % page);
    fn(size_t{order_[pos / page]} * page + pos % page, done, run);
    done += run;
  }
}

void Region::Write(uint32_t off, std::span<const uint8_t> bytes) {
  ForRuns(off, static_cast<uint32_t>(bytes.size()),
          [&](size_t at, uint32_t from, uint32_t run) {
            memcpy(memory_.data() + at, bytes.data() + from, run);
            memcpy(expected_.data() + at, bytes.data() + from, run);
          });
}

bool Region::Arrived(uint32_t off, std::span<const uint8_t> bytes) {
  bool same = true;
  ForRuns(off, static_cast<uint32_t>(bytes.size()),
          [&](size_t at, uint32_t from, uint32_t run) {
            memcpy(expected_.data() + at, bytes.data() + from, run);
            same &= memcmp(memory_.data() + at, bytes.data() + from, run) == 0;
          });
  return same;
}

std::vector<uint8_t> Region::Read(uint32_t off, uint32_t len) const {
  std::vector<uint8_t> bytes(len);
  ForRuns(off, len, [&](size_t at, uint32_t from, uint32_t run) {
    memcpy(bytes.data() + from, memory_.data() + at, run);
  });
  return bytes;
}

void Region::Accept(uint32_t off, uint32_t len) {
  ForRuns(off, len, [&](size_t at, uint32_t, uint32_t run) {
    memcpy(expected_.data() + at, memory_.data() + at, run);
  });
}

void FillFromKey(uint64_t key, std::span<uint8_t> bytes) {
  Random random(key);
  size_t at = 0;
  while (at < bytes.size()) {
    const uint64_t word = random.Next();
    const size_t len = std::min(sizeof(word), bytes.size() - at);
    memcpy(bytes.data() + at, &word, len);
    at += len;
  }
}

std::vector<ropcie_sge> CutIntoSges(Env* env, Region* region, uint32_t off,
                                    uint32_t len, uint32_t most) {
  std::vector<ropcie_sge> list;
  uint32_t done = 0;
  while (list.size() < most) {
    if (env->random.OneIn(6)) {
      list.push_back({.addr = env->random.Next(),
                      .length = 0,
                      .lkey = env->random.Word()});
      continue;
    }
    uint32_t part = len - done;
    if (list.size() + 1 < most && env->random.OneIn(2)) {
      part = static_cast<uint32_t>(env->random.Below(part + 1));
    }
    list.push_back({.addr = region->Address(off + done),
                    .length = part,
                    .lkey = region->mr()->key});
    done += part;
    if (done == len) {
      return list;
    }
  }
  // Only empty entries fitted behind what is left: one entry does it all.
  return {
      {.addr = region->Address(off), .length = len, .lkey = region->mr()->key}};
}

}  // namespace ropcie::sim
