// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core.h"
#include "random.h"

namespace ropcie {
namespace {

bool AllZero(std::span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](uint8_t byte) { return byte == 0; });
}

// docs/protocol.md, "malformed", read once more from the page, not the code.
bool FragmentIsValid(const ropcie_slot& slot) {
  const bool first = (slot.flags & 1) != 0;
  const bool last = (slot.flags & 2) != 0;
  const bool imm = (slot.flags & 4) != 0;
  const bool inv = (slot.flags & 32) != 0;
  if (slot.frag_len > slot.msg_len || slot.frag_len > 65536 ||
      slot.msg_len > (1U << 31)) {
    return false;
  }
  if (first && last) {
    if (slot.frag_len != slot.msg_len) {
      return false;
    }
  } else if (slot.frag_len == 0 || slot.frag_len == slot.msg_len) {
    return false;
  }
  if (!last && (slot.flags & 0x3c) != 0) {
    return false;
  }
  if (imm && inv) {
    return false;
  }
  return imm || inv || slot.imm == 0;
}

// To a queue pair, as a request (0) or a response (1).
bool QueuePairIsValid(const ropcie_slot& slot, uint32_t direction) {
  return slot.mq % 2 == direction && slot.mq >= 2 && slot.mq <= 0x1ffffff &&
         slot.src_qpn >= 1 && slot.src_qpn <= 0xffffff && slot.psn <= 0xffffff;
}

bool SendIsValid(const ropcie_slot& slot) {
  return (slot.flags & ~0x3f) == 0 && QueuePairIsValid(slot, 0) &&
         FragmentIsValid(slot) && (slot.frag_len <= 28 || AllZero(slot.inl));
}

bool WriteIsValid(const ropcie_slot& slot) {
  const bool first = (slot.flags & 1) != 0;
  const bool imm = (slot.flags & 4) != 0;
  const bool solicited = (slot.flags & 8) != 0;
  const bool placed = (slot.flags & 0x40) != 0;
  const std::span<const uint8_t> inl(slot.reth.inl);
  return (slot.flags & ~0x5f) == 0 && QueuePairIsValid(slot, 0) &&
         FragmentIsValid(slot) && (imm || !solicited) &&
         (placed
              ? slot.grant != 0 && slot.frag_len != 0 && AllZero(inl.subspan(4))
              : slot.frag_len <= 16 || AllZero(inl)) &&
         (first || (slot.reth.rkey == 0 && slot.reth.addr[0] == 0 &&
                    slot.reth.addr[1] == 0));
}

bool ReadIsValid(const ropcie_slot& slot) {
  const bool sink = slot.flags == 0x40;
  const std::span<const uint8_t> inl(slot.reth.inl);
  return (sink || slot.flags == 0) && QueuePairIsValid(slot, 0) &&
         slot.frag_len == 0 && slot.msg_len <= (1U << 31) && slot.imm >= 64 &&
         slot.imm <= 65536 &&
         (uint64_t{slot.msg_len} + slot.imm - 1) / slot.imm <= (1U << 22) &&
         (!sink || slot.msg_len != 0) && AllZero(inl.subspan(sink ? 12 : 0));
}

bool AtomicIsValid(const ropcie_slot& slot) {
  return slot.flags == 0 && QueuePairIsValid(slot, 0) && slot.msg_len == 0 &&
         slot.frag_len == 0 && slot.imm == 0 &&
         (slot.op == 6 || (slot.reth.swap[0] == 0 && slot.reth.swap[1] == 0));
}

bool ReadResponseIsValid(const ropcie_slot& slot) {
  const std::span<const uint8_t> inl(slot.inl);
  const bool placed = (slot.flags & 0x40) != 0;
  return (slot.flags & ~0x43) == 0 && QueuePairIsValid(slot, 1) &&
         FragmentIsValid(slot) &&
         (placed
              ? slot.grant != 0 && slot.frag_len != 0 && AllZero(inl.subspan(4))
              : slot.frag_len <= 28 || AllZero(inl));
}

bool AtomicResponseIsValid(const ropcie_slot& slot) {
  return slot.flags == 0 && QueuePairIsValid(slot, 1) && slot.msg_len == 0 &&
         slot.frag_len == 0 && slot.imm == 0 &&
         AllZero(std::span<const uint8_t>(slot.inl).subspan(8));
}

bool AckIsValid(const ropcie_slot& slot) {
  return slot.flags == 0 && QueuePairIsValid(slot, 1) && slot.msg_len == 0 &&
         slot.frag_len == 0 && slot.imm == 0 && slot.aeth.msn <= 0xffffff &&
         slot.aeth.credits <= 0xffffff && slot.aeth.syndrome <= 5 &&
         slot.aeth.timer <= 31 && AllZero(slot.aeth.rsvd);
}

