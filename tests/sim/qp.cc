// SPDX-License-Identifier: GPL-2.0
#include "qp.h"

#include <algorithm>

#include "node.h"

namespace ropcie::sim {
namespace {

constexpr uint32_t kToInit = ROPCIE_QP_STATE | ROPCIE_QP_PKEY_INDEX |
                             ROPCIE_QP_PORT | ROPCIE_QP_ACCESS_FLAGS;
constexpr uint32_t kToRtr =
    ROPCIE_QP_STATE | ROPCIE_QP_AV | ROPCIE_QP_PATH_MTU | ROPCIE_QP_DEST_QPN |
    ROPCIE_QP_RQ_PSN | ROPCIE_QP_MAX_DEST_RD_ATOMIC | ROPCIE_QP_MIN_RNR_TIMER;
constexpr uint32_t kUnreliableToRtr = ROPCIE_QP_STATE | ROPCIE_QP_AV |
                                      ROPCIE_QP_PATH_MTU | ROPCIE_QP_DEST_QPN |
                                      ROPCIE_QP_RQ_PSN;
constexpr uint32_t kUnreliableToRts = ROPCIE_QP_STATE | ROPCIE_QP_SQ_PSN;
constexpr uint32_t kToRts = ROPCIE_QP_STATE | ROPCIE_QP_TIMEOUT |
                            ROPCIE_QP_RETRY_CNT | ROPCIE_QP_RNR_RETRY |
                            ROPCIE_QP_SQ_PSN | ROPCIE_QP_MAX_QP_RD_ATOMIC;

}  // namespace

Qp::Qp(Env* env, Node* node, uint32_t qpn, QpUser* user)
    : env_(env),
      node_(node),
      qpn_(qpn),
      user_(user),
      ring_(size_t{kDepth} * kStride / sizeof(uint64_t)) {
  Reset();
}

void Qp::Modify(ropcie_qps next, uint32_t mask) {
  const ropcie_qpt type = attr_.unreliable ? ROPCIE_QPT_UC : ROPCIE_QPT_RC;
  Require(ropcie_qp_transition(type, state_, next, mask) == 0, "transition ",
          state_, " to ", next, " refused");
  state_ = next;
}

void Qp::Reset() {
  Modify(ROPCIE_QPS_RESET, ROPCIE_QP_STATE);
  connected_ = false;
  ropcie_req_init(&req_, ring_.data(), kDepth, kStride);
  rsp_ = {};
  rq_.clear();
  held_.reset();
  deadline_ = 0;
  ropcie_grants_init(&out_, env_->random.Word());
  ropcie_holds_init(&in_, env_->random.Word());
  laned_ = 0;
}

void Qp::Connect(const QpAttr& attr) {
  attr_ = attr;
  Modify(ROPCIE_QPS_INIT, kToInit);
  const ropcie_rsp_attr rsp_attr = {.psn = attr.rq_psn,
                                    .dest_qpn = attr.dest_qpn,
                                    .src_qpn = qpn_,
                                    .min_rnr_timer = attr.min_rnr_timer,
                                    .max_rd_atomic = attr.max_dest_rd_atomic,
                                    .unreliable = attr.unreliable,
                                    .xrc = attr.srqn != 0,
                                    .access = ROPCIE_ACCESS_REMOTE_WRITE |
                                              ROPCIE_ACCESS_REMOTE_READ |
                                              ROPCIE_ACCESS_REMOTE_ATOMIC};
  ropcie_rsp_connect(&rsp_, &rsp_attr);
  connected_ = true;
  Modify(ROPCIE_QPS_RTR, attr.unreliable ? kUnreliableToRtr : kToRtr);
}

void Qp::ReadyToSend() {
  const uint8_t rnr_retry =
      env_->fault == Fault::kRnrLimit && attr_.rnr_retry == 7 ? 6
                                                              : attr_.rnr_retry;
  const ropcie_req_attr req_attr = {
      .psn = attr_.sq_psn,
      .frag = attr_.frag,
      .dest_qpn = attr_.dest_qpn,
      .src_qpn = qpn_,
      .retry_cnt = attr_.retry_cnt,
      .rnr_retry = rnr_retry,
      .max_rd_atomic = attr_.max_rd_atomic,
      .unreliable = attr_.unreliable && env_->fault != Fault::kUcStuck,
      .timeout_ns = attr_.timeout_ns};
  Modify(ROPCIE_QPS_RTS, attr_.unreliable ? kUnreliableToRts : kToRts);
  ropcie_req_connect(&req_, &req_attr);
}

void Qp::Drain() {
  Modify(ROPCIE_QPS_SQD, ROPCIE_QP_STATE);
  ropcie_req_drain(&req_, true);
}

void Qp::Resume() {
  if (state_ == ROPCIE_QPS_SQE) {
    // What was posted meanwhile is not sent.
    FlushSends();
    ropcie_req_resume(&req_);
    user_->OnResumed();
  }
  Modify(ROPCIE_QPS_RTS, ROPCIE_QP_STATE);
  ropcie_req_drain(&req_, false);
}

void Qp::ToError() {
  if (!rsp_.dead) {
    ropcie_rsp_stop(&rsp_);
  }
  Modify(ROPCIE_QPS_ERR, ROPCIE_QP_STATE);
  out_.closed = true;
  Withdraw();
  CompleteSends();
  Flush();
}

bool Qp::PostSend(const SendRequest& request,
                  const std::vector<ropcie_sge>& list) {
  if (!ropcie_qp_may_post_send(state_) || ropcie_req_space(&req_) == 0) {
    return false;
  }
  ropcie_send_wqe* wqe = ropcie_req_slot(&req_);
  wqe->wr_id = request.wr_id;
  wqe->raddr = request.raddr;
  wqe->rkey = request.rkey;
  wqe->compare_add = request.compare_add;
  wqe->swap = request.swap;
  wqe->length = static_cast<uint32_t>(
      ropcie_sge_length(list.data(), static_cast<uint32_t>(list.size())));
  wqe->imm = request.imm;
  wqe->srqn = attr_.srqn;
  wqe->op = request.op;
  wqe->flags = request.flags;
  wqe->num_sge = static_cast<uint8_t>(list.size());
  std::copy(list.begin(), list.end(), wqe->sge);
  ropcie_req_post(&req_);
  return true;
}

bool Qp::PostRecv(uint64_t wr_id, const std::vector<ropcie_sge>& list) {
  if (!ropcie_qp_may_post_recv(state_) || rq_.size() == kDepth) {
    return false;
  }
  rq_.push_back({.wr_id = wr_id,
                 .length = ropcie_sge_length(
                     list.data(), static_cast<uint32_t>(list.size())),
                 .sge = list});
  return true;
}

ropcie_mr_core* Qp::GetMr(const ropcie_sge& piece, uint32_t access) {
  ropcie_mr_core* mr = node_->FindMr(piece.lkey);
  if (mr == nullptr ||
      ropcie_mr_check(mr, kPd, piece.addr, piece.length, access) != 0) {
    return nullptr;
  }
  return mr;
}

// Fills vec_; returns false when a key or its bounds do not allow it.
bool Qp::Gather(const ropcie_send_wqe& wqe, uint32_t off, uint32_t len) {
  ropcie_sge_cursor cur;
  ropcie_sge piece;
  uint32_t count = 0;
  vec_.resize(GatherVecs(len));
  ropcie_sge_seek(&cur, wqe.sge, wqe.num_sge, off);
  while (len > 0 && ropcie_sge_next(&cur, len, &piece)) {
    const ropcie_mr_core* mr = GetMr(piece, 0);
    if (mr == nullptr) {
      return false;
    }
    Require(ropcie_mr_map(mr, piece.addr, piece.length, vec_.data(),
                          static_cast<uint32_t>(vec_.size()),
                          &count) == piece.length,
            "a checked range does not map");
    len -= piece.length;
  }
  vec_.resize(count);
  return len == 0;
}

// Memory is being brought in: this side comes again.
bool Qp::NotThere(Side side, uint32_t length) {
  paging_[side] |= env_->paging && length > 0 && env_->random.OneIn(12);
  if (paging_[side]) {
    node_->SetBusy();  // bringing it in is under way
  }
  return paging_[side];
}

void Qp::BringIn() {
  if (paging_[kResponder] || paging_[kRequester]) {
    node_->SetBusy();
  }
  if (paging_[kResponder] && env_->random.OneIn(3)) {
    paging_[kResponder] = false;
    ropcie_rsp_there(&rsp_);
  }
  if (paging_[kRequester] && env_->random.OneIn(3)) {
    paging_[kRequester] = false;
    if (fetch_again_) {
      ropcie_req_fetch_again(&req_);
    }
    fetch_again_ = false;
  }
}

int Qp::Tell(ropcie_hdr hdr, enum ropcie_mq_dir dir, std::vector<__le64>* bus) {
  hdr.mq = ropcie_mq_id(attr_.dest_qpn, dir);
  hdr.src_qpn = qpn_;
  std::vector<ropcie_vec> vec;
  if (bus != nullptr) {
    vec.push_back({.base = bus->data(), .len = hdr.frag_len});
  }
  return node_->Send(attr_.peer, qpn_, hdr, vec);
}

int Qp::SendRecord(ropcie_req_rec* rec) {
  bool wait = false;
  ropcie_hold* hold = Choose(rec, &wait);
  if (wait) {
    return -EBUSY;
  }
  if (NotThere(kRequester, rec->hdr.frag_len)) {
    return -EINPROGRESS;
  }
  if (!Gather(*rec->wqe, rec->off, rec->hdr.frag_len)) {
    return -EACCES;
  }
  if (hold != nullptr && node_->IsUp(attr_.peer)) {
    Store(*hold, rec->wqe->raddr + rec->off, rec->hdr.frag_len);
    rec->hdr.flags |= ROPCIE_F_PLACED;
    rec->hdr.grant = hold->id;
    vec_.clear();
  }
  const int ret = node_->Send(attr_.peer, qpn_, rec->hdr, vec_);
  if (ret == 0 && hold != nullptr) {
    node_->CountPlaced();
    ropcie_hold_used(&in_, rec->hdr.frag_len);
  }
  return ret;
}

void Qp::SendLoop() {
  ropcie_req_rec rec;
  for (;;) {
    const ropcie_req_verdict verdict = ropcie_req_next(&req_, &rec);
    if (verdict == ROPCIE_REQ_LOCAL) {
      user_->OnExecute(rec.wqe->wr_id);
      ropcie_req_executed(&req_);
      continue;
    }
    if (verdict != ROPCIE_REQ_SEND) {
      break;
    }
    const int ret = SendRecord(&rec);
    if (ret == -EAGAIN) {
      ropcie_req_stuck(&req_, env_->now);
      break;
    }
    if (ret == -EINPROGRESS || ret == -EBUSY) {
      break;
    }
    if (ret == -EACCES) {
      ropcie_req_local_error(&req_, ROPCIE_WC_LOC_PROT_ERR);
      continue;
    }
    if (ret != 0) {
      ropcie_req_fail(&req_, ROPCIE_WC_RETRY_EXC_ERR);
      continue;
    }
    ropcie_req_sent(&req_, &rec, env_->now);
    user_->OnSent(rec.hdr);
    if (rec.last && env_->Fails(Fault::kEarlySuccess)) {
      ropcie_hdr ack{};
      ack.src_qpn = attr_.dest_qpn;
      ack.psn = rec.hdr.psn;
      ropcie_req_response(&req_, &ack, env_->now);
    }
    if (env_->random.OneIn(16)) {
      break;  // the budget is spent: somebody goes on later
    }
  }
}

void Qp::CompleteSends() {
  if ((req_.error != 0 || req_.local_error != 0) && FailsLate()) {
    return;
  }
  ropcie_req_comp comp;
  while (ropcie_req_complete(&req_, &comp)) {
    if (!env_->Fails(Fault::kLoseCompletion)) {
      user_->OnSendDone(comp);
    }
  }
  if (req_.error == 0 || state_ == ROPCIE_QPS_ERR) {
    return;
  }
  if (!attr_.unreliable) {
    ToError();
    return;
  }
  state_ = ROPCIE_QPS_SQE;  // not by a modify_qp
  FlushSends();
}

void Qp::TellReceive(const RecvDone& done) {
  if (!held_ && env_->Fails(Fault::kWrongOrder)) {
    held_ = done;
    return;
  }
  user_->OnRecvDone(done);
  if (held_) {
    user_->OnRecvDone(*held_);
    held_.reset();
  }
}

void Qp::CompleteReceive(const ropcie_hdr* hdr, uint8_t status) {
  RecvDone done;
  done.wr_id = rq_.front().wr_id;
  done.status = status;
  if (hdr != nullptr) {
    done.length = hdr->msg_len;
    done.imm = hdr->imm;
    done.has_imm = (hdr->flags & ROPCIE_F_IMM) != 0;
    done.solicited = (hdr->flags & ROPCIE_F_SOLICITED) != 0;
  }
  rq_.pop_front();
  TellReceive(done);
}

void Qp::FlushSends() {
  ropcie_req_comp comp;
  while (ropcie_req_flush(&req_, &comp)) {
    user_->OnSendDone(comp);
  }
}

void Qp::Flush() {
  if (env_->fault == Fault::kNoFlush || FailsLate()) {
    return;
  }
  FlushSends();
  while (!rq_.empty()) {
    CompleteReceive(nullptr, ROPCIE_WC_WR_FLUSH_ERR);
  }
}

void Qp::Run() {
  if (connected_) {
    FlushPlacement();
  }
  if (!connected_ || state_ == ROPCIE_QPS_RESET) {
    if (state_ == ROPCIE_QPS_ERR) {
      Flush();
    }
    return;
  }
  if (deadline_ != 0 && env_->now >= deadline_) {
    Require(!env_->timely || !node_->Trusts(attr_.peer), "node ", node_->id(),
            " qp ", qpn_, ": a peer in time is given up");
    node_->GiveUp(attr_.peer);
  }
  BringIn();
  Answer();
  if (req_.deadline != 0 && env_->now >= req_.deadline) {
    ropcie_req_timeout(
        &req_, env_->now,
        (node_->Delivered(attr_.peer, qpn_) && !paging_[kRequester]) ||
            (env_->impatient && env_->random.OneIn(4)));
  }
  CompleteSends();
  if (ropcie_qp_requests(state_)) {
    SendLoop();
    CompleteSends();
  }
  if (state_ == ROPCIE_QPS_ERR) {
    Flush();
  } else if (state_ == ROPCIE_QPS_SQE) {
    FlushSends();
  }
}

bool Qp::Acknowledge(const ropcie_hdr& hdr) {
  if (hdr.src_qpn == attr_.dest_qpn) {
    user_->OnAcknowledge(hdr);
  }
  const uint8_t left = req_.rnr_left;
  bool moves = ropcie_req_response(&req_, &hdr, env_->now);
  if (hdr.syndrome != ROPCIE_RNR_NAK) {
    return moves;
  }
  if (env_->Fails(Fault::kRnrTwice)) {
    moves |= ropcie_req_response(&req_, &hdr, env_->now);
  }
  if (env_->Fails(Fault::kRnrUncounted)) {
    req_.rnr_left = left;
  }
  if (env_->Fails(Fault::kRnrHasty)) {
    moves |= ropcie_req_timeout(&req_, req_.deadline, true);
  }
  return moves;
}

bool Qp::Response(const ropcie_rec& rec) {
  if (rec.hdr.op == ROPCIE_OP_ACK) {
    return Acknowledge(rec.hdr);
  }
  ropcie_req_place at;
  if (!ropcie_req_data(&req_, &rec.hdr, &at, env_->now)) {
    return req_.error != 0;
  }
  if ((rec.hdr.flags & ROPCIE_F_PLACED) != 0) {
    const ropcie_sge& sge = at.wqe->sge[0];
    if (at.wqe->num_sge == 1 &&
        ropcie_grant_covers(&out_, rec.hdr.grant, sge.lkey, true,
                            sge.addr + at.off, rec.hdr.frag_len)) {
      ropcie_req_placed(&req_, &rec.hdr, env_->now);
    } else {
      ropcie_req_fail(&req_, ROPCIE_WC_BAD_RESP_ERR);
    }
    return true;
  }
  ropcie_rec value{};
  const ropcie_rec* data = &rec;
  if (rec.hdr.op == ROPCIE_OP_ATOMIC_RESP) {
    value.hdr = rec.hdr;
    value.hdr.frag_len = at.len;
    value.ring[0] = {.base = &value.hdr.orig, .len = at.len};
    value.span = value.ring;
    value.nspan = 1;
    data = &value;
  }
  if (NotThere(kRequester, at.len)) {
    fetch_again_ = true;
  } else if (Place(*data, {at.wqe->sge, at.wqe->num_sge}, at.off)) {
    ropcie_req_placed(&req_, &rec.hdr, env_->now);
  } else {
    ropcie_req_fail(&req_, ROPCIE_WC_LOC_PROT_ERR);
  }
  return true;
}

void Qp::OnResponse(int peer, const ropcie_rec& rec) {
  if (connected_ && peer == attr_.peer && ropcie_op_grants(rec.hdr.op)) {
    HearPlacement(rec);
    return;
  }
  if (connected_ && peer == attr_.peer && ropcie_qp_requests(state_) &&
      Response(rec)) {
    Run();
  }
}

void Qp::LinkLost() {
  PlacementLost();
  if (state_ == ROPCIE_QPS_ERR) {
    Flush();  // may have waited for what is lost
  }
  if (state_ == ROPCIE_QPS_ERR || state_ == ROPCIE_QPS_RESET) {
    return;
  }
  user_->OnLinkLost();
  ropcie_rsp_stop(&rsp_);
  ropcie_req_fail(&req_, env_->fault == Fault::kSuccessOnLoss
                             ? ROPCIE_WC_SUCCESS
                             : ROPCIE_WC_RETRY_EXC_ERR);
  ToError();
}

}  // namespace ropcie::sim
