// SPDX-License-Identifier: GPL-2.0
// Any records of direct placement, at both ends: a grant covers what was given
// and nothing else, what is held lies within what the peer named, and there is
// never more of either than may be.
#include <cstdint>
#include <map>
#include <vector>

#include "fuzz.h"

namespace ropcie::fuzz {
namespace {

struct Given {
  uint32_t key;
  bool sink;
  uint64_t addr;
  uint32_t len;
};

class OwnerFuzz {
 public:
  explicit OwnerFuzz(Input* input) : input_(input) {
    ropcie_grants_init(&out_, Number<uint32_t>(input));
  }

  void Step() {
    switch (input_->ConsumeIntegralInRange(0, 4)) {
      case 0:
        Give();
        break;
      case 1:
        Revoke();
        break;
      case 2:
        TakeBack();
        break;
      case 3:
        if (ropcie_grant* grant = ropcie_grant_to_revoke(&out_)) {
          FUZZ_CHECK(given_.count(grant->id) == 1 && grant->revoked);
          grant->tell = false;
        }
        break;
      default:
        Covers();
        break;
    }
    FUZZ_CHECK(out_.num == given_.size() && out_.num <= ROPCIE_GRANTS);
  }

 private:
  void Give() {
    const Given g = {Number<uint32_t>(input_), input_->ConsumeBool(),
                     Number<uint64_t>(input_),
                     input_->ConsumeIntegralInRange<uint32_t>(1, 1 << 21)};
    const int at = ropcie_grant_give(&out_, g.key, g.sink, g.addr, g.len);
    FUZZ_CHECK((at < 0) == (given_.size() == ROPCIE_GRANTS));
    if (at >= 0) {
      FUZZ_CHECK(out_.grant[at].id != 0);
      FUZZ_CHECK(given_.emplace(out_.grant[at].id, g).second);
    }
  }

  void Revoke() {
    const auto key = input_->ConsumeBool() ? 0 : Number<uint32_t>(input_);
    uint32_t want = 0;
    for (const auto& [id, g] : given_) {
      want += key == 0 || g.key == key ? 1 : 0;
    }
    FUZZ_CHECK(ropcie_grant_revoke(&out_, key) == want);
  }

  uint32_t Id() {
    return !given_.empty() && input_->ConsumeBool() ? given_.begin()->first
                                                    : Number<uint32_t>(input_);
  }

  void TakeBack() {
    const uint32_t id = Id();
    const int at = ropcie_grant_take_back(&out_, id);
    if (id == 0) {
      FUZZ_CHECK((at < 0) == given_.empty());
      while (ropcie_grant_take_back(&out_, 0) >= 0) {
      }
      given_.clear();
    } else {
      FUZZ_CHECK((at >= 0) == (given_.erase(id) == 1));
    }
  }

  void Covers() {
    const uint32_t id = Id();
    const auto it = given_.find(id);
    Given ask = {Number<uint32_t>(input_), input_->ConsumeBool(),
                 Number<uint64_t>(input_),
                 input_->ConsumeIntegralInRange<uint32_t>(1, 1 << 22)};
    if (it != given_.end() && input_->ConsumeBool()) {
      ask.key = it->second.key;
      ask.addr = it->second.addr + input_->ConsumeIntegral<uint8_t>();
    }
    bool want = it != given_.end() && ask.key == it->second.key &&
                ask.sink == it->second.sink;
    if (want) {
      const uint64_t off = ask.addr - it->second.addr;
      want = off < it->second.len && ask.len <= it->second.len - off;
    }
    FUZZ_CHECK(ropcie_grant_covers(&out_, id, ask.key, ask.sink, ask.addr,
                                   ask.len) == want);
  }

  Input* input_;
  ropcie_grants out_{};
  std::map<uint32_t, Given> given_;
};

class HolderFuzz {
 public:
  explicit HolderFuzz(Input* input) : input_(input) {
    ropcie_holds_init(&in_, Number<uint32_t>(input));
  }

