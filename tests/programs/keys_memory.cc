// SPDX-License-Identifier: GPL-2.0
#include "keys_memory.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "failure.h"
#include "keys.h"
#include "side.h"

namespace ropcie::keys {
namespace {

// Where the requester's or the responder's part of the memory is, if any.
std::optional<Place> PlaceOf(const Case& one, bool requester) {
  const bool is_subject = (one.where == Where::kLocal) == requester;
  if (!is_subject || IsInvalidate(one.op)) {
    const bool null = one.where == Where::kRemote && LengthIsHuge(one);
    return null ? std::nullopt
                : std::optional<Place>({Memory::kHost, kPartner});
  }
  if (one.kind == Kind::kNull) {
    return std::nullopt;
  }
  const Memory memory = one.kind == Kind::kDeviceMemory ? Memory::kDeviceMemory
                        : one.kind == Kind::kDmaBuf     ? Memory::kDmaBuf
                                                        : Memory::kHost;
  return Place{memory, kBegin + one.range.offset};
}

const char* What(Memory memory) {
  return memory == Memory::kDeviceMemory ? "device memory's"
         : memory == Memory::kDmaBuf     ? "the buffer's"
                                         : "memory's";
}

}  // namespace

const uint8_t* Baseline::At(bool leads, const Place& place) const {
  const uint64_t number =
      (leads ? 1 : 1 + kMemories.size()) + static_cast<size_t>(place.memory);
  return pattern_.Bytes(number, place.offset);
}

uint64_t Baseline::WordAt(bool leads, const Place& place) const {
  uint64_t word = 0;
  std::memcpy(&word, At(leads, place), sizeof(word));
  return word;
}

Memories::Memories(const Side& side, const Regions& regions, Findings* findings)
    : side_(side),
      regions_(regions),
      findings_(*findings),
      baseline_(side.options.seed) {
  Restore();
}

uint64_t Memories::Before(const Case& one, bool requester) const {
  const std::optional<Place> place = PlaceOf(one, false);
  const bool leads = requester ? !side_.leads : side_.leads;
  return place && place->offset <= kArea - kWord
             ? baseline_.WordAt(leads, *place)
             : 0;
}

// What the case places at this side, if all of it is placed.
std::vector<uint8_t> Memories::Placing(const Case& one, bool requester) const {
  const auto words = [](uint64_t word) {
    std::vector<uint8_t> bytes(kWord);
    std::memcpy(bytes.data(), &word, kWord);
    return bytes;
  };
  if (!requester && one.op == Op::kFetchAdd) {
    return words(Before(one, requester) + kAdd);
  }
  if (!requester && one.op == Op::kCompareSwap) {
    return words(kSwap);
  }
  // It comes from the other side, where the null region is of zeros.
  const std::optional<Place> from = PlaceOf(one, !requester);
  std::vector<uint8_t> bytes(std::min<uint64_t>(one.range.length, kArea));
  if (from) {
    const uint8_t* const begin = baseline_.At(!side_.leads, *from);
    const size_t there =
        from->offset > kArea
            ? 0
            : std::min<size_t>(bytes.size(), kArea - from->offset);
    std::copy_n(begin, there, bytes.begin());
  }
  return bytes;
}

void Memories::Check(const Case& one, bool requester, Placed placed) {
  const std::optional<Place> place = PlaceOf(one, requester);
  std::vector<uint8_t> placing;
  if (placed != Placed::kNothing && place) {
    placing = Placing(one, requester);
  }
  bool touched = !placing.empty();
  for (const Memory memory : kMemories) {
    if (!Exists(memory)) {
      continue;
    }
    const bool here = touched && place->memory == memory;
    touched |=
        !CheckArea(memory, here ? std::optional(place->offset) : std::nullopt,
                   placing, placed);
  }
  if (touched) {
    Restore();
  }
}

bool Memories::ExpectSame(Memory memory, const uint8_t* now, size_t from,
                          size_t to) {
  const uint8_t* const before = baseline_.At(side_.leads, {memory, 0});
  if (std::memcmp(now + from, before + from, to - from) == 0) {
    return true;
  }
  // Counted from the region's first byte on.
  const ptrdiff_t where =
      std::mismatch(now + from, now + to, before + from).first - now -
      static_cast<ptrdiff_t>(kBegin);
  findings_.Expect(false, What(memory), " byte ", where, " has changed");
  return false;
}

// Compares all of a memory; false if it is not as it was.
bool Memories::CheckArea(Memory memory, std::optional<size_t> offset,
                         const std::vector<uint8_t>& placing, Placed placed) {
  const uint8_t* const before = baseline_.At(side_.leads, {memory, 0});
  const uint8_t* now =
      memory == Memory::kDmaBuf ? regions_.dma_buf() : regions_.host();
  if (memory == Memory::kDeviceMemory) {
    copy_.resize(kArea);
    CheckErrno(
        ibv_memcpy_from_dm(copy_.data(), regions_.device_memory(), 0, kArea),
        "ibv_memcpy_from_dm");
    now = copy_.data();
  }
  if (!offset) {
    return ExpectSame(memory, now, 0, kArea);
  }
  // Of what is perhaps placed, only what is within the region.
  const size_t begin = std::min(*offset, kArea);
  const size_t end = std::min(begin + placing.size(), kArea);
  const size_t low = placed == Placed::kPerhaps && begin < kPartner
                         ? std::clamp(begin, kBegin, kBegin + kRegion)
                         : begin;
  const size_t high = placed == Placed::kPerhaps && begin < kPartner
                          ? std::clamp(end, kBegin, kBegin + kRegion)
                          : end;
  ExpectSame(memory, now, 0, low);
  ExpectSame(memory, now, high, kArea);
  for (size_t i = low; i < high; ++i) {
    const bool good = now[i] == placing[i - begin] ||
                      (placed == Placed::kPerhaps && now[i] == before[i]);
    if (!good) {
      findings_.Expect(false, What(memory), " byte ", i, " is wrong");
      break;
    }
  }
  return false;
}

bool Memories::Exists(Memory memory) const {
  return memory == Memory::kDeviceMemory ? regions_.device_memory() != nullptr
         : memory == Memory::kDmaBuf     ? regions_.dma_buf() != nullptr
                                         : true;
}

void Memories::Restore() {
  std::memcpy(regions_.host(), baseline_.At(side_.leads, {Memory::kHost, 0}),
              kArea);
  if (Exists(Memory::kDmaBuf)) {
    std::memcpy(regions_.dma_buf(),
                baseline_.At(side_.leads, {Memory::kDmaBuf, 0}), kArea);
  }
  if (Exists(Memory::kDeviceMemory)) {
    CheckErrno(
        ibv_memcpy_to_dm(regions_.device_memory(), 0,
                         baseline_.At(side_.leads, {Memory::kDeviceMemory, 0}),
                         kArea),
        "ibv_memcpy_to_dm");
  }
}

}  // namespace ropcie::keys
