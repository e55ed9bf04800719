// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "core.h"
#include "random.h"

namespace ropcie {
namespace {

constexpr uint64_t kBeatLimit = 1000;
constexpr uint64_t kHold = 200;
constexpr uint64_t kTick = 100;
constexpr uint64_t kRoom = uint64_t{1} << 32;
constexpr ropcie_link_offer kOffer = {
    .lanes = 2, .geom = {.slots = 64, .bytes = 131072}, .features = 5};

ropcie_peer_link NewLink(const ropcie_link_offer& offer = kOffer,
                         uint64_t room = kRoom) {
  ropcie_peer_link link;
  ropcie_link_init(&link, &offer, room, kBeatLimit, kHold);
  return link;
}

// The words that a well-behaved peer would show.
ropcie_link_words Words(uint32_t epoch, uint32_t ack = 0,
                        const ropcie_link_offer& offer = kOffer) {
  ropcie_link_words words{};
  words.w[ROPCIE_LW_MAGIC] = ROPCIE_LINK_MAGIC | ROPCIE_WIRE_VERSION;
  words.w[ROPCIE_LW_EPOCH] = epoch;
  words.w[ROPCIE_LW_ACK] = ack;
  words.w[ROPCIE_LW_GEOM] = ropcie_link_geom_pack(&offer);
  words.w[ROPCIE_LW_FEATURES] = offer.features;
  words.w[ROPCIE_LW_CHECK] = ropcie_link_check(&words);
  return words;
}

void Seal(ropcie_link_words* words) {
  words->w[ROPCIE_LW_CHECK] = ropcie_link_check(words);
}

// One link, driven by hand.
class PeerLink : public testing::Test {
 protected:
  uint32_t Step(uint64_t passed = kTick) {
    now_ += passed;
    peer_.w[ROPCIE_LW_HEARTBEAT] += beating_ ? 1 : 0;
    return Publish(
        ropcie_link_step(&link_, hw_up_, &peer_, next_epoch_++, now_));
  }

  uint32_t Kill() { return Publish(ropcie_link_kill(&link_)); }

  uint32_t Publish(uint32_t todo) {
    if ((todo & ROPCIE_LINK_DO_PUBLISH) != 0) {
      now_ += publish_takes_;
      ropcie_link_published(&link_, sent_, now_);
    }
    return todo;
  }

  [[nodiscard]] uint32_t own(ropcie_link_word word) const {
    return link_.own.w[word];
  }

  // Shows the peer's words and keeps its heartbeat going.
  void Show(ropcie_link_words words) {
    words.w[ROPCIE_LW_HEARTBEAT] = peer_.w[ROPCIE_LW_HEARTBEAT];
    peer_ = words;
  }

  void ToHello() {
    for (int i = 0; i < 10 && link_.state == ROPCIE_LINK_DOWN; i++) {
      Step();
    }
    ASSERT_EQ(link_.state, ROPCIE_LINK_HELLO);
  }

  void ToReady() {
    ToHello();
    Show(Words(77));
    ASSERT_EQ(Step(), ROPCIE_LINK_DO_PREPARE | ROPCIE_LINK_DO_PUBLISH);
    ASSERT_EQ(link_.state, ROPCIE_LINK_PREPARE);
    ASSERT_EQ(Publish(ropcie_link_prepared(&link_)),
              ROPCIE_LINK_DO_PUBLISH | ROPCIE_LINK_DO_NOTIFY);
    ASSERT_EQ(link_.state, ROPCIE_LINK_READY);
  }

  void ToUp() {
    ToReady();
    Show(Words(77, own(ROPCIE_LW_EPOCH)));
    ASSERT_EQ(Step(), ROPCIE_LINK_DO_UP | ROPCIE_LINK_DO_PUBLISH);
    ASSERT_EQ(link_.state, ROPCIE_LINK_UP);
  }

  // The link is lost, its words are clear, and it holds still for a while.
  void ExpectLost(uint32_t todo, ropcie_link_loss why) {
    EXPECT_TRUE(todo & ROPCIE_LINK_DO_LOST);
    EXPECT_EQ(link_.loss, why);
    EXPECT_TRUE(todo & ROPCIE_LINK_DO_PUBLISH);
    ExpectDown();
  }

