// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "core.h"
#include "random.h"

namespace ropcie {
namespace {

class Table {
 public:
  explicit Table(uint32_t size, uint32_t seed = 1) : slots_(size) {
    ropcie_mr_table_init(&table_, slots_.data(), size, seed);
  }

  ropcie_mr_table* get() { return &table_; }
  [[nodiscard]] uint32_t used() const { return table_.used; }

 private:
  std::vector<ropcie_mr_slot> slots_;
  ropcie_mr_table table_{};
};

TEST(MrTable, KeyNamesItsRegionAndNoOther) {
  Table table(16);
  ropcie_mr_core mr{};
  ASSERT_EQ(ropcie_mr_add(table.get(), &mr), 0);
  for (uint32_t index = 0; index < 32; index++) {
    for (uint32_t tag = 0; tag < 256; tag++) {
      const uint32_t key = index << 8 | tag;
      EXPECT_EQ(ropcie_mr_find(table.get(), key),
                key == mr.key ? &mr : nullptr);
    }
  }
  EXPECT_EQ(ropcie_mr_find(table.get(), 0xffffffff), nullptr);
  EXPECT_EQ(ropcie_mr_find(table.get(), 0x80000000), nullptr);
}

TEST(MrTable, EntryZeroIsNeverGivenOut) {
  Table table(4);
  ropcie_mr_core mrs[4] = {};
  for (int i = 0; i < 3; i++) {
    ASSERT_EQ(ropcie_mr_add(table.get(), &mrs[i]), 0);
    EXPECT_NE(mrs[i].key >> 8, 0U);
  }
  EXPECT_EQ(ropcie_mr_add(table.get(), &mrs[3]), -ENOSPC);
  EXPECT_EQ(table.used(), 3U);
}

TEST(MrTable, TablesWithoutRoomGiveNothing) {
  for (const uint32_t size : {0U, 1U}) {
    Table table(size);
    ropcie_mr_core mr{};
    EXPECT_EQ(ropcie_mr_add(table.get(), &mr), -ENOSPC);
    EXPECT_EQ(ropcie_mr_find(table.get(), 0), nullptr);
    EXPECT_EQ(ropcie_mr_find(table.get(), 0x100), nullptr);
  }
}

TEST(MrTable, FreedKeyIsRefusedUntilTheTagComesRound) {
  Table table(2);  // one usable entry: reused at once
  std::set<uint32_t> keys;
  for (int i = 0; i < 256; i++) {
    ropcie_mr_core mr{};
    ASSERT_EQ(ropcie_mr_add(table.get(), &mr), 0);
    EXPECT_TRUE(keys.insert(mr.key).second) << "key given twice";
    for (const uint32_t key : keys) {
      EXPECT_EQ(ropcie_mr_find(table.get(), key),
                key == mr.key ? &mr : nullptr);
    }
    ropcie_mr_del(table.get(), &mr);
    EXPECT_EQ(ropcie_mr_find(table.get(), mr.key), nullptr);
  }
}

TEST(MrTable, FreedEntryIsReusedAsLateAsPossible) {
  Table table(9);
  ropcie_mr_core mrs[8] = {};
  ASSERT_EQ(ropcie_mr_add(table.get(), mrs), 0);
  const uint32_t first = mrs[0].key >> 8;
  ropcie_mr_del(table.get(), mrs);
  for (int i = 0; i < 7; i++) {
    ASSERT_EQ(ropcie_mr_add(table.get(), &mrs[i]), 0);
    EXPECT_NE(mrs[i].key >> 8, first);
  }
  ASSERT_EQ(ropcie_mr_add(table.get(), &mrs[7]), 0);
  EXPECT_EQ(mrs[7].key >> 8, first);
}

TEST(MrTable, FirstTagsDependOnTheSeed) {
  std::set<uint32_t> keys;
  for (uint32_t seed = 0; seed < 64; seed++) {
    Table table(2, seed);
    ropcie_mr_core mr{};
    ASSERT_EQ(ropcie_mr_add(table.get(), &mr), 0);
    keys.insert(mr.key);
  }
  EXPECT_GT(keys.size(), 32U);
}

TEST(MrTable, BehavesLikeAMap) {
  Random random(1);
  Table table(20);
  std::map<uint32_t, std::unique_ptr<ropcie_mr_core>> model;
  std::vector<uint32_t> stale;
  for (int step = 0; step < 20000; step++) {
    if (random.OneIn(2)) {
      auto mr = std::make_unique<ropcie_mr_core>();
      const int ret = ropcie_mr_add(table.get(), mr.get());
      ASSERT_EQ(ret, model.size() == 19 ? -ENOSPC : 0);
      if (ret == 0) {
        std::erase(stale, mr->key);
        ASSERT_TRUE(model.emplace(mr->key, std::move(mr)).second);
      }
    } else if (!model.empty()) {
      auto it = std::next(model.begin(),
                          static_cast<int64_t>(random.Below(model.size())));
      ropcie_mr_del(table.get(), it->second.get());
      stale.push_back(it->first);
      model.erase(it);
    }
    ASSERT_EQ(table.used(), model.size());
    for (const auto& [key, mr] : model) {
      ASSERT_EQ(ropcie_mr_find(table.get(), key), mr.get());
    }
    if (!stale.empty()) {
      ASSERT_EQ(ropcie_mr_find(table.get(), stale[random.Below(stale.size())]),
                nullptr);
    }
    const uint32_t any = random.Word();
    const auto it = model.find(any);
    ASSERT_EQ(ropcie_mr_find(table.get(), any),
              it == model.end() ? nullptr : it->second.get());
  }
}

// Whoever finds a region sees it complete, while others come and go.
TEST(MrTableThreads, FoundRegionIsComplete) {
  Table table(8);
  std::deque<ropcie_mr_core> mrs;  // none is used twice, as under RCU
  std::atomic<uint32_t> hint{0};
  std::atomic<int> found{0};
  std::thread reader([&] {
    while (found.load() < 1000) {
      const uint32_t key = hint.load(std::memory_order_relaxed);
      const ropcie_mr_core* mr = ropcie_mr_find(table.get(), key);
      if (mr != nullptr) {
        EXPECT_EQ(mr->length, mr->iova + 1);
        EXPECT_EQ(mr->key, key);
        found++;
      }
    }
  });
  while (found.load() < 1000) {
    mrs.emplace_back();
    mrs.back().iova = mrs.size();
    mrs.back().length = mrs.size() + 1;
    EXPECT_EQ(ropcie_mr_add(table.get(), &mrs.back()), 0);
    hint.store(mrs.back().key, std::memory_order_relaxed);
    if (mrs.size() > 4) {
      ropcie_mr_del(table.get(), &mrs[mrs.size() - 5]);
    }
    std::this_thread::yield();
  }
  reader.join();
}

TEST(MrCheck, DomainAndEveryRightAreNeeded) {
  ropcie_mr_core mr{};
  mr.pd = 7;
  mr.iova = 100;
  mr.length = 50;
  for (uint32_t have = 0; have < 16; have++) {
    for (uint32_t need = 0; need < 16; need++) {
      mr.access = have;
      EXPECT_EQ(ropcie_mr_check(&mr, 7, 100, 50, need),
                (have & need) == need ? 0 : -EACCES);
      EXPECT_EQ(ropcie_mr_check(&mr, 8, 100, 50, need), -EACCES);
      // Rights come before bounds, also for no bytes at all.
      EXPECT_EQ(ropcie_mr_check(&mr, 8, 0, 0, need), -EACCES);
    }
  }
}

TEST(MrCheck, NoBytesAreWithinBoundsAnywhere) {
  ropcie_mr_core mr{};
  mr.iova = 100;
  mr.length = 50;
  for (const uint64_t addr :
       {uint64_t{0}, uint64_t{100}, uint64_t{150}, uint64_t{151}, UINT64_MAX}) {
    EXPECT_EQ(ropcie_mr_check(&mr, 0, addr, 0, 0), 0);
  }
}

// The rule in wide arithmetic: every byte of the range is in the region.
TEST(MrCheck, RangeIsWithinTheRegionOrRefused) {
  const std::vector<uint64_t> points = {0,
                                        1,
                                        2,
                                        15,
                                        16,
                                        17,
                                        0xffffffff,
                                        0x100000000,
                                        0x7fffffffffffffff,
                                        0x8000000000000000,
                                        UINT64_MAX - 16,
                                        UINT64_MAX - 1,
                                        UINT64_MAX};
  using Wide = unsigned __int128;
  for (const uint64_t iova : points) {
    for (const uint64_t length : points) {
      if (Wide{iova} + length > Wide{UINT64_MAX} + 1) {
        continue;  // no such region
      }
      ropcie_mr_core mr{};
      mr.iova = iova;
      mr.length = length;
      for (const uint64_t addr : points) {
        for (const uint64_t len : points) {
          const bool inside =
              len == 0 ||
              (addr >= iova && Wide{addr} + len <= Wide{iova} + length);
          EXPECT_EQ(ropcie_mr_check(&mr, 0, addr, len, 0), inside ? 0 : -ERANGE)
              << iova << "+" << length << " " << addr << "+" << len;
        }
      }
    }
  }
}

// A region over random pages, and the address of each of its bytes.
class PagedRegion {
 public:
  explicit PagedRegion(Random* random) {
    const auto shift = static_cast<uint32_t>(random->Between(3, 7));
    const uint64_t size = uint64_t{1} << shift;
    const uint64_t count = random->Between(1, 12);
    memory_.resize(count * size);
    std::vector<uint64_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    // Mostly in order, so that neighbours often touch.
    for (uint64_t i = random->Below(4); i > 0; i--) {
      std::swap(order[random->Below(count)], order[random->Below(count)]);
    }
    for (const uint64_t page : order) {
      pages_.push_back(memory_.data() + page * size);
    }
    mr_.page_shift = shift;
    mr_.offset = static_cast<uint32_t>(random->Below(size));
    mr_.length = random->Between(1, count * size - mr_.offset);
    // The iova has any alignment, and may lie at the very end.
    mr_.iova = random->OneIn(4) ? 0 - mr_.length : random->Next() >> 1;
    mr_.pages = pages_.data();
    for (uint64_t i = 0; i < mr_.length; i++) {
      const uint64_t pos = mr_.offset + i;
      bytes_.push_back(static_cast<uint8_t*>(pages_[pos / size]) + pos % size);
    }
  }

