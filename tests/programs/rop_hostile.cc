// SPDX-License-Identifier: GPL-2.0
// A hostile peer: node 1 writes what it likes where its NTB lets it, which is
// its window at each other node, the words that it tells them, and their
// doorbells, until it is killed. --stage says what:
//   any     some of it is noise; most looks almost like what a good peer writes
//   flood   breaks the protocol as soon as there is a link, again and again
//   storm   only rings, as fast as it can
//   words   tells them words of a handshake, where these travel in message
//           registers
// What it does is decided by the seed, and by what it finds. It ends when it
// has been given a secret (secret.h), and says when it sees what is public.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "failure.h"
#include "hostile_forge.h"
#include "hostile_window.h"
#include "options.h"
#include "secret.h"

namespace ropcie {
namespace {

void PauseUs(size_t us) {
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}

class Hostile {
 public:
  explicit Hostile(const Options& options)
      : memory_(ntb_.memory()),
        seed_(options.seed),
        timeout_s_(options.timeout_s) {
    const auto ports = static_cast<size_t>(options.nodes);
    for (size_t port = 1; port < ports; ++port) {
      victims_.push_back(ntb_.Find(port, ports));
      if (options.stage != "words") {
        ntb_.AwaitLanes(&victims_.back(), options.timeout_s);
      }
    }
  }

  // What each turn does depends on its number, not on how many numbers those
  // before it took.
  [[noreturn]] void Any() {
    constexpr size_t kBurst = 4;
    constexpr size_t kMostPauseUs = 3000;
    constexpr uint64_t kTurns = 512;  // of one kind
    for (uint64_t turn = 0;; ++turn) {
      if (turn % kTurns == 0) {
        LookForSecrets();
      }
      std::seed_seq numbers{seed_, turn};
      std::seed_seq of_many{seed_, turn / kTurns, uint64_t{1}};
      random_.seed(of_many);
      const size_t kind = Below(&random_, 4);
      random_.seed(numbers);
      const Victim& victim = victims_[Below(&random_, victims_.size())];
      const size_t pause = Below(&random_, kMostPauseUs);
      for (size_t n = Below(&random_, kBurst) + 1; n != 0; --n) {
        Attack(victim, kind);
      }
      PauseUs(pause);
    }
  }

  [[noreturn]] void Flood() {
    constexpr size_t kPauseUs = 1000;
    random_.seed(seed_);
    Disguise();
    for (;;) {
      for (const Victim& victim : victims_) {
        ForgeMalformed(memory_, victim, &random_);
        Word(victim.window);
        if (OneIn(&random_, 8)) {
          Identity(victim);
        }
        Ring(victim);
      }
      PauseUs(kPauseUs);
    }
  }

  // As another kind of NTB, and as itself again, again and again.
  void Disguise() {
    constexpr int kTimes = 500;
    constexpr size_t kPauseUs = 1000;
    const auto layout = memory_.Read<uint64_t>(kLayout);
    for (int i = 1; i <= 2 * kTimes; ++i) {
      memory_.Write(kLayout, layout ^ (i % 2 != 0 ? 1 : 0));
      for (const Victim& victim : victims_) {
        ntb_.Ring(victim, 0);
      }
      PauseUs(kPauseUs);
    }
  }

  [[noreturn]] void Storm() {
    for (;;) {
      for (const Victim& victim : victims_) {
        for (uint32_t vector = 0; vector < victim.vectors; ++vector) {
          ntb_.Ring(victim, vector);
        }
      }
    }
  }

  // Half a word in each message, as docs/protocol.md has it.
  [[noreturn]] void Words() {
    constexpr size_t kMostPauseUs = 3000;
    random_.seed(seed_);
    for (uint64_t turn = 0;; ++turn) {
      const Victim& victim = victims_[Below(&random_, victims_.size())];
      if (turn % kSilentTurns == 0) {
        Silence(victim);
      }
      if (turn == kManyWords) {
        AwaitEars();
        std::cout << "told many words\n" << std::flush;
      }
      const auto any = static_cast<uint32_t>(random_());
      switch (Below(&random_, 5)) {
        case 0:
          Message(victim, any);
          break;
        case 1:
          Message(victim, kMessageCheck | any >> 4);
          break;
        case 2:  // this node's last one, a little changed
          Message(victim,
                  Changed(memory_.Read<uint32_t>(victim.message), &random_));
          break;
        case 3:  // in the midst of what is there
          Word(victim.pair);
          Ring(victim);
          break;
        default:
          Handshake(victim);
      }
      PauseUs(Below(&random_, kMostPauseUs));
    }
  }