  void ExpectDown() {
    EXPECT_EQ(link_.state, ROPCIE_LINK_DOWN);
    for (int i = 0; i <= ROPCIE_LW_CHECK; i++) {
      EXPECT_EQ(link_.own.w[i], 0U);
    }
  }

  ropcie_peer_link link_ = NewLink();
  ropcie_link_words peer_{};
  bool hw_up_ = true;
  bool beating_ = true;
  bool sent_ = true;
  uint64_t publish_takes_ = 0;
  uint32_t next_epoch_ = 1000;
  uint64_t now_ = 5000;
};

TEST_F(PeerLink, StaysSilentWhileTheHardwareIsDown) {
  hw_up_ = false;
  for (int i = 0; i < 20; i++) {
    EXPECT_EQ(Step(), 0U);
  }
  ExpectDown();
}

TEST_F(PeerLink, ClearsWordsOfAnEarlierLifeBeforeHello) {
  EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH | ROPCIE_LINK_DO_NOTIFY);
  ExpectDown();
  EXPECT_EQ(Step(kHold - 1), ROPCIE_LINK_DO_PUBLISH);
  EXPECT_EQ(Step(1), ROPCIE_LINK_DO_PUBLISH | ROPCIE_LINK_DO_NOTIFY);
  EXPECT_EQ(link_.state, ROPCIE_LINK_HELLO);
  EXPECT_NE(own(ROPCIE_LW_EPOCH), 0U);
  EXPECT_EQ(own(ROPCIE_LW_ACK), 0U);
  EXPECT_EQ(own(ROPCIE_LW_CHECK), ropcie_link_check(&link_.own));
}

TEST_F(PeerLink, EpochIsNeverZeroNorTheLastOne) {
  next_epoch_ = 0;
  Step();
  next_epoch_ = 0;
  Step(kHold);
  const uint32_t first = own(ROPCIE_LW_EPOCH);
  EXPECT_NE(first, 0U);
  Kill();
  next_epoch_ = first;
  Step(kHold);
  EXPECT_EQ(link_.state, ROPCIE_LINK_HELLO);
  EXPECT_NE(own(ROPCIE_LW_EPOCH), first);
}

TEST_F(PeerLink, AcknowledgesOnlyWhenPrepared) {
  ToHello();
  Show(Words(77));
  Step();
  EXPECT_EQ(own(ROPCIE_LW_ACK), 0U);
  // Preparing failed: it is asked for again.
  EXPECT_EQ(Step(), ROPCIE_LINK_DO_PREPARE | ROPCIE_LINK_DO_PUBLISH);
  EXPECT_EQ(own(ROPCIE_LW_ACK), 0U);
  Publish(ropcie_link_prepared(&link_));
  EXPECT_EQ(own(ROPCIE_LW_ACK), 77U);
  EXPECT_EQ(own(ROPCIE_LW_CHECK), ropcie_link_check(&link_.own));
  // Only once: the window is not cleaned again under the peer.
  EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH);
  EXPECT_EQ(ropcie_link_prepared(&link_), 0U);
}

TEST_F(PeerLink, PreparedCountsOnlyInPrepare) {
  EXPECT_EQ(ropcie_link_prepared(&link_), 0U);
  ToHello();
  EXPECT_EQ(ropcie_link_prepared(&link_), 0U);
  EXPECT_EQ(own(ROPCIE_LW_ACK), 0U);
}

TEST_F(PeerLink, IsUpOnlyWithThePeersAcknowledge) {
  ToReady();
  for (int i = 0; i < 50; i++) {
    EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH);
  }
  Show(Words(77, own(ROPCIE_LW_EPOCH) + 1));
  EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH);
  Show(Words(77, own(ROPCIE_LW_EPOCH)));
  EXPECT_EQ(Step(), ROPCIE_LINK_DO_UP | ROPCIE_LINK_DO_PUBLISH);
}