bool EthIsValid(const ropcie_slot& slot) {
  return slot.flags == 3 && slot.mq == 0 && slot.src_qpn == 0 &&
         slot.psn == 0 && FragmentIsValid(slot) && AllZero(slot.inl);
}

bool DatagramIsValid(const ropcie_slot& slot) {
  return (slot.flags & ~0xf) == 0 && (slot.flags & 3) == 3 &&
         QueuePairIsValid(slot, 0) && FragmentIsValid(slot) &&
         slot.frag_len >= 40 && slot.frag_len <= 4136 && slot.deth.net >= 1 &&
         slot.deth.net <= 3 && slot.deth.rsvd == 0 &&
         (slot.deth.vlan <= 4095 || slot.deth.vlan == 0xffff) &&
         AllZero(slot.deth.rsvd2);
}

bool AtomicWriteIsValid(const ropcie_slot& slot) {
  return (slot.flags & ~0x10) == 3 && QueuePairIsValid(slot, 0) &&
         slot.msg_len == 8 && slot.frag_len == 8 && slot.imm == 0;
}

bool AskIsValid(const ropcie_slot& slot) {
  return slot.flags == 0 && QueuePairIsValid(slot, 0) && slot.msg_len == 0 &&
         slot.frag_len == 0 && slot.imm <= 1 && AllZero(slot.reth.inl);
}

bool GrantIsValid(const ropcie_slot& slot) {
  if (slot.flags != 0 || !QueuePairIsValid(slot, 1) ||
      !AllZero(slot.reth.inl)) {
    return false;
  }
  if (slot.imm == 0) {
    return slot.msg_len == 0 && slot.frag_len == 0;
  }
  return slot.frag_len >= 8 && slot.frag_len % 8 == 0 &&
         slot.frag_len <= 2176 && slot.msg_len != 0 &&
         slot.msg_len <= slot.frag_len * 512;
}

// REVOKE (1), which names a grant, and RETURN (0), which may name all.
bool TakeBackIsValid(const ropcie_slot& slot, uint32_t direction) {
  return slot.flags == 0 && QueuePairIsValid(slot, direction) &&
         slot.psn == 0 && slot.msg_len == 0 && slot.frag_len == 0 &&
         (direction == 0 || slot.imm != 0) && AllZero(slot.inl);
}

bool IsValid(const ropcie_slot& slot) {
  if (slot.srqn != 0 && slot.op != 1 && (slot.op < 4 || slot.op > 7) &&
      slot.op != 11) {
    return false;
  }
  switch (slot.op) {
    case 1:
      return SendIsValid(slot);
    case 2:
      return AckIsValid(slot);
    case 3:
      return EthIsValid(slot);
    case 4:
      return WriteIsValid(slot);
    case 5:
      return ReadIsValid(slot);
    case 6:
    case 7:
      return AtomicIsValid(slot);
    case 8:
      return ReadResponseIsValid(slot);
    case 9:
      return AtomicResponseIsValid(slot);
    case 10:
      return DatagramIsValid(slot);
    case 11:
      return AtomicWriteIsValid(slot);
    case 12:
      return AskIsValid(slot);
    case 13:
      return GrantIsValid(slot);
    case 14:
      return TakeBackIsValid(slot, 1);
    case 15:
      return TakeBackIsValid(slot, 0);
    default:
      return false;
  }
}

// A decoder takes a valid slot whole and refuses any other.
void ExpectDecodes(const ropcie_slot& slot) {
  ropcie_hdr hdr;
  const int ret = ropcie_wire_decode(&slot, &hdr);
  ASSERT_EQ(ret, IsValid(slot) ? 0 : -EBADMSG);
  if (ret != 0) {
    return;
  }
  ropcie_slot again;
  memset(&again, 0xee, sizeof(again));
  ropcie_wire_encode(&hdr, &again);
  if (ropcie_hdr_inline(&hdr)) {
    memcpy(again.inl, slot.inl,
           ropcie_op_writes(hdr.op) ? ROPCIE_SLOT_WRITE_INLINE
                                    : ROPCIE_SLOT_INLINE);
  }
  ASSERT_EQ(memcmp(&slot, &again, offsetof(ropcie_slot, valid)), 0);
  ASSERT_EQ(again.valid, 0U);
  ASSERT_LE(ropcie_hdr_ring_len(&hdr), uint32_t{ROPCIE_MAX_FRAG});
}

