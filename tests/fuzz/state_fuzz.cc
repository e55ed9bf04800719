// SPDX-License-Identifier: GPL-2.0
// The small ones: the states of a queue pair, a ring that a process shares with
// the kernel and writes to as it likes, the policy of polling.
#include <cstring>
#include <vector>

#include "fuzz.h"

extern "C" {
#include "uring.h"
}

namespace ropcie::fuzz {
namespace {

// Also one that there is not.
template <typename T>
T Any(Input* input) {
  return static_cast<T>(input->ConsumeIntegralInRange(0, 7));
}

void QueuePair(Input* input) {
  const auto type = static_cast<ropcie_qpt>(
      input->ConsumeIntegralInRange<int>(0, ROPCIE_QPT_NUM - 1));
  auto state = ROPCIE_QPS_RESET;
  while (input->remaining_bytes() > 0) {
    const auto next = Any<ropcie_qps>(input);
    const auto mask = input->ConsumeIntegral<uint32_t>();
    if (ropcie_qp_transition(type, state, next, mask) == 0) {
      FUZZ_CHECK(next < ROPCIE_QPS_NUM);
      state = next;
    }
    // The way back is always open, and but for RESET the one to ERR.
    FUZZ_CHECK(
        !ropcie_qp_transition(type, state, ROPCIE_QPS_RESET, ROPCIE_QP_STATE));
    FUZZ_CHECK(
        state == ROPCIE_QPS_RESET ||
        !ropcie_qp_transition(type, state, ROPCIE_QPS_ERR, ROPCIE_QP_STATE));
    ropcie_qp_transition(Any<ropcie_qpt>(input), Any<ropcie_qps>(input), next,
                         mask);
  }
}

// The process has asked for whatever it likes: it gets one event for that.
void WantsEvent(const ropcie_uring& ring, bool solicited) {
  const uint32_t asked = ring.ctl->wake;
  const uint32_t told = ring.ctl->told;
  const bool want = (asked & ROPCIE_ABI_NOTIFY_ANY) != 0 ||
                    ((asked & ROPCIE_ABI_NOTIFY_SOLICITED) != 0 && solicited);
  FUZZ_CHECK(ropcie_uring_wants_event(&ring, solicited) == want);
  FUZZ_CHECK(ring.ctl->wake == (want ? 0 : asked));
  FUZZ_CHECK(ring.ctl->told == (want ? ring.next : told));
  FUZZ_CHECK(!want || !ropcie_uring_wants_event(&ring, true));
}

void SharedRing(Input* input) {
  constexpr uint32_t kSize = 8;
  constexpr uint32_t kStride = 24;
  ropcie_abi_ring ctl{};
  std::vector<char> entries(size_t{kSize} * kStride);
  std::vector<char> entry(kStride);
  ropcie_uring ring = {.ctl = &ctl,
                       .entries = entries.data(),
                       .size = kSize,
                       .stride = kStride,
                       .next = Number<uint32_t>(input)};
  while (input->remaining_bytes() > 0) {
    ctl.head = input->ConsumeBool() ? ring.next + Number<uint8_t>(input)
                                    : Number<uint32_t>(input);
    ctl.tail = Number<uint32_t>(input);
    const uint32_t ready = ropcie_uring_ready(&ring);
    FUZZ_CHECK(ready <= kSize);
    if (ready > 0) {
      ropcie_uring_take(&ring, entry.data());
      ropcie_uring_release(&ring, ring.next);
    }
    if (ropcie_uring_used(&ring) < kSize) {
      std::memcpy(ropcie_uring_at(&ring, ring.next), entry.data(), ring.stride);
      ropcie_uring_publish(&ring);
    }
    ropcie_uring_want_call(&ring, input->ConsumeBool());
    if (input->ConsumeBool()) {
      ctl.wake = Number<uint32_t>(input);
      WantsEvent(ring, input->ConsumeBool());
    }
    FUZZ_CHECK(ropcie_uring_posted(&ring) == ctl.head);
  }
  ropcie_uring_end(&ring);
  FUZZ_CHECK(ctl.wake == ROPCIE_ABI_RING_GONE);
}

void Polling(Input* input) {
  ropcie_poll_policy policy;
  const auto max = Number<uint64_t>(input);
  ropcie_poll_init(&policy, max, input->ConsumeIntegral<uint32_t>());
  auto now = Number<uint64_t>(input);
  while (input->remaining_bytes() > 0) {
    FUZZ_CHECK(ropcie_poll_budget(&policy) <= max);
    now += Number<uint64_t>(input);
    ropcie_poll_arrival(&policy, now);
  }
}

}  // namespace
}  // namespace ropcie::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  switch (input.ConsumeIntegralInRange(0, 2)) {
    case 0:
      ropcie::fuzz::QueuePair(&input);
      break;
    case 1:
      ropcie::fuzz::SharedRing(&input);
      break;
    default:
      ropcie::fuzz::Polling(&input);
  }
  return 0;
}
