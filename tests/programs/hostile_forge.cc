// SPDX-License-Identifier: GPL-2.0
#include "hostile_forge.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

extern "C" {
#include "core/wire.h"
}
// Would turn [[fallthrough]] into something else.
#undef fallthrough

namespace ropcie {
namespace {

// A slot without its valid word, as kernel/core/wire.h has it.
struct Record {
  uint8_t op;
  uint8_t flags;
  uint16_t srqn;
  uint32_t mq;
  uint32_t src_qpn;
  uint32_t psn;
  uint32_t msg_len;
  uint32_t frag_len;
  uint32_t imm;
  std::array<uint32_t, 7> operands;
};
constexpr size_t kRecordWords = 14;
static_assert(sizeof(Record) == offsetof(ropcie_slot, valid));
static_assert(offsetof(Record, operands) == offsetof(ropcie_slot, operands));

constexpr uint32_t k24Bits = 0xffffff;
// In the operands.
constexpr size_t kRkey = 4;
constexpr size_t kAddr = 5;

bool IsAnswer(uint8_t op) {
  return op == ROPCIE_OP_ACK || op == ROPCIE_OP_READ_RESP ||
         op == ROPCIE_OP_ATOMIC_RESP || op == ROPCIE_OP_GRANT ||
         op == ROPCIE_OP_REVOKE;
}

bool NamesMemory(const Record& record) {
  return record.op == ROPCIE_OP_READ || record.op == ROPCIE_OP_CAS ||
         record.op == ROPCIE_OP_FAA || record.op == ROPCIE_OP_ATOMIC_WRITE ||
         (record.op == ROPCIE_OP_WRITE && (record.flags & ROPCIE_F_FIRST) != 0);
}

// What can be seen in the lanes of one victim.
struct Lanes {
  std::vector<uint64_t> next;   // valid words
  std::vector<Record> records;  // of this epoch
};

Record ReadRecord(const Bar& memory, size_t at) {
  std::array<uint32_t, kRecordWords> words{};
  for (size_t i = 0; i < kRecordWords; ++i) {
    words.at(i) = memory.Read<uint32_t>(at + 4 * i);
  }
  Record record{};
  std::memcpy(&record, words.data(), sizeof(record));
  return record;
}

uint64_t ValidWord(uint32_t epoch, uint32_t position) {
  return uint64_t{epoch} << 32 | (position + 1);
}

size_t SlotOf(const Victim& victim, size_t lane, uint32_t position) {
  return victim.SlotsOf(lane).begin + position % victim.slots * kSlot;
}

bool IsThere(const Bar& memory, size_t slot, uint64_t valid) {
  return memory.Read<uint64_t>(slot + kSlot - 8) == valid;
}

// What the victim waits for: the first position that is not there, of those
// that it has not read. What lies further on may have come before it cleaned
// its slots.
uint32_t Awaited(const Bar& memory, const Victim& victim, size_t lane,
                 uint32_t epoch) {
  const auto read = memory.Read<uint32_t>(victim.read + kLaneControl * lane);
  uint32_t position = read;
  while (position - read < victim.slots &&
         IsThere(memory, SlotOf(victim, lane, position),
                 ValidWord(epoch, position))) {
    ++position;
  }
  return position;
}

Lanes Look(const Bar& memory, const Victim& victim) {
  constexpr uint32_t kMost = 64;  // of each lane
  Lanes lanes;
  const auto epoch = memory.Read<uint32_t>(victim.told + 4);
  for (size_t lane = 0; lane < victim.lanes; ++lane) {
    const uint32_t next = Awaited(memory, victim, lane, epoch);
    lanes.next.push_back(ValidWord(epoch, next));
    for (uint32_t i = 1; i <= kMost; ++i) {
      const size_t slot = SlotOf(victim, lane, next - i);
      if (IsThere(memory, slot, ValidWord(epoch, next - i))) {
        lanes.records.push_back(ReadRecord(memory, slot));
      }
    }
  }
  return lanes;
}

void WriteRecord(const Bar& memory, const Victim& victim, size_t lane,
                 uint64_t valid, const Record& record) {
  std::array<uint32_t, kRecordWords> words{};
  std::memcpy(words.data(), &record, sizeof(record));
  const size_t to = SlotOf(victim, lane, static_cast<uint32_t>(valid) - 1);
  for (size_t i = 0; i < kRecordWords; ++i) {
    memory.Write(to + 4 * i, words.at(i));
  }
  memory.Write(to + kSlot - 8, valid);
}

// Makes up one record.
class Forger {
 public:
  Forger(const std::vector<Record>& seen, Random* random)
      : random_(random), seen_(seen) {}