// A field's value: likely one at a border.
uint32_t Near(Random* random, uint32_t border) {
  switch (random->Below(6)) {
    case 0:
      return border - 1;
    case 1:
      return border;
    case 2:
      return border + 1;
    case 3:
      return 0;
    case 4:
      return random->Word();
    default:
      return static_cast<uint32_t>(random->Below(40));
  }
}

// Operands of the opcodes that carry no payload, and of a WRITE.
void FillOperands(Random* random, ropcie_slot* slot) {
  slot->imm = 0;
  switch (slot->op) {
    case 4:
      if ((slot->flags & ROPCIE_F_FIRST) != 0 || random->OneIn(9)) {
        slot->reth.rkey = random->Word();
        slot->reth.addr[1] = random->Word();
      }
      slot->imm = (slot->flags & ROPCIE_F_IMM) != 0 ? random->Word() : 0;
      return;
    case 5:
      slot->imm = Near(random, random->OneIn(2) ? 64 : 65536);
      slot->msg_len = Near(random, uint32_t{1} << random->Between(9, 31));
      slot->reth.rkey = random->Word();
      slot->reth.addr[0] = random->Word();
      slot->frag_len = 0;
      slot->flags = 0;
      if (random->OneIn(3)) {
        slot->flags = ROPCIE_F_PLACED;
        slot->reth.sink_addr[1] = random->Word();
        slot->reth.sink_key = random->Word();
      }
      if (random->OneIn(9)) {
        slot->inl[12 + random->Below(4)] = 1;
      }
      return;
    case 6:
    case 7:
      slot->reth.compare_add[0] = random->Word();
      slot->reth.swap[1] = slot->op == 6 ? random->Word() : 0;
      slot->reth.rkey = random->Word();
      slot->msg_len = 0;
      break;
    default:
      slot->orig[0] = random->Word();
      slot->orig[1] = random->Word();
      slot->msg_len = 0;
      break;
  }
  slot->flags = 0;
  slot->frag_len = 0;
}

void FillDatagram(Random* random, ropcie_slot* slot) {
  slot->flags |= random->OneIn(9) ? 0 : 3;
  slot->frag_len = Near(random, random->OneIn(2) ? 40 : 4136);
  slot->msg_len = random->OneIn(9) ? random->Word() : slot->frag_len;
  slot->imm = (slot->flags & ROPCIE_F_IMM) != 0 ? random->Word() : 0;
  slot->deth.qkey = random->Word();
  slot->deth.net = static_cast<uint8_t>(random->Below(5));
  slot->deth.vlan = static_cast<uint16_t>(Near(random, 4095));
}

void FillAtomicWrite(Random* random, ropcie_slot* slot) {
  slot->flags |= random->OneIn(9) ? 0 : 3;
  slot->frag_len = random->OneIn(9) ? Near(random, 8) : 8;
  slot->msg_len = random->OneIn(9) ? random->Word() : slot->frag_len;
  random->Fill(slot->reth.inl);
  slot->reth.rkey = random->Word();
  slot->reth.addr[0] = random->Word();
}

// What gives and takes back grants.
void FillGrant(Random* random, ropcie_slot* slot) {
  slot->flags = random->OneIn(9) ? slot->flags : 0;
  slot->mq = slot->op == 13 || slot->op == 14 ? slot->mq | 1 : slot->mq & ~1U;
  if (slot->op >= 14) {
    slot->psn = random->OneIn(9) ? 1 : 0;
    slot->imm = random->OneIn(3) ? 0 : random->Word();
    return;
  }
  slot->reth.rkey = random->Word();
  slot->reth.addr[1] = random->Word();
  slot->reth.inl[random->Below(16)] = random->OneIn(9) ? 1 : 0;
  if (slot->op == 12) {
    slot->imm = random->OneIn(9) ? 1 : 0;
    return;
  }
  const auto pages = static_cast<uint32_t>(random->Below(275));
  slot->frag_len = pages * 8 + (random->OneIn(9) ? 4 : 0);
  slot->msg_len = Near(random, pages * 4096);
  slot->imm = random->OneIn(3) ? 0 : random->Word();
  if (slot->imm == 0 && random->OneIn(2)) {
    slot->frag_len = slot->msg_len = 0;
  }
}

