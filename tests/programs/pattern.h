// SPDX-License-Identifier: GPL-2.0
// Memory whose contents are known: messages that both sides can compute from
// the seed, and an arena of registered memory in which every byte outside of
// the messages is a guard.
#ifndef ROPCIE_TESTS_PROGRAMS_PATTERN_H_
#define ROPCIE_TESTS_PROGRAMS_PATTERN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "verbs_util.h"

namespace ropcie {

// Bytes that depend on the seed and on the message's number, such that no two
// messages of a test begin alike.
class Pattern {
 public:
  Pattern(uint64_t seed, size_t longest);

  // `length` bytes of message `number`, from byte `from` of it.
  [[nodiscard]] const uint8_t* Bytes(uint64_t number, size_t from) const;

 private:
  static constexpr size_t kPhases = 4096;
  std::vector<uint8_t> bytes_;
};

// A piece of an arena.
struct Piece {
  size_t offset;
  size_t length;
};

class Arena {
 public:
  static constexpr size_t kGuard = 128;

  // Anonymous pages, registered with this access.
  Arena(const Device& device, size_t size, int access = IBV_ACCESS_LOCAL_WRITE);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena(Arena&&) = delete;
  Arena& operator=(const Arena&) = delete;
  Arena& operator=(Arena&&) = delete;

  // Forgets all pieces and makes the whole arena a guard again.
  void Clear();

  // Takes a piece that begins `misaligned` bytes after a multiple of 64, behind
  // all others and with a guard in between; at a page's end if `crossing`, so
  // that it goes on in the next.
  Piece Take(size_t length, size_t misaligned, bool crossing);

  // Throws if a byte between the pieces is not a guard any more. Pieces must
  // have been taken in order, which Take() does.
  void CheckGuards(const std::string& what) const;

  [[nodiscard]] uint8_t* At(size_t offset) const { return memory_ + offset; }
  [[nodiscard]] ibv_sge Sge(const Piece& piece) const;
  [[nodiscard]] size_t left() const;
  [[nodiscard]] const ibv_mr* mr() const { return mr_.get(); }

 private:
  void CheckGuard(size_t from, size_t to, const std::string& what) const;

  uint8_t* memory_;
  size_t size_;
  size_t used_ = 0;
  std::vector<Piece> pieces_;
  MrPtr mr_;
};

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_PATTERN_H_
