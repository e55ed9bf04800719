// SPDX-License-Identifier: GPL-2.0
// Both halves of a lane whose other end is hostile: any bytes in the slots, any
// consumer position, while records come and go.
#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <memory>
#include <vector>

#include "fuzz.h"

namespace ropcie::fuzz {
namespace {

constexpr ropcie_lane_geom kGeom = {.slots = 64, .bytes = 2 * ROPCIE_MAX_FRAG};
constexpr uint32_t kEpoch = 7;

// What lies in the payload ring: a byte tells its place.
const std::vector<uint8_t>& Payload() {
  static const std::vector<uint8_t> bytes = [] {
    std::vector<uint8_t> all(kGeom.bytes);
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] = static_cast<uint8_t>(i ^ (i >> 8));
    }
    return all;
  }();
  return bytes;
}

// Memory whose neighbours AddressSanitizer guards.
struct Memory {
  Memory() : base(new (std::align_val_t{64}) uint8_t[Size()]()) {
    std::memcpy(payload(), Payload().data(), kGeom.bytes);
  }
  ~Memory() { operator delete[](base, std::align_val_t{64}); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  static size_t Size() { return ropcie_lane_size(&kGeom); }
  [[nodiscard]] uint8_t* payload() const {
    return base + size_t{kGeom.slots} * ROPCIE_SLOT_SIZE;
  }
  [[nodiscard]] ropcie_slot* slot(uint64_t pos) const {
    return reinterpret_cast<ropcie_slot*>(base) + pos % kGeom.slots;
  }

  uint8_t* base;
};

// A header that a decoder may well let pass.
ropcie_hdr Header(Input* input) {
  ropcie_hdr hdr{};
  hdr.op = input->ConsumeIntegralInRange<uint8_t>(1, ROPCIE_OP_END - 1);
  hdr.flags = input->ConsumeIntegral<uint8_t>();
  const bool answers = hdr.op == ROPCIE_OP_ACK ||
                       hdr.op == ROPCIE_OP_READ_RESP ||
                       hdr.op == ROPCIE_OP_ATOMIC_RESP;
  hdr.mq =
      hdr.op == ROPCIE_OP_ETH
          ? 0
          : ropcie_mq_id(5, answers ? ROPCIE_MQ_RESPONSE : ROPCIE_MQ_REQUEST);
  hdr.src_qpn = hdr.op == ROPCIE_OP_ETH ? 0 : 9;
  hdr.frag_len = Number<uint32_t>(input) % (ROPCIE_MAX_FRAG + 2);
  hdr.msg_len = input->ConsumeBool() ? hdr.frag_len : Number<uint32_t>(input);
  return hdr;
}

// The payload from a byte on, where the slot or the ring has it.
std::vector<uint8_t> Expected(const ropcie_lane_rx& rx, const ropcie_slot& slot,
                              const ropcie_rec& rec, uint32_t from) {
  const uint32_t length = rec.hdr.frag_len;
  if (ropcie_hdr_inline(&rec.hdr)) {
    return {slot.inl + from, slot.inl + length};
  }
  const auto at = static_cast<uint32_t>((rx.pay_head + from) % kGeom.bytes);
  const uint32_t run = std::min(length - from, kGeom.bytes - at);
  std::vector<uint8_t> bytes(Payload().begin() + at,
                             Payload().begin() + at + run);
  bytes.insert(bytes.end(), Payload().begin(),
               Payload().begin() + (length - from - run));
  return bytes;
}

void Receive(Input* input) {
  const Memory memory;
  __le32 cons = 0;
  ropcie_lane_rx rx{};
  ropcie_lane_rx_init(&rx, memory.base, &kGeom, &cons, kEpoch);
  rx.head = rx.published = Number<uint64_t>(input);
  while (input->remaining_bytes() > 0) {
    ropcie_slot* const slot = memory.slot(rx.head);
    if (input->ConsumeBool()) {
      const ropcie_hdr hdr = Header(input);
      ropcie_wire_encode(&hdr, slot);
    } else {
      input->ConsumeData(slot, sizeof(*slot));
    }
    slot->valid = input->ConsumeIntegralInRange(0, 7) == 0
                      ? input->ConsumeIntegral<uint64_t>()
                      : cpu_to_le64(ropcie_valid(kEpoch, rx.head));
    ropcie_rec rec;
    const int ret = ropcie_lane_recv(&rx, &rec);
    FUZZ_CHECK((ret != 0) == ropcie_lane_peek(&rx));
    if (ret < 0) {
      return;
    }
    if (ret == 0) {
      continue;
    }
    uint32_t payload = 0;
    for (uint32_t i = 0; i < rec.nspan; ++i) {
      payload += rec.span[i].len;
    }
    FUZZ_CHECK(payload == rec.hdr.frag_len);
    // Room that is as long, shorter or longer, in two runs.
    const auto from = input->ConsumeIntegralInRange<uint32_t>(0, payload);
    const auto room = input->ConsumeIntegralInRange<uint32_t>(0, 2 * payload);
    const auto cut = input->ConsumeIntegralInRange<uint32_t>(0, room);
    std::vector<uint8_t> first(cut);
    std::vector<uint8_t> second(room - cut);
    const ropcie_vec to[] = {{first.data(), cut}, {second.data(), room - cut}};
    const uint32_t done = ropcie_rec_scatter(&rec, from, to, 2);
    FUZZ_CHECK(done == std::min(payload - from, room));
    first.insert(first.end(), second.begin(), second.end());
    const std::vector<uint8_t> expected = Expected(rx, *slot, rec, from);
    FUZZ_CHECK(
        std::equal(first.begin(), first.begin() + done, expected.begin()));
    ropcie_lane_consume(&rx, &rec);
    if (input->ConsumeBool()) {
      ropcie_lane_publish(&rx);
      FUZZ_CHECK(le32_to_cpu(cons) == static_cast<uint32_t>(rx.head));
    }
  }
}

// Records that somebody else copies the payload of, by position.
class Holes {
 public:
  Holes(Input* input, ropcie_lane_tx* tx) : input_(input), tx_(tx) {}