ropcie_slot NearlyValidSlot(Random* random) {
  ropcie_slot slot{};
  slot.op = static_cast<uint8_t>(random->Between(1, 15));
  const bool request_flags = slot.op == 1 || slot.op == 4 || slot.op >= 10;
  slot.flags = static_cast<uint8_t>(random->Below(request_flags ? 64 : 4));
  if ((slot.op == 4 || slot.op == 8) && random->OneIn(3)) {
    slot.flags |= ROPCIE_F_PLACED;
  }
  slot.srqn = random->OneIn(2) ? static_cast<uint16_t>(random->Word()) : 0;
  slot.mq = slot.op == 3 ? 0 : Near(random, ROPCIE_MQ_MAX);
  slot.src_qpn = slot.op == 3 ? 0 : Near(random, ROPCIE_QPN_MASK);
  slot.psn = slot.op == 3 ? 0 : Near(random, ROPCIE_PSN_MASK);
  if (slot.op == 2) {
    slot.flags = 0;
    slot.mq |= 1;
    slot.aeth.msn = Near(random, ROPCIE_PSN_MASK);
    slot.aeth.credits = Near(random, ROPCIE_PSN_MASK);
    slot.aeth.syndrome = static_cast<uint8_t>(random->Below(7));
    slot.aeth.timer = static_cast<uint8_t>(random->Below(33));
    return slot;
  }
  slot.mq = slot.op == 8 || slot.op == 9 ? slot.mq | 1 : slot.mq & ~1U;
  if (slot.op == 10) {
    FillDatagram(random, &slot);
    return slot;
  }
  if (slot.op == 11) {
    FillAtomicWrite(random, &slot);
    return slot;
  }
  if (slot.op >= 12) {
    FillGrant(random, &slot);
    return slot;
  }
  slot.frag_len = random->OneIn(2) ? Near(random, ROPCIE_MAX_FRAG)
                                   : Near(random, ROPCIE_SLOT_INLINE);
  slot.msg_len =
      random->OneIn(2) ? slot.frag_len : Near(random, uint32_t{1} << 31);
  slot.imm =
      (slot.flags & (ROPCIE_F_IMM | ROPCIE_F_INV)) != 0 ? random->Word() : 0;
  if (slot.frag_len <= ROPCIE_SLOT_INLINE && (slot.op == 1 || slot.op == 8)) {
    random->Fill(slot.inl);
  }
  if (slot.frag_len <= ROPCIE_SLOT_WRITE_INLINE && slot.op == 4) {
    random->Fill(slot.reth.inl);
  }
  if ((slot.flags & ROPCIE_F_PLACED) != 0 && !random->OneIn(9)) {
    memset(slot.inl, 0, sizeof(slot.inl));
    slot.grant = random->OneIn(9) ? 0 : random->Word();
  }
  if (slot.op >= 4 && slot.op != 8) {
    FillOperands(random, &slot);
  }
  return slot;
}

TEST(Wire, LayoutIsThatOfTheProtocol) {
  EXPECT_EQ(offsetof(ropcie_slot, op), 0U);
  EXPECT_EQ(offsetof(ropcie_slot, flags), 1U);
  EXPECT_EQ(offsetof(ropcie_slot, srqn), 2U);
  EXPECT_EQ(offsetof(ropcie_slot, mq), 4U);
  EXPECT_EQ(offsetof(ropcie_slot, src_qpn), 8U);
  EXPECT_EQ(offsetof(ropcie_slot, psn), 12U);
  EXPECT_EQ(offsetof(ropcie_slot, msg_len), 16U);
  EXPECT_EQ(offsetof(ropcie_slot, frag_len), 20U);
  EXPECT_EQ(offsetof(ropcie_slot, imm), 24U);
  EXPECT_EQ(offsetof(ropcie_slot, aeth.msn), 28U);
  EXPECT_EQ(offsetof(ropcie_slot, aeth.credits), 32U);
  EXPECT_EQ(offsetof(ropcie_slot, aeth.syndrome), 36U);
  EXPECT_EQ(offsetof(ropcie_slot, aeth.timer), 37U);
  EXPECT_EQ(offsetof(ropcie_slot, reth.inl), 28U);
  EXPECT_EQ(offsetof(ropcie_slot, reth.compare_add), 28U);
  EXPECT_EQ(offsetof(ropcie_slot, reth.swap), 36U);
  EXPECT_EQ(offsetof(ropcie_slot, reth.rkey), 44U);
  EXPECT_EQ(offsetof(ropcie_slot, reth.addr), 48U);
  EXPECT_EQ(offsetof(ropcie_slot, orig), 28U);
  EXPECT_EQ(offsetof(ropcie_slot, deth.qkey), 28U);
  EXPECT_EQ(offsetof(ropcie_slot, deth.net), 32U);
  EXPECT_EQ(offsetof(ropcie_slot, deth.vlan), 34U);
  EXPECT_EQ(offsetof(ropcie_slot, valid), 56U);
}