 private:
  static constexpr uint32_t kMessageCheck = 0xa0000000;
  static constexpr uint64_t kManyWords = 1000;
  static constexpr uint64_t kSilentTurns = 4;
  static constexpr size_t kLastRegister = 4 * (kMessages - 1);

  // A register is full and no event tells, nor of others that fill then.
  void Silence(const Victim& victim) const {
    const size_t last = victim.taken + kLastRegister;
    memory_.Write(last, memory_.Read<uint32_t>(last) + 1);
  }

  [[nodiscard]] bool HasTaken(const Victim& victim) const {
    return memory_.Read<uint32_t>(victim.taken + kLastRegister) ==
           memory_.Read<uint32_t>(victim.sent + kLastRegister);
  }

  // Each victim takes in the end what no event tells of.
  void AwaitEars() const {
    for (const Victim& victim : victims_) {
      AwaitTaken(victim);
      Silence(victim);
      AwaitTaken(victim);
    }
  }

  void AwaitTaken(const Victim& victim) const {
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::seconds(timeout_s_);
    while (!HasTaken(victim)) {
      Check(std::chrono::steady_clock::now() < end, "device ", victim.id,
            " does not look for messages of which no event tells");
      PauseUs(1000);
    }
  }

  // Gives the victim some time to read what is there.
  void Message(const Victim& victim, uint32_t message) {
    constexpr int kTries = 40;
    const size_t at = 4 * (OneIn(&random_, 8) ? Below(&random_, kMessages) : 0);
    const auto sent = memory_.Read<uint32_t>(victim.sent + at);
    for (int i = 0;
         i < kTries && memory_.Read<uint32_t>(victim.taken + at) != sent; ++i) {
      PauseUs(50);
    }
    memory_.Write(victim.message + at, message);
    memory_.Write(victim.sent + at, sent + 1);
    Ring(victim);
  }

  // All words, whose check is right.
  void Handshake(const Victim& victim) {
    std::array<uint32_t, kWords> words{};
    for (uint32_t& word : words) {
      word = static_cast<uint32_t>(random_());
    }
    words.front() = 0x52500000U | static_cast<uint32_t>(Below(&random_, 8));
    words.at(kGeometryWord) =
        static_cast<uint32_t>(Below(&random_, 4)) << 24 | 0x0a1100;
    words.at(kCheckWord) = CheckOf(words);
    for (size_t i = kWords; i-- > 0;) {
      const uint32_t word = kMessageCheck | static_cast<uint32_t>(i) << 24;
      Message(victim, word | (words.at(i) & 0xffff));
      Message(victim, word | 1U << 23 | words.at(i) >> 16);
    }
  }

  static uint32_t CheckOf(const std::array<uint32_t, kWords>& words) {
    uint32_t sum = 0x811c9dc5;
    for (size_t i = 0; i < kCheckWord; ++i) {
      sum = (sum ^ words.at(i)) * 0x85ebca6b;
      sum = (sum ^ (sum >> 15)) * 0xc2b2ae35;
      sum ^= sum >> 13;
    }
    return sum;
  }

  // Answers to what was forged lie where the others may write.
  void LookForSecrets() {
    uint64_t last = 0;
    bool sees = false;
    for (size_t at = 0; at < memory_.size(); at += sizeof(uint64_t)) {
      const auto word = memory_.Read<uint64_t>(at);
      Check(word != kSecretWord || last != kSecretWord, "a secret lies at ", at,
            " of the shared memory");
      sees |= word == kPublicWord && last == kPublicWord && !IsVictims(at);
      last = word;
    }
    if (sees && !sees_) {
      sees_ = true;
      std::cout << "sees what is public\n" << std::flush;
    }
  }

  // Has this node written there itself?
  [[nodiscard]] bool IsVictims(size_t at) const {
    return std::any_of(victims_.begin(), victims_.end(),
                       [at](const Victim& victim) {
                         return at - victim.window.begin < victim.window.length;
                       });
  }

  size_t Aligned(const Range& range, size_t align) {
    return range.begin + Below(&random_, range.length / align) * align;
  }

  Range AnySlots(const Victim& victim) {
    return victim.SlotsOf(Below(&random_, victim.lanes));
  }

  // What is only indices, or only records, is not noticed as soon as all is.
  void Attack(const Victim& victim, size_t kind) {
    if (kind == 0) {
      Index(victim);
    } else if (kind == 1) {
      Forge(memory_, victim, &random_);
    } else {
      Anything(victim);
    }
    if (OneIn(&random_, 3)) {
      Ring(victim);
    }
  }

