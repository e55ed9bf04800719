// SPDX-License-Identifier: GPL-2.0
#include "strangers_traffic.h"

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "failure.h"
#include "pattern.h"
#include "strangers.h"
#include "verbs_util.h"

namespace ropcie::strangers {
namespace {

constexpr size_t kMessage = 1000;
constexpr size_t kArena = size_t{1} << 16;
constexpr uint32_t kPart = 64;  // of a window, for the partner's WRITEs
constexpr uint32_t kQkey = 0x0badcafe;
constexpr uint64_t kNumbers = 16;  // of messages in a round
constexpr unsigned int kWindowAccess =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

QpConfig Config(ibv_qp_type type, ibv_srq* srq = nullptr) {
  QpConfig config;
  config.type = type;
  config.cap.max_send_wr = kDepth;
  config.cap.max_recv_wr = kDepth;
  config.access = kAllAccess;
  config.rd_atomic = 4;
  config.srq = srq;
  return config;
}

SrqPtr CreateSrq(const Device& device) {
  ibv_srq_init_attr init{};
  init.attr.max_wr = kDepth;
  init.attr.max_sge = 1;
  SrqPtr srq(ibv_create_srq(device.pd.get(), &init));
  CheckErrno(srq == nullptr ? errno : 0, "ibv_create_srq");
  return srq;
}

}  // namespace

Traffic::Traffic(Side& side, const Device& device, const Domain& domain)
    : side_(side),
      device_(device),
      domain_(domain),
      pattern_(side.options.seed, kMessage),
      arena_(device, kArena),
      shared_srq_(CreateSrq(device)),
      xrc_cq_(CreateCq(device, 2 * kDepth)),
      plain_(Connect(device, side, Config(IBV_QPT_RC))),
      shared_(Connect(
          device, side,
          Config(IBV_QPT_RC, side.leads ? shared_srq_.get() : nullptr))),
      datagrams_(device, kQkey),
      quiet_rc_(Connect(device, side, Config(IBV_QPT_RC))),
      quiet_uc_(Connect(device, side, Config(IBV_QPT_UC))),
      quiet_ud_(device, kQkey) {
  if (HasMappedQueues()) {
    Queue unused{};
    if (side_.leads) {
      xrc_srq_ = CreateXrcSrq(device_, domain_.xrcd, xrc_cq_.get());
      CheckErrno(ibv_get_srq_num(xrc_srq_.get(), &mine_.srqn),
                 "ibv_get_srq_num");
      BindWindows();
    }
    ConnectXrc(&xrc_, &unused);
    ConnectXrc(&quiet_xrc_, &quiet_target_);
  }
  mine_.ud_qpn = datagrams_.qp->qp_num;
  peer_ = side_.channel.Exchange(mine_);
  ah_ = CreateAh(device_, plain_.peer.gid);
  AddKind(plain_.qp.get(), plain_.send_cq.get(), plain_.recv_cq.get());
  AddKind(shared_.qp.get(), shared_.send_cq.get(), shared_.recv_cq.get(), 0,
          side_.leads ? shared_srq_.get() : nullptr);
  AddKind(datagrams_.qp.get(), datagrams_.sent.get(), datagrams_.received.get(),
          kGrh);
  if (HasMappedQueues()) {
    AddKind(xrc_.get(), xrc_cq_.get(), xrc_cq_.get(), 0, xrc_srq_.get());
    kinds_.back().sends = !side_.leads;
    kinds_.back().receives = side_.leads;
  }
}

// The victim has the target.
void Traffic::ConnectXrc(QpPtr* qp, Queue* queue) {
  const QpConfig config = Config(IBV_QPT_RC);
  *qp = side_.leads ? CreateTarget(device_, domain_.xrcd)
                    : CreateInitiator(device_, xrc_cq_.get());
  const QpAddress mine = AddressOf(device_, qp->get());
  const QpAddress peer = side_.channel.Exchange(mine);
  if (side_.leads) {
    ConnectTarget(qp->get(), device_, peer, config);
  } else {
    ConnectInitiator(qp->get(), device_, mine.psn, peer, config);
  }
  *queue = {qp->get()->qp_num, peer.psn};
  side_.channel.Barrier(mine.qpn ^ peer.qpn);
}

void Traffic::BindWindows() {
  ibv_pd* const pd = device_.pd.get();
  ibv_mr* const shown = domain_.shown;
  window_1_.reset(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
  window_2_.reset(ibv_alloc_mw(pd, IBV_MW_TYPE_2));
  CheckErrno(window_1_ == nullptr || window_2_ == nullptr ? errno : 0,
             "ibv_alloc_mw");
  const ibv_mw_bind_info info{.mr = shown,
                              .addr = reinterpret_cast<uintptr_t>(shown->addr),
                              .length = kPiece,
                              .mw_access_flags = kWindowAccess};
  ibv_mw_bind bind{
      .wr_id = 1, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
  CheckErrno(ibv_bind_mw(plain_.qp.get(), window_1_.get(), &bind),
             "ibv_bind_mw");
  const std::string bound = Next(plain_.send_cq.get());
  ibv_send_wr wr = Request(IBV_WR_BIND_MW, nullptr);
  wr.bind_mw.mw = window_2_.get();
  wr.bind_mw.rkey = ibv_inc_rkey(window_2_->rkey);
  wr.bind_mw.bind_info = info;
  const std::string second = Send(plain_.qp.get(), wr);
  Check(bound == kSuccess && second == bound, "binds: ", bound, ", ", second);
  mine_.window_1 = window_1_->rkey;
  mine_.window_2 = wr.bind_mw.rkey;
  mine_.shown = info.addr;
}

void Traffic::AddKind(ibv_qp* qp, ibv_cq* sent, ibv_cq* received, size_t grh,
                      ibv_srq* srq) {
  const Piece out = arena_.Take(kMessage, 1, false);
  const Piece in = arena_.Take(kMessage + grh, 3, false);
  kinds_.push_back({qp, sent, received, srq, out, in, grh,
                    static_cast<uint8_t>(kinds_.size()), true, true});
}

uint64_t Traffic::Number(const Kind& kind, bool of_leader) const {
  return round_ * kNumbers + 2 * uint64_t{kind.number} + (of_leader ? 1 : 0);
}

uint64_t Traffic::WindowNumber(int window) const {
  return round_ * kNumbers + kNumbers - 2 + static_cast<uint64_t>(window);
}

Region Traffic::WindowPart(int window) const {
  const Keys& keys = side_.leads ? mine_ : peer_;
  const uint32_t rkey = window == 0 ? keys.window_1 : keys.window_2;
  return {0, rkey,
          keys.shown + kPiece / 2 + kPart * static_cast<size_t>(window)};
}

void Traffic::PostReceive(const Kind& kind, size_t length) {
  ibv_sge sge = arena_.Sge(kind.in);
  sge.length = static_cast<uint32_t>(length);
  if (kind.srq != nullptr) {
    PostSrqRecv(kind.srq, round_, {sge});
  } else {
    PostRecv(kind.qp, round_, {sge});
  }
}

void Traffic::Post(const Kind& kind) {
  std::memcpy(arena_.At(kind.out.offset),
              pattern_.Bytes(Number(kind, side_.leads), 0), kMessage);
  ibv_sge sge = arena_.Sge(kind.out);
  ibv_send_wr wr = Request(IBV_WR_SEND, &sge);
  if (kind.grh != 0) {
    wr = DatagramRequest(&sge, ah_.get(), peer_.ud_qpn, kQkey);
  }
  if (kind.qp == xrc_.get()) {
    wr.qp_type.xrc.remote_srqn = peer_.srqn;
  }
  ibv_send_wr* bad = nullptr;
  CheckErrno(ibv_post_send(kind.qp, &wr, &bad), "traffic: ibv_post_send");
}

void Traffic::WriteThroughWindows() {
  const Kind& kind = kinds_.front();
  for (const int window : {0, 1}) {
    std::memcpy(arena_.At(kind.out.offset),
                pattern_.Bytes(WindowNumber(window), 0), kPart);
    ibv_sge sge = arena_.Sge({kind.out.offset, kPart});
    const std::string status =
        Send(kind.qp, Request(IBV_WR_RDMA_WRITE, &sge, WindowPart(window)));
    Check(status == kSuccess, "traffic through window ", window, ": ", status);
  }
}

// What the partner has written goes again.
void Traffic::CheckWindows() const {
  auto* const shown = static_cast<uint8_t*>(domain_.shown->addr);
  for (const int window : {0, 1}) {
    const size_t at = kPiece / 2 + kPart * static_cast<size_t>(window);
    Check(std::memcmp(shown + at, pattern_.Bytes(WindowNumber(window), 0),
                      kPart) == 0,
          "traffic through window ", window, ": wrong bytes");
    for (size_t i = at; i < at + kPart; ++i) {
      shown[i] = static_cast<uint8_t>(i);
    }
  }
}

bool Traffic::Round(bool more) {
  const int timeout = side_.options.timeout_s;
  ++round_;
  for (const Kind& kind : kinds_) {
    if (kind.receives) {
      PostReceive(kind, kMessage + kind.grh);
    }
  }
  const bool goes_on = side_.channel.Exchange(more) && more;
  for (const Kind& kind : kinds_) {
    if (kind.sends) {
      Post(kind);
    }
  }
  for (const Kind& kind : kinds_) {
    const std::string what =
        Text("traffic: round ", round_, ", kind ", int{kind.number});
    if (kind.sends) {
      WaitForSuccess(kind.sent, timeout, what);
    }
    if (!kind.receives) {
      continue;
    }
    const ibv_wc wc = WaitForSuccess(kind.received, timeout, what);
    Check(wc.wr_id == round_ && wc.byte_len == kMessage + kind.grh, what,
          ": receive ", wc.wr_id, " of ", wc.byte_len, " bytes");
    Check(std::memcmp(arena_.At(kind.in.offset + kind.grh),
                      pattern_.Bytes(Number(kind, !side_.leads), 0),
                      kMessage) == 0,
          what, ": wrong bytes");
  }
  arena_.CheckGuards("traffic");
  if (HasMappedQueues() && !side_.leads) {
    WriteThroughWindows();
  }
  side_.channel.Barrier(round_);
  if (HasMappedQueues() && side_.leads) {
    CheckWindows();
  }
  return goes_on;
}

void Traffic::EndQuiet(const Numbers& numbers) {
  if (!side_.leads) {
    const Piece& out = kinds_.front().out;
    ibv_sge sge = arena_.Sge({out.offset, kPiece - kGrh});
    const ibv_send_wr wr = Request(IBV_WR_SEND, &sge);
    std::vector<std::string> sent = {Send(rc(), wr), Send(uc(), wr)};
    sent.push_back(
        Send(datagrams_.qp.get(),
             DatagramRequest(&sge, ah_.get(), numbers.ud_qpn, numbers.qkey)));
    if (HasMappedQueues()) {
      ibv_send_wr xrc = wr;
      xrc.qp_type.xrc.remote_srqn = numbers.srqn;
      sent.push_back(Send(quiet_xrc_.get(), xrc));
    }
    for (const std::string& status : sent) {
      Check(status == kSuccess, "a quiet queue pair: ", status);
    }
  }
  side_.channel.Barrier(1);
}

void Traffic::EndWindow() {
  const Kind& kind = kinds_.front();
  if (side_.leads) {
    PostReceive(kind, kMessage);
  }
  side_.channel.Barrier(2);
  if (side_.leads) {
    const ibv_wc wc = WaitForSuccess(kind.received, side_.options.timeout_s,
                                     "SEND that invalidates");
    Check((wc.wc_flags & IBV_WC_WITH_INV) != 0 &&
              wc.invalidated_rkey == mine_.window_2,
          "the window was not taken away");
  } else {
    ibv_sge sge = arena_.Sge({kind.out.offset, kPart});
    ibv_send_wr wr = Request(IBV_WR_SEND_WITH_INV, &sge);
    wr.invalidate_rkey = peer_.window_2;
    std::string status = Send(kind.qp, wr);
    Check(status == kSuccess, "SEND that invalidates: ", status);
    status = Send(kind.qp, Request(IBV_WR_RDMA_WRITE, &sge, WindowPart(1)));
    Check(status == Of(IBV_WC_REM_ACCESS_ERR), "WRITE to no window: ", status);
  }
  side_.channel.Barrier(3);
}

void Traffic::ExpectStates() const {
  for (ibv_qp* const qp :
       {plain_.qp.get(), shared_.qp.get(), datagrams_.qp.get(),
        quiet_rc_.qp.get(), quiet_uc_.qp.get(), quiet_ud_.qp.get()}) {
    Check(StateOf(qp) == IBV_QPS_RTS, "queue pair ", qp->qp_num,
          " is in state ", StateOf(qp));
  }
  for (ibv_qp* const qp : {xrc_.get(), quiet_xrc_.get()}) {
    Check(qp == nullptr || StateOf(qp) == IBV_QPS_RTR, "target ",
          qp != nullptr ? qp->qp_num : 0, " has left RTR");
  }
}

void Traffic::Tell(Numbers* numbers) const {
  const Region shown{0, 0, mine_.shown};
  numbers->window_1 = shown;
  numbers->window_1.lkey = numbers->window_1.rkey = mine_.window_1;
  numbers->window_2 = shown;
  numbers->window_2.lkey = numbers->window_2.rkey = mine_.window_2;
  numbers->used.mw = window_1_ != nullptr ? window_1_->handle : 0;
  numbers->used.cq = plain_.recv_cq->handle;
  numbers->used.qp = plain_.qp->handle;
  numbers->used.ud = datagrams_.qp->handle;
  numbers->used.srq = shared_srq_->handle;
  numbers->used.ah = ah_->handle;
  numbers->rc = {rc()->qp_num, quiet_rc_.peer.psn};
  numbers->uc = {uc()->qp_num, quiet_uc_.peer.psn};
  numbers->xrc = quiet_target_;
  numbers->ud_qpn = ud()->qp_num;
  numbers->qkey = kQkey;
}

}  // namespace ropcie::strangers
