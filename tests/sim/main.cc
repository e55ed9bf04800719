// SPDX-License-Identifier: GPL-2.0
// ropcie_sim: runs simulations by seed, and replays those that fail.
#include <malloc.h>

#include <charconv>
#include <cstdint>
#include <exception>
#include <iostream>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "watch.h"
#include "world.h"

namespace ropcie::sim {
namespace {

constexpr std::string_view kUsage =
    "usage: ropcie_sim [--seed N | --seeds FROM:TO] [--trace] [--limit SECONDS]"
    " [--break FAULT]\n"
    "  --seed N          run one seed\n"
    "  --seeds FROM:TO   run the seeds from FROM to TO - 1 (default 0:1000)\n"
    "  --trace           print each event\n"
    "  --limit SECONDS   processor time that a seed may take (default 120)\n"
    "  --break FAULT     break the driver layer on purpose; the run must "
    "fail\n";

struct Arguments {
  uint64_t from = 0;
  uint64_t to = 1000;
  uint64_t limit = kSeedSeconds;
  bool trace = false;
  Fault fault = Fault::kNone;
  std::string fault_name;
};

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
  std::vector<FaultName> all(std::begin(kFaults), std::end(kFaults));
  all.insert(all.end(), std::begin(kFatalFaults), std::end(kFatalFaults));
  for (const FaultName& each : all) {
    if (each.name == text) {
      arguments->fault = each.fault;
      arguments->fault_name = each.name;
      return true;
    }
  }
  std::cerr << "no such fault; there are:";
  for (const FaultName& each : all) {
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
      if (!ParseNumber(value, &arguments->from) ||
          arguments->from == std::numeric_limits<uint64_t>::max()) {
        return false;
      }
      arguments->to = arguments->from + 1;
    } else if (words[i - 1] == "--seeds") {
      if (!ParseSeeds(value, arguments)) {
        return false;
      }
    } else if (words[i - 1] == "--limit") {
      if (!ParseNumber(value, &arguments->limit) || arguments->limit == 0) {
        return false;
      }
    } else if (words[i - 1] != "--break" || !ParseFault(value, arguments)) {
      return false;
    }
  }
  return true;
}

// The end of what happened in a run that breaks a rule, which is run again.
void PrintTrace(Options run) {
  constexpr size_t kLines = 60;
  run.trace = true;
  std::ostringstream trace;
  std::streambuf* const output = std::cout.rdbuf(trace.rdbuf());
  try {
    World world(run);
    world.Run();
  } catch (const Violation&) {
  }
  std::cout.rdbuf(output);
  const std::string text = trace.str();
  size_t begin = text.size();
  for (size_t lines = 0; begin > 0 && lines < kLines; lines++) {
    begin = begin == 1 ? 0 : text.rfind('\n', begin - 2) + 1;
  }
  const std::string_view all = text;
  std::cout << all.substr(begin);
}

int RunSeeds(const Arguments& arguments) {
  Coverage sum;
  for (uint64_t seed = arguments.from; seed < arguments.to; seed++) {
    WatchSeed(seed, arguments.limit, arguments.fault_name.c_str());
    const Options options = {
        .seed = seed, .trace = arguments.trace, .fault = arguments.fault};
    World world(options);
    try {
      world.Run();
    } catch (const Violation& violation) {
      // Whatever becomes of the trace, why is said, and before it.
      std::cout << "seed " << seed << ": " << violation.what() << '\n'
                << std::flush;
      if (!arguments.trace) {
        WatchSeed(seed, arguments.limit, arguments.fault_name.c_str());
        PrintTrace(options);
      }
      std::cout << Replay();
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
            << sum.restarts << " restarts, " << sum.forgeries << " forgeries\n"
            << std::flush;
  return std::cout ? 0 : 2;
}

}  // namespace
}  // namespace ropcie::sim

int main(int argc, char** argv) {
  using ropcie::sim::Arguments;
  Arguments arguments;
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  if (words == std::vector<std::string_view>{"--help"}) {
    std::cout << ropcie::sim::kUsage;
    return 0;
  }
  if (!ropcie::sim::Parse(words, &arguments)) {
    std::cerr << ropcie::sim::kUsage;
    return 2;
  }
  ropcie::sim::BeginWatch();
  // The memory of one world is for the next: the system's pages cost more than
  // all that happens in them.
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_THRESHOLD, 1 << 25);
  try {
    return ropcie::sim::RunSeeds(arguments);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
