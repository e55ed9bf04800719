// SPDX-License-Identifier: GPL-2.0
#include "hostile_window.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>

#include "failure.h"

namespace ropcie {
namespace {

constexpr size_t kHeader = 8192;  // of a port
constexpr size_t kMwSize = 16;    // in the header
constexpr size_t kIvpos = 24;
constexpr size_t kVectors = 28;
constexpr size_t kScratchpads = 192;
constexpr size_t kPairs = 4096;  // what it tells each port
constexpr size_t kPair = 256;
constexpr size_t kRung = 64;  // in it
constexpr size_t kSent = 72;
constexpr size_t kMessage = 88;
constexpr size_t kCleared = 128;
constexpr size_t kTaken = 136;
constexpr size_t kControl = 2048;  // bytes in use of the control page
constexpr size_t kLanes = 4096;    // offset of the first lane
constexpr size_t kMostLanes = 8;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kIdRegister = 8;
constexpr size_t kDoorbell = 12;
constexpr uint64_t kAllBits = ~uint64_t{0};

}  // namespace

Bar::Bar(int number) {
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

HostileNtb::HostileNtb() : registers_(0), memory_(2) {
  Check(registers_.Read<uint32_t>(kIdRegister) != ~uint32_t{0},
        "the ivshmem device has no ID");
}

Victim HostileNtb::Find(size_t port, size_t ports) const {
  const auto mw_size = memory_.Read<uint64_t>(kMwSize);
  const size_t align = mw_size >= 4 * kHugePage ? kHugePage : 4096;
  const size_t windows = (ports * kHeader + align - 1) / align * align;
  const size_t header = port * kHeader;
  Victim victim{};
  victim.id = memory_.Read<uint32_t>(header + kIvpos);
  victim.vectors = memory_.Read<uint32_t>(header + kVectors);
  victim.window = {windows + port * (ports - 1) * mw_size, mw_size};
  Check(victim.window.begin + mw_size <= memory_.size(),
        "the windows are larger than the shared memory");
  victim.control = {victim.window.begin, kControl};
  // Port 0 is everybody's first peer, and they are its peers in order.
  victim.words = {header + kScratchpads, 4 * kWords};
  victim.told = kScratchpads + 4 * (port - 1) * kWords;
  victim.read = windows + (port - 1) * mw_size;
  victim.mac = victim.read + kIdentity;
  victim.pair = {kPairs + kPair * port, kPair};
  victim.rung = victim.pair.begin + kRung;
  victim.sent = victim.pair.begin + kSent;
  victim.message = victim.pair.begin + kMessage;
  victim.cleared = header + kPairs + kCleared;
  victim.taken = header + kPairs + kTaken;
  return victim;
}

void HostileNtb::AwaitLanes(Victim* victim, int timeout_s) const {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(timeout_s);
  uint32_t geometry = 0;
  while ((geometry = memory_.Read<uint32_t>(victim->told + 12)) == 0) {
    Check(std::chrono::steady_clock::now() < end, "device ", victim->id,
          " is not linked");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  victim->lanes = geometry >> 24;
  victim->slots = size_t{1} << (geometry >> 16 & 31);
  victim->lane = victim->slots * kSlot + (size_t{1} << (geometry >> 8 & 31));
  Check(victim->lanes != 0 && victim->lanes <= kMostLanes &&
            kLanes + victim->lanes * victim->lane <= victim->window.length,
        "device ", victim->id, " offers lanes that can not be");
}

void HostileNtb::Ring(const Victim& victim, uint32_t vector) const {
  memory_.Write(victim.rung, memory_.Read<uint64_t>(victim.cleared) ^ kAllBits);
  registers_.Write(kDoorbell, victim.id << 16 | vector);
}

}  // namespace ropcie