  [[nodiscard]] const ropcie_mr_core& mr() const { return mr_; }
  [[nodiscard]] uint8_t* byte(uint64_t off) const { return bytes_[off]; }

 private:
  std::vector<uint8_t> memory_;
  std::vector<void*> pages_;
  std::vector<uint8_t*> bytes_;
  ropcie_mr_core mr_{};
};

std::vector<uint8_t*> BytesOf(const std::vector<ropcie_vec>& runs,
                              uint32_t count) {
  std::vector<uint8_t*> bytes;
  for (uint32_t i = 0; i < count; i++) {
    for (uint32_t off = 0; off < runs[i].len; off++) {
      bytes.push_back(static_cast<uint8_t*>(runs[i].base) + off);
    }
  }
  return bytes;
}

TEST(MrMap, RunsAreTheBytesOfTheRangeInOrder) {
  Random random(2);
  for (int round = 0; round < 20000; round++) {
    const PagedRegion region(&random);
    const ropcie_mr_core& mr = region.mr();
    const uint64_t first = random.Below(mr.length + 1);
    const auto len = static_cast<uint32_t>(random.Below(mr.length - first + 1));
    ASSERT_EQ(ropcie_mr_check(&mr, 0, mr.iova + first, len, 0), 0);

    const auto max = static_cast<uint32_t>(random.Below(14));
    std::vector<ropcie_vec> runs(max + 1);
    runs[max] = {.base = nullptr, .len = 12345};  // must stay
    uint32_t count = 0;
    const uint32_t done =
        ropcie_mr_map(&mr, mr.iova + first, len, runs.data(), max, &count);
    ASSERT_LE(count, max);
    ASSERT_EQ(runs[max].len, 12345U);
    ASSERT_TRUE(done == len || count == max);
    const std::vector<uint8_t*> bytes = BytesOf(runs, count);
    ASSERT_EQ(bytes.size(), done);
    for (uint32_t i = 0; i < done; i++) {
      ASSERT_EQ(bytes[i], region.byte(first + i));
    }
    for (uint32_t i = 1; i < count; i++) {
      ASSERT_NE(static_cast<uint8_t*>(runs[i - 1].base) + runs[i - 1].len,
                runs[i].base)
          << "touching runs are one run";
    }
  }
}

TEST(MrMap, TheNullRegionIsOnePageWhateverTheAddress) {
  std::vector<uint8_t> memory(4096);
  std::vector<void*> pages = {memory.data()};
  ropcie_mr_core mr{};
  mr.access = ROPCIE_ACCESS_LOCAL_WRITE;
  mr.null = true;
  mr.length = UINT64_MAX;
  mr.page_shift = 12;
  mr.pages = pages.data();
  for (const uint64_t addr :
       {uint64_t{0}, uint64_t{0x7fff12345678}, UINT64_MAX - 10000}) {
    ASSERT_EQ(ropcie_mr_check(&mr, 0, addr, 9000, ROPCIE_ACCESS_LOCAL_WRITE),
              0);
    EXPECT_EQ(ropcie_mr_check(&mr, 0, addr, 1, ROPCIE_ACCESS_REMOTE_READ),
              -EACCES);
    std::array<ropcie_vec, 8> runs{};
    uint32_t count = 0;
    EXPECT_EQ(ropcie_mr_map(&mr, addr, 9000, runs.data(), 8, &count), 9000U);
    for (uint32_t i = 0; i < count; ++i) {
      auto* const base = static_cast<uint8_t*>(runs.at(i).base);
      EXPECT_GE(base, memory.data());
      EXPECT_LE(base + runs.at(i).len, memory.data() + memory.size());
    }
  }
}

TEST(MrMap, StopsAtAPageThatIsNotThere) {
  std::vector<uint8_t> memory(size_t{4} * 8);
  std::vector<void*> pages;
  for (size_t i = 0; i < 4; i++) {
    pages.push_back(memory.data() + 8 * i);
  }
  ropcie_mr_core mr{};
  mr.iova = 1000;
  mr.length = 30;
  mr.offset = 2;
  mr.page_shift = 3;
  mr.pages = pages.data();
  ropcie_vec vec[3] = {};
  uint32_t count = 0;
  pages[2] = nullptr;
  EXPECT_EQ(ropcie_mr_map(&mr, 1000, 30, vec, 3, &count), 14U);
  ASSERT_EQ(count, 1U);
  EXPECT_EQ(vec[0].base, memory.data() + 2);
  EXPECT_EQ(vec[0].len, 14U);
  count = 0;
  EXPECT_EQ(ropcie_mr_map(&mr, 1015, 3, vec, 3, &count), 0U);
  EXPECT_EQ(count, 0U);
  EXPECT_EQ(ropcie_mr_map(&mr, 1022, 8, vec, 3, &count), 8U);
}

TEST(MrMap, ContinuesWhereTheVectorWasFull) {
  Random random(3);
  for (int round = 0; round < 5000; round++) {
    const PagedRegion region(&random);
    const ropcie_mr_core& mr = region.mr();
    const auto len = static_cast<uint32_t>(mr.length);
    std::vector<uint8_t*> bytes;
    uint32_t done = 0;
    while (done < len) {
      std::vector<ropcie_vec> runs(2);
      uint32_t count = 0;
      const auto want = static_cast<uint32_t>(random.Between(1, len - done));
      const uint32_t part =
          ropcie_mr_map(&mr, mr.iova + done, want, runs.data(), 2, &count);
      ASSERT_GT(part, 0U);
      for (uint8_t* byte : BytesOf(runs, count)) {
        bytes.push_back(byte);
      }
      done += part;
    }
    ASSERT_EQ(bytes.size(), len);
    for (uint32_t i = 0; i < len; i++) {
      ASSERT_EQ(bytes[i], region.byte(i));
    }
  }
}

TEST(MrMap, ExtendsTheLastRunOfAnEarlierCall) {
  uint8_t memory[64];
  ropcie_mr_core mr{};
  mr.iova = reinterpret_cast<uint64_t>(memory);
  mr.length = sizeof(memory);
  ropcie_vec runs[2] = {};
  uint32_t count = 0;
  EXPECT_EQ(ropcie_mr_map(&mr, mr.iova, 10, runs, 2, &count), 10U);
  EXPECT_EQ(ropcie_mr_map(&mr, mr.iova + 10, 20, runs, 2, &count), 20U);
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(runs[0].len, 30U);
  EXPECT_EQ(ropcie_mr_map(&mr, mr.iova, 5, runs, 2, &count), 5U);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(ropcie_mr_map(&mr, mr.iova, 5, runs, 2, &count), 0U);
}

TEST(MrMap, RunLengthDoesNotWrap) {
  ropcie_mr_core mr{};  // addresses are not followed here
  mr.length = UINT64_MAX;
  ropcie_vec runs[2] = {};
  uint32_t count = 0;
  EXPECT_EQ(ropcie_mr_map(&mr, 0x1000, UINT32_MAX, runs, 2, &count),
            UINT32_MAX);
  EXPECT_EQ(
      ropcie_mr_map(&mr, 0x1000 + uint64_t{UINT32_MAX}, 8, runs, 2, &count),
      8U);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(runs[1].len, 8U);
}

// Pages as dma-bufs have them; addresses are not followed here.
TEST(MrMap, PagesMayBeAsLargeAsTheOffsetInOne) {
  void* pages[] = {reinterpret_cast<void*>(0x100000000064),
                   reinterpret_cast<void*>(0x200000000064)};
  ropcie_mr_core mr{};
  mr.pages = pages;
  mr.page_shift = 31;
  mr.iova = 0x1000;
  mr.length = uint64_t{2} << 31;
  ropcie_vec runs[2] = {};
  uint32_t count = 0;
  EXPECT_EQ(ropcie_mr_map(&mr, mr.iova + 0x7ffffff0, 0x30, runs, 2, &count),
            0x30U);
  ASSERT_EQ(count, 2U);
  EXPECT_EQ(reinterpret_cast<uint64_t>(runs[0].base), 0x100080000054U);
  EXPECT_EQ(runs[0].len, 0x10U);
  EXPECT_EQ(reinterpret_cast<uint64_t>(runs[1].base), 0x200000000064U);
  EXPECT_EQ(runs[1].len, 0x20U);

  // A window far into the last of them.
  mr.access = ROPCIE_ACCESS_MW_BIND;
  ropcie_mr_fast fast{};
  ropcie_mw_attr bind{};
  bind.addr = mr.iova + 0xfffffff0;
  bind.length = 0x10;
  ASSERT_EQ(ropcie_mr_bind(&mr, &bind, &fast), 0);
  EXPECT_EQ(fast.pages, pages + 1);
  EXPECT_EQ(fast.offset, 0x7ffffff0U);
}

TEST(MrMap, RegionWithoutPagesIsMappedAsItIs) {
  ropcie_mr_core mr{};
  mr.length = UINT64_MAX;
  ropcie_vec run{};
  uint32_t count = 0;
  EXPECT_EQ(ropcie_mr_map(&mr, 0xdead0001, 77, &run, 1, &count), 77U);
  EXPECT_EQ(reinterpret_cast<uint64_t>(run.base), 0xdead0001U);
  EXPECT_EQ(run.len, 77U);
}

TEST(Sge, LengthDoesNotOverflow) {
  const std::vector<ropcie_sge> list(
      5, {.addr = 0, .length = UINT32_MAX, .lkey = 0});
  EXPECT_EQ(ropcie_sge_length(list.data(), 5), 5ULL * UINT32_MAX);
  EXPECT_EQ(ropcie_sge_length(list.data(), 0), 0U);
}

// One byte of a list: its address and key.
using SgeByte = std::pair<uint64_t, uint32_t>;

std::vector<ropcie_sge> RandomList(Random* random) {
  std::vector<ropcie_sge> list(random->Below(6));
  for (ropcie_sge& sge : list) {
    sge.addr = random->Next();
    sge.length =
        random->OneIn(3) ? 0 : static_cast<uint32_t>(random->Between(1, 20));
    sge.lkey = random->Word();
  }
  return list;
}

TEST(Sge, CursorWalksTheBytesInOrder) {
  Random random(4);
  for (int round = 0; round < 20000; round++) {
    const std::vector<ropcie_sge> list = RandomList(&random);
    std::vector<SgeByte> model;
    for (const ropcie_sge& sge : list) {
      for (uint32_t i = 0; i < sge.length; i++) {
        model.emplace_back(sge.addr + i, sge.lkey);
      }
    }
    const auto num = static_cast<uint32_t>(list.size());
    ASSERT_EQ(ropcie_sge_length(list.data(), num), model.size());

    const uint64_t start = random.Below(model.size() + 3);
    ropcie_sge_cursor cur;
    ropcie_sge_seek(&cur, list.data(), num, start);
    uint64_t at = std::min<uint64_t>(start, model.size());
    for (;;) {
      const auto want = static_cast<uint32_t>(random.Between(1, 25));
      ropcie_sge piece{};
      if (!ropcie_sge_next(&cur, want, &piece)) {
        break;
      }
      ASSERT_GE(piece.length, 1U);
      ASSERT_LE(piece.length, want);
      for (uint32_t i = 0; i < piece.length; i++, at++) {
        ASSERT_LT(at, model.size());
        ASSERT_EQ(model[at], SgeByte(piece.addr + i, piece.lkey));
      }
    }
    ASSERT_EQ(at, model.size());
    ropcie_sge piece{};
    ASSERT_FALSE(ropcie_sge_next(&cur, 1, &piece)) << "the end stays the end";
  }
}

TEST(Sge, WantingNothingMovesNothing) {
  const ropcie_sge sge = {.addr = 5, .length = 3, .lkey = 9};
  ropcie_sge_cursor cur;
  ropcie_sge_seek(&cur, &sge, 1, 0);
  ropcie_sge piece{};
  EXPECT_FALSE(ropcie_sge_next(&cur, 0, &piece));
  ASSERT_TRUE(ropcie_sge_next(&cur, 100, &piece));
  EXPECT_EQ(piece.length, 3U);
}

TEST(Sge, LongestEntriesAreWalkedWhole) {
  const ropcie_sge list[2] = {{.addr = 0, .length = UINT32_MAX, .lkey = 1},
                              {.addr = 9, .length = UINT32_MAX, .lkey = 2}};
  ropcie_sge_cursor cur;
  ropcie_sge_seek(&cur, list, 2, uint64_t{UINT32_MAX} * 2 - 1);
  ropcie_sge piece{};
  ASSERT_TRUE(ropcie_sge_next(&cur, 10, &piece));
  EXPECT_EQ(piece.addr, uint64_t{9} + UINT32_MAX - 1);
  EXPECT_EQ(piece.length, 1U);
  EXPECT_FALSE(ropcie_sge_next(&cur, 10, &piece));
}

TEST(MrTable, AnotherRegionTakesAKeyOver) {
  std::array<ropcie_mr_slot, 4> slots{};
  ropcie_mr_table table{};
  ropcie_mr_core old{};
  ropcie_mr_core with{};
  ropcie_mr_table_init(&table, slots.data(), 4, 1);
  ASSERT_EQ(ropcie_mr_add(&table, &old), 0);

  ropcie_mr_replace(&table, &old, &with);
  EXPECT_EQ(with.key, old.key);
  EXPECT_EQ(ropcie_mr_find(&table, old.key), &with);
  // The old one goes as any other, and takes nothing with it.
  ropcie_mr_del(&table, &old);
  EXPECT_EQ(ropcie_mr_find(&table, with.key), &with);
  EXPECT_EQ(table.used, 1U);
  ropcie_mr_del(&table, &with);
  EXPECT_EQ(ropcie_mr_find(&table, with.key), nullptr);
  EXPECT_EQ(table.used, 0U);
}

class DynamicRegion : public testing::Test {
 protected:
  static constexpr uint32_t kPd = 7;
  static constexpr uint32_t kSlots = 4;

