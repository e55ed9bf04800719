// SPDX-License-Identifier: GPL-2.0
// Keys, ranges and lists that a peer or a process names: what is allowed lies
// within the region, to the byte, what is gone is not found, and a list is
// walked from any byte to its end.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "fuzz.h"

namespace ropcie::fuzz {
namespace {

constexpr uint32_t kEntries = 9;

// A region of pages of its own, apart from each other.
struct Region {
  ropcie_mr_core core{};
  std::vector<std::vector<uint8_t>> memory;
  std::vector<void*> pages;
};

std::unique_ptr<Region> MakeRegion(Input* input) {
  auto region = std::make_unique<Region>();
  ropcie_mr_core& core = region->core;
  const auto num = input->ConsumeIntegralInRange<size_t>(1, 5);
  core.page_shift = input->ConsumeIntegralInRange<uint32_t>(4, 8);
  const size_t size = size_t{1} << core.page_shift;
  for (size_t i = 0; i < num; ++i) {
    region->memory.emplace_back(size);
    region->pages.push_back(region->memory.back().data());
  }
  core.pages = region->pages.data();
  core.offset = input->ConsumeIntegralInRange<uint32_t>(0, size - 1);
  core.length =
      input->ConsumeIntegralInRange<uint64_t>(0, num * size - core.offset);
  core.iova = Number<uint64_t>(input);
  if (core.iova + core.length < core.iova) {
    core.iova = 0 - core.length;
  }
  core.access = input->ConsumeIntegral<uint8_t>() & 0x1f;
  core.pd = input->ConsumeIntegralInRange<uint32_t>(1, 2);
  return region;
}

// Writes to all that a request may touch: AddressSanitizer knows the rest.
void Use(Input* input, const ropcie_mr_core& mr) {
  const auto addr = input->ConsumeBool() ? mr.iova + Number<uint64_t>(input)
                                         : Number<uint64_t>(input);
  const auto length = Number<uint32_t>(input);
  const uint32_t access = input->ConsumeIntegral<uint8_t>() & 0xf;
  const auto pd = input->ConsumeIntegralInRange<uint32_t>(1, 2);
  if (ropcie_mr_check(&mr, pd, addr, length, access) != 0) {
    return;
  }
  FUZZ_CHECK(pd == mr.pd && (mr.access & access) == access);
  if (length == 0) {
    return;
  }
  FUZZ_CHECK(addr - mr.iova + length <= mr.length);
  uint32_t done = 0;
  while (done < length) {
    std::array<ropcie_vec, 3> vec{};
    uint32_t count = 0;
    const uint32_t mapped = ropcie_mr_map(&mr, addr + done, length - done,
                                          vec.data(), vec.size(), &count);
    FUZZ_CHECK(mapped > 0 && count > 0);
    uint32_t sum = 0;
    for (uint32_t i = 0; i < count; ++i) {
      std::memset(vec[i].base, 1, vec[i].len);
      sum += vec[i].len;
    }
    FUZZ_CHECK(sum == mapped);
    done += mapped;
  }
}

// What is given for direct placement, for any byte of a region: it has that
// byte, and as much behind it as a record carries, or the region's end.
void Grant(Input* input, const ropcie_mr_core& mr) {
  const auto addr = mr.iova + Number<uint64_t>(input);
  if (ropcie_mr_check(&mr, mr.pd, addr, 1, 0) != 0) {
    return;
  }
  uint64_t first = 0;
  const uint32_t len = ropcie_grant_piece(&mr, addr, &first);
  FUZZ_CHECK(ropcie_mr_check(&mr, mr.pd, first, len, 0) == 0);
  const uint64_t before = addr - first;
  const uint64_t left = mr.length - (addr - mr.iova);
  FUZZ_CHECK(before < len &&
             len - before >= std::min<uint64_t>(left, ROPCIE_MAX_FRAG));
}

// A process's list, from any byte on.
void Walk(Input* input) {
  std::array<ropcie_sge, 5> list{};
  const auto num = input->ConsumeIntegralInRange<uint32_t>(0, list.size());
  uint64_t sum = 0;
  for (uint32_t i = 0; i < num; ++i) {
    list[i] = {.addr = Number<uint64_t>(input),
               .length = Number<uint32_t>(input),
               .lkey = i};
    sum += list[i].length;
  }
  FUZZ_CHECK(ropcie_sge_length(list.data(), num) == sum);
  const auto from = Number<uint64_t>(input);
  const auto want = std::max<uint32_t>(1, Number<uint32_t>(input));
  ropcie_sge_cursor cursor{};
  ropcie_sge_seek(&cursor, list.data(), num, from);
  ropcie_sge piece{};
  uint64_t walked = 0;
  bool more = true;
  for (int i = 0; i < 1000; ++i) {
    more = ropcie_sge_next(&cursor, want, &piece);
    if (!more) {
      break;
    }
    FUZZ_CHECK(piece.length > 0 && piece.length <= want && piece.lkey < num);
    const ropcie_sge& entry = list[piece.lkey];
    FUZZ_CHECK(piece.addr - entry.addr < entry.length &&
               piece.length <= entry.length - (piece.addr - entry.addr));
    uint64_t at = from + walked;  // the byte that is next
    for (uint32_t before = 0; before < piece.lkey; ++before) {
      at -= list[before].length;
    }
    FUZZ_CHECK(piece.addr - entry.addr == at);
    walked += piece.length;
    FUZZ_CHECK(from < sum && walked <= sum - from);
  }
  if (!more) {
    FUZZ_CHECK(!ropcie_sge_next(&cursor, want, &piece));
    FUZZ_CHECK(walked == (from < sum ? sum - from : 0));
  }
}

void Bind(Input* input, const Region& region, ropcie_mr_core* window) {
  const ropcie_mw_attr bind = {
      .addr = region.core.iova + Number<uint32_t>(input),
      .length = Number<uint64_t>(input),
      .access = input->ConsumeIntegral<uint8_t>(),
      .zero_based = input->ConsumeBool()};
  ropcie_mr_fast fast{};
  fast.pd = window->pd;
  fast.key = window->key ^ (input->ConsumeIntegral<uint8_t>());
  if (ropcie_mr_bind(&region.core, &bind, &fast) != 0) {
    return;
  }
  FUZZ_CHECK(region.core.access & ROPCIE_ACCESS_MW_BIND);
  void** before = nullptr;
  if (ropcie_mr_fast_register(window, &fast, &before) == 0) {
    for (int i = 0; i < 4; ++i) {
      Use(input, *window);
    }
    window->invalid = true;
  }
}

// A region that work requests give its memory, and take it away from.
void Invalidate(Input* input, ropcie_mr_core* mr) {
  const auto pd = input->ConsumeIntegralInRange<uint32_t>(1, 2);
  const uint32_t key = mr->key ^ (input->ConsumeBool() ? 0 : 1);
  const bool remote = input->ConsumeBool();
  const bool before = mr->invalid;
  const bool may = mr->dynamic && pd == mr->pd && key == mr->key &&
                   (!remote || (mr->access & ROPCIE_ACCESS_REMOTE) != 0);
  FUZZ_CHECK((ropcie_mr_invalidate(mr, pd, key, remote) == 0) == may);
  FUZZ_CHECK(mr->invalid == (before || may));
}

// The key changes its last byte with each life.
void Dynamic(Input* input, const Region& region) {
  ropcie_mr_core mr = region.core;
  mr.dynamic = input->ConsumeBool();
  mr.invalid = mr.dynamic;
  for (int life = 0; life < 3; ++life) {
    const ropcie_mr_fast fast = {
        .key = mr.key ^ input->ConsumeIntegral<uint8_t>(),
        .pd = input->ConsumeIntegralInRange<uint32_t>(1, 2),
        .access = input->ConsumeIntegral<uint8_t>() & 0xfU,
        .qpn = 0,
        .iova = region.core.iova,
        .length = region.core.length,
        .offset = region.core.offset,
        .page_shift = region.core.page_shift,
        .pages = region.core.pages};
    const bool fits = mr.dynamic && mr.invalid && fast.pd == mr.pd;
    void** before = nullptr;
    const bool done = ropcie_mr_fast_register(&mr, &fast, &before) == 0;
    FUZZ_CHECK(fits || !done);
    if (done) {
      FUZZ_CHECK(!mr.invalid && mr.key == fast.key);
      FUZZ_CHECK(mr.access == fast.access);
      Use(input, mr);
    }
    Invalidate(input, &mr);
  }
}

class Table {
 public:
  explicit Table(Input* input) : input_(input) {
    ropcie_mr_table_init(&table_, slots_.data(), slots_.size(),
                         input->ConsumeIntegral<uint32_t>());
  }

