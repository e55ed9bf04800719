// SPDX-License-Identifier: GPL-2.0
#include "qp.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "node.h"

namespace ropcie::sim {
namespace {

// Runs of memory that one step of the scatter loop fills, as in the driver.
constexpr uint32_t kScatterVecs = 16;
constexpr uint32_t kGatherVecs = 1024;
// After which a peer that returns nothing is given up.
constexpr uint64_t kPatience = uint64_t{5} * 1000 * 1000 * 1000;

constexpr uint32_t kToInit = ROPCIE_QP_STATE | ROPCIE_QP_PKEY_INDEX |
                             ROPCIE_QP_PORT | ROPCIE_QP_ACCESS_FLAGS;
constexpr uint32_t kToRtr =
    ROPCIE_QP_STATE | ROPCIE_QP_AV | ROPCIE_QP_PATH_MTU | ROPCIE_QP_DEST_QPN |
    ROPCIE_QP_RQ_PSN | ROPCIE_QP_MAX_DEST_RD_ATOMIC | ROPCIE_QP_MIN_RNR_TIMER;
constexpr uint32_t kToRts = ROPCIE_QP_STATE | ROPCIE_QP_TIMEOUT |
                            ROPCIE_QP_RETRY_CNT | ROPCIE_QP_RNR_RETRY |
                            ROPCIE_QP_SQ_PSN | ROPCIE_QP_MAX_QP_RD_ATOMIC;

}  // namespace

Qp::Qp(Env* env, Node* node, uint32_t qpn, QpUser* user)
    : env_(env),
      node_(node),
      qpn_(qpn),
      user_(user),
      ring_(size_t{kDepth} * kStride / sizeof(uint64_t)),
      vec_(kGatherVecs) {
  Reset();
}

void Qp::Modify(ropcie_qps next, uint32_t mask) {
  Require(ropcie_qp_transition(ROPCIE_QPT_RC, state_, next, mask) == 0,
          "transition ", state_, " to ", next, " refused");
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
  Modify(ROPCIE_QPS_INIT, kToInit);
  attr_ = attr;
  const ropcie_rsp_attr rsp_attr = {.psn = attr.rq_psn,
                                    .dest_qpn = attr.dest_qpn,
                                    .src_qpn = qpn_,
                                    .min_rnr_timer = attr.min_rnr_timer,
                                    .max_rd_atomic = attr.max_dest_rd_atomic,
                                    .unreliable = false,
                                    .xrc = attr.srqn != 0,
                                    .access = ROPCIE_ACCESS_REMOTE_WRITE |
                                              ROPCIE_ACCESS_REMOTE_READ |
                                              ROPCIE_ACCESS_REMOTE_ATOMIC};
  ropcie_rsp_connect(&rsp_, &rsp_attr);
  connected_ = true;
  Modify(ROPCIE_QPS_RTR, kToRtr);
}

void Qp::ReadyToSend() {
  const ropcie_req_attr req_attr = {.psn = attr_.sq_psn,
                                    .frag = attr_.frag,
                                    .dest_qpn = attr_.dest_qpn,
                                    .src_qpn = qpn_,
                                    .retry_cnt = attr_.retry_cnt,
                                    .rnr_retry = attr_.rnr_retry,
                                    .max_rd_atomic = attr_.max_rd_atomic,
                                    .unreliable = false,
                                    .timeout_ns = attr_.timeout_ns};
  Modify(ROPCIE_QPS_RTS, kToRts);
  ropcie_req_connect(&req_, &req_attr);
}

void Qp::Drain() {
  Modify(ROPCIE_QPS_SQD, ROPCIE_QP_STATE);
  req_.draining = true;
}

void Qp::Resume() {
  Modify(ROPCIE_QPS_RTS, ROPCIE_QP_STATE);
  req_.draining = false;
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
  vec_.resize(kGatherVecs);
  ropcie_sge_seek(&cur, wqe.sge, wqe.num_sge, off);
  while (len > 0 && ropcie_sge_next(&cur, len, &piece)) {
    const ropcie_mr_core* mr = GetMr(piece, 0);
    if (mr == nullptr) {
      return false;
    }
    Require(ropcie_mr_map(mr, piece.addr, piece.length, vec_.data(),
                          kGatherVecs, &count) == piece.length,
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
  if (req_.error != 0 && state_ != ROPCIE_QPS_ERR) {
    ToError();
  }
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

void Qp::Flush() {
  if (env_->fault == Fault::kNoFlush || FailsLate()) {
    return;
  }
  ropcie_req_comp comp;
  while (ropcie_req_flush(&req_, &comp)) {
    user_->OnSendDone(comp);
  }
  while (!rq_.empty()) {
    CompleteReceive(nullptr, ROPCIE_WC_WR_FLUSH_ERR);
  }
}

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
    vec_.resize(kGatherVecs);
    Require(ropcie_mr_map(mr, hdr->addr, hdr->frag_len, vec_.data(),
                          kGatherVecs, &count) == hdr->frag_len,
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
    node_->GiveUp(attr_.peer);
  }
  BringIn();
  Answer();
  if (req_.deadline != 0 && env_->now >= req_.deadline) {
    ropcie_req_timeout(
        &req_, env_->now,
        node_->Delivered(attr_.peer, qpn_) && !paging_[kRequester]);
  }
  CompleteSends();
  if (ropcie_qp_requests(state_)) {
    SendLoop();
    CompleteSends();
  }
  if (state_ == ROPCIE_QPS_ERR) {
    Flush();
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
  Refuse();
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
  Request(rec);
  return ropcie_rsp_owes(&rsp_);
}

bool Qp::Response(const ropcie_rec& rec) {
  if (rec.hdr.op == ROPCIE_OP_ACK) {
    return ropcie_req_response(&req_, &rec.hdr, env_->now);
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