  // As ropcie_lane_send(). Its payload may be put there from now on.
  int Reserve(const ropcie_hdr& hdr) {
    ropcie_lane_hole hole{};
    const uint64_t pos = tx_->head;
    const auto at = static_cast<uint32_t>(tx_->pay_head % kGeom.bytes);
    const int room = ropcie_lane_room(tx_, &hdr);
    const int ret = ropcie_lane_reserve(tx_, &hdr, &hole);
    FUZZ_CHECK(ret == room);
    if (ret != 0) {
      return ret;
    }
    FUZZ_CHECK(hole.pos == pos && hole.dst[0].base == tx_->payload + at);
    FUZZ_CHECK(hole.ndst == (hole.dst[0].len < hdr.frag_len ? 2U : 1U));
    uint32_t length = 0;
    for (uint32_t i = 0; i < hole.ndst; ++i) {
      std::memset(hole.dst[i].base, 1, hole.dst[i].len);
      length += hole.dst[i].len;
    }
    FUZZ_CHECK(length == hdr.frag_len);
    FUZZ_CHECK(hole.ndst == 1 || hole.dst[1].base == tx_->payload);
    holes_.emplace(pos, hole);
    return 0;
  }

  // In any order.
  void Fill() {
    if (holes_.empty()) {
      return;
    }
    const auto it = std::next(
        holes_.begin(), input_->ConsumeIntegralInRange<ptrdiff_t>(
                            0, static_cast<ptrdiff_t>(holes_.size()) - 1));
    const ropcie_slot& slot = tx_->slots[it->first % kGeom.slots];
    const uint64_t valid = cpu_to_le64(ropcie_valid(kEpoch, it->first));
    FUZZ_CHECK(slot.valid != valid);
    ropcie_lane_fill(tx_, &it->second);
    FUZZ_CHECK(slot.valid == valid);
    holes_.erase(it);
  }

  // Nobody can have seen more.
  void Check() const {
    const uint64_t shown = holes_.empty() ? tx_->head : holes_.begin()->first;
    FUZZ_CHECK(ropcie_lane_tx_shown(tx_) == shown);
    FUZZ_CHECK(tx_->tail <= shown && tx_->holes == holes_.size());
    const uint64_t seen = tx_->tail + (le32_to_cpu(*tx_->cons) -
                                       static_cast<uint32_t>(tx_->tail));
    if (seen > shown) {
      return;  // a position that can not be
    }
    FUZZ_CHECK(ropcie_lane_tx_unseen(tx_) == (seen < shown));
    FUZZ_CHECK(ropcie_lane_tx_idle(tx_) == (seen == tx_->head));
    FUZZ_CHECK(ropcie_lane_tx_passed(tx_, seen) &&
               !ropcie_lane_tx_passed(tx_, seen + 1));
  }

 private:
  Input* input_;
  ropcie_lane_tx* tx_;
  std::map<uint64_t, ropcie_lane_hole> holes_;
};

void Send(Input* input) {
  const Memory memory;
  __le32 cons = 0;
  std::vector<u64> ends(kGeom.slots);
  std::vector<uint8_t> data(ROPCIE_MAX_FRAG);
  ropcie_lane_tx tx{};
  ropcie_lane_tx_init(&tx, memory.base, &kGeom, &cons, ends.data(), kEpoch,
                      input->ConsumeBool());
  // Positions never come so far that they end.
  tx.head = tx.tail = Number<uint64_t>(input) >> 2;
  cons = static_cast<uint32_t>(tx.head);
  Holes holes(input, &tx);
  while (input->remaining_bytes() > 0) {
    ropcie_hdr hdr{};
    if (!Passes(Header(input), &hdr)) {
      continue;
    }
    const auto cut = input->ConsumeIntegralInRange<uint32_t>(0, hdr.frag_len);
    const ropcie_vec vec[] = {{data.data(), cut},
                              {data.data() + cut, hdr.frag_len - cut}};
    const uint64_t before = tx.head;
    const bool hole = ropcie_hdr_ring_len(&hdr) != 0 &&
                      input->ConsumeIntegralInRange(0, 3) == 0;
    const int ret =
        hole ? holes.Reserve(hdr) : ropcie_lane_send(&tx, &hdr, vec, 2);
    FUZZ_CHECK(ret == 0 || ret == -EAGAIN || ret == -EPROTO);
    FUZZ_CHECK(tx.head == before + (ret == 0 ? 1 : 0));
    FUZZ_CHECK(tx.head - tx.tail <= kGeom.slots);
    FUZZ_CHECK(tx.pay_head - tx.pay_tail <= kGeom.bytes);
    if (ret == -EPROTO) {
      return;
    }
    holes.Check();
    switch (input->ConsumeIntegralInRange(0, 5)) {
      case 0:
        cons = static_cast<uint32_t>(ropcie_lane_tx_shown(&tx));
        break;
      case 1:
        cons = cons + 1;
        break;
      case 2:
        cons = Number<uint32_t>(input);
        break;
      case 3:
        break;
      default:
        holes.Fill();
        holes.Check();
    }
  }
}

}  // namespace
}  // namespace ropcie::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  if (input.ConsumeBool()) {
    ropcie::fuzz::Receive(&input);
  } else {
    ropcie::fuzz::Send(&input);
  }
  return 0;
}