  void Run() {
    while (input_->remaining_bytes() > 0) {
      switch (input_->ConsumeIntegralInRange(0, 4)) {
        case 0:
          Add();
          break;
        case 1:
          Delete();
          break;
        case 2:
          Replace();
          break;
        case 3:
          Walk(input_);
          break;
        default:
          Find();
      }
    }
  }

 private:
  Region* Any() {
    return regions_.empty() ? nullptr
                            : regions_[input_->ConsumeIntegralInRange<size_t>(
                                           0, regions_.size() - 1)]
                                  .get();
  }

  void Add() {
    auto region = MakeRegion(input_);
    const int ret = ropcie_mr_add(&table_, &region->core);
    FUZZ_CHECK((ret == 0) == (regions_.size() < kEntries - 1));
    if (ret == 0) {
      FUZZ_CHECK(region->core.key >> 8 != 0);
      regions_.push_back(std::move(region));
    }
  }

  void Delete() {
    Region* const region = Any();
    if (region == nullptr) {
      return;
    }
    const uint32_t key = region->core.key;
    ropcie_mr_del(&table_, &region->core);
    FUZZ_CHECK(ropcie_mr_find(&table_, key) == nullptr);
    std::erase_if(regions_,
                  [&](const auto& one) { return one.get() == region; });
    FUZZ_CHECK(table_.used == regions_.size());
  }

