// SPDX-License-Identifier: GPL-2.0
// A hostile peer: writes what it likes where its NTB lets it, which is its
// window at each other node, the words that it tells them, and their doorbells,
// until it is killed. Some of it is noise; most looks almost like what a good
// peer writes. Needs the emulated NTB (docs/ntb-emulation.md), root, and a
// kernel with iomem=relaxed and nopat. The memory of node 1 (port 0) at the
// others is docs/protocol.md's.
#include <fcntl.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "failure.h"
#include "options.h"

namespace ropcie {
namespace {

constexpr size_t kHeader = 8192;      // of a port
constexpr size_t kOwnWords = 128;     // magic, layout, ..., heartbeat
constexpr size_t kScratchpads = 192;  // in the header
constexpr size_t kPairs = 4096;       // in the header; what it tells each port
constexpr size_t kPair = 256;
constexpr size_t kWords = 7;       // of a handshake
constexpr size_t kControl = 2048;  // bytes in use of the control page
constexpr size_t kLanes = 4096;    // offset of the first lane
constexpr size_t kSlot = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kIdRegister = 8;
constexpr size_t kDoorbell = 12;

// A BAR of the only ivshmem device.
class Bar {
 public:
  explicit Bar(int number) {
    const std::string pattern =
        Text("/sys/bus/pci/drivers/ntb_hw_ivshmem/0000:*/resource", number);
    glob_t found{};
    const int missing = glob(pattern.c_str(), 0, nullptr, &found);
    const std::string path = missing == 0 ? found.gl_pathv[0] : pattern;
    globfree(&found);
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_SYNC);
    CheckErrno(file < 0 ? errno : 0, path);
    struct stat about {};
    CheckErrno(fstat(file, &about) != 0 ? errno : 0, path);
    size_ = static_cast<size_t>(about.st_size);
    void* const memory =
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CheckErrno(memory == MAP_FAILED ? errno : 0, "mmap of ", path,
               " (iomem=relaxed and nopat are needed)");
    close(file);
    begin_ = static_cast<uint8_t*>(memory);
  }

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

// One of the others, as this node may reach it.
struct Victim {
  uint32_t id;    // of its ivshmem device
  Range control;  // control page
  Range slots;    // of one lane
  Range window;   // all of it
  Range words;    // of the handshake
  size_t told;    // the words that it has told this node
  Range pair;     // epochs and doorbells of the emulated NTB
};

class Hostile {
 public:
  Hostile(uint64_t seed, size_t ports)
      : registers_(0), memory_(2), random_(seed), ports_(ports) {
    Check(registers_.Read<uint32_t>(kIdRegister) != ~uint32_t{0},
          "the ivshmem device has no ID");
    for (size_t port = 1; port < ports; ++port) {
      victims_.push_back(Find(port));
    }
  }

  [[noreturn]] void Run() {
    constexpr size_t kBurst = 4;
    constexpr size_t kPauseUs = 3000;
    for (;;) {
      const Victim& victim = victims_[Below(victims_.size())];
      for (size_t n = Below(kBurst) + 1; n != 0; --n) {
        Attack(victim);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(Below(kPauseUs)));
    }
  }

 private:
  size_t Below(size_t bound) { return random_() % bound; }
  uint32_t Near() { return 1 + static_cast<uint32_t>(Below(16)); }
  bool OneIn(size_t n) { return Below(n) == 0; }

  // The window that this node, port 0, has at another one.
  [[nodiscard]] Victim Find(size_t port) const {
    const auto mw_size = memory_.Read<uint64_t>(16);
    const size_t align = mw_size >= 4 * kHugePage ? kHugePage : 4096;
    const size_t windows = (ports_ * kHeader + align - 1) / align * align;
    const size_t header = port * kHeader;
    Victim victim{};
    victim.id = memory_.Read<uint32_t>(header + 24);
    victim.window = {windows + port * (ports_ - 1) * mw_size, mw_size};
    Check(victim.window.begin + mw_size <= memory_.size(),
          "the windows are larger than the shared memory");
    victim.control = {victim.window.begin, kControl};
    victim.words = {header + kScratchpads, 4 * kWords};
    victim.pair = {kPairs + kPair * port, kPair};
    // In port 0's scratchpads.
    victim.told = kScratchpads + 4 * (port - 1) * kWords;
    const auto geometry = memory_.Read<uint32_t>(victim.told + 12);
    const size_t slots = size_t{1} << (geometry >> 16 & 31);
    victim.slots = {victim.window.begin + kLanes, slots * kSlot};
    Check((geometry >> 24) != 0 && kLanes + slots * kSlot < mw_size, "node ",
          port + 1, " is not linked");
    return victim;
  }