TEST_F(PeerLink, AgreesOnTheFeaturesOfBoth) {
  ToHello();
  ropcie_link_offer offer = kOffer;
  offer.features = 6;
  Show(Words(77, 0, offer));
  Step();
  EXPECT_EQ(link_.peer_offer.features, 6U);
  EXPECT_EQ(ropcie_link_features(&link_), 4U);
}

TEST_F(PeerLink, WaitsForAPeerThatAcknowledgesAnEarlierLife) {
  ToHello();
  Show(Words(77, 4711));
  for (int i = 0; i < 20; i++) {
    EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH);
    EXPECT_EQ(link_.state, ROPCIE_LINK_HELLO);
  }
  Show(Words(78));
  EXPECT_TRUE(Step() & ROPCIE_LINK_DO_PREPARE);
  EXPECT_EQ(link_.peer_epoch, 78U);
}

TEST_F(PeerLink, MeetsAPeerThatIsReadyAlready) {
  ToHello();
  Show(Words(77, own(ROPCIE_LW_EPOCH)));
  EXPECT_TRUE(Step() & ROPCIE_LINK_DO_PREPARE);
  Publish(ropcie_link_prepared(&link_));
  EXPECT_TRUE(Step() & ROPCIE_LINK_DO_UP);
}

TEST_F(PeerLink, HeartbeatAdvancesAtEachStepAndNeverStartsAgain) {
  uint32_t last = own(ROPCIE_LW_HEARTBEAT);
  ToUp();
  for (int i = 0; i < 5; i++) {
    Step();
    EXPECT_GT(own(ROPCIE_LW_HEARTBEAT), last);
    last = own(ROPCIE_LW_HEARTBEAT);
  }
  Kill();
  EXPECT_EQ(own(ROPCIE_LW_HEARTBEAT), last);
}

TEST_F(PeerLink, SilenceLosesThePeer) {
  ToUp();
  beating_ = false;
  for (uint64_t silent = 0; silent < kBeatLimit; silent += kTick) {
    EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH);
  }
  ExpectLost(Step(), ROPCIE_LOSS_SILENCE);
}

TEST_F(PeerLink, HeartbeatMayWrapAndJump) {
  ToUp();
  const std::array<uint32_t, 5> beats = {0xfffffffe, 0xffffffff, 0, 1, 5};
  for (const uint32_t beat : beats) {
    for (int i = 0; i < 9; i++) {
      peer_.w[ROPCIE_LW_HEARTBEAT] = beat - 1;  // Step() adds one
      EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH) << beat;
    }
  }
}

TEST_F(PeerLink, OwnPauseIsNotThePeersDeath) {
  ToUp();
  beating_ = false;  // both were stopped, and this side runs first
  EXPECT_EQ(Step(100 * kBeatLimit), ROPCIE_LINK_DO_PUBLISH);
  EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH);
  beating_ = true;
  EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH);
  beating_ = false;
  EXPECT_EQ(Step(100 * kBeatLimit), ROPCIE_LINK_DO_PUBLISH);
}

TEST_F(PeerLink, TornLookIsNotAHeartbeat) {
  ToUp();
  peer_.w[ROPCIE_LW_CHECK] ^= 1;
  for (uint64_t silent = 0; silent < kBeatLimit; silent += kTick) {
    EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH);
  }
  ExpectLost(Step(), ROPCIE_LOSS_SILENCE);
}

TEST_F(PeerLink, ChangeOfAnyWordIsALoss) {
  for (int word = 0; word < ROPCIE_LW_CHECK; word++) {
    for (const bool up : {false, true}) {
      link_ = NewLink();
      peer_ = {};
      if (up) {
        ToUp();
      } else {
        ToReady();
      }
      ropcie_link_words words = peer_;
      if (word == ROPCIE_LW_GEOM) {
        words.w[word] ^= 1U << 16;  // still a shape that may be offered
      } else {
        words.w[word] ^= 2;
      }
      Seal(&words);
      Show(words);
      const uint32_t todo = Step();
      if (up) {
        ExpectLost(todo, ROPCIE_LOSS_OTHER);
      } else if (word == ROPCIE_LW_ACK) {
        EXPECT_EQ(todo, ROPCIE_LINK_DO_PUBLISH) << "waits for the right one";
      } else {
        EXPECT_FALSE(todo & ROPCIE_LINK_DO_LOST) << "was not up";
        ExpectDown();
      }
    }
  }
}

