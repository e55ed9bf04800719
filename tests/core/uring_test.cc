// SPDX-License-Identifier: GPL-2.0
// Shared rings: the kernel's end of uring.h against the provider's of mapped.h,
// and against processes that keep no rules.
#include "uring.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "mapped.h"

namespace {

struct Entry {
  uint64_t number;
  uint64_t copy;
};

class Uring : public testing::Test {
 protected:
  static constexpr uint32_t kSize = 8;

  void SetUp() override {
    kernel_.ctl = &ctl_;
    kernel_.entries = reinterpret_cast<char*>(memory_.data());
    kernel_.size = kSize;
    kernel_.stride = sizeof(Entry);
    process_.ctl = &ctl_;
    process_.entries = kernel_.entries;
    process_.size = kSize;
    process_.stride = sizeof(Entry);
    ropcie_uring_reset(&kernel_);
  }

  void Fill(uint64_t number) {
    *static_cast<Entry*>(ropcie_ring_at(&process_, process_.next++)) = {
        number, ~number};
  }

  Entry Take() {
    Entry entry{};
    ropcie_uring_take(&kernel_, &entry);
    return entry;
  }

  void Put(const Entry& entry) {
    *static_cast<Entry*>(ropcie_uring_at(&kernel_, kernel_.next)) = entry;
    ropcie_uring_publish(&kernel_);
  }

