// SPDX-License-Identifier: GPL-2.0
// Two peer links in a world that loses and delays what they say.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core.h"
#include "random.h"

namespace ropcie {
namespace {

constexpr uint64_t kBeatLimit = 1000;
constexpr uint64_t kHold = 200;
constexpr uint64_t kTick = 100;
constexpr uint64_t kRoom = uint64_t{1} << 32;
constexpr uint32_t kWords = ROPCIE_LW_NUM + 2;  // of the longest pass
constexpr ropcie_link_offer kOffer = {
    .lanes = 2, .geom = {.slots = 64, .bytes = 131072}, .features = 5};

// Two sides whose words travel one by one, late, and sometimes not at all;
// either may crash at any point and leave its words behind. Each word carries,
// unseen by the code, the number of the life (the hello) that wrote it.
//
// Crowded: words are two messages of a register that has room for one of three,
// also when trouble is over. What it has taken comes in order, while the link
// is up. Behind the link words lie two more, which are not in CHECK.
class World {
 public:
  World(uint64_t seed, bool crowded) : random_(seed), crowded_(crowded) {
    for (Side& side : sides_) {
      Boot(&side);
    }
  }

  // One small thing happens. Trouble: words get lost, sides crash or stall.
  void Happen() {
    now_ += random_.Below(kTick / 20);
    Side* side = &sides_[random_.Below(2)];
    if (trouble_ && random_.OneIn(300)) {
      Boot(side);  // its words stay as they are, half-written or not
    } else if (trouble_ && random_.OneIn(400)) {
      Do(side, ropcie_link_kill(&side->link));
    } else if (trouble_ && random_.OneIn(400)) {
      hw_up_ = !hw_up_;
      if (!hw_up_) {
        LoseAll();
      }
    } else if (trouble_ && random_.OneIn(200)) {
      side->stalled_until = now_ + random_.Below(5 * kHold);
    } else if (random_.OneIn(2)) {
      Deliver(side);
    } else if (now_ >= side->stalled_until) {
      Look(side);
    }
  }

  void EndTrouble() {
    trouble_ = false;
    hw_up_ = true;
  }

  [[nodiscard]] bool BothUp() const {
    const ropcie_peer_link& a = sides_[0].link;
    const ropcie_peer_link& b = sides_[1].link;
    return a.state == ROPCIE_LINK_UP && b.state == ROPCIE_LINK_UP &&
           a.peer_epoch == b.own.w[ROPCIE_LW_EPOCH] &&
           b.peer_epoch == a.own.w[ROPCIE_LW_EPOCH];
  }

  [[nodiscard]] int ups() const { return ups_; }

 private:
  struct Word {
    uint32_t value = 0;
    int life = 0;
  };
  using Words = std::array<Word, kWords>;
  struct Message {
    uint32_t word = 0;
    uint32_t part = 0;
    Word value;
  };

  struct Side {
    ropcie_peer_link link;
    ropcie_link_offer offer;
    Words visible{};  // as the other side reads them
    Words low{};      // halves of those to come
    std::vector<Message> in_flight;
    ropcie_word_pass pass{};
    Words taken{};  // since the link was down last
    bool was_down = false;
    Words look{};
    std::vector<int> to_read;
    uint64_t stalled_until = 0;
    int life = 0;
    uint32_t boot = 0;        // what its words behind the link words say
    int partner = 0;          // life of the other side that it prepared for
    int acknowledged_in = 0;  // own life whose acknowledge was all written
    bool up = false;
  };

  Side* Other(const Side* side) {
    return side == sides_.data() ? &sides_[1] : sides_.data();
  }

  void Boot(Side* side) {
    if (random_.OneIn(2)) {
      side->in_flight.clear();
    }
    side->offer = kOffer;
    side->offer.geom.slots = 64U << random_.Below(4);
    side->offer.features = random_.Word();
    ropcie_link_init(&side->link, &side->offer, kRoom, kBeatLimit, kHold);
    side->pass = {};
    side->taken = {};
    if (crowded_) {
      // Where a side keeps what messages brought.
      Other(side)->visible = {};
      Other(side)->low = {};
    }
    side->to_read.clear();
    side->life = next_life_++;
    side->boot = random_.Word();
    side->partner = 0;
    side->up = false;
  }