  void Step() {
    switch (input_->ConsumeIntegralInRange(0, 4)) {
      case 0:
        if (ropcie_hold_wants(&in_, ROPCIE_GRANT_PAGE)) {
          Return();
          key_ = Number<uint32_t>(input_);
          addr_ = Number<uint64_t>(input_);
          sink_ = input_->ConsumeBool();
          question_ = ropcie_hold_ask(&in_, key_, sink_, addr_);
          FUZZ_CHECK(question_ <= ROPCIE_PSN_MASK);
        }
        break;
      case 1:
        Grant();
        break;
      case 2:
        ropcie_hold_drop(&in_, Number<uint32_t>(input_));
        break;
      case 3:
        Return();
        break;
      default:
        Find();
        break;
    }
  }

 private:
  void Return() {
    while (ropcie_hold* hold = ropcie_hold_to_return(&in_)) {
      ropcie_hold_free(hold);
    }
  }

  // As the peer may send it: what no decoder lets pass does not come here.
  void Grant() {
    ropcie_hdr hdr{};
    ropcie_hdr decoded;
    const auto pages =
        input_->ConsumeIntegralInRange<uint32_t>(0, ROPCIE_GRANT_PAGES);
    hdr.op = ROPCIE_OP_GRANT;
    hdr.mq = ropcie_mq_id(5, ROPCIE_MQ_RESPONSE);
    hdr.src_qpn = 7;
    hdr.psn = input_->ConsumeBool()
                  ? question_
                  : Number<uint32_t>(input_) & ROPCIE_PSN_MASK;
    hdr.imm = Number<uint32_t>(input_);
    hdr.rkey = input_->ConsumeBool() ? key_ : Number<uint32_t>(input_);
    hdr.addr = input_->ConsumeBool() ? addr_ : Number<uint64_t>(input_);
    hdr.frag_len = pages * 8;
    hdr.msg_len = Number<uint32_t>(input_);
    if (!Passes(hdr, &decoded)) {
      return;
    }
    std::vector<__le64> bus(pages);
    for (__le64& each : bus) {
      each = input_->ConsumeBool() ? Number<uint64_t>(input_) << 12
                                   : Number<uint64_t>(input_);
    }
    const int ret =
        ropcie_hold_expects(&in_, &decoded, bus.empty() ? nullptr : bus.data());
    if (ret < 0) {
      ropcie_hold_fill(&in_, &decoded, nullptr, 0);
    } else if (ret > 0) {
      FUZZ_CHECK(decoded.rkey == key_ && decoded.psn == question_);
      pages_.assign(pages, page_);
      // Each byte is in a page that was named.
      const auto offset = static_cast<uint32_t>(bus[0] % ROPCIE_GRANT_PAGE);
      FUZZ_CHECK(uint64_t{offset} + decoded.msg_len <=
                 uint64_t{pages} * ROPCIE_GRANT_PAGE);
      ropcie_hold_fill(&in_, &decoded, pages_.data(), offset);
      ropcie_hold* hold =
          ropcie_hold_find(&in_, key_, sink_, decoded.addr, decoded.msg_len);
      FUZZ_CHECK(hold != nullptr);
    }
  }

  void Find() {
    const auto key = input_->ConsumeBool() ? key_ : Number<uint32_t>(input_);
    const auto addr = input_->ConsumeBool() ? addr_ : Number<uint64_t>(input_);
    const auto len = input_->ConsumeIntegralInRange<uint32_t>(1, 1 << 17);
    const bool sink = input_->ConsumeBool();
    const ropcie_hold* hold = ropcie_hold_find(&in_, key, sink, addr, len);
    if (hold != nullptr) {
      FUZZ_CHECK(hold->mr.key == key && hold->sink == sink &&
                 hold->state == ROPCIE_HOLD_GRANTED);
      FUZZ_CHECK(addr - hold->mr.iova < hold->mr.length &&
                 len <= hold->mr.length - (addr - hold->mr.iova));
      ropcie_hold_used(&in_, len);
    }
  }

  Input* input_;
  ropcie_holds in_{};
  uint32_t question_ = 0;
  uint32_t key_ = 0;
  bool sink_ = false;
  uint64_t addr_ = 0;
  void* page_ = &in_;
  std::vector<void*> pages_;
};

void Run(Input* input) {
  OwnerFuzz owner(input);
  HolderFuzz holder(input);
  while (input->remaining_bytes() > 0) {
    if (input->ConsumeBool()) {
      owner.Step();
    } else {
      holder.Step();
    }
  }
}

}  // namespace
}  // namespace ropcie::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ropcie::fuzz::Input input(data, size);
  ropcie::fuzz::Run(&input);
  return 0;
}
