// SPDX-License-Identifier: GPL-2.0
// A queue pair as its peer's requests see it: what comes is placed, executed,
// answered or refused.
#include <algorithm>
#include <cstring>

#include "node.h"
#include "qp.h"

namespace ropcie::sim {
namespace {

// Runs of memory that one step of the scatter loop fills, as in the driver.
constexpr uint32_t kScatterVecs = 16;

}  // namespace

// An answer with what a READ asked for, if it still may be read.
int Qp::SendAnswer(ropcie_hdr* hdr) {
  if (NotThere(kResponder, hdr->frag_len)) {
    return -EINPROGRESS;
  }
  vec_.clear();
  if (hdr->frag_len != 0) {
    const ropcie_mr_core* mr =
        GetMr({.addr = hdr->addr, .length = hdr->frag_len, .lkey = hdr->rkey},
              ROPCIE_ACCESS_REMOTE_READ);
    if (mr == nullptr) {
      return -EACCES;
    }
    uint32_t count = 0;
    vec_.resize(GatherVecs(hdr->frag_len));
    Require(ropcie_mr_map(mr, hdr->addr, hdr->frag_len, vec_.data(),
                          static_cast<uint32_t>(vec_.size()),
                          &count) == hdr->frag_len,
            "a checked range does not map");
    vec_.resize(count);
  }
  ropcie_hold* hold = nullptr;
  if (env_->direct && hdr->frag_len != 0 && hdr->sink_key != 0) {
    hold = Find(hdr->sink_key, true, hdr->sink_addr, hdr->frag_len);
    if (!node_->Passed(attr_.peer, qpn_, laned_) &&
        env_->fault != Fault::kOvertakeAnswer) {
      hold = nullptr;
    }
  }
  if (hold != nullptr && node_->IsUp(attr_.peer)) {
    Store(*hold, hdr->sink_addr, hdr->frag_len);
    hdr->flags |= ROPCIE_F_PLACED;
    hdr->grant = hold->id;
    vec_.clear();
  }
  const int ret = node_->Send(attr_.peer, qpn_, *hdr, vec_);
  if (ret == 0 && hold != nullptr) {
    node_->CountPlaced();
    ropcie_hold_used(&in_, hdr->frag_len);
  } else if (ret == 0 && hdr->op != ROPCIE_OP_ACK) {
    laned_ = node_->Position(attr_.peer, qpn_);
  }
  return ret;
}

void Qp::Answer() {
  if (state_ == ROPCIE_QPS_ERR && !rsp_.dead) {
    return;
  }
  if (rsp_.starved && !rq_.empty()) {
    ropcie_rsp_replenished(&rsp_);
  }
  bool denied = false;
  while (connected_ && ropcie_rsp_owes(&rsp_)) {
    const auto ready =
        static_cast<uint32_t>(rq_.size()) -
        (ropcie_rsp_holds_receive(&rsp_) && !rq_.empty() ? 1 : 0);
    ropcie_hdr hdr;
    ropcie_rsp_answer(&rsp_, ready, &hdr);
    const int ret = env_->Fails(Fault::kForgetAnswer) ? 0 : SendAnswer(&hdr);
    if (ret == -EACCES) {
      if (ropcie_rsp_fail_read(&rsp_, ROPCIE_NAK_REM_ACCESS)) {
        user_->OnRefused();
        denied = true;
      }
      continue;
    }
    if (ret != 0) {
      break;
    }
    ropcie_rsp_answered(&rsp_, &hdr);
    if (hdr.op != ROPCIE_OP_ACK) {
      if (env_->random.OneIn(8)) {
        break;  // over the budget
      }
      continue;
    }
    if (!rsp_.starved) {
      break;
    }
    if (!rq_.empty()) {
      ropcie_rsp_replenished(&rsp_);
    }
  }
  if (denied) {
    ToError();
  }
}

bool Qp::ScatterPiece(const ropcie_mr_core& mr, const ropcie_sge& piece,
                      const ropcie_rec& rec, uint32_t from) {
  ropcie_vec vec[kScatterVecs];
  uint32_t done = 0;
  while (done < piece.length) {
    uint32_t count = 0;
    const uint32_t n = ropcie_mr_map(
        &mr, piece.addr + done, piece.length - done, vec, kScatterVecs, &count);
    Require(n > 0, "a checked range does not map");
    if (env_->Fails(Fault::kOverrun)) {
      auto* end = static_cast<uint8_t*>(vec[count - 1].base);
      end[vec[count - 1].len] ^= 1;
    }
    if (!env_->Fails(Fault::kSkipCopy)) {
      ropcie_rec_scatter(&rec, from + done, vec, count);
    }
    done += n;
  }
  return true;
}

bool Qp::Place(const ropcie_rec& rec, std::span<const ropcie_sge> list,
               uint32_t off) {
  ropcie_sge_cursor cur;
  ropcie_sge piece;
  uint32_t done = 0;
  ropcie_sge_seek(&cur, list.data(), static_cast<uint32_t>(list.size()), off);
  while (done < rec.hdr.frag_len) {
    if (!ropcie_sge_next(&cur, rec.hdr.frag_len - done, &piece)) {
      return false;
    }
    const ropcie_mr_core* mr = GetMr(piece, ROPCIE_ACCESS_LOCAL_WRITE);
    if (mr == nullptr || !ScatterPiece(*mr, piece, rec, done)) {
      return false;
    }
    done += piece.length;
  }
  return true;
}

bool Qp::PlaceRemote(const ropcie_rec& rec, const ropcie_rsp_place& where) {
  ropcie_sge piece = {
      .addr = where.addr,
      .length = where.first ? rec.hdr.msg_len : rec.hdr.frag_len,
      .lkey = where.rkey};
  if (piece.length == 0) {
    return true;
  }
  const ropcie_mr_core* mr = GetMr(piece, ROPCIE_ACCESS_REMOTE_WRITE);
  piece.length = rec.hdr.frag_len;
  return mr != nullptr && ((rec.hdr.flags & ROPCIE_F_PLACED) != 0 ||
                           ScatterPiece(*mr, piece, rec, 0));
}

bool Qp::Execute(const ropcie_hdr& hdr, uint64_t* orig) {
  const ropcie_mr_core* mr =
      GetMr({.addr = hdr.addr, .length = sizeof(*orig), .lkey = hdr.rkey},
            ROPCIE_ACCESS_REMOTE_ATOMIC);
  if (mr == nullptr) {
    return false;
  }
  // Pages are small here, and not aligned: the word may lie in two.
  ropcie_vec vec[2];
  uint32_t count = 0;
  Require(ropcie_mr_map(mr, hdr.addr, sizeof(*orig), vec, 2, &count) ==
              sizeof(*orig),
          "a checked range does not map");
  auto* bytes = reinterpret_cast<uint8_t*>(orig);
  const uint32_t first = vec[0].len;
  memcpy(bytes, vec[0].base, first);
  if (count > 1) {
    memcpy(bytes + first, vec[1].base, vec[1].len);
  }
  uint64_t value = *orig + hdr.compare_add;
  if (hdr.op == ROPCIE_OP_CAS) {
    value = *orig == hdr.compare_add ? hdr.swap : *orig;
  }
  bytes = reinterpret_cast<uint8_t*>(&value);
  memcpy(vec[0].base, bytes, first);
  if (count > 1) {
    memcpy(vec[1].base, bytes + first, vec[1].len);
  }
  return true;
}

void Qp::Deny() {
  ropcie_rsp_fail(&rsp_, ROPCIE_NAK_REM_ACCESS);
  if (!attr_.unreliable || env_->fault == Fault::kUcFail) {
    Refuse();
  }
}

void Qp::Refuse() {
  user_->OnRefused();
  Answer();
  ToError();
}

void Qp::Request(const ropcie_rec& rec) {
  const auto ready = static_cast<uint32_t>(rq_.size());
  const uint64_t room = rq_.empty() ? 0 : rq_.front().length;
  ropcie_rsp_place where;
  uint64_t orig = 0;
  const ropcie_rsp_verdict verdict =
      ropcie_rsp_request(&rsp_, &rec.hdr, ready, room, &where);
  const bool needs_memory = verdict == ROPCIE_RSP_PLACE ||
                            verdict == ROPCIE_RSP_WRITE ||
                            verdict == ROPCIE_RSP_ATOMIC;
  if (needs_memory &&
      NotThere(kResponder, verdict == ROPCIE_RSP_ATOMIC ? ROPCIE_ATOMIC_LEN
                                                        : rec.hdr.frag_len)) {
    ropcie_rsp_not_there(&rsp_);
    return;
  }
  switch (verdict) {
    case ROPCIE_RSP_DROP:
      break;
    case ROPCIE_RSP_PLACE:
      if (!Place(rec, rq_.front().sge, where.off)) {
        CompleteReceive(nullptr, ROPCIE_WC_LOC_PROT_ERR);
        ropcie_rsp_fail(&rsp_, ROPCIE_NAK_REM_OP);
        Refuse();
      } else if (ropcie_rsp_placed(&rsp_, &rec.hdr)) {
        CompleteReceive(&rec.hdr, ROPCIE_WC_SUCCESS);
        if (!rq_.empty() && env_->Fails(Fault::kDoubleReceive)) {
          CompleteReceive(&rec.hdr, ROPCIE_WC_SUCCESS);
        }
      }
      break;
    case ROPCIE_RSP_WRITE:
      if ((rec.hdr.flags & ROPCIE_F_PLACED) != 0 &&
          !ropcie_grant_covers(&out_, rec.hdr.grant, where.rkey, false,
                               where.addr, rec.hdr.frag_len)) {
        ropcie_rsp_fail(&rsp_, ROPCIE_NAK_INV_REQ);
        Refuse();
      } else if (!PlaceRemote(rec, where)) {
        Deny();
      } else if (ropcie_rsp_placed(&rsp_, &rec.hdr)) {
        CompleteReceive(&rec.hdr, ROPCIE_WC_SUCCESS);
      }
      break;
    case ROPCIE_RSP_READ:
      if (rec.hdr.msg_len == 0 || GetMr({.addr = rec.hdr.addr,
                                         .length = rec.hdr.msg_len,
                                         .lkey = rec.hdr.rkey},
                                        ROPCIE_ACCESS_REMOTE_READ) != nullptr) {
        ropcie_rsp_fetched(&rsp_, &rec.hdr, 0);
      } else {
        Deny();
      }
      break;
    case ROPCIE_RSP_ATOMIC:
      if (Execute(rec.hdr, &orig)) {
        ropcie_rsp_fetched(&rsp_, &rec.hdr, orig);
      } else {
        Deny();
      }
      break;
    case ROPCIE_RSP_TOO_LONG:
      CompleteReceive(nullptr, ROPCIE_WC_LOC_LEN_ERR);
      Refuse();
      break;
    case ROPCIE_RSP_INVALID:
      Refuse();
      break;
  }
}

// Some in a row are missed, as if the lane had lost them.
void Qp::UnreliableRequest(const ropcie_rec& rec) {
  if (env_->lossy && missing_ == 0 && env_->random.OneIn(24)) {
    missing_ = env_->random.Between(1, 4);
  }
  if (missing_ > 0) {
    missing_--;
    return;
  }
  if (env_->fault == Fault::kUcTear) {
    ropcie_rec next = rec;
    next.hdr.psn = rsp_.epsn;
    Request(next);
    return;
  }
  Request(rec);
  if (!rsp_.in_msg && ropcie_qp_responds(state_) &&
      env_->Fails(Fault::kUcTwice)) {
    Request(rec);
  }
}

bool Qp::OnRequest(int peer, const ropcie_rec& rec) {
  if (!connected_ || peer != attr_.peer) {
    return false;
  }
  if (ropcie_op_grants(rec.hdr.op)) {
    HearPlacement(rec);
    return false;
  }
  if (!ropcie_qp_responds(state_)) {
    return false;
  }
  if (attr_.unreliable) {
    UnreliableRequest(rec);
  } else {
    Request(rec);
  }
  return ropcie_rsp_owes(&rsp_);
}

}  // namespace ropcie::sim
