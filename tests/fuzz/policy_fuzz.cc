// SPDX-License-Identifier: GPL-2.0
// The policies, which look at what has come and decide how long to wait: when a
// consumer is told, whether a trial is made, whose a lane is. Whatever comes,
// nobody waits for longer than is promised.
#include <algorithm>

#include "fuzz.h"

extern "C" {
#include "event_policy.h"
#include "poller.h"
}

namespace ropcie::fuzz {
namespace {

// A completion queue whose consumer always wants to be told.
class Events {
 public:
  explicit Events(Input* input) : input_(input) {
    ropcie_event_init(&policy_, input->ConsumeBool());
  }

  void Run() {
    while (input_->remaining_bytes() > 0) {
      switch (input_->ConsumeIntegralInRange(0, 7)) {
        case 0:
          Set();
          break;
        case 1:
        case 2:
          Look();
          break;
        default:
          Complete();
      }
      FUZZ_CHECK(ropcie_event_holds(&policy_) == (held_ > 0));
    }
  }

 private:
  void Tell() {
    ropcie_event_told(&policy_);
    held_ = 0;
  }

  void Set() {
    if (held_ > 0) {
      Tell();
    }
    count_ = Number<uint16_t>(input_);
    period_ = Number<uint32_t>(input_);
    set_ = true;
    ropcie_event_set(&policy_, count_, period_);
  }

  [[nodiscard]] bool AtOnce() const {
    return set_ ? count_ <= 1 || period_ == 0
                : policy_.mode == ROPCIE_EVENT_AT_ONCE;
  }

  void Complete() {
    if (held_ > 0) {
      held_++;
      const bool crowded = input_->ConsumeIntegralInRange(0, 15) == 0;
      const bool tell = ropcie_event_more(&policy_, crowded);
      FUZZ_CHECK(tell == (crowded || (set_ && held_ >= count_)));
      if (tell) {
        Tell();
      }
      return;
    }
    const uint32_t delay = ropcie_event_first(&policy_);
    FUZZ_CHECK(!AtOnce() || delay == 0);
    FUZZ_CHECK(!set_ || delay == (AtOnce() ? 0 : period_));
    FUZZ_CHECK(set_ || delay <= ROPCIE_EVENT_MOST_NS);
    waited_ = delay;
    seen_ = held_ = delay > 0 ? 1 : 0;
  }

  void Look() {
    if (held_ == 0) {
      return;
    }
    const uint32_t delay = ropcie_event_look(&policy_);
    // Who has named a time has waited for it; others wait while more comes.
    FUZZ_CHECK(delay == 0 || (!set_ && held_ > seen_));
    if (delay == 0) {
      Tell();
      return;
    }
    FUZZ_CHECK(delay >= ROPCIE_EVENT_LOOK_NS && delay <= ROPCIE_EVENT_LATE_NS);
    waited_ += delay;
    FUZZ_CHECK(waited_ <= ROPCIE_EVENT_MOST_NS);
    seen_ = held_;
  }

  Input* input_;
  ropcie_event_policy policy_{};
  uint32_t count_ = 0;
  uint32_t period_ = 0;
  bool set_ = false;
  uint32_t held_ = 0;  // of which nobody was told
  uint32_t seen_ = 0;
  uint64_t waited_ = 0;
};

void Trials(Input* input) {
  ropcie_trial trial;
  ropcie_trial_init(&trial);
  uint32_t passed = 0;  // since the last wait
  uint32_t most = ROPCIE_TRIAL_PAUSE;
  uint32_t credit = 0;
  while (input->remaining_bytes() > 0) {
    if (!ropcie_trial_wait(&trial)) {
      FUZZ_CHECK(credit == 0);
      FUZZ_CHECK(++passed < most);
      continue;
    }
    // Where it has paid all wait; else one of as many as the pause has.
    FUZZ_CHECK(credit > 0 || passed + 1 == most);
    passed = 0;
    const bool paid = input->ConsumeIntegralInRange(0, 3) == 0;
    ropcie_trial_end(&trial, paid);
    if (paid) {
      credit = ROPCIE_TRIAL_CREDIT;
      most = ROPCIE_TRIAL_PAUSE;
    } else if (credit > 0) {
      credit--;
    } else {
      most = std::min<uint32_t>(2 * most, ROPCIE_TRIAL_MOST_PAUSE);
    }
  }
}

void Poller(Input* input) {
  ropcie_poller poller;
  uint64_t now = Number<uint32_t>(input);
  ropcie_poller_init(&poller, now);
  FUZZ_CHECK(ropcie_poller_may_take(&poller, now));
  uint64_t own = ROPCIE_POLLER_OWN_NS;
  uint32_t late = 0;
  while (input->remaining_bytes() > 0) {
    now += Number<uint32_t>(input);
    if (!ropcie_poller_may_take(&poller, now)) {
      continue;
    }
    const auto looks =
        input->ConsumeIntegralInRange<uint32_t>(0, ROPCIE_POLLER_LOOKS);
    const bool back = ropcie_poller_watched(&poller, looks, now);
    late = looks == 1 ? 0 : late + 1;
    FUZZ_CHECK(back == (looks == 0 || late == ROPCIE_POLLER_LOOKS));
    if (looks == 1) {
      own = ROPCIE_POLLER_OWN_NS;
    }
    FUZZ_CHECK(ropcie_poller_may_take(&poller, now) == !back);
    if (back) {
      // The lane's own for so long, and no longer.
      FUZZ_CHECK(!ropcie_poller_may_take(&poller, now + own - 1));
      FUZZ_CHECK(ropcie_poller_may_take(&poller, now + own));
      own = std::min<uint64_t>(2 * own, ROPCIE_POLLER_OWN_MAX_NS);
      late = 0;
    }
  }
}

}  // namespace
}  // namespace ropcie::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  switch (input.ConsumeIntegralInRange(0, 2)) {
    case 0:
      ropcie::fuzz::Events(&input).Run();
      break;
    case 1:
      ropcie::fuzz::Trials(&input);
      break;
    default:
      ropcie::fuzz::Poller(&input);
  }
  return 0;
}
