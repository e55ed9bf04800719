// SPDX-License-Identifier: GPL-2.0
// A queue pair's direct placement, at both ends, as kernel/driver/placement.c
// does it.
#include <algorithm>
#include <bit>

#include "node.h"
#include "qp.h"

namespace ropcie::sim {
namespace {

// After which a peer that returns nothing is given up.
constexpr uint64_t kPatience = uint64_t{5} * 1000 * 1000 * 1000;

}  // namespace

void Qp::Release(int at) {
  for (const uint64_t bus : given_[at].bus) {
    node_->Hide(bus & ~uint64_t{ROPCIE_GRANT_PAGE - 1});
  }
  given_[at].bus.clear();
}

// False when the lane is full.
bool Qp::AnswerAsk() {
  ropcie_hdr hdr{};
  hdr.op = ROPCIE_OP_GRANT;
  hdr.psn = ask_->psn;
  hdr.rkey = ask_->rkey;
  int at = -1;
  const bool sink = ask_->imm == ROPCIE_ASK_SINK;
  const ropcie_mr_core* mr =
      GetMr({.addr = ask_->addr, .length = 1, .lkey = ask_->rkey},
            sink ? ROPCIE_ACCESS_LOCAL_WRITE : ROPCIE_ACCESS_REMOTE_WRITE);
  const bool may = sink ? ropcie_qp_requests(state_) && req_.error == 0 &&
                              req_.local_error == 0 &&
                              ropcie_req_awaits(&req_, ask_->rkey, ask_->addr)
                        : ropcie_qp_responds(state_);
  if (mr != nullptr && mr->page_shift == ROPCIE_GRANT_SHIFT && may) {
    u64 first = 0;
    const u32 len = ropcie_grant_piece(mr, ask_->addr, &first);
    at = ropcie_grant_give(&out_, ask_->rkey, sink, first, len);
    if (at >= 0) {
      const uint64_t pos = first - mr->iova + mr->offset;
      const uint64_t in_page = pos % ROPCIE_GRANT_PAGE;
      std::vector<__le64>* bus = &given_[at].bus;
      for (uint64_t done = 0; done < in_page + len; done += ROPCIE_GRANT_PAGE) {
        bus->push_back(node_->Show(static_cast<uint8_t*>(
            mr->pages[(pos + done - in_page) / ROPCIE_GRANT_PAGE])));
      }
      bus->front() += in_page;
      hdr.imm = out_.grant[at].id;
      hdr.addr = first;
      hdr.msg_len = len;
      hdr.frag_len = static_cast<uint32_t>(bus->size() * sizeof(__le64));
    }
  }
  if (Tell(hdr, ROPCIE_MQ_RESPONSE, at >= 0 ? &given_[at].bus : nullptr) ==
      -EAGAIN) {
    if (at >= 0) {
      ropcie_grant_take_back(&out_, hdr.imm);
      Release(at);
    }
    return false;
  }
  ask_.reset();
  return true;
}

bool Qp::FlushReturns() {
  ropcie_hdr hdr{};
  hdr.op = ROPCIE_OP_RETURN;
  if (bye_) {
    if (Tell(hdr, ROPCIE_MQ_REQUEST, nullptr) == -EAGAIN) {
      return false;
    }
    bye_ = false;
  }
  while (ropcie_hold* hold = ropcie_hold_to_return(&in_)) {
    hdr.imm = hold->id;
    if (Tell(hdr, ROPCIE_MQ_REQUEST, nullptr) == -EAGAIN) {
      return false;
    }
    if (env_->fault == Fault::kKeepGrant && hold->mr.pages != nullptr) {
      hold->state = ROPCIE_HOLD_GRANTED;
      continue;
    }
    pages_.erase(hold->id);
    ropcie_hold_free(hold);
  }
  return true;
}

void Qp::FlushPlacement() {
  if (!FlushReturns()) {
    return;
  }
  while (ropcie_grant* grant = ropcie_grant_to_revoke(&out_)) {
    ropcie_hdr hdr{};
    hdr.op = ROPCIE_OP_REVOKE;
    hdr.imm = grant->id;
    if (Tell(hdr, ROPCIE_MQ_RESPONSE, nullptr) == -EAGAIN) {
      return;
    }
    grant->tell = false;
  }
  if (question_) {
    if (Tell(*question_, ROPCIE_MQ_REQUEST, nullptr) == -EAGAIN) {
      return;
    }
    question_.reset();
  }
  if (ask_) {
    AnswerAsk();
  }
}

void Qp::HearGrant(const ropcie_rec& rec) {
  std::vector<__le64> bus(rec.hdr.frag_len / sizeof(__le64));
  ropcie_vec to = {.base = bus.data(), .len = rec.hdr.frag_len};
  ropcie_rec_scatter(&rec, 0, &to, 1);
  const int ret = ropcie_hold_expects(&in_, &rec.hdr, bus.data());
  if (ret == 0) {
    return;
  }
  // Nothing is at the beginning of a node's memory: only a forger says so.
  if (ret < 0 || std::count(bus.begin(), bus.end(), __le64{0}) > 0) {
    ropcie_hold_fill(&in_, &rec.hdr, nullptr, 0);
    return;
  }
  // Bus addresses in the place of pointers: nobody looks behind them.
  std::vector<void*>* pages = &pages_[rec.hdr.imm];
  pages->clear();
  for (const uint64_t each : bus) {
    pages->push_back(
        std::bit_cast<void*>(each & ~uint64_t{ROPCIE_GRANT_PAGE - 1}));
  }
  ropcie_hold_fill(&in_, &rec.hdr, pages->data(),
                   static_cast<uint32_t>(bus[0] % ROPCIE_GRANT_PAGE));
}

void Qp::HearPlacement(const ropcie_rec& rec) {
  if (rec.hdr.src_qpn != attr_.dest_qpn || !env_->direct) {
    return;
  }
  switch (rec.hdr.op) {
    case ROPCIE_OP_ASK:
      ask_ = rec.hdr;
      break;
    case ROPCIE_OP_GRANT:
      HearGrant(rec);
      break;
    case ROPCIE_OP_REVOKE:
      ropcie_hold_drop(&in_, rec.hdr.imm);
      break;
    default:
      if (rec.hdr.imm == 0) {
        ask_.reset();  // nobody waits for an answer any more
      }
      for (int at = 0;
           at >= 0 && (at = ropcie_grant_take_back(&out_, rec.hdr.imm)) >= 0;) {
        Release(at);
      }
      break;
  }
  FlushPlacement();
  if (deadline_ != 0 && out_.num == 0) {
    deadline_ = 0;
    Run();
  }
}

// It is to fail: may the peer still write?
bool Qp::FailsLate() {
  if (out_.num == 0 || env_->fault == Fault::kFlushEarly) {
    return false;
  }
  if (deadline_ == 0) {
    deadline_ = env_->now + kPatience;
  }
  out_.closed = true;
  Withdraw();
  return true;
}

void Qp::Withdraw() {
  ropcie_grant_revoke(&out_, 0);
  FlushPlacement();
}

void Qp::EndPlacement() {
  bye_ = in_.ever;
  ropcie_holds_init(&in_, 0);
  in_.closed = true;
  question_.reset();
  out_.closed = true;
  Withdraw();
}

void Qp::PlacementLost() {
  ropcie_holds_init(&in_, 0);
  in_.closed = true;
  question_.reset();
  ask_.reset();
  bye_ = false;
  deadline_ = 0;
  out_.closed = true;
  for (int at = 0; (at = ropcie_grant_take_back(&out_, 0)) >= 0;) {
    Release(at);
  }
}

// The grant by which a payload may be placed, or nullptr: then it is asked for.
ropcie_hold* Qp::Find(uint32_t key, bool sink, uint64_t addr, uint32_t len) {
  ropcie_hold* hold = ropcie_hold_find(&in_, key, sink, addr, len);
  if (hold == nullptr && ropcie_hold_wants(&in_, len) && FlushReturns()) {
    ropcie_hdr hdr{};
    hdr.op = ROPCIE_OP_ASK;
    hdr.imm = sink ? ROPCIE_ASK_SINK : ROPCIE_ASK_TARGET;
    hdr.psn = ropcie_hold_ask(&in_, key, sink, addr);
    hdr.rkey = key;
    hdr.addr = addr;
    question_ = hdr;
    FlushPlacement();
  }
  return hold;
}

// The grant to place a record by, or nullptr for the lane, unless it has to
// wait.
ropcie_hold* Qp::Choose(ropcie_req_rec* rec, bool* wait) {
  bool clear = ropcie_req_clear(&req_) || env_->fault == Fault::kOvertake;
  const bool may = ropcie_req_may_place(&req_, rec) ||
                   (env_->fault == Fault::kPlaceAgain &&
                    rec->hdr.op == ROPCIE_OP_WRITE && rec->hdr.frag_len != 0);
  clear |= env_->fault == Fault::kPlaceAgain;
  if (!env_->direct || !may) {
    return nullptr;
  }
  if (rec->hdr.op == ROPCIE_OP_READ) {
    if (rec->wqe->num_sge == 1) {
      ropcie_req_name_sink(rec);
    }
    return nullptr;
  }
  ropcie_hold* hold = Find(rec->wqe->rkey, false, rec->wqe->raddr + rec->off,
                           rec->hdr.frag_len);
  if (hold != nullptr && !clear) {
    *wait = rec->off == 0 && env_->random.OneIn(2);
    return nullptr;
  }
  return hold;
}

void Qp::Store(const ropcie_hold& hold, uint64_t addr, uint32_t len) {
  ropcie_rec from{};
  from.span = vec_.data();
  from.nspan = static_cast<uint32_t>(vec_.size());
  uint32_t done = 0;
  while (done < len) {
    ropcie_vec run;
    uint32_t count = 0;
    const uint32_t n = ropcie_mr_map(
        &hold.mr, addr + done,
        std::min(len - done, uint32_t{ROPCIE_GRANT_PAGE}), &run, 1, &count);
    Require(n > 0, "a granted range does not map");
    // Not across pages: they are not in a row at the other end.
    const auto bus = reinterpret_cast<uint64_t>(run.base);
    const auto part = static_cast<uint32_t>(
        std::min<uint64_t>(n, ROPCIE_GRANT_PAGE - bus % ROPCIE_GRANT_PAGE));
    std::vector<uint8_t> bytes(part);
    ropcie_vec to = {.base = bytes.data(), .len = part};
    ropcie_rec_scatter(&from, done, &to, 1);
    node_->Store(attr_.peer, bus, std::move(bytes));
    done += part;
  }
}

}  // namespace ropcie::sim