  void Anything(const Victim& victim) {
    switch (Below(&random_, 20)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
      case 5:
      case 6:
      case 7:
        Forge(memory_, victim, &random_);
        break;
      case 8:
        Word(victim.control);
        break;
      case 9:
        Index(victim);
        break;
      case 10:
        Word(AnySlots(victim));
        break;
      case 11:
      case 12:
        Word(victim.window);
        break;
      case 13:
        Noise(OneIn(&random_, 8) ? victim.control : AnySlots(victim));
        break;
      case 14:
        Noise(victim.window);
        break;
      case 15:
        Identity(victim);
        break;
      case 16:
        // Each of these ends the link, so they are rare.
        if (OneIn(&random_, 20)) {
          EndLink(victim);
        }
        break;
      default:
        break;
    }
  }

  void EndLink(const Victim& victim) {
    switch (Below(&random_, 3)) {
      case 0:
        Word(victim.words);
        break;
      case 1:
        Word(victim.pair);
        break;
      default:
        Shake(victim);
    }
  }

  void Ring(const Victim& victim) {
    ntb_.Ring(victim,
              static_cast<uint32_t>(Below(&random_, victim.vectors + 1)));
  }

  void Word(const Range& range) {
    const size_t at = Aligned(range, 4);
    memory_.Write(at, Changed(memory_.Read<uint32_t>(at), &random_));
  }

  void Noise(const Range& range) {
    constexpr size_t kMost = 1024;
    const size_t at = Aligned(range, 8);
    const size_t end = range.begin + range.length;
    const size_t length = (Below(&random_, kMost) + 1) * 8;
    for (size_t i = at; i < end && i < at + length; i += 8) {
      memory_.Write<uint64_t>(i, random_());
    }
  }

  // How far it has read, or that it sleeps or waits: of a lane in use.
  void Index(const Victim& victim) {
    const size_t entry =
        victim.control.begin + kLaneControl * Below(&random_, victim.lanes);
    const size_t at =
        entry + std::array<size_t, 3>{0, kWantSpace - 4, kWantSpace}.at(
                    Below(&random_, 3));
    const auto word = memory_.Read<uint32_t>(at);
    const auto slots = static_cast<uint32_t>(victim.slots);
    const std::array<uint32_t, 8> values = {word + 1,
                                            word - 1,
                                            word + slots - 1,
                                            word + slots,
                                            word + slots + 1,
                                            word + (uint32_t{1} << 31),
                                            0,
                                            ~uint32_t{0}};
    memory_.Write(at, values.at(Below(&random_, values.size())));
  }

  // It is none, or another's, or not that of the last life.
  void Identity(const Victim& victim) {
    const Victim& other = victims_[Below(&random_, victims_.size())];
    const std::array<uint64_t, 5> values = {0, 1, random_() & 0xfffffffffffe,
                                            memory_.Read<uint64_t>(other.mac),
                                            random_()};
    memory_.Write(victim.control.begin + kIdentity,
                  values.at(Below(&random_, values.size())));
  }

  // Words of a handshake that fit each other.
  void Shake(const Victim& victim) {
    std::array<uint32_t, kWords> words{};
    for (size_t i = 0; i < kWords; ++i) {
      words.at(i) = memory_.Read<uint32_t>(victim.words.begin + 4 * i);
    }
    uint32_t& word = words.at(1 + Below(&random_, kCheckWord - 1));
    word = OneIn(&random_, 4) ? memory_.Read<uint32_t>(victim.told + 4)
                              : Changed(word, &random_);
    words.at(kCheckWord) = CheckOf(words);
    for (size_t i = kWords; i-- > 0;) {
      memory_.Write(victim.words.begin + 4 * i, words.at(i));
    }
    Ring(victim);
  }

  HostileNtb ntb_;
  const Bar& memory_;
  uint64_t seed_;
  int timeout_s_;
  Random random_;
  std::vector<Victim> victims_;
  bool sees_ = false;
};

void Run(const Options& options) {
  Hostile hostile(options);
  const std::string& stage = options.stage;
  Check(stage.empty() || stage == "any" || stage == "flood" ||
            stage == "storm" || stage == "words",
        "there is no --stage ", stage);
  std::cout << "hostile: " << (stage.empty() ? "any" : stage) << ", seed "
            << options.seed << "\n"
            << std::flush;
  if (stage == "flood") {
    hostile.Flood();
  }
  if (stage == "storm") {
    hostile.Storm();
  }
  if (stage == "words") {
    hostile.Words();
  }
  hostile.Any();
}

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  const ropcie::Options options = ropcie::ParseOptions(
      argc, argv, "node 1 writes what it likes to the others, until killed");
  try {
    ropcie::Run(options);
  } catch (const std::exception& error) {
    std::cerr << options.program << ": " << error.what() << "\n";
  }
  return 1;
}
