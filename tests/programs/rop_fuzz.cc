// SPDX-License-Identifier: GPL-2.0
// Hostile processes: random verbs with random arguments from several threads,
// calls that are changed on their way into the kernel, queues that are written
// over while they are in use, memory that goes, files that are closed and
// processes that die in mid-call. Nothing is expected of a call but that it
// ends, and of a process but that it can be killed; the rest is the kernel
// log's, and that of the checks of what comes back (fuzz_hook.h).
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "failure.h"
#include "fuzz_hook.h"
#include "fuzz_worker.h"
#include "mappings.h"
#include "options.h"

namespace ropcie {
namespace {

constexpr int kThreads = 2;
constexpr int kRoundsOfAll = 5;  // all that processes may do is done in so many
constexpr int kRounds = 100;

// What all the processes have done.
struct Counts {
  std::atomic<uint64_t> created;    // objects
  std::atomic<uint64_t> scribbled;  // words of queues
  std::atomic<uint64_t> searched;   // bytes of answers and queues
};

Counts& SharedCounts() {
  void* const memory = mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CheckErrno(memory == MAP_FAILED ? errno : 0, "mmap");
  return *new (memory) Counts{};
}

// Any part of a context's file, with any rights; or of a queue, elsewhere.
void MapAnything(int file, const std::vector<Mapping>& queues) {
  constexpr size_t kPage = 4096;
  if (!queues.empty() && OneIn(3)) {
    const Mapping& queue = queues[Below(queues.size())];
    (void)mremap(queue.begin, queue.length, kPage * (1 + Below(64)),
                 OneIn(2) ? MREMAP_MAYMOVE : 0);
    return;
  }
  const uint64_t page = OneIn(8) ? Random() : Below(64);
  const size_t length = kPage * (1 + Below(OneIn(8) ? 1 << 20 : 64));
  void* const memory =
      mmap(nullptr, length, static_cast<int>(Below(8)),
           (OneIn(2) ? MAP_SHARED : MAP_PRIVATE) | MAP_NORESERVE, file,
           static_cast<off_t>(page * kPage));
  if (memory == MAP_FAILED) {
    return;
  }
  // What may not be written to must not be there for Scribble().
  if (mprotect(memory, length, PROT_READ | PROT_WRITE) != 0 || OneIn(2)) {
    munmap(memory, length);
  }
}

// Writes over the queues, and looks what the kernel writes. They may go
// meanwhile, and this process with them.
[[noreturn]] void Scribble(int file, uint64_t seed, Counts& counts) {
  constexpr size_t kLook = 1 << 14;
  SeedRandom(seed);
  for (;;) {
    const std::vector<Mapping> queues = Mappings();
    for (size_t n = 0; n < 64 && !queues.empty(); ++n) {
      const Mapping& queue = queues[Below(queues.size())];
      // The words of a ring are at its beginning.
      const size_t reach = OneIn(2) ? 256 : queue.length;
      auto* const word = reinterpret_cast<volatile uint32_t*>(
          queue.begin + Below(reach / 4) * 4);
      *word = static_cast<uint32_t>(Changed(*word));
      ++counts.scribbled;
    }
    if (!queues.empty()) {
      const Mapping& queue = queues[Below(queues.size())];
      CheckMapping(queue.begin, std::min(queue.length, kLook));
    }
    if (OneIn(200) && !queues.empty()) {
      const Mapping& queue = queues[Below(queues.size())];
      munmap(queue.begin, queue.length);
    }
    if (OneIn(200) && !queues.empty()) {
      const Mapping& queue = queues[Below(queues.size())];
      (void)madvise(queue.begin, queue.length, MADV_REMOVE);
    }
    if (OneIn(20)) {
      MapAnything(file, queues);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(Below(2000)));
  }
}

// How many times as slow as usual this machine may be: whoever is patient with
// it lets processes live longer, too, or they do nothing.
int SlownessOf(const Options& options) {
  constexpr int kUsualPatience = 60;  // s
  return std::max(1, options.timeout_s / kUsualPatience);
}

ibv_context* Open(const std::string& device) {
  int num = 0;
  ibv_device** const list = ibv_get_device_list(&num);
  ibv_context* context = nullptr;
  for (int i = 0; i < num && context == nullptr; ++i) {
    if (device == ibv_get_device_name(list[i])) {
      context = ibv_open_device(list[i]);
    }
  }
  ibv_free_device_list(list);
  return context;
}

// A process, until it ends itself, in one way or another.
[[noreturn]] void Child(const Options& options, uint64_t seed, Counts& counts) {
  SeedRandom(seed);
  CountSearched(&counts.searched);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  setenv("ROPCIE_MAPPED_QUEUES", OneIn(3) ? "0" : "1", 1);
  ibv_context* context = Open(options.device);
  while (context == nullptr && options.loses_device) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    context = Open(options.device);  // when it is back
  }
  void* const memory = mmap(nullptr, kFuzzMemory, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (context == nullptr || memory == MAP_FAILED) {
    std::cerr << "no device " << options.device << "\n";
    _exit(1);
  }
  // Some only use what verbs there are, some change calls, and some their
  // queues.
  ChangeOneCallIn(std::array<size_t, 3>{0, 100, 10}[Below(3)]);
  const bool scribbles = OneIn(2);
  const auto life =
      SlownessOf(options) * std::chrono::milliseconds(50 + Below(1500));
  for (int i = 0; i < kThreads; ++i) {
    std::thread([=, &counts] {
      FuzzForever(context, static_cast<uint8_t*>(memory), seed + 1 + i,
                  &counts.created);
    }).detach();
  }
  if (scribbles) {
    std::thread([file = context->cmd_fd, seed, &counts] {
      Scribble(file, seed, counts);
    }).detach();
  }
  std::this_thread::sleep_for(life);
  switch (Below(5)) {
    case 0:
      close(context->cmd_fd);
      std::this_thread::sleep_for(std::chrono::milliseconds(Below(100)));
      break;
    case 1:
      munmap(memory, kFuzzMemory / 2);
      std::this_thread::sleep_for(std::chrono::milliseconds(Below(100)));
      break;
    case 2:
      if (fork() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(Below(100)));
      }
      break;
    case 3:
      close(context->async_fd);
      std::this_thread::sleep_for(std::chrono::milliseconds(Below(100)));
      break;
    default:
      raise(SIGKILL);
  }
  _exit(0);
}

bool Ends(pid_t child, int timeout_s, int* status) {
  for (int left = timeout_s * 100; left > 0; --left) {
    if (waitpid(child, status, WNOHANG) == child) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

void Run(const Options& options) {
  const int life = 10 * SlownessOf(options);  // s; more than it gives itself
  const int rounds = options.rounds != 0 ? options.rounds : kRounds;
  Counts& counts = SharedCounts();
  int killed = 0;
  for (int round = 0; round < rounds; ++round) {
    const uint64_t seed = options.seed * 1000000 + static_cast<uint64_t>(round);
    std::array<pid_t, 2> children{};
    for (pid_t& child : children) {
      child = fork();
      CheckErrno(child < 0 ? errno : 0, "fork");
      if (child == 0) {
        Child(options,
              seed * 10 + static_cast<uint64_t>(&child - children.data()),
              counts);
      }
    }
    for (const pid_t child : children) {
      int status = 0;
      if (!Ends(child, life, &status)) {
        kill(child, SIGKILL);
        Check(Ends(child, options.timeout_s, &status), "round ", round,
              ": process ", child, " can not be killed");
      }
      Check(!WIFEXITED(status) || WEXITSTATUS(status) == 0, "round ", round,
            WEXITSTATUS(status) == kLeak ? ": memory of the kernel came back"
                                         : ": a process gave up");
      killed += WIFSIGNALED(status) ? 1 : 0;
    }
  }
  std::cout << "fuzzed: " << 2 * rounds << " processes, " << killed
            << " of them killed, seed " << options.seed << "; "
            << counts.created << " objects were created, " << counts.scribbled
            << " words of queues changed, " << counts.searched
            << " bytes searched\n";
  Check(counts.created > 0 && counts.searched > 0,
        "the processes could do nothing");
  // Whether a process does is its seed's choice.
  Check(counts.scribbled > 0 || rounds < kRoundsOfAll,
        "no queue has been written over");
}

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  const ropcie::Options options =
      ropcie::ParseOptions(argc, argv, "hostile processes on one device");
  try {
    ropcie::Run(options);
  } catch (const std::exception& error) {
    std::cerr << options.program << ": " << error.what() << "\n";
    return 1;
  }
  return 0;
}