  void LoseAll() {
    for (Side& side : sides_) {
      side.taken = {};
      side.was_down = true;
    }
  }

  // A word is out when it was taken by a link that has been up since then.
  static bool IsOut(const Side& side, int word) {
    return side.taken[word].life != 0 &&
           side.taken[word].value == side.link.own.w[word];
  }

  [[nodiscard]] bool Taken() {
    return !(trouble_ && random_.OneIn(50)) && !(crowded_ && !random_.OneIn(3));
  }

  // As through a register that may stay full: then the rest is not written now.
  void Publish(Side* side) {
    struct Call {
      World* world;
      int life;
      std::vector<Message> messages;
    } call{.world = this, .life = side->life, .messages = {}};
    uint32_t val[kWords] = {};
    std::ranges::copy(side->link.own.w, val);
    val[ROPCIE_LW_NUM] = side->boot;
    val[ROPCIE_LW_NUM + 1] = ~side->boot;
    const bool sent =
        ropcie_word_pass_write(
            &side->pass, &side->link, val,
            crowded_ ? kWords : uint32_t{ROPCIE_LW_NUM}, crowded_ ? 2 : 1,
            [](void* ctx, uint32_t word, uint32_t part, uint32_t value) {
              auto* to = static_cast<Call*>(ctx);
              if (!to->world->Taken()) {
                return -EAGAIN;
              }
              to->messages.push_back(
                  {.word = word,
                   .part = part,
                   .value = {.value = value, .life = to->life}});
              return 0;
            },
            &call) == 0;
    for (const Message& message : call.messages) {
      if (message.part == 0) {
        side->taken[message.word] = hw_up_ ? message.value : Word{};
      }
    }
    for (int i = 0;
         i < ROPCIE_LW_HEARTBEAT && sent && side->link.hw_up && !side->was_down;
         i++) {
      ASSERT_TRUE(IsOut(*side, i)) << "word " << i << " is thought to be out";
    }
    if (!crowded_) {
      Shuffle(&call.messages);
    }
    side->in_flight.insert(side->in_flight.end(), call.messages.begin(),
                           call.messages.end());
    ropcie_link_published(&side->link, sent, now_);
    if (sent && side->link.state == ROPCIE_LINK_READY) {
      side->acknowledged_in = side->life;
    }
  }

  void Deliver(Side* side) {
    for (int i = 0; i < 4 && !side->in_flight.empty(); i++) {
      const auto [word, part, value] = side->in_flight.front();
      side->in_flight.erase(side->in_flight.begin());
      if (!hw_up_ || (!crowded_ && trouble_ && random_.OneIn(20))) {
        continue;
      }
      if (part != 0) {
        side->low[word] = value;
      } else if (crowded_) {
        side->visible[word] = {.value = (value.value & 0xffff0000) |
                                        (side->low[word].value & 0xffff),
                               .life = value.life};
      } else {
        side->visible[word] = value;
      }
    }
  }

  // Reads a few words; a whole look may span many other events.
  void Look(Side* side) {
    if (side->to_read.empty()) {
      side->to_read = Shuffled();
    }
    for (uint64_t n = random_.Between(1, 7); n > 0; n--) {
      const int word = side->to_read.back();
      side->look[word] = Other(side)->visible[word];
      side->to_read.pop_back();
      if (side->to_read.empty()) {
        Step(side);
        return;
      }
    }
  }

  void Step(Side* side) {
    ropcie_link_words words;
    for (int i = 0; i < ROPCIE_LW_NUM; i++) {
      words.w[i] = side->look[i].value;
    }
    const bool was_down = side->link.state == ROPCIE_LINK_DOWN;
    const bool hw_up = !std::exchange(side->was_down, false) && hw_up_;
    const uint32_t todo =
        ropcie_link_step(&side->link, hw_up, &words, random_.Word(), now_);
    if (was_down && side->link.state != ROPCIE_LINK_DOWN) {
      side->life = next_life_++;
      side->partner = 0;
    }
    Do(side, todo);
  }