  void Replace() {
    Region* const region = Any();
    if (region == nullptr) {
      return;
    }
    auto with = MakeRegion(input_);
    ropcie_mr_replace(&table_, &region->core, &with->core);
    FUZZ_CHECK(ropcie_mr_find(&table_, region->core.key) == &with->core);
    for (auto& one : regions_) {
      if (one.get() == region) {
        one = std::move(with);
        return;
      }
    }
  }

  void Find() {
    const Region* const some = Any();
    const uint32_t key = some != nullptr && input_->ConsumeBool()
                             ? some->core.key
                             : Number<uint32_t>(input_);
    ropcie_mr_core* const mr = ropcie_mr_find(&table_, key);
    ropcie_mr_core* const any_tag = ropcie_mr_find_index(&table_, key);
    FUZZ_CHECK(mr == nullptr || any_tag == mr);
    FUZZ_CHECK(any_tag == nullptr || any_tag->key >> 8 == key >> 8);
    const Region* region = nullptr;
    for (const auto& one : regions_) {
      if (one->core.key == key) {
        region = one.get();
      }
    }
    FUZZ_CHECK(mr == (region != nullptr ? &region->core : nullptr));
    if (region == nullptr) {
      return;
    }
    FUZZ_CHECK(ropcie_mr_is_current(mr, key));
    Use(input_, *mr);
    Grant(input_, *mr);
    if (input_->ConsumeBool()) {
      Dynamic(input_, *region);
      return;
    }
    ropcie_mr_core window{};
    window.window = true;
    window.invalid = true;
    window.pd = input_->ConsumeIntegralInRange<uint32_t>(1, 2);
    window.key = 0x500;
    Bind(input_, *region, &window);
  }

  Input* input_;
  std::array<ropcie_mr_slot, kEntries> slots_{};
  ropcie_mr_table table_{};
  std::vector<std::unique_ptr<Region>> regions_;
};

}  // namespace
}  // namespace ropcie::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  ropcie::fuzz::Table(&input).Run();
  return 0;
}
