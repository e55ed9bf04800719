// SPDX-License-Identifier: GPL-2.0
//
// The ivshmem server's protocol, message by message, without sockets.

#include "peer_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace ropcie::ivshmem {
namespace {

constexpr int kShm = 1000;
constexpr int kNoFd = -1;

// What a client reads: a value and the number of the attached descriptor.
using Read = std::pair<std::int64_t, int>;

class PeerTableTest : public ::testing::Test {
 protected:
  PeerTable Make(unsigned vectors, PeerTable::Limits limits = {}) {
    return PeerTable(
        std::make_shared<const int>(kShm), vectors,
        [this]() -> SharedFd {
          if (events_left_ == 0) {
            return nullptr;
          }
          --events_left_;
          return std::make_shared<const int>(next_event_++);
        },
        limits);
  }

  static std::vector<Read> ReadAll(PeerTable& table, PeerId id) {
    std::vector<Read> reads;
    while (const auto* output = table.NextOutput(id)) {
      const auto& message = output->message;
      reads.emplace_back(message.value, message.fd ? *message.fd : kNoFd);
      table.Consume(id, Message::kSize);
    }
    return reads;
  }

  int next_event_ = 1;
  int events_left_ = 1000;
};

TEST_F(PeerTableTest, EncodesLittleEndian) {
  const Message message{.value = 0x0102030405060708, .fd = nullptr};
  const std::array<std::uint8_t, 8> expected{8, 7, 6, 5, 4, 3, 2, 1};
  EXPECT_EQ(message.Encode(), expected);
}

TEST_F(PeerTableTest, EncodesMinusOneAsAllOnes) {
  const Message message{.value = kSharedMemoryId, .fd = nullptr};
  for (const auto byte : message.Encode()) {
    EXPECT_EQ(byte, 0xff);
  }
}

TEST_F(PeerTableTest, FirstClientGetsHandshakeThenItsOwnEvents) {
  PeerTable table = Make(2);
  ASSERT_EQ(table.Join(), 0);
  const std::vector<Read> expected{
      {0, kNoFd}, {0, kNoFd}, {-1, kShm}, {0, 1}, {0, 2}};
  EXPECT_EQ(ReadAll(table, 0), expected);
}

TEST_F(PeerTableTest, SecondClientLearnsOfTheFirstBeforeItself) {
  PeerTable table = Make(1);
  ASSERT_EQ(table.Join(), 0);
  ReadAll(table, 0);
  ASSERT_EQ(table.Join(), 1);
  const std::vector<Read> expected{
      {0, kNoFd}, {1, kNoFd}, {-1, kShm}, {0, 1}, {1, 2}};
  EXPECT_EQ(ReadAll(table, 1), expected);
}

TEST_F(PeerTableTest, OldClientsAreToldOfANewOnePerVector) {
  PeerTable table = Make(3);
  ASSERT_EQ(table.Join(), 0);
  ReadAll(table, 0);
  ASSERT_EQ(table.Join(), 1);
  const std::vector<Read> expected{{1, 4}, {1, 5}, {1, 6}};
  EXPECT_EQ(ReadAll(table, 0), expected);
}

TEST_F(PeerTableTest, NobodyIsToldOfOneThatLeavesOrComesBack) {
  PeerTable table = Make(2);
  ASSERT_EQ(table.Join(), 0);
  ASSERT_EQ(table.Join(), 1);
  ASSERT_EQ(table.Join(), 2);
  ReadAll(table, 0);
  ReadAll(table, 2);
  table.Leave(1);
  EXPECT_EQ(table.NextOutput(1), nullptr);
  EXPECT_EQ(table.size(), 2U);
  ASSERT_EQ(table.Join(), 1);
  EXPECT_EQ(table.NextOutput(0), nullptr);
  EXPECT_EQ(table.NextOutput(2), nullptr);
}

TEST_F(PeerTableTest, ARestartedClientGetsItsOldDescriptors) {
  PeerTable table = Make(1);
  ASSERT_EQ(table.Join(), 0);
  ASSERT_EQ(table.Join(), 1);
  const std::vector<Read> first = ReadAll(table, 1);
  table.Leave(1);
  ASSERT_EQ(table.Join(), 1);
  EXPECT_EQ(ReadAll(table, 1), first);
}

TEST_F(PeerTableTest, ANewClientLearnsOfIdsThatAreAbsent) {
  PeerTable table = Make(1);
  ASSERT_EQ(table.Join(), 0);
  ASSERT_EQ(table.Join(), 1);
  table.Leave(0);
  table.Leave(1);
  ASSERT_EQ(table.Join(), 0);
  const std::vector<Read> expected{
      {0, kNoFd}, {0, kNoFd}, {-1, kShm}, {1, 2}, {0, 1}};
  EXPECT_EQ(ReadAll(table, 0), expected);
  ASSERT_EQ(table.Join(), 1);
  EXPECT_EQ(table.NextOutput(0), nullptr);
}

TEST_F(PeerTableTest, ARestartedClientGetsItsIdBack) {
  PeerTable table = Make(1);
  for (PeerId id = 0; id < 4; ++id) {
    ASSERT_EQ(table.Join(), id);
  }
  table.Leave(1);
  EXPECT_EQ(table.Join(), 1);
  EXPECT_EQ(table.Join(), 4);
}

TEST_F(PeerTableTest, LeavingTwiceOrUnknownIsIgnored) {
  PeerTable table = Make(1);
  ASSERT_EQ(table.Join(), 0);
  ReadAll(table, 0);
  table.Leave(7);
  ASSERT_EQ(table.Join(), 1);
  table.Leave(1);
  ReadAll(table, 0);
  table.Leave(1);
  EXPECT_EQ(table.NextOutput(0), nullptr);
}

TEST_F(PeerTableTest, AMessageIsSentInPieces) {
  PeerTable table = Make(1);
  ASSERT_EQ(table.Join(), 0);
  const std::size_t before = table.queued(0);
  table.Consume(0, 3);
  ASSERT_NE(table.NextOutput(0), nullptr);
  EXPECT_EQ(table.NextOutput(0)->sent, 3U);
  EXPECT_EQ(table.queued(0), before);
  table.Consume(0, 5);
  EXPECT_EQ(table.NextOutput(0)->sent, 0U);
  EXPECT_EQ(table.queued(0), before - 1);
}

TEST_F(PeerTableTest, AFullTableTurnsClientsAwayAndTellsNobody) {
  PeerTable table = Make(1, {.max_peers = 2});
  ASSERT_EQ(table.Join(), 0);
  ASSERT_EQ(table.Join(), 1);
  ReadAll(table, 0);
  EXPECT_EQ(table.Join(), std::nullopt);
  EXPECT_EQ(table.NextOutput(0), nullptr);
  table.Leave(0);
  EXPECT_EQ(table.Join(), 0);
}

TEST_F(PeerTableTest, NoEventDescriptorsLeavesNoHalfJoinedClient) {
  PeerTable table = Make(2);
  ASSERT_EQ(table.Join(), 0);
  ReadAll(table, 0);
  events_left_ = 1;
  EXPECT_EQ(table.Join(), std::nullopt);
  EXPECT_EQ(table.size(), 1U);
  EXPECT_EQ(table.NextOutput(0), nullptr);
  events_left_ = 2;
  EXPECT_EQ(table.Join(), 1);
}

TEST_F(PeerTableTest, WhatAClientLeavesUnreadIsBounded) {
  PeerTable table = Make(2, {.max_peers = 4});
  ASSERT_EQ(table.Join(), 0);
  for (int round = 0; round < 100; ++round) {
    for (PeerId id = 1; id < 4; ++id) {
      ASSERT_EQ(table.Join(), id);
    }
    for (PeerId id = 1; id < 4; ++id) {
      table.Leave(id);
    }
  }
  EXPECT_EQ(table.queued(0), 3U + (4U * 2U));
}

// Whatever joins and leaves: a client that reads everything ends with the same
// picture as all others, which has every present peer and all its vectors in
// order, each told once.
TEST_F(PeerTableTest, AnyHistoryLeavesEveryClientWithTheSamePicture) {
  constexpr unsigned kVectors = 3;
  PeerTable table = Make(kVectors);
  std::map<PeerId, std::map<std::int64_t, std::vector<int>>> pictures;
  std::uint32_t random = 12345;
  for (int step = 0; step < 2000; ++step) {
    random = random * 1664525U + 1013904223U;
    const auto pick = static_cast<PeerId>((random >> 16) % 8);
    if (pictures.contains(pick)) {
      table.Leave(pick);
      pictures.erase(pick);
    } else if (const auto id = table.Join()) {
      for (int i = 0; i < 3; ++i) {
        table.Consume(*id, Message::kSize);
      }
      pictures[*id] = {};
    }
    if (random % 5 != 0) {
      continue;
    }
    for (auto& [id, picture] : pictures) {
      for (const auto& [value, fd] : ReadAll(table, id)) {
        ASSERT_NE(fd, kNoFd);
        picture[value].push_back(fd);
      }
    }
    for (const auto& [id, picture] : pictures) {
      EXPECT_EQ(picture, pictures.begin()->second);
      EXPECT_TRUE(picture.contains(id));
      for (const auto& [about, events] : picture) {
        EXPECT_EQ(events.size(), kVectors);
      }
    }
  }
}

}  // namespace
}  // namespace ropcie::ivshmem
