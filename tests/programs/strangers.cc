// SPDX-License-Identifier: GPL-2.0
// What attempts are made of: queue pairs of one process, and what becomes of
// requests.
#include "strangers.h"

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <ropcie-abi.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "failure.h"
#include "mappings.h"
#include "verbs_util.h"

namespace ropcie::strangers {
namespace {

constexpr uint8_t kOut = 0xa5;
constexpr uint8_t kIn = 0xee;
constexpr int kPatience = 300;  // s; a slow kernel has time, too
constexpr uint64_t kFirst = 0x7761686365726966;
constexpr uint64_t kSecond = 0x6e6f636573736968;

constexpr int kInitiatorRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                  IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

QpConfig ConfigOf(ibv_qp_type type, ibv_srq* srq) {
  QpConfig config;
  config.type = type;
  config.cap.max_send_wr = kDepth;
  config.cap.max_recv_wr = kDepth;
  config.access = kAllAccess;
  config.rnr_retry = 0;
  config.rd_atomic = 4;
  config.srq = srq;
  return config;
}

// Where a word is.
uint8_t* Find(const Mapping& in, uint64_t word) {
  for (size_t i = 0; i + sizeof(word) <= in.length; i += sizeof(word)) {
    if (std::memcmp(in.begin + i, &word, sizeof(word)) == 0) {
      return in.begin + i;
    }
  }
  throw Failure("the mapped queue does not have what was posted");
}

}  // namespace

int DeallocMw(ibv_mw* mw) { return ibv_dealloc_mw(mw); }
int CloseXrcd(ibv_xrcd* xrcd) { return ibv_close_xrcd(xrcd); }

Actor::Actor(const Device& of, ibv_xrcd* domain, const Device* from)
    : device(of), xrcd(domain), elsewhere(from), memory(3 * kPiece) {
  mr = RegisterMr(device, memory.data(), memory.size(),
                  static_cast<int>(kAllAccess | IBV_ACCESS_MW_BIND));
  Clear();
}

void Actor::Clear() {
  std::fill_n(memory.begin(), kPiece, kOut);
  std::fill(memory.begin() + kPiece, memory.end(), kIn);
}

bool Actor::Came() const {
  return !std::all_of(memory.begin() + kPiece, memory.end(),
                      [](uint8_t byte) { return byte == kIn; });
}

ibv_sge Actor::Out(uint32_t length) const {
  return {.addr = reinterpret_cast<uintptr_t>(memory.data()),
          .length = length,
          .lkey = mr->lkey};
}

ibv_sge Actor::In(uint32_t length) const {
  return {.addr = reinterpret_cast<uintptr_t>(memory.data() + kPiece),
          .length = length,
          .lkey = mr->lkey};
}

std::string Answer(int error) {
  return error == 0                           ? kAccepted
         : error == EINVAL || error == ENOENT ? kRefused
                                              : std::strerror(error);
}

ibv_send_wr Request(ibv_wr_opcode opcode, ibv_sge* sge, const Region& to) {
  ibv_send_wr wr{};
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = sge;
  wr.num_sge = sge != nullptr ? 1 : 0;
  if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
      opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic.remote_addr = to.addr;
    wr.wr.atomic.rkey = to.rkey;
    // Compare: what the victim's memory begins with, if it is so kind.
    wr.wr.atomic.compare_add = 0x0706050403020100;
    wr.wr.atomic.swap = 1;
  } else {
    wr.wr.rdma.remote_addr = to.addr;
    wr.wr.rdma.rkey = to.rkey;
  }
  return wr;
}

ibv_send_wr DatagramRequest(ibv_sge* sge, ibv_ah* ah, uint32_t qpn,
                            uint32_t qkey) {
  ibv_send_wr wr = Request(IBV_WR_SEND, sge);
  wr.wr.ud.ah = ah;
  wr.wr.ud.remote_qpn = qpn;
  wr.wr.ud.remote_qkey = qkey;
  return wr;
}

std::string Send(ibv_qp* qp, ibv_send_wr wr) {
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(qp, &wr, &bad);
  return error != 0 ? Answer(error) : Next(qp->send_cq);
}

std::string Next(ibv_cq* cq) {
  return Of(WaitFor(cq, 1, kPatience, "an attempt").front().status);
}

