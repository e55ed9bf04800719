// SPDX-License-Identifier: GPL-2.0
// What all parts of a simulation share: the seeded random numbers, simulated
// time, the trace, and the way to report that a rule was broken. Nothing here
// looks at a clock or at another source of chance.
#ifndef ROPCIE_TESTS_SIM_ENV_H
#define ROPCIE_TESTS_SIM_ENV_H

#include <cstdint>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/random.h"

namespace ropcie::sim {

// A rule did not hold.
class Violation : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Ways to break the driver layer on purpose: the harness must notice each. The
// last end the program instead.
enum class Fault {
  kNone,
  kSkipCopy,        // a payload is acknowledged but not copied
  kOverrun,         // a copy goes one byte too far
  kLoseCompletion,  // a completion is swallowed
  kDoubleReceive,   // a message completes two receives
  kEarlySuccess,    // a send completes when it is sent
  kNoFlush,         // the error state does not flush
  kSuccessOnLoss,   // the link's loss looks like success
  kForgetAnswer,    // answers get lost
  kDirtyWindow,     // an old epoch again, over a window that is not clean
  kWrongOrder,      // two receives are swapped
  kEarlyHeader,     // a record is seen before the DMA engine is done with it
  kOvertake,        // a payload is placed before what is in the lane
  kOvertakeAnswer,  // an answer is placed before one that is in the lane
  kPlaceAgain,      // a payload is placed that may have been taken already
  kKeepGrant,       // a grant that was returned is used
  kFlushEarly,      // a READ fails while its memory may still be written
  kRnrTwice,        // an RNR NAK counts twice
  kRnrUncounted,    // it does not count
  kRnrHasty,        // nobody waits after it
  kRnrLimit,        // there is a limit where there is to be none
  kUcTear,          // a record that is missing is not missed
  kUcTwice,         // a message is taken twice
  kUcStuck,         // sends wait for an answer
  kUcFail,          // what is lost ends the connection
  kValidFirst,      // a valid word leaves before the rest of its record
  kTakeEarly,       // a record is taken without its valid word
  kCrash,           // a store to nowhere
  kBus,
  kDivide,
  kOverflow,  // of the stack
  kHang,
};

struct FaultName {
  Fault fault;
  std::string_view name;
};

inline constexpr FaultName kFaults[] = {
    {.fault = Fault::kSkipCopy, .name = "skip-copy"},
    {.fault = Fault::kOverrun, .name = "overrun"},
    {.fault = Fault::kLoseCompletion, .name = "lose-completion"},
    {.fault = Fault::kDoubleReceive, .name = "double-receive"},
    {.fault = Fault::kEarlySuccess, .name = "early-success"},
    {.fault = Fault::kNoFlush, .name = "no-flush"},
    {.fault = Fault::kSuccessOnLoss, .name = "success-on-loss"},
    {.fault = Fault::kForgetAnswer, .name = "forget-answer"},
    {.fault = Fault::kDirtyWindow, .name = "dirty-window"},
    {.fault = Fault::kWrongOrder, .name = "wrong-order"},
    {.fault = Fault::kEarlyHeader, .name = "early-header"},
    {.fault = Fault::kOvertake, .name = "overtake"},
    {.fault = Fault::kOvertakeAnswer, .name = "overtake-answer"},
    {.fault = Fault::kPlaceAgain, .name = "place-again"},
    {.fault = Fault::kKeepGrant, .name = "keep-grant"},
    {.fault = Fault::kFlushEarly, .name = "flush-early"},
    {.fault = Fault::kRnrTwice, .name = "rnr-twice"},
    {.fault = Fault::kRnrUncounted, .name = "rnr-uncounted"},
    {.fault = Fault::kRnrHasty, .name = "rnr-hasty"},
    {.fault = Fault::kRnrLimit, .name = "rnr-limit"},
    {.fault = Fault::kUcTear, .name = "uc-tear"},
    {.fault = Fault::kUcTwice, .name = "uc-twice"},
    {.fault = Fault::kUcStuck, .name = "uc-stuck"},
    {.fault = Fault::kUcFail, .name = "uc-fail"},
    {.fault = Fault::kValidFirst, .name = "valid-first"},
    {.fault = Fault::kTakeEarly, .name = "take-early"},
};

inline constexpr FaultName kFatalFaults[] = {
    {.fault = Fault::kCrash, .name = "crash"},
    {.fault = Fault::kBus, .name = "bus"},
    {.fault = Fault::kDivide, .name = "divide"},
    {.fault = Fault::kOverflow, .name = "overflow"},
    {.fault = Fault::kHang, .name = "hang"},
};

// Ends the program, if it is one of these.
void Die(Fault fault);

struct Env {
  explicit Env(uint64_t seed) : random(seed) {}

  // One line of the trace.
  template <class... Parts>
  void Note(const Parts&... parts) const {
    if (trace) {
      std::cout << now / 1000 << "us ";
      (std::cout << ... << parts) << '\n';
    }
  }

  // True now and then, when this fault is switched on.
  bool Fails(Fault which) { return fault == which && random.OneIn(10); }

  Random random;
  uint64_t now = 1000000;  // ns
  Fault fault = Fault::kNone;
  bool trace = false;
  // Time-outs count although the answer may be under way.
  bool impatient = false;
  // All that can be done is done before a deadline: no retry counter runs out.
  bool timely = true;
  // Payload of WRITEs is placed directly, where it may be.
  bool direct = false;
  // Memory has to be brought in first, now and then (on-demand paging).
  bool paging = false;
  // Stores between two fences arrive in any order, and in pieces.
  bool torn = false;
  // Thousands of queue pairs.
  bool crowd = false;
  // Unreliable connections miss a record, now and then.
  bool lossy = true;
  // A DMA engine copies some payloads, in any order.
  bool dma = false;
};

template <class... Parts>
[[noreturn]] void Violate(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Violation(text.str());
}

template <class... Parts>
void Require(bool holds, const Parts&... parts) {
  if (!holds) {
    Violate(parts...);
  }
}

}  // namespace ropcie::sim

#endif  // ROPCIE_TESTS_SIM_ENV_H
