// SPDX-License-Identifier: GPL-2.0
// What node 1 (port 0) of an emulated NTB (docs/ntb-emulation.md) can reach of
// the others: the shared memory, where docs/protocol.md's windows and words lie
// in it, and their doorbells. Needs root, and a kernel with iomem=relaxed and
// nopat.
#ifndef ROPCIE_TESTS_PROGRAMS_HOSTILE_WINDOW_H_
#define ROPCIE_TESTS_PROGRAMS_HOSTILE_WINDOW_H_

#include <cstddef>
#include <cstdint>

namespace ropcie {

constexpr size_t kSlot = 64;
constexpr size_t kLaneControl = 128;  // in the control page, for each lane
constexpr size_t kWantSpace = 68;     // the last word of it
constexpr size_t kIdentity = 1024;    // in the control page: MAC, then GUID
constexpr size_t kLayout = 8;         // of node 1's header: what it is made for
constexpr size_t kWords = 7;          // of a handshake
constexpr size_t kGeometryWord = 3;
constexpr size_t kCheckWord = 5;
constexpr size_t kMessages = 4;  // message registers, where an NTB has them

// A BAR of the only ivshmem device.
class Bar {
 public:
  explicit Bar(int number);

  [[nodiscard]] size_t size() const { return size_; }
  template <typename Word>
  [[nodiscard]] Word Read(size_t offset) const {
    return *reinterpret_cast<volatile Word*>(begin_ + offset);
  }
  template <typename Word>
  void Write(size_t offset, Word value) const {
    *reinterpret_cast<volatile Word*>(begin_ + offset) = value;
  }

 private:
  size_t size_ = 0;
  uint8_t* begin_ = nullptr;
};

struct Range {
  size_t begin;
  size_t length;
};

// One of the others, as node 1 may reach it.
struct Victim {
  uint32_t id;       // of its ivshmem device
  uint32_t vectors;  // that this has
  Range window;      // all of it
  Range control;     // control page, what is in use of it
  size_t lanes;
  size_t lane;     // bytes of each
  size_t slots;    // of each
  Range words;     // of the handshake, as node 1 tells them
  size_t told;     // the words that it has told node 1
  size_t mac;      // that it has told node 1
  size_t read;     // how far it has read its lanes, of the first
  Range pair;      // epochs, doorbells and messages, as node 1 tells them
  size_t sent;     // numbers of its messages, of the first register ...
  size_t message;  // ... the messages ...
  size_t taken;    // ... and the numbers of those that were read
  size_t rung;     // doorbells that node 1 has rung ...
  size_t cleared;  // ... and that it has heard

  [[nodiscard]] Range SlotsOf(size_t index) const {
    return {window.begin + 4096 + index * lane, slots * kSlot};
  }
};

class HostileNtb {
 public:
  HostileNtb();

  [[nodiscard]] const Bar& memory() const { return memory_; }
  // That of a port, from 1 on, without what it says of its lanes.
  [[nodiscard]] Victim Find(size_t port, size_t ports) const;
  // Adds that, where there are scratchpads; throws if the port is not linked
  // within so long.
  void AwaitLanes(Victim* victim, int timeout_s) const;
  // Makes all doorbell bits pending, and interrupts with a vector.
  void Ring(const Victim& victim, uint32_t vector) const;

 private:
  Bar registers_;
  Bar memory_;
};

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_HOSTILE_WINDOW_H_