bool NothingComes(ibv_cq* cq) {
  ibv_wc wc{};
  for (int i = 0; i < 20; ++i) {
    if (ibv_poll_cq(cq, 1, &wc) != 0) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

XrcdPtr OpenXrcd(const Device& device, int fd) {
  ibv_xrcd_init_attr attr{};
  attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attr.fd = fd;
  attr.oflags = O_CREAT;
  XrcdPtr xrcd(ibv_open_xrcd(device.context.get(), &attr));
  CheckErrno(xrcd == nullptr ? errno : 0, "ibv_open_xrcd");
  return xrcd;
}

SrqPtr CreateXrcSrq(const Device& device, ibv_xrcd* xrcd, ibv_cq* cq) {
  ibv_srq_init_attr_ex attr{};
  attr.attr = {.max_wr = kDepth, .max_sge = 1, .srq_limit = 0};
  attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                   IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  attr.srq_type = IBV_SRQT_XRC;
  attr.pd = device.pd.get();
  attr.xrcd = xrcd;
  attr.cq = cq;
  SrqPtr srq(ibv_create_srq_ex(device.context.get(), &attr));
  CheckErrno(srq == nullptr ? errno : 0, "ibv_create_srq_ex");
  return srq;
}

QpPtr CreateInitiator(const Device& device, ibv_cq* cq) {
  QpConfig config = ConfigOf(IBV_QPT_XRC_SEND, nullptr);
  config.cap.max_recv_wr = 0;
  config.cap.max_recv_sge = 0;
  return CreateQp(device, cq, nullptr, &config);
}

QpPtr CreateTarget(const Device& device, ibv_xrcd* xrcd) {
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_XRC_RECV;
  init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  init.xrcd = xrcd;
  QpPtr qp(ibv_create_qp_ex(device.context.get(), &init));
  CheckErrno(qp == nullptr ? errno : 0, "ibv_create_qp_ex of a target");
  return qp;
}

void ConnectInitiator(ibv_qp* qp, const Device& device, uint32_t psn,
                      const QpAddress& peer, const QpConfig& config) {
  ToInit(qp, config);
  ibv_qp_attr attr = RtrAttr(device, peer, config);
  CheckErrno(ibv_modify_qp(qp, &attr, kInitiatorRtrMask), "initiator to RTR");
  attr = RtsAttr(psn, config);
  CheckErrno(ibv_modify_qp(qp, &attr, kRtsMask), "initiator to RTS");
}

void ConnectTarget(ibv_qp* qp, const Device& device, const QpAddress& peer,
                   const QpConfig& config) {
  ToInit(qp, config);
  ibv_qp_attr attr = RtrAttr(device, peer, config);
  CheckErrno(ibv_modify_qp(qp, &attr, kRtrMask), "target to RTR");
}

Pair::Pair(const Actor& actor, ibv_qp_type type, ibv_srq* srq)
    : sent(CreateCq(actor.device, 2 * kDepth)),
      received(CreateCq(actor.device, 2 * kDepth)),
      unused(CreateCq(actor.device, 2 * kDepth)) {
  const Device& device = actor.device;
  QpConfig config = ConfigOf(type, nullptr);
  from = CreateQp(device, sent.get(), unused.get(), &config);
  config = ConfigOf(type, srq);
  to = CreateQp(device, unused.get(), received.get(), &config);
  const QpAddress here = AddressOf(device, from.get());
  const QpAddress there = AddressOf(device, to.get());
  ToInit(from.get(), config);
  ToInit(to.get(), config);
  ToRts(from.get(), device, here, there, config);
  ToRts(to.get(), device, there, here, config);
}

Datagrams::Datagrams(const Device& device, uint32_t qkey)
    : sent(CreateCq(device, 2 * kDepth)),
      received(CreateCq(device, 2 * kDepth)) {
  QpConfig config = ConfigOf(IBV_QPT_UD, nullptr);
  qp = CreateQp(device, sent.get(), received.get(), &config);
  ToRtsUd(qp.get(), qkey);
}

HandWritten::HandWritten(const Device& device, ibv_ah* ah)
    : datagrams_(device, kOwnQkey) {
  const MrPtr mr = RegisterMr(device, data_.data(), data_.size());
  ibv_sge sge{.addr = reinterpret_cast<uintptr_t>(data_.data()),
              .length = uint32_t{sizeof(data_)},
              .lkey = mr->lkey};
  ibv_send_wr wr = DatagramRequest(&sge, ah, datagrams_.qp->qp_num, kOwnQkey);
  for (const uint64_t id : {kFirst, kSecond}) {
    wr.wr_id = id;
    const std::string sent = Send(datagrams_.qp.get(), wr);
    Check(sent == kSuccess, "a datagram: ", sent);
  }
  // Completions have the words, too; a queue that sends has them with the key.
  for (const Mapping& one : Mappings()) {
    uint8_t* first = nullptr;
    try {
      first = Find(one, kFirst);
      stride_ = static_cast<size_t>(Find(one, kSecond) - first);
    } catch (const Failure&) {
      continue;
    }
    ropcie_abi_send_wqe wqe{};
    std::memcpy(&wqe, first, sizeof(wqe));
    if (wqe.remote_qkey == kOwnQkey &&
        wqe.remote_qpn == datagrams_.qp->qp_num) {
      ring_ = one.begin;
      first_ = first;
      number_ = wqe.ah;
      break;
    }
  }
  Check(ring_ != nullptr, "the send queue is not mapped");
}

std::string HandWritten::SendTo(uint32_t number) {
  ropcie_abi_send_wqe wqe{};
  std::memcpy(&wqe, first_, sizeof(wqe));
  wqe.wr_id = 3;
  wqe.ah = number;
  // The region of the first is gone.
  wqe.num_sge = 0;
  std::memcpy(first_ + 2 * stride_, &wqe, sizeof(wqe));
  auto* const words = reinterpret_cast<ropcie_abi_ring*>(ring_);
  __atomic_store_n(&words->head, 3, __ATOMIC_RELEASE);
  RingDoorbell(datagrams_.qp.get());
  return Next(datagrams_.sent.get());
}

}  // namespace ropcie::strangers