  void SetUp() override {
    ropcie_mr_table_init(&table_, slots_.data(), kSlots, 1);
    mr_.pd = kPd;
    mr_.page_shift = 12;
    mr_.dynamic = true;
    mr_.invalid = true;
    ASSERT_EQ(ropcie_mr_add(&table_, &mr_), 0);
  }

  int Register(uint32_t key, uint32_t pd = kPd,
               uint32_t access = ROPCIE_ACCESS_REMOTE_READ) {
    const ropcie_mr_fast fast = {.key = key,
                                 .pd = pd,
                                 .access = access,
                                 .qpn = 0,
                                 .iova = 0x1234567,
                                 .length = 100,
                                 .offset = 0x567,
                                 .page_shift = 12,
                                 .pages = pages_.data()};
    return ropcie_mr_fast_register(&mr_, &fast, &before_);
  }

  bool IsUsable(uint32_t key) {
    const ropcie_mr_core* found = ropcie_mr_find(&table_, key);
    return found != nullptr && ropcie_mr_is_current(found, key);
  }

  std::array<ropcie_mr_slot, kSlots> slots_{};
  ropcie_mr_table table_{};
  ropcie_mr_core mr_{};
  std::array<void*, 2> pages_{};
  void** before_ = nullptr;
};

TEST_F(DynamicRegion, IsUsableWhileItIsRegistered) {
  const uint32_t key = mr_.key;
  EXPECT_FALSE(IsUsable(key));
  ASSERT_EQ(Register(key ^ 1), 0);
  EXPECT_TRUE(IsUsable(key ^ 1));
  EXPECT_FALSE(IsUsable(key));
  EXPECT_EQ(mr_.offset, 0x567U);
  EXPECT_EQ(
      ropcie_mr_check(&mr_, kPd, 0x1234567, 100, ROPCIE_ACCESS_REMOTE_READ), 0);
  EXPECT_EQ(
      ropcie_mr_check(&mr_, kPd, 0x1234567, 1, ROPCIE_ACCESS_REMOTE_WRITE),
      -EACCES);
  EXPECT_EQ(ropcie_mr_invalidate(&mr_, kPd, key ^ 1, false), 0);
  EXPECT_FALSE(IsUsable(key ^ 1));
}

TEST_F(DynamicRegion, IsRegisteredOnlyOnceAndWithinItsIndexAndDomain) {
  const uint32_t key = mr_.key;
  EXPECT_EQ(Register(key + 0x100), -EINVAL);
  EXPECT_EQ(Register(key, kPd + 1), -EINVAL);
  EXPECT_EQ(Register(key), 0);
  EXPECT_EQ(Register(key ^ 1), -EINVAL);
}

TEST_F(DynamicRegion, LetsNobodyWriteWhereItsOwnerMayNot) {
  for (uint32_t access = 0; access < ROPCIE_ACCESS_MW_BIND; ++access) {
    const bool writes =
        (access & (ROPCIE_ACCESS_REMOTE_WRITE | ROPCIE_ACCESS_REMOTE_ATOMIC)) !=
        0;
    const bool good = !writes || (access & ROPCIE_ACCESS_LOCAL_WRITE) != 0;
    EXPECT_EQ(Register(mr_.key, kPd, access), good ? 0 : -EINVAL) << access;
    EXPECT_EQ(IsUsable(mr_.key), good) << access;
    mr_.invalid = true;
  }
}

TEST_F(DynamicRegion, IsInvalidatedOnlyByItsKeyAndInItsDomain) {
  const uint32_t key = mr_.key;
  ASSERT_EQ(Register(key), 0);
  EXPECT_EQ(ropcie_mr_invalidate(&mr_, kPd, key ^ 1, false), -EINVAL);
  EXPECT_EQ(ropcie_mr_invalidate(&mr_, kPd + 1, key, false), -EINVAL);
  EXPECT_TRUE(IsUsable(key));
}

TEST_F(DynamicRegion, KeepsItsPagesUntilItIsRegisteredAgain) {
  std::array<void*, 2> old{};
  mr_.pages = old.data();
  ASSERT_EQ(Register(mr_.key), 0);
  EXPECT_EQ(mr_.pages, pages_.data());
  EXPECT_EQ(before_, old.data());
}

TEST_F(DynamicRegion, MayBeInvalidatedAgain) {
  ASSERT_EQ(Register(mr_.key), 0);
  EXPECT_EQ(ropcie_mr_invalidate(&mr_, kPd, mr_.key, false), 0);
  EXPECT_EQ(ropcie_mr_invalidate(&mr_, kPd, mr_.key, false), 0);
}

TEST_F(DynamicRegion, ThePeerMayOnlyInvalidateWhatItHasARightTo) {
  ASSERT_EQ(Register(mr_.key), 0);
  mr_.access = ROPCIE_ACCESS_LOCAL_WRITE;
  EXPECT_EQ(ropcie_mr_invalidate(&mr_, kPd, mr_.key, true), -EINVAL);
  EXPECT_TRUE(IsUsable(mr_.key));
  mr_.access = ROPCIE_ACCESS_REMOTE_WRITE;
  EXPECT_EQ(ropcie_mr_invalidate(&mr_, kPd, mr_.key, true), 0);
}

TEST_F(DynamicRegion, AnOrdinaryRegionIsNeither) {
  mr_.dynamic = false;
  mr_.invalid = false;
  EXPECT_EQ(Register(mr_.key), -EINVAL);
  EXPECT_EQ(ropcie_mr_invalidate(&mr_, kPd, mr_.key, false), -EINVAL);
  EXPECT_TRUE(IsUsable(mr_.key));
}

TEST_F(DynamicRegion, IsFoundByItsIndexWhateverTheTag) {
  EXPECT_EQ(ropcie_mr_find_index(&table_, mr_.key ^ 0x55), &mr_);
  EXPECT_EQ(ropcie_mr_find_index(&table_, mr_.key + 0x100), nullptr);
  EXPECT_EQ(ropcie_mr_find_index(&table_, 0xffffffff), nullptr);
}

// A region of three pages, the second and third of which a window may show.
class Window : public testing::Test {
 protected:
  static constexpr uint32_t kPd = 7;
  static constexpr uint32_t kQpn = 99;
  static constexpr uint64_t kIova =
      0x10000800;  // the first page begins half way
  static constexpr uint64_t kLength = 2 * 4096 + 100;