  Record Make() {
    Record record{};
    switch (Below(random_, 8)) {
      case 0:
      case 1:
        if (!seen_.empty()) {
          record = Seen();
          break;
        }
        [[fallthrough]];
      default:
        record =
            Likely(static_cast<uint8_t>(1 + Below(random_, ROPCIE_OP_END - 1)));
    }
    // Most are left as they are: what is malformed ends the link.
    for (size_t n = OneIn(random_, 20) ? 1 + Below(random_, 2) : 0; n != 0;
         --n) {
      Spoil(&record);
    }
    return record;
  }

 private:
  template <typename T, size_t kCount>
  T Any(const std::array<T, kCount>& values) {
    return values.at(Below(random_, kCount));
  }
  uint32_t Any32() { return static_cast<uint32_t>((*random_)()); }
  const Record& Seen() { return seen_[Below(random_, seen_.size())]; }

  void Spoil(Record* record) {
    std::array<uint32_t, kRecordWords> words{};
    std::memcpy(words.data(), record, sizeof(*record));
    uint32_t& word = words.at(Below(random_, kRecordWords));
    word = Changed(word, random_);
    std::memcpy(record, words.data(), sizeof(*record));
  }

  // A record of an operation, for a queue pair that has been seen, or is likely
  // to be there.
  Record Likely(uint8_t op) {
    constexpr uint32_t kFirstQpn = 17;  // about that
    Record record{};
    record.op = op;
    uint32_t qpn = kFirstQpn + static_cast<uint32_t>(Below(random_, 48));
    record.src_qpn = qpn;
    record.psn = Any32() & k24Bits;
    if (!seen_.empty() && !OneIn(random_, 8)) {
      const Record& seen = Seen();
      qpn = std::max(seen.mq / 2, 1U);
      record.src_qpn = std::max(seen.src_qpn, 1U);
      // Further on, again, or of another time.
      record.psn =
          OneIn(random_, 8)
              ? record.psn
              : (seen.psn + static_cast<uint32_t>(Below(random_, 4)) - 1) &
                    k24Bits;
    }
    record.mq = 2 * qpn + (IsAnswer(op) ? 1 : 0);
    Fill(&record);
    return record;
  }

  void Fill(Record* record) {
    switch (record->op) {
      case ROPCIE_OP_SEND:
      case ROPCIE_OP_WRITE:
      case ROPCIE_OP_READ_RESP:
        Fragment(record);
        break;
      case ROPCIE_OP_ACK:
        record->operands = {
            Any32() & k24Bits,
            Any(std::array<uint32_t, 4>{0, 1, 0x800000, k24Bits}),
            static_cast<uint32_t>(Below(random_, 6) | Below(random_, 32) << 8)};
        break;
      case ROPCIE_OP_ETH:
        record->mq = record->src_qpn = record->psn = 0;
        Whole(record, Any(std::array<uint32_t, 8>{0, 1, 13, 14, 60, 1500, 9000,
                                                  65536}));
        break;
      case ROPCIE_OP_DATAGRAM:
        record->mq = Any(std::array<uint32_t, 3>{2, 33554430, record->mq});
        Whole(record, Any(std::array<uint32_t, 4>{40, 41, 296, 4136}));
        record->flags |= OneIn(random_, 4) ? ROPCIE_F_SOLICITED : 0;
        record->operands = {
            Any(std::array<uint32_t, 3>{0x80010000, 0x11111111, Any32()}),
            static_cast<uint32_t>(1 + Below(random_, 3)) | 0xffff0000};
        break;
      case ROPCIE_OP_ATOMIC_WRITE:
        Whole(record, 8);
        break;
      case ROPCIE_OP_READ:
        record->msg_len = Any(std::array<uint32_t, 6>{
            0, 1, 4096, 65536, 1 << 20, uint32_t{1} << 31});
        // Never more answers than are allowed.
        record->imm = record->msg_len > 1 << 20
                          ? 65536
                          : Any(std::array<uint32_t, 3>{64, 16384, 65536});
        break;
      case ROPCIE_OP_GRANT:
        record->frag_len = 8 * static_cast<uint32_t>(Below(random_, 273));
        record->msg_len = record->frag_len / 8 * 4096;
        record->imm = record->frag_len == 0 ? 0 : Any32() | 1;
        break;
      case ROPCIE_OP_ASK:
        record->imm = static_cast<uint32_t>(Below(random_, 2));
        break;
      case ROPCIE_OP_REVOKE:
      case ROPCIE_OP_RETURN:
        record->psn = 0;
        record->imm = 1 + static_cast<uint32_t>(Below(random_, 4));
        break;
      default:
        record->operands.at(0) = Any32();
    }
    if (NamesMemory(*record) || record->op == ROPCIE_OP_ASK ||
        record->op == ROPCIE_OP_GRANT) {
      Name(record);
    }
    if (OneIn(random_, 8)) {
      Place(record);
    }
  }

