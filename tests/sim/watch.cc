// SPDX-License-Identifier: GPL-2.0
#include "watch.h"

#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace ropcie::sim {
namespace {

// A broken invariant of the engines aborts.
constexpr std::array<int, 5> kCrashes = {SIGABRT, SIGBUS, SIGFPE, SIGILL,
                                         SIGSEGV};

char g_seed[48];
char g_replay[128];
// Whose they were before: a sanitizer has more to say of them.
std::array<struct sigaction, kCrashes.size()> g_before;
// A stack that has no room left is a crash too.
std::array<char, 65536> g_stack;

void Say(const char* text) {
  const ssize_t ret = write(STDERR_FILENO, text, strlen(text));
  static_cast<void>(ret);
}

void SayReplay() {
  Say(g_seed);
  Say(g_replay);
  g_seed[0] = g_replay[0] = '\0';  // once is enough
}

}  // namespace

extern "C" {

// What sanitizers find aborts, too.
const char* __asan_default_options() { return "abort_on_error=1"; }
const char* __ubsan_default_options() { return "abort_on_error=1"; }

static void OnCrash(int signal, siginfo_t* info, void* /*context*/) {
  SayReplay();
  for (size_t i = 0; i < kCrashes.size(); i++) {
    sigaction(kCrashes[i], &g_before[i], nullptr);
  }
  // What the processor has found happens again.
  if (info->si_code <= 0) {
    static_cast<void>(raise(signal));
  }
}

static void OnHang(int /*signal*/) {
  Say("it hangs\n");
  SayReplay();
  _exit(1);
}
}

void BeginWatch() {
  const stack_t stack = {
      .ss_sp = g_stack.data(), .ss_flags = 0, .ss_size = g_stack.size()};
  sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  action.sa_sigaction = OnCrash;
  for (size_t i = 0; i < kCrashes.size(); i++) {
    sigaction(kCrashes[i], &action, &g_before[i]);
  }
  action.sa_flags = SA_ONSTACK;
  action.sa_handler = OnHang;
  sigaction(SIGPROF, &action, nullptr);
}

void WatchSeed(uint64_t seed, uint64_t seconds, const char* fault) {
  const auto number = static_cast<unsigned long long>(seed);
  snprintf(g_seed, sizeof(g_seed), "seed %llu does not end well\n", number);
  snprintf(g_replay, sizeof(g_replay),
           "replay: ropcie_sim --seed %llu --trace%s%s\n", number,
           *fault == '\0' ? "" : " --break ", fault);
  itimerval limit{};
  limit.it_value.tv_sec = static_cast<time_t>(seconds);
  setitimer(ITIMER_PROF, &limit, nullptr);
}

const char* Replay() { return g_replay; }

}  // namespace ropcie::sim