  ropcie_abi_ring ctl_{};
  std::array<Entry, kSize> memory_{};
  ropcie_uring kernel_{};
  ropcie_ring process_{};
};

using UringThreads = Uring;

TEST_F(Uring, GivesTheKernelWhatTheProcessHasFilledInOrder) {
  for (uint64_t round = 0; round < 100; ++round) {
    const auto count = static_cast<uint32_t>(1 + round % kSize);
    for (uint32_t i = 0; i < count; ++i) {
      Fill(round * kSize + i);
    }
    EXPECT_EQ(ropcie_uring_ready(&kernel_), 0);
    ropcie_ring_publish(&process_);
    ASSERT_EQ(ropcie_uring_ready(&kernel_), count);
    for (uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(Take().number, round * kSize + i);
    }
    EXPECT_EQ(ropcie_uring_ready(&kernel_), 0);
    EXPECT_EQ(ropcie_ring_used(&process_), count);
    ropcie_uring_release(&kernel_, kernel_.next);
    EXPECT_EQ(ropcie_ring_used(&process_), 0);
  }
}

TEST_F(Uring, TakesNothingWhenTheIndexIsImpossible) {
  Fill(1);
  ropcie_ring_publish(&process_);
  for (const uint32_t head : {kSize + 1, 0x80000000U, 0xffffffffU}) {
    ctl_.head = head;
    EXPECT_EQ(ropcie_uring_ready(&kernel_), 0);
  }
  ctl_.head = kSize;
  EXPECT_EQ(ropcie_uring_ready(&kernel_), kSize);
}

TEST_F(Uring, CountsOnAcrossTheEndOfTheNumbers) {
  kernel_.next = process_.next = 0xfffffffd;
  ctl_.head = ctl_.tail = 0xfffffffd;
  for (uint64_t i = 0; i < 6; ++i) {
    Fill(i);
  }
  ropcie_ring_publish(&process_);
  ASSERT_EQ(ropcie_uring_ready(&kernel_), 6);
  for (uint64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(Take().number, i);
  }
}

TEST_F(Uring, ResetEmptiesIt) {
  Fill(1);
  ropcie_ring_publish(&process_);
  Take();
  ropcie_uring_reset(&kernel_);
  process_.next = 0;
  EXPECT_EQ(ropcie_uring_ready(&kernel_), 0);
  EXPECT_EQ(ropcie_ring_used(&process_), 0);
  EXPECT_TRUE(ropcie_ring_publish(&process_));
}

// A process that posts when its queue goes is to see that, and no queue that is
// full.
TEST_F(Uring, NothingIsSaidBehindTheEnd) {
  Fill(1);
  ropcie_ring_publish(&process_);
  ropcie_uring_end(&kernel_);
  ropcie_uring_want_call(&kernel_, true);
  ropcie_uring_want_call(&kernel_, false);
  ropcie_uring_release(&kernel_, 7);
  ropcie_uring_reset(&kernel_);
  ropcie_uring_end(&kernel_);
  EXPECT_TRUE(ropcie_ring_gone(&process_));
  EXPECT_EQ(ropcie_ring_used(&process_), 1);
  EXPECT_EQ(ropcie_uring_ready(&kernel_), 0);
  EXPECT_EQ(ropcie_uring_posted(&kernel_), 0);
}

TEST_F(Uring, WithoutARingNothingIsReady) {
  ropcie_uring none{};
  ropcie_uring_reset(&none);
  ropcie_uring_release(&none, 5);
  ropcie_uring_want_call(&none, true);
  EXPECT_EQ(ropcie_uring_ready(&none), 0);
}

TEST_F(Uring, RaisesOneEventForEachTimeThatTheProcessAsks) {
  struct Case {
    uint32_t wish;
    bool solicited;
    bool event;
  };
  constexpr uint32_t kSolicited = ROPCIE_ABI_NOTIFY_SOLICITED;
  constexpr uint32_t kAny = ROPCIE_ABI_NOTIFY_ANY;
  const Case cases[] = {
      {0, false, false},
      {0, true, false},
      {kSolicited, false, false},
      {kSolicited, true, true},
      {kAny, false, true},
      {kAny, true, true},
      {kAny | kSolicited, false, true},
      {0xfffffffc, true, false},  // nonsense
  };
  for (const Case& c : cases) {
    ctl_.wake = c.wish;
    EXPECT_EQ(ropcie_uring_wants_event(&kernel_, c.solicited), c.event)
        << c.wish;
    EXPECT_EQ(ctl_.wake, c.event ? 0 : c.wish);
    if (c.event) {
      EXPECT_FALSE(ropcie_uring_wants_event(&kernel_, true)) << "once";
    }
  }
}

TEST_F(Uring, StaysInItsMemoryWhateverTheProcessWrites) {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same each time
  for (int i = 0; i < 100000; ++i) {
    ctl_.head = random();
    ctl_.tail = random();
    const uint32_t ready = ropcie_uring_ready(&kernel_);
    ASSERT_LE(ready, kSize);
    for (uint32_t n = 0; n < ready; ++n) {
      Take();  // ASan looks
    }
    if (ropcie_uring_used(&kernel_) < kSize) {
      const Entry entry{};
      Put(entry);
    }
  }
}

// The kernel sleeps whenever it finds nothing: no entry may be left lying.
TEST_F(UringThreads, NoDoorbellIsMissed) {
  constexpr uint64_t kEntries = 200000;
  std::atomic<uint32_t> doorbells{0};
  std::thread process([&] {
    for (uint64_t i = 0; i < kEntries; ++i) {
      while (ropcie_ring_used(&process_) == kSize) {
        std::this_thread::yield();
      }
      Fill(i);
      if (ropcie_ring_publish(&process_)) {
        doorbells.fetch_add(1);
        doorbells.notify_one();
      }
    }
  });
  uint64_t taken = 0;
  uint32_t heard = 0;
  while (taken < kEntries) {
    ropcie_uring_want_call(&kernel_, false);
    while (ropcie_uring_ready(&kernel_) != 0) {
      const Entry entry = Take();
      ASSERT_EQ(entry.number, taken);
      ASSERT_EQ(entry.copy, ~taken);
      ropcie_uring_release(&kernel_, kernel_.next);
      ++taken;
    }
    ropcie_uring_want_call(&kernel_, true);
    smp_mb();
    if (ropcie_uring_ready(&kernel_) != 0 || taken == kEntries) {
      continue;
    }
    doorbells.wait(heard);
    heard = doorbells.load();
  }
  process.join();
}

TEST_F(UringThreads, CompletionsArriveWholeAndInOrder) {
  constexpr uint64_t kEntries = 200000;
  std::thread kernel([&] {
    for (uint64_t i = 0; i < kEntries; ++i) {
      while (ropcie_uring_used(&kernel_) >= kSize) {
        std::this_thread::yield();
      }
      const Entry entry{i, ~i};
      Put(entry);
    }
  });
  for (uint64_t taken = 0; taken < kEntries;) {
    if (ropcie_ring_end(&process_) == process_.next) {
      std::this_thread::yield();
      continue;
    }
    const auto* entry =
        static_cast<const Entry*>(ropcie_ring_at(&process_, process_.next++));
    ASSERT_EQ(entry->number, taken);
    ASSERT_EQ(entry->copy, ~taken);
    ropcie_ring_release(&process_);
    ++taken;
  }
  kernel.join();
}

}  // namespace