TEST_F(PeerLink, WordsOfNobodyAreALoss) {
  for (const uint32_t word : {0U, ~0U, ROPCIE_LINK_MAGIC ^ 0x10000}) {
    link_ = NewLink();
    peer_ = {};
    ToUp();
    ropcie_link_words words;
    std::fill(std::begin(words.w), std::end(words.w), word);
    Show(words);
    ExpectLost(Step(), word != 0 ? ROPCIE_LOSS_GARBLED : ROPCIE_LOSS_CLEARED);
  }
}

TEST_F(PeerLink, ChangeDuringPrepareBeginsAnew) {
  ToHello();
  Show(Words(77));
  Step();
  ropcie_link_offer offer = kOffer;
  offer.geom.slots = 1024;
  Show(Words(77, 0, offer));
  EXPECT_FALSE(Step() & ROPCIE_LINK_DO_PREPARE);
  ExpectDown();
  EXPECT_EQ(ropcie_link_prepared(&link_), 0U);
}

TEST_F(PeerLink, OfferIsCopiedOnceAndKept) {
  ToUp();
  ropcie_link_offer offer = kOffer;
  offer.lanes = 8;
  Show(Words(77, own(ROPCIE_LW_EPOCH), offer));
  peer_.w[ROPCIE_LW_CHECK] ^= 1;  // half-written
  Step();
  EXPECT_EQ(link_.state, ROPCIE_LINK_UP);
  EXPECT_EQ(link_.peer_offer.lanes, kOffer.lanes);
}

TEST_F(PeerLink, HardwareDownLosesThePeerAndClearsAgainWhenUp) {
  ToUp();
  hw_up_ = false;
  ExpectLost(Step(), ROPCIE_LOSS_HARDWARE);
  EXPECT_EQ(Step(10 * kHold), 0U);
  hw_up_ = true;
  EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH | ROPCIE_LINK_DO_NOTIFY);
  ExpectDown();
  Step(kHold);
  EXPECT_EQ(link_.state, ROPCIE_LINK_HELLO);
}

TEST_F(PeerLink, KillBeginsAnewWithAnotherEpoch) {
  ToUp();
  const uint32_t epoch = own(ROPCIE_LW_EPOCH);
  ExpectLost(Kill(), ROPCIE_LOSS_KILLED);
  EXPECT_FALSE(Kill() & ROPCIE_LINK_DO_LOST);
  Show(Words(78));
  Step(kHold);
  EXPECT_EQ(link_.state, ROPCIE_LINK_PREPARE);
  EXPECT_NE(own(ROPCIE_LW_EPOCH), epoch);
}

TEST_F(PeerLink, HoldBeginsWhenTheWordsAreOut) {
  ToUp();
  publish_takes_ = 10 * kHold;
  Kill();
  publish_takes_ = 0;
  EXPECT_EQ(Step(kHold - 1), ROPCIE_LINK_DO_PUBLISH);
  ExpectDown();
  Step(1);
  EXPECT_EQ(link_.state, ROPCIE_LINK_HELLO);
}

TEST_F(PeerLink, HoldBeginsWhenThePeerHasGotTheClearWords) {
  ToUp();
  sent_ = false;
  ExpectLost(Kill(), ROPCIE_LOSS_KILLED);
  for (int i = 0; i < 20; i++) {
    EXPECT_EQ(Step(kHold), ROPCIE_LINK_DO_PUBLISH | ROPCIE_LINK_DO_NOTIFY);
    ExpectDown();
  }
  sent_ = true;
  EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH | ROPCIE_LINK_DO_NOTIFY);
  ExpectDown();
  sent_ = false;  // from now on it makes no difference
  EXPECT_EQ(Step(kHold - 1), ROPCIE_LINK_DO_PUBLISH);
  ExpectDown();
  Step(1);
  EXPECT_EQ(link_.state, ROPCIE_LINK_HELLO);
}