  void Do(Side* side, uint32_t todo) {
    if ((todo & ROPCIE_LINK_DO_LOST) != 0) {
      ASSERT_TRUE(side->up) << "lost what was not up";
      side->up = false;
    }
    if ((todo & ROPCIE_LINK_DO_PREPARE) != 0) {
      CheckPrepare(side);
      if (!random_.OneIn(5)) {
        todo |= ropcie_link_prepared(&side->link);
      }
    }
    if ((todo & ROPCIE_LINK_DO_PUBLISH) != 0) {
      Publish(side);
    }
    if ((todo & ROPCIE_LINK_DO_UP) != 0) {
      CheckUp(side);
    }
    ASSERT_EQ(side->up, side->link.state == ROPCIE_LINK_UP);
  }

  void CheckPrepare(Side* side) {
    const int partner = side->look[ROPCIE_LW_EPOCH].life;
    ASSERT_TRUE(side->partner == 0 || side->partner == partner)
        << "one life prepared for two";
    side->partner = partner;
    ASSERT_TRUE(partners_.emplace(side->life, partner).first->second ==
                partner);
  }

  void CheckUp(Side* side) {
    ASSERT_FALSE(side->up);
    ASSERT_EQ(side->acknowledged_in, side->life)
        << "up, and the other side was not told";
    side->up = true;
    ups_++;
    const int partner = side->look[ROPCIE_LW_EPOCH].life;
    ASSERT_EQ(partner, side->partner) << "up with another than prepared for";
    ASSERT_EQ(side->look[ROPCIE_LW_ACK].life, partner)
        << "acknowledged by another life";
    ASSERT_TRUE(partners_.contains(partner));
    ASSERT_EQ(partners_[partner], side->life)
        << "up with somebody who prepared for somebody else";
    const Side* other = Other(side);
    if (other->life == partner) {
      ASSERT_EQ(ropcie_link_geom_pack(&other->offer),
                ropcie_link_geom_pack(&side->link.peer_offer));
      ASSERT_EQ(other->offer.features, side->link.peer_offer.features);
      if (crowded_) {
        ASSERT_EQ(other->visible[ROPCIE_LW_NUM].value, other->boot);
        ASSERT_EQ(other->visible[ROPCIE_LW_NUM + 1].value, ~other->boot);
      }
    }
  }

  std::vector<int> Shuffled() {
    std::vector<int> order = {0, 1, 2, 3, 4, 5, 6};
    Shuffle(&order);
    return order;
  }

  template <class T>
  void Shuffle(std::vector<T>* list) {
    for (size_t i = list->size(); i > 1; i--) {
      std::swap((*list)[i - 1], (*list)[random_.Below(i)]);
    }
  }

  Random random_;
  bool crowded_;
  std::array<Side, 2> sides_{};
  std::map<int, int> partners_;
  uint64_t now_ = 1;
  bool hw_up_ = true;
  bool trouble_ = true;
  int next_life_ = 1;
  int ups_ = 0;
};

TEST(PeerLinkWorld, SidesNeverDisagreeAndAlwaysMeet) {
  int ups = 0;
  for (uint64_t seed = 0; seed < 400; seed++) {
    World world(seed, seed % 4 == 0);
    for (int i = 0; i < 20000; i++) {
      world.Happen();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "seed " << seed;
    }
    world.EndTrouble();
    // A stall at the end may still cost a link that is up now.
    for (int i = 0; i < 1000; i++) {
      world.Happen();
    }
    int quiet = 0;
    while (!world.BothUp()) {
      world.Happen();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "seed " << seed;
      ASSERT_LT(++quiet, 5000) << "never met again, seed " << seed;
    }
    for (int i = 0; i < 1000; i++) {
      world.Happen();
      ASSERT_TRUE(world.BothUp()) << "seed " << seed;
    }
    ups += world.ups();
  }
  EXPECT_GT(ups, 4000) << "trouble left no time to meet: not much of a test";
}

}  // namespace
}  // namespace ropcie