  // As if the payload were there already, or the answer's might be.
  void Place(Record* record) {
    const bool carries =
        record->op == ROPCIE_OP_WRITE || record->op == ROPCIE_OP_READ_RESP;
    if (carries && record->frag_len != 0) {
      record->flags |= ROPCIE_F_PLACED;
      record->operands.at(0) = 1 + static_cast<uint32_t>(Below(random_, 4));
    } else if (record->op == ROPCIE_OP_READ && record->msg_len != 0) {
      record->flags |= ROPCIE_F_PLACED;
      record->operands.at(0) = Any32();
      record->operands.at(1) = Any32();
      record->operands.at(2) = Key();
    }
  }

  static void Whole(Record* record, uint32_t length) {
    record->flags |= ROPCIE_F_FIRST | ROPCIE_F_LAST;
    record->msg_len = record->frag_len = length;
  }

  // One record of a message, of this length or longer.
  void Fragment(Record* record) {
    const uint32_t length =
        Any(std::array<uint32_t, 8>{1, 16, 28, 29, 4096, 16384, 65535, 65536});
    Whole(record, OneIn(random_, 8) ? 0 : length);
    if (record->frag_len != 0 && OneIn(random_, 2)) {
      record->msg_len = length + Any(std::array<uint32_t, 3>{
                                     1, 65536, (uint32_t{1} << 31) - length});
      record->flags =
          Any(std::array<uint8_t, 3>{ROPCIE_F_FIRST, 0, ROPCIE_F_LAST});
    }
    if ((record->flags & ROPCIE_F_LAST) == 0 ||
        record->op == ROPCIE_OP_READ_RESP) {
      return;
    }
    record->flags |= OneIn(random_, 2) ? ROPCIE_F_ACKREQ : 0;
    if (OneIn(random_, 4)) {
      record->flags |= ROPCIE_F_IMM;
      record->imm = Any32();
    } else if (record->op == ROPCIE_OP_SEND && OneIn(random_, 4)) {
      record->flags |= ROPCIE_F_INV;
      record->imm = Key();
    }
  }

  // Keys and addresses of the victim that have been seen, or are near.
  uint32_t Key() {
    constexpr uint32_t kTags = 256;
    uint32_t key = Any32();
    for (int tries = 0; tries < 8 && !seen_.empty(); ++tries) {
      const Record& seen = Seen();
      if (NamesMemory(seen)) {
        key = seen.operands.at(kRkey);
        break;
      }
    }
    return OneIn(random_, 2)
               ? key
               : key + kTags * (static_cast<uint32_t>(Below(random_, 16)) - 8);
  }

  void Name(Record* record) {
    uint64_t addr = (*random_)();
    for (int tries = 0; tries < 8 && !seen_.empty(); ++tries) {
      const Record& seen = Seen();
      if (NamesMemory(seen)) {
        addr = seen.operands.at(kAddr) | uint64_t{seen.operands.at(kAddr + 1)}
                                             << 32;
        break;
      }
    }
    addr += Any(std::array<uint64_t, 8>{0, 0, 1, 4096, -uint64_t{1},
                                        -uint64_t{4096}, uint64_t{1} << 20,
                                        uint64_t{1} << 63});
    record->operands.at(kRkey) = Key();
    record->operands.at(kAddr) = static_cast<uint32_t>(addr);
    record->operands.at(kAddr + 1) = static_cast<uint32_t>(addr >> 32);
  }

  Random* random_;
  const std::vector<Record>& seen_;
};

}  // namespace

uint32_t Changed(uint32_t word, Random* random) {
  const auto near = 1 + static_cast<uint32_t>(Below(random, 16));
  switch (Below(random, 6)) {
    case 0:
      return word ^ uint32_t { 1 } << Below(random, 32);
    case 1:
      return word + near;
    case 2:
      return word - near;
    case 3:
      return OneIn(random, 2) ? 0 : ~uint32_t{0};
    case 4:
      return uint32_t{1} << Below(random, 32);
    default:
      return static_cast<uint32_t>((*random)());
  }
}

void Forge(const Bar& memory, const Victim& victim, Random* random) {
  const size_t lane = Below(random, victim.lanes);
  const Lanes lanes = Look(memory, victim);
  const Record record = Forger(lanes.records, random).Make();
  WriteRecord(memory, victim, lane, lanes.next[lane], record);
}

void ForgeMalformed(const Bar& memory, const Victim& victim, Random* random) {
  const size_t lane = Below(random, victim.lanes);
  const Lanes lanes = Look(memory, victim);
  Record record{};
  record.op = OneIn(random, 2) ? 0 : static_cast<uint8_t>(ROPCIE_OP_END);
  WriteRecord(memory, victim, lane, lanes.next[lane], record);
}

}  // namespace ropcie
