// SPDX-License-Identifier: GPL-2.0
#include "leak.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

namespace ropcie {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint64_t kObject = 0xffff888003a4b0c0;

Bytes With(size_t length, size_t at, const Bytes& what) {
  Bytes bytes(length);
  std::copy(what.begin(), what.end(),
            bytes.begin() + static_cast<std::ptrdiff_t>(at));
  return bytes;
}

Bytes Word(uint64_t word) {
  Bytes bytes(sizeof(word));
  std::memcpy(bytes.data(), &word, sizeof(word));
  return bytes;
}

std::optional<size_t> Find(const Bytes& now, size_t step = 8) {
  return FindLeak(Bytes(now.size()), now, step);
}

TEST(Leak, FindsEachPoisonAnywhere) {
  for (const uint8_t poison : {0x6b, 0x5a, 0xbb, 0xcc, 0xaa, 0xfe}) {
    for (size_t at = 0; at <= 60; ++at) {
      EXPECT_EQ(Find(With(64, at, Bytes(4, poison))), at) << int{poison};
    }
  }
}

TEST(Leak, FindsTheFirst) {
  Bytes now = With(64, 40, Bytes(8, 0xaa));
  std::fill_n(now.begin() + 17, 5, 0x6b);
  EXPECT_EQ(Find(now), 17U);
}

TEST(Leak, SmallAnswers) {
  EXPECT_EQ(Find({}), std::nullopt);
  EXPECT_EQ(Find(Bytes(3, 0x6b)), std::nullopt);
  EXPECT_EQ(Find(Bytes(4, 0x6b)), 0U);
  EXPECT_EQ(Find(Bytes(7, 0x6b)), 0U);
}

TEST(Leak, ThreeBytesAreAnAccident) {
  EXPECT_EQ(Find(With(64, 8, Bytes(3, 0x6b))), std::nullopt);
}

TEST(Leak, OtherBytesAreNone) {
  for (const uint8_t byte : {0x00, 0xff, 0x11, 0xa5, 0x6a}) {
    EXPECT_EQ(FindLeak(Bytes(64, 0x22), Bytes(64, byte)), std::nullopt)
        << int{byte};
  }
}

TEST(Leak, WhatWasThereIsNone) {
  EXPECT_EQ(FindLeak(Bytes(64, 0x6b), Bytes(64, 0x6b)), std::nullopt);
  Bytes now(64, 0x6b);
  now[63] = 1;
  EXPECT_EQ(FindLeak(Bytes(64, 0x6b), now), std::nullopt);
  const Bytes address = With(64, 8, Word(kObject));
  now = address;
  now[63] = 1;
  EXPECT_EQ(FindLeak(address, now), std::nullopt);
}

TEST(Leak, OneNewByteMakesARunNew) {
  const Bytes before = With(64, 8, Bytes(3, 0x6b));
  EXPECT_EQ(FindLeak(before, With(64, 8, Bytes(4, 0x6b))), 8U);
}

TEST(Leak, FindsAddresses) {
  for (const uint64_t address :
       {kObject, uint64_t{0xffffc90000123000}, uint64_t{0xffffea0000abcd40},
        uint64_t{0xff11000003a4b0c0}, uint64_t{0xffa0000000123000},
        uint64_t{0xffd4000000abcd40}}) {
    for (size_t at = 0; at <= 56; at += 8) {
      EXPECT_EQ(Find(With(64, at, Word(address))), at) << address;
    }
    EXPECT_EQ(Find(With(64, 12, Word(address))), std::nullopt);
    EXPECT_EQ(Find(With(64, 12, Word(address)), 4), 12U);
  }
}

TEST(Leak, NumbersThatAreNoAddresses) {
  for (const uint64_t word :
       {uint64_t{0}, ~uint64_t{0}, uint64_t{0x00007fff12345678},
        uint64_t{0xffffffff80000000}, uint64_t{0xffffffffffffffea},
        uint64_t{0xffff000000000000}, uint64_t{0x00000000ffff8880}}) {
    EXPECT_EQ(Find(With(64, 8, Word(word))), std::nullopt) << word;
  }
  // A GID that stands for an IPv4 address.
  const Bytes gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1};
  EXPECT_EQ(Find(With(64, 16, gid), 4), std::nullopt);
}

TEST(Leak, HarmlessNumbersNextToEachOther) {
  std::mt19937_64 random(1);
  Bytes now(1 << 20);
  for (size_t at = 0; at < now.size();) {
    uint64_t word = 0;
    do {  // bytes that are likely to be found
      word = 0;
      for (int i = 0; i < 8; ++i) {
        constexpr uint8_t kLikely[] = {0x6b, 0xfe, 0xff, 0x88, 0x80, 0x11};
        word = word << 8 | kLikely[random() % sizeof(kLikely)];
      }
    } while (MightLookLeaked(word));
    const size_t width = size_t{4} << random() % 2;
    if (at + width > now.size()) {
      break;
    }
    std::memcpy(&now[at], &word, width);
    at += width;
  }
  EXPECT_EQ(Find(now, 4), std::nullopt);
}

TEST(Leak, NumbersThatMightLookLeaked) {
  EXPECT_TRUE(MightLookLeaked(0x6b6b));
  EXPECT_TRUE(MightLookLeaked(0xfefe000000000000));
  EXPECT_TRUE(MightLookLeaked(0x00000000ffff8880));
  EXPECT_TRUE(MightLookLeaked(kObject));
  EXPECT_FALSE(MightLookLeaked(0));
  EXPECT_FALSE(MightLookLeaked(~uint64_t{0}));
  EXPECT_FALSE(MightLookLeaked(0x6b5a6b5a6b5a6b5a));
}

}  // namespace
}  // namespace ropcie