  size_t Aligned(const Range& range, size_t align) {
    return range.begin + Below(range.length / align) * align;
  }

  void Attack(const Victim& victim) {
    switch (Below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
      case 5:
        Forge(victim);
        break;
      case 6:
      case 7:
        Word(victim.control);
        break;
      case 8:
        Word(victim.slots);
        break;
      case 9:
      case 10:
        Word(victim.window);
        break;
      case 11:
        Noise(OneIn(8) ? victim.control : victim.slots);
        break;
      case 12:
        Noise(victim.window);
        break;
      case 13:
        // Each of these ends the link, so they are rare.
        if (OneIn(20)) {
          Word(OneIn(2) ? victim.words : victim.pair);
        }
        break;
      default:
        break;
    }
    if (OneIn(3)) {
      registers_.Write(kDoorbell,
                       victim.id << 16 | static_cast<uint32_t>(Below(6)));
    }
  }

  // Something near what is there, or far from it.
  uint32_t Changed(uint32_t word) {
    switch (Below(6)) {
      case 0:
        return word ^ uint32_t { 1 } << Below(32);
      case 1:
        return word + Near();
      case 2:
        return word - Near();
      case 3:
        return OneIn(2) ? 0 : ~uint32_t{0};
      case 4:
        return uint32_t{1} << Below(32);
      default:
        return static_cast<uint32_t>(random_());
    }
  }

  void Word(const Range& range) {
    const size_t at = Aligned(range, 4);
    memory_.Write(at, Changed(memory_.Read<uint32_t>(at)));
  }

  void Noise(const Range& range) {
    constexpr size_t kMost = 1024;
    const size_t at = Aligned(range, 8);
    const size_t end = range.begin + range.length;
    const size_t length = (Below(kMost) + 1) * 8;
    for (size_t i = at; i < end && i < at + length; i += 8) {
      memory_.Write<uint64_t>(i, random_());
    }
  }

  // The next record of the first lane, taken from an earlier one, with a word
  // or two of it changed: it has the right position and epoch.
  void Forge(const Victim& victim) {
    constexpr size_t kWordsOfSlot = 14;  // but for the last 8 bytes
    const size_t slots = victim.slots.length / kSlot;
    std::vector<size_t> valid;
    uint64_t last = 0;
    const auto epoch = memory_.Read<uint32_t>(victim.told + 4);
    for (size_t n = 0; n < slots; ++n) {
      const size_t at = victim.slots.begin + n * kSlot;
      const auto word = memory_.Read<uint64_t>(at + kSlot - 8);
      if (word >> 32 == epoch) {
        valid.push_back(at);
        last = std::max(last, word);
      }
    }
    if (valid.empty()) {
      return;
    }
    const uint64_t next = last + 1;
    const size_t to =
        victim.slots.begin + ((next & ~uint32_t{0}) - 1) % slots * kSlot;
    const size_t from = valid[Below(valid.size())];
    for (size_t i = 0; i < kWordsOfSlot; ++i) {
      memory_.Write(to + 4 * i, memory_.Read<uint32_t>(from + 4 * i));
    }
    for (size_t n = Below(3); n != 0; --n) {
      const size_t at = to + 4 * Below(kWordsOfSlot);
      memory_.Write(at, Changed(memory_.Read<uint32_t>(at)));
    }
    memory_.Write(to + kSlot - 8, next);
  }

  Bar registers_;
  Bar memory_;
  std::mt19937_64 random_;
  size_t ports_;
  std::vector<Victim> victims_;
};

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  const ropcie::Options options = ropcie::ParseOptions(
      argc, argv, "node 1 writes what it likes to the others, until killed");
  try {
    ropcie::Hostile hostile(options.seed, static_cast<size_t>(options.nodes));
    std::cout << "hostile\n" << std::flush;
    hostile.Run();
  } catch (const std::exception& error) {
    std::cerr << options.program << ": " << error.what() << "\n";
  }
  return 1;
}
