// SPDX-License-Identifier: GPL-2.0
// ropcie_sim: runs simulations by seed, and replays those that fail.
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "world.h"

namespace ropcie::sim {
namespace {

constexpr std::string_view kUsage =
    "usage: ropcie_sim [--seed N | --seeds FROM:TO] [--trace] [--break FAULT]\n"
    "  --seed N          run one seed\n"
    "  --seeds FROM:TO   run the seeds from FROM to TO - 1 (default 0:1000)\n"
    "  --trace           print each event\n"
    "  --break FAULT     break the driver layer on purpose; the run must "
    "fail\n";

struct Arguments {
  uint64_t from = 0;
  uint64_t to = 1000;
  bool trace = false;
  Fault fault = Fault::kNone;
};

// The seed under way, for a broken invariant of the engines, which aborts.
char g_replay[64];

extern "C" void OnAbort(int /*signal*/) {
  const ssize_t ret = write(STDERR_FILENO, g_replay, strlen(g_replay));
  static_cast<void>(ret);
}

bool ParseNumber(std::string_view text, uint64_t* value) {
  const char* end = text.data() + text.size();
  const auto [ptr, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && ptr == end;
}

bool ParseSeeds(std::string_view text, Arguments* arguments) {
  const size_t colon = text.find(':');
  return colon != std::string_view::npos &&
         ParseNumber(text.substr(0, colon), &arguments->from) &&
         ParseNumber(text.substr(colon + 1), &arguments->to) &&
         arguments->from < arguments->to;
}

bool ParseFault(std::string_view text, Arguments* arguments) {
  for (const FaultName& each : kFaults) {
    if (each.name == text) {
      arguments->fault = each.fault;
      return true;
    }
  }
  std::cerr << "no such fault; there are:";
  for (const FaultName& each : kFaults) {
    std::cerr << ' ' << each.name;
  }
  std::cerr << '\n';
  return false;
}

bool Parse(const std::vector<std::string_view>& words, Arguments* arguments) {
  for (size_t i = 0; i < words.size(); i++) {
    if (words[i] == "--trace") {
      arguments->trace = true;
      continue;
    }
    if (i + 1 == words.size()) {
      return false;
    }
    const std::string_view value = words[++i];
    if (words[i - 1] == "--seed") {
      if (!ParseNumber(value, &arguments->from)) {
        return false;
      }
      arguments->to = arguments->from + 1;
    } else if (words[i - 1] == "--seeds") {
      if (!ParseSeeds(value, arguments)) {
        return false;
      }
    } else if (words[i - 1] != "--break" || !ParseFault(value, arguments)) {
      return false;
    }
  }
  return true;
}

int RunSeeds(const Arguments& arguments) {
  Coverage sum;
  for (uint64_t seed = arguments.from; seed < arguments.to; seed++) {
    snprintf(g_replay, sizeof(g_replay),
             "replay: ropcie_sim --seed %llu --trace\n",
             static_cast<unsigned long long>(seed));
    World world(
        {.seed = seed, .trace = arguments.trace, .fault = arguments.fault});
    try {
      world.Run();
    } catch (const Violation& violation) {
      std::cout << "seed " << seed << ": " << violation.what() << '\n'
                << g_replay;
      return 1;
    }
    sum.events += world.coverage().events;
    sum.messages += world.coverage().messages;
    sum.placed += world.coverage().placed;
    sum.connections += world.coverage().connections;
    sum.link_cuts += world.coverage().link_cuts;
    sum.restarts += world.coverage().restarts;
    sum.forgeries += world.coverage().forgeries;
  }
  std::cout << arguments.to - arguments.from << " seeds hold: " << sum.events
            << " events, " << sum.connections << " connections, "
            << sum.messages << " messages, " << sum.placed
            << " records placed, " << sum.link_cuts << " link cuts, "
            << sum.restarts << " restarts, " << sum.forgeries << " forgeries\n";
  return 0;
}

}  // namespace
}  // namespace ropcie::sim

int main(int argc, char** argv) {
  using ropcie::sim::Arguments;
  Arguments arguments;
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  if (!ropcie::sim::Parse(words, &arguments)) {
    std::cerr << ropcie::sim::kUsage;
    return 2;
  }
  static_cast<void>(std::signal(SIGABRT, ropcie::sim::OnAbort));
  try {
    return ropcie::sim::RunSeeds(arguments);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