  void SetUp() override {
    for (size_t i = 0; i < pages_.size(); ++i) {
      pages_.at(i) = memory_.at(i).data();
    }
    mr_.pd = kPd;
    mr_.access = ROPCIE_ACCESS_LOCAL_WRITE | ROPCIE_ACCESS_MW_BIND;
    mr_.iova = kIova;
    mr_.length = kLength;
    mr_.offset = 0x800;
    mr_.page_shift = 12;
    mr_.pages = pages_.data();
    window_.pd = kPd;
    window_.window = true;
    window_.invalid = true;
    window_.key = 0x500;
  }

  int Bind(uint64_t addr, uint64_t length, uint32_t access,
           bool zero_based = false) {
    const ropcie_mw_attr bind = {.addr = addr,
                                 .length = length,
                                 .access = access,
                                 .zero_based = zero_based};
    ropcie_mr_fast fast{};
    fast.key = 0x501;
    fast.pd = kPd;
    fast.qpn = kQpn;
    void** before = nullptr;
    const int ret = ropcie_mr_bind(&mr_, &bind, &fast);
    return ret != 0 ? ret : ropcie_mr_fast_register(&window_, &fast, &before);
  }

  std::array<std::array<char, 4096>, 3> memory_{};
  std::array<void*, 3> pages_{};
  ropcie_mr_core mr_{};
  ropcie_mr_core window_{};
};

TEST_F(Window, ShowsItsPartOfTheRegionAndNothingElse) {
  const uint64_t first = kIova + 4096;
  ASSERT_EQ(Bind(first, 50, ROPCIE_ACCESS_REMOTE_WRITE), 0);
  EXPECT_EQ(window_.key, 0x501U);
  EXPECT_EQ(
      ropcie_mr_check(&window_, kPd, first, 50, ROPCIE_ACCESS_REMOTE_WRITE), 0);
  EXPECT_EQ(
      ropcie_mr_check(&window_, kPd, first, 51, ROPCIE_ACCESS_REMOTE_WRITE),
      -ERANGE);
  EXPECT_EQ(
      ropcie_mr_check(&window_, kPd, first - 1, 1, ROPCIE_ACCESS_REMOTE_WRITE),
      -ERANGE);
  EXPECT_EQ(ropcie_mr_check(&window_, kPd, first, 1, ROPCIE_ACCESS_REMOTE_READ),
            -EACCES);
  ropcie_vec vec{};
  uint32_t nvec = 0;
  EXPECT_EQ(ropcie_mr_map(&window_, first + 3, 47, &vec, 1, &nvec), 47);
  EXPECT_EQ(vec.base, &memory_[1][0x803]);
}

TEST_F(Window, CanBeginAtAddressZero) {
  ASSERT_EQ(Bind(kIova + 1, 10, ROPCIE_ACCESS_REMOTE_READ, true), 0);
  EXPECT_EQ(ropcie_mr_check(&window_, kPd, 0, 10, ROPCIE_ACCESS_REMOTE_READ),
            0);
  ropcie_vec vec{};
  uint32_t nvec = 0;
  EXPECT_EQ(ropcie_mr_map(&window_, 0, 10, &vec, 1, &nvec), 10);
  EXPECT_EQ(vec.base, &memory_[0][0x801]);
}

TEST_F(Window, IsForThePeersOfItsQueuePairOnly) {
  ASSERT_EQ(Bind(kIova, 10, ROPCIE_ACCESS_REMOTE_READ), 0);
  EXPECT_TRUE(ropcie_mr_serves(&window_, kQpn, ROPCIE_ACCESS_REMOTE_READ));
  EXPECT_FALSE(ropcie_mr_serves(&window_, kQpn + 1, ROPCIE_ACCESS_REMOTE_READ));
  EXPECT_FALSE(ropcie_mr_serves(&window_, kQpn, 0));
  EXPECT_FALSE(ropcie_mr_serves(&window_, kQpn, ROPCIE_ACCESS_LOCAL_WRITE));
  EXPECT_TRUE(ropcie_mr_serves(&mr_, kQpn + 1, 0));
}

TEST_F(Window, IsBoundOnlyToWhatTheRegionAllows) {
  EXPECT_EQ(Bind(kIova, 0, 0), -EINVAL);
  EXPECT_EQ(Bind(kIova, kLength + 1, 0), -EINVAL);
  EXPECT_EQ(Bind(kIova - 1, 2, 0), -EINVAL);
  EXPECT_EQ(Bind(UINT64_MAX, 2, 0), -EINVAL);
  mr_.access = ROPCIE_ACCESS_MW_BIND;
  EXPECT_EQ(Bind(kIova, 1, ROPCIE_ACCESS_REMOTE_WRITE), -EINVAL);
  EXPECT_EQ(Bind(kIova, 1, ROPCIE_ACCESS_REMOTE_ATOMIC), -EINVAL);
  mr_.access = ROPCIE_ACCESS_LOCAL_WRITE;
  EXPECT_EQ(Bind(kIova, 1, 0), -EINVAL);
  mr_.access = ROPCIE_ACCESS_MW_BIND;
  mr_.pd = kPd + 1;
  EXPECT_EQ(Bind(kIova, 1, 0), -EINVAL);
  mr_.pd = kPd;
  mr_.window = true;
  EXPECT_EQ(Bind(kIova, 1, 0), -EINVAL);
  mr_.window = false;
  EXPECT_EQ(Bind(kIova, 1, ROPCIE_ACCESS_REMOTE_READ), 0);
  EXPECT_EQ(Bind(kIova, 1, ROPCIE_ACCESS_REMOTE_READ), -EINVAL);  // it is bound
}

}  // namespace
}  // namespace ropcie