TEST_F(PeerLink, IsNotUpBeforeItsAcknowledgeIsOut) {
  ToHello();
  Show(Words(77));
  Step();
  sent_ = false;
  Publish(ropcie_link_prepared(&link_));
  Show(Words(77, own(ROPCIE_LW_EPOCH)));
  for (int i = 0; i < 20; i++) {
    EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH | ROPCIE_LINK_DO_NOTIFY);
    EXPECT_EQ(link_.state, ROPCIE_LINK_READY);
  }
  sent_ = true;
  EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH | ROPCIE_LINK_DO_NOTIFY);
  EXPECT_EQ(link_.state, ROPCIE_LINK_READY);
  sent_ = false;  // the peer knows already
  EXPECT_EQ(Step(), ROPCIE_LINK_DO_UP | ROPCIE_LINK_DO_PUBLISH);
}

TEST_F(PeerLink, RingsForAHelloThatGotOutLate) {
  ToHello();
  Kill();
  Step();
  sent_ = false;
  Step(kHold);
  EXPECT_EQ(link_.state, ROPCIE_LINK_HELLO);
  EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH | ROPCIE_LINK_DO_NOTIFY);
  sent_ = true;
  EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH | ROPCIE_LINK_DO_NOTIFY);
  EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH);
}

TEST_F(PeerLink, WordsThatWentOutWhileTheHardwareWasDownAreNotGot) {
  ToUp();
  hw_up_ = false;
  Step();
  Kill();
  hw_up_ = true;
  EXPECT_EQ(Step(kHold), ROPCIE_LINK_DO_PUBLISH | ROPCIE_LINK_DO_NOTIFY);
  ExpectDown();
  hw_up_ = false;
  Step();
  hw_up_ = true;
  EXPECT_EQ(Step(kHold), ROPCIE_LINK_DO_PUBLISH | ROPCIE_LINK_DO_NOTIFY);
  ExpectDown();
}

TEST_F(PeerLink, OtherVersionIsRefusedOnce) {
  ToHello();
  ropcie_link_words words = Words(77);
  words.w[ROPCIE_LW_MAGIC]++;
  Show(words);  // its check word may mean anything
  EXPECT_EQ(Step(), ROPCIE_LINK_DO_REFUSE | ROPCIE_LINK_DO_PUBLISH);
  for (int i = 0; i < 5; i++) {
    EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH);
    EXPECT_EQ(link_.state, ROPCIE_LINK_HELLO);
  }
  Show({});
  EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH);
  Show(words);
  EXPECT_TRUE(Step() & ROPCIE_LINK_DO_REFUSE);
  Show(Words(78));  // upgraded
  EXPECT_TRUE(Step() & ROPCIE_LINK_DO_PREPARE);
}

TEST_F(PeerLink, OfferLargerThanTheWindowIsRefused) {
  const uint64_t need = ropcie_link_offer_size(&kOffer);
  EXPECT_EQ(need, 4096 + 2 * (64 * 64 + 131072));
  link_ = NewLink(kOffer, need - 1);
  ToHello();
  Show(Words(77));
  EXPECT_EQ(Step(), ROPCIE_LINK_DO_REFUSE | ROPCIE_LINK_DO_PUBLISH);
  link_ = NewLink(kOffer, need);
  peer_ = {};
  ToReady();
}

TEST_F(PeerLink, ImpossibleOffersAreRefused) {
  ToHello();
  const std::array<uint32_t, 8> geoms = {0,          0x00061100, 0x09061100,
                                         0x01051100, 0x01110500, 0x01062000,
                                         0x01ff1100, 0x01061101};
  for (const uint32_t geom : geoms) {
    Show({});
    Step();
    ropcie_link_words words = Words(77);
    words.w[ROPCIE_LW_GEOM] = geom;
    Seal(&words);
    Show(words);
    EXPECT_TRUE(Step() & ROPCIE_LINK_DO_REFUSE) << std::hex << geom;
    EXPECT_EQ(link_.state, ROPCIE_LINK_HELLO);
  }
  ropcie_link_words words = Words(0);  // epoch 0 is none
  Show(words);
  Step();
  EXPECT_EQ(link_.state, ROPCIE_LINK_HELLO);
}

