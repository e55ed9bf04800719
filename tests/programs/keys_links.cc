// SPDX-License-Identifier: GPL-2.0
#include "keys_links.h"

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <utility>
#include <vector>

#include "failure.h"
#include "keys.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie::keys {
namespace {

constexpr uint32_t kQkey = 0x11223344;
constexpr uint32_t kFewReceives = 8;

QpConfig ConfigOf(ibv_qp_type type) {
  QpConfig config;
  config.type = type;
  config.access = kAllAccess;
  config.rd_atomic = 4;
  return config;
}

}  // namespace

Links::Links(Side& side, const Device& device, const Regions& regions)
    : side_(side),
      device_(device),
      header_mr_(RegisterMr(device, header_.data(), header_.size())) {
  links_.push_back(Connect(device, side, ConfigOf(IBV_QPT_RC)));
  links_.push_back(Connect(device, side, ConfigOf(IBV_QPT_UC)));
  links_.push_back(ConnectDatagrams());
  ibv_srq_init_attr init{};
  init.attr = {.max_wr = kFewReceives, .max_sge = 1, .srq_limit = 0};
  srq_.reset(ibv_create_srq(regions.pd(Domain::kOther), &init));
  CheckErrno(srq_ == nullptr ? errno : 0, "ibv_create_srq");
  QpConfig config = ConfigOf(IBV_QPT_RC);
  config.srq = srq_.get();
  links_.push_back(Connect(device, side, config));
}

Connection Links::ConnectDatagrams() {
  Connection link{};
  link.config = ConfigOf(IBV_QPT_UD);
  link.config.cap.max_recv_sge = 2;
  link.send_cq = CreateCq(device_, kFewReceives);
  link.recv_cq = CreateCq(device_, kFewReceives);
  link.qp =
      CreateQp(device_, link.send_cq.get(), link.recv_cq.get(), &link.config);
  link.peer = side_.channel.Exchange(AddressOf(device_, link.qp.get()));
  ah_ = CreateAh(device_, link.peer.gid);
  links_.push_back(std::move(link));
  ToReady(Service::kDatagram, {});
  Connection ready = std::move(links_.back());
  links_.pop_back();
  return ready;
}

void Links::ToReady(Service service, const QpAddress& mine) {
  const Connection& link = Of(service);
  ibv_qp* const qp = link.qp.get();
  if (service != Service::kDatagram) {
    ToInit(qp, link.config);
    ToRts(qp, device_, mine, link.peer, link.config);
    return;
  }
  ToRtsUd(qp, kQkey, mine.psn);
}

void Links::Address(ibv_send_wr* wr) {
  wr->wr.ud.ah = ah_.get();
  wr->wr.ud.remote_qpn = Of(Service::kDatagram).peer.qpn;
  wr->wr.ud.remote_qkey = kQkey;
}

void Links::PostReceive(Service service, uint64_t wr_id, const ibv_sge& sge) {
  std::vector<ibv_sge> sges = {sge};
  if (service == Service::kDatagram) {
    sges.insert(sges.begin(),
                {reinterpret_cast<uintptr_t>(header_.data()),
                 static_cast<uint32_t>(header_.size()), header_mr_->lkey});
  }
  if (service == Service::kShared) {
    PostSrqRecv(srq_.get(), wr_id, sges);
  } else {
    PostRecv(Of(service).qp.get(), wr_id, sges);
  }
}

void Links::SetAccess(Service service, unsigned int access) {
  Connection& link = Of(service);
  if (service == Service::kDatagram || access == link.config.access) {
    return;
  }
  ibv_qp_attr attr{};
  attr.qp_access_flags = access;
  CheckErrno(ibv_modify_qp(link.qp.get(), &attr, IBV_QP_ACCESS_FLAGS),
             "modify QP: access");
  link.config.access = access;
}

void Links::Renew(Service service) {
  ++lives_;
  Connection& link = Of(service);
  ToState(link.qp.get(), IBV_QPS_RESET);
  ibv_wc rest{};
  while (ibv_poll_cq(link.recv_cq.get(), 1, &rest) > 0) {
  }
  while (ibv_poll_cq(link.send_cq.get(), 1, &rest) > 0) {
  }
  QpAddress mine{};
  // Far from what could still be under way.
  mine.psn = (lives_ << 16) & 0xffffff;
  link.peer.psn = mine.psn;
  ToReady(service, mine);
}

}  // namespace ropcie::keys