TEST(Wire, DecoderTakesValidSlotsWholeAndRefusesAllOthers) {
  Random random(1);
  int valid = 0;
  for (int i = 0; i < 2000000; i++) {
    const ropcie_slot slot = NearlyValidSlot(&random);
    ExpectDecodes(slot);
    ASSERT_FALSE(HasFatalFailure());
    valid += IsValid(slot) ? 1 : 0;
  }
  EXPECT_GT(valid, 50000);
}

TEST(Wire, EveryByteOfAValidSlotMatters) {
  Random random(2);
  int bases = 0;
  while (bases < 150) {
    const ropcie_slot base = NearlyValidSlot(&random);
    if (!IsValid(base)) {
      continue;
    }
    bases++;
    for (size_t at = 0; at < offsetof(ropcie_slot, valid); at++) {
      for (int value = 0; value < 256; value++) {
        ropcie_slot slot = base;
        reinterpret_cast<uint8_t*>(&slot)[at] = static_cast<uint8_t>(value);
        ExpectDecodes(slot);
        ASSERT_FALSE(HasFatalFailure()) << "byte " << at << " = " << value;
      }
    }
  }
}

TEST(Wire, NoiseIsRefused) {
  Random random(3);
  for (int i = 0; i < 1000000; i++) {
    ropcie_slot slot;
    random.Fill({reinterpret_cast<uint8_t*>(&slot), sizeof(slot)});
    slot.op = static_cast<uint8_t>(slot.op % 13);
    ExpectDecodes(slot);
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST(Wire, ValidWordNamesEpochAndPosition) {
  EXPECT_EQ(ropcie_valid(0x12345678, 0), 0x1234567800000001U);
  EXPECT_EQ(ropcie_valid(1, 0xffffffff), 0x100000000U);
  EXPECT_EQ(ropcie_valid(1, 0x100000000), 0x100000001U);
}

TEST(Wire, PayloadTakesWholeLinesOfTheRingUnlessItRidesInTheSlot) {
  ropcie_hdr hdr{};
  hdr.op = ROPCIE_OP_SEND;
  for (uint32_t len = 0; len <= ROPCIE_MAX_FRAG; len++) {
    hdr.frag_len = len;
    ASSERT_EQ(ropcie_hdr_ring_len(&hdr), len <= 28 ? 0 : (len + 63) / 64 * 64);
  }
  hdr.op = ROPCIE_OP_WRITE;
  hdr.frag_len = 16;
  EXPECT_EQ(ropcie_hdr_ring_len(&hdr), 0U);
  hdr.frag_len = 17;
  EXPECT_EQ(ropcie_hdr_ring_len(&hdr), 64U);
  hdr.op = ROPCIE_OP_ETH;
  hdr.frag_len = 1;
  EXPECT_EQ(ropcie_hdr_ring_len(&hdr), 64U);
}

TEST(Psn, DistanceUndoesAddingAllTheWayRound) {
  for (const uint32_t base : {0U, 1U, 0x7fffffU, 0x800000U, 0xffffffU}) {
    for (uint32_t n = 0; n <= ROPCIE_PSN_MASK; n++) {
      const uint32_t psn = ropcie_psn_add(base, n);
      const int32_t expected = n < 0x800000
                                   ? static_cast<int32_t>(n)
                                   : static_cast<int32_t>(n) - 0x1000000;
      ASSERT_LE(psn, uint32_t{ROPCIE_PSN_MASK});
      ASSERT_EQ(ropcie_psn_diff(psn, base), expected);
    }
  }
}

TEST(Psn, AddingTheMaskIsGoingBackByOne) {
  EXPECT_EQ(ropcie_psn_add(0, ROPCIE_PSN_MASK), 0xffffffU);
  EXPECT_EQ(ropcie_psn_add(5, ROPCIE_PSN_MASK), 4U);
}

TEST(RnrTimer, CodesAreThoseOfIbta) {
  // Table 45, in microseconds.
  constexpr std::array<uint64_t, 32> kTimers = {
      655360, 10,    20,    30,     40,     60,     80,     120,
      160,    240,   320,   480,    640,    960,    1280,   1920,
      2560,   3840,  5120,  7680,   10240,  15360,  20480,  30720,
      40960,  61440, 81920, 122880, 163840, 245760, 327680, 491520};
  for (size_t code = 0; code < kTimers.size(); code++) {
    EXPECT_EQ(ropcie_rnr_timer_ns(static_cast<uint8_t>(code)),
              kTimers[code] * 1000);
  }
}

}  // namespace
}  // namespace ropcie