TEST_F(PeerLink, RubbleIsNobody) {
  ToHello();
  Random random(1);
  for (int i = 0; i < 10000; i++) {
    ropcie_link_words words;
    for (uint32_t& word : words.w) {
      word = random.OneIn(3) ? 0xffffffff : random.Word();
    }
    Show(words);
    EXPECT_EQ(Step(), ROPCIE_LINK_DO_PUBLISH);
    EXPECT_EQ(link_.state, ROPCIE_LINK_HELLO);
  }
}

bool SameButHeartbeat(const ropcie_link_words& a, const ropcie_link_words& b) {
  return std::equal(a.w, a.w + ROPCIE_LW_HEARTBEAT, b.w);
}

TEST_F(PeerLink, NoMixOfTwoLivesIsTakenForEither) {
  ToHello();
  const ropcie_peer_link hello = link_;
  ropcie_link_offer other = kOffer;
  other.geom.slots = 512;
  other.features = 7;
  int taken = 0;
  for (uint32_t life = 0; life < 500; life++) {
    const ropcie_link_words none{};
    const ropcie_link_words early = Words(100 + life * 77, 0);
    const ropcie_link_words late =
        Words(200 + life * 99, own(ROPCIE_LW_EPOCH), other);
    for (const auto& [a, b] : {std::pair(early, late), std::pair(early, none),
                               std::pair(none, late)}) {
      for (uint32_t mix = 0; mix < 1U << (ROPCIE_LW_CHECK + 1); mix++) {
        ropcie_link_words words = a;
        for (int word = 0; word <= ROPCIE_LW_CHECK; word++) {
          words.w[word] = (mix >> word & 1) != 0 ? b.w[word] : a.w[word];
        }
        link_ = hello;
        Show(words);
        Step();
        const bool is_life =
            SameButHeartbeat(words, early) || SameButHeartbeat(words, late);
        EXPECT_EQ(link_.state,
                  is_life ? ROPCIE_LINK_PREPARE : ROPCIE_LINK_HELLO);
        taken += is_life ? 1 : 0;
      }
    }
  }
  // Words that are the same in both may come from either.
  EXPECT_EQ(taken, 500 * (2 + 2 + 2 + 1));
}

TEST(PeerLinkGeom, PackAndUnpackAreInverse) {
  int good = 0;
  for (uint32_t lanes = 0; lanes < 256; lanes++) {
    for (uint32_t slots = 0; slots < 40; slots++) {
      for (uint32_t bytes = 0; bytes < 40; bytes++) {
        const uint32_t word = lanes << 24 | slots << 16 | bytes << 8;
        ropcie_link_offer offer{};
        if (ropcie_link_geom_unpack(word, &offer) != 0) {
          continue;
        }
        good++;
        EXPECT_EQ(ropcie_link_geom_pack(&offer), word);
        EXPECT_TRUE(ropcie_lane_geom_ok(&offer.geom));
        EXPECT_GE(offer.lanes, 1U);
        EXPECT_LE(offer.lanes, uint32_t{ROPCIE_MAX_LANES});
      }
    }
  }
  EXPECT_GT(good, 8);
}

TEST(PeerLinkControl, WordsFitThePageAndWritersHaveLinesOfTheirOwn) {
  EXPECT_LE(sizeof(ropcie_control), size_t{ROPCIE_CONTROL_SIZE});
  EXPECT_EQ(offsetof(ropcie_lane_ctl, cons) / 64, 0U);
  EXPECT_EQ(offsetof(ropcie_lane_ctl, arm) / 64, 1U);
  EXPECT_EQ(offsetof(ropcie_control, mac) % 64, 0U);
}

}  // namespace
}  // namespace ropcie
