// SPDX-License-Identifier: GPL-2.0
#include "pattern.h"

#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include "failure.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr uint8_t kGuardByte = 0xa5;
constexpr size_t kPage = 4096;
constexpr size_t kLine = 64;

size_t RoundUp(size_t value, size_t to) { return (value + to - 1) / to * to; }

}  // namespace

Pattern::Pattern(uint64_t seed, size_t longest)
    : bytes_(RoundUp(longest + kPhases, sizeof(uint64_t))) {
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < bytes_.size(); i += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(&bytes_[i], &word, sizeof(word));
  }
}

const uint8_t* Pattern::Bytes(uint64_t number, size_t from) const {
  // An odd factor visits every phase before it comes to one again.
  return &bytes_[(number * 1237) % kPhases + from];
}

Arena::Arena(const Device& device, size_t size, int access)
    : memory_(static_cast<uint8_t*>(mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
      size_(size) {
  CheckErrno(memory_ == MAP_FAILED ? errno : 0, "mmap of ", size, " bytes");
  std::memset(memory_, kGuardByte, size_);
  mr_ = RegisterMr(device, memory_, size, access);
}

Arena::~Arena() {
  mr_.reset();
  munmap(memory_, size_);
}

void Arena::Clear() {
  std::memset(memory_, kGuardByte, std::min(used_ + kPage, size_));
  used_ = 0;
  pieces_.clear();
}

Piece Arena::Take(size_t length, size_t misaligned, bool crossing) {
  size_t start = RoundUp(used_ + kGuard, kLine);
  if (crossing) {
    start = RoundUp(start + kLine, kPage) - kLine;
  }
  const Piece piece{start + misaligned, length};
  used_ = piece.offset + length;
  Check(used_ + kGuard <= size_, "the test's arena is too small");
  pieces_.push_back(piece);
  return piece;
}

void Arena::CheckGuard(size_t from, size_t to, const std::string& what) const {
  for (size_t i = from; i < to; ++i) {
    if (memory_[i] != kGuardByte) {
      throw Failure(Text(what, ": byte ", i - from + 1, " of the ", to - from,
                         " guards behind a buffer was overwritten with ",
                         int{memory_[i]}));
    }
  }
}

void Arena::CheckGuards(const std::string& what) const {
  size_t from = 0;
  for (const Piece& piece : pieces_) {
    CheckGuard(from, piece.offset, what);
    from = piece.offset + piece.length;
  }
  CheckGuard(from, std::min(from + kPage, size_), what);
}

ibv_sge Arena::Sge(const Piece& piece) const {
  return {reinterpret_cast<uintptr_t>(memory_ + piece.offset),
          static_cast<uint32_t>(piece.length), mr_->lkey};
}

size_t Arena::left() const { return size_ - std::min(size_, used_); }

}  // namespace ropcie
