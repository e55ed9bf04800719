// SPDX-License-Identifier: GPL-2.0
// rop_failnth: extended reliable connections, and multicast groups.
#include <fcntl.h>
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "failnth.h"
#include "failure.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

class Xrc {
 public:
  explicit Xrc(Sweep& sweep)
      : sweep_(sweep), cq_(CreateCq(sweep.device(), Sweep::kEntries)) {
    ibv_xrcd_init_attr init{};
    init.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    init.fd = -1;
    init.oflags = O_CREAT;
    xrcd_.reset(ibv_open_xrcd(sweep.context(), &init));
    CheckErrno(xrcd_ == nullptr ? errno : 0, "ibv_open_xrcd");
  }

  void Run() {
    sweep_.CreateAndDestroy<SrqPtr>("XRC SRQ", ibv_destroy_srq,
                                    [&] { return MakeSrq(); });
    for (const ibv_qp_type type : {IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV}) {
      QueuePairs(type);
    }
    OpenedQueuePair();
  }

 private:
  ibv_srq* MakeSrq() const {
    ibv_srq_init_attr_ex attr{};
    attr.attr = {.max_wr = 64, .max_sge = 1, .srq_limit = 0};
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    attr.srq_type = IBV_SRQT_XRC;
    attr.pd = sweep_.pd();
    attr.xrcd = xrcd_.get();
    attr.cq = cq_.get();
    return ibv_create_srq_ex(sweep_.context(), &attr);
  }

  ibv_qp* MakeQp(ibv_qp_type type) const {
    ibv_qp_init_attr_ex init{};
    init.qp_type = type;
    if (type == IBV_QPT_XRC_SEND) {
      init.send_cq = cq_.get();
      init.cap.max_send_wr = 64;
      init.cap.max_send_sge = 1;
      init.comp_mask = IBV_QP_INIT_ATTR_PD;
      init.pd = sweep_.pd();
    } else {
      init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
      init.xrcd = xrcd_.get();
    }
    return ibv_create_qp_ex(sweep_.context(), &init);
  }

  // From RESET on, to the state with that number; with itself.
  [[nodiscard]] int Step(ibv_qp* qp, ibv_qp_state state) const {
    const bool sends = qp->qp_type == IBV_QPT_XRC_SEND;
    const QpAddress own = {sweep_.device().gid, qp->qp_num, 0,
                           sweep_.device().port.active_mtu};
    ibv_qp_attr attr{};
    switch (state) {
      case IBV_QPS_INIT:
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = Device::kPort;
        return ibv_modify_qp(qp, &attr,
                             IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                 IBV_QP_ACCESS_FLAGS);
      case IBV_QPS_RTR:
        attr = RtrAttr(sweep_.device(), own, {});
        return ibv_modify_qp(qp, &attr,
                             sends ? kRtrMask & ~(IBV_QP_MAX_DEST_RD_ATOMIC |
                                                  IBV_QP_MIN_RNR_TIMER)
                                   : kRtrMask);
      default:
        attr = RtsAttr(0, {});
        return ibv_modify_qp(
            qp, &attr,
            sends ? kRtsMask : IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT);
    }
  }

  void QueuePairs(ibv_qp_type type) {
    static constexpr std::array<ibv_qp_state, 3> kStates = {
        IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
    const std::string name =
        type == IBV_QPT_XRC_SEND ? "XRC QP that sends" : "XRC QP that receives";
    const auto create = [&] { return MakeQp(type); };
    if (type == IBV_QPT_XRC_SEND) {
      sweep_.CreateAndDestroy<QpPtr>(name, ibv_destroy_qp, create);
    } else {
      // Linux's create_xrc_qp_user() leaves the domain in use for ever when it
      // fails behind the driver's part.
      sweep_.Destroy<QpPtr>(name, ibv_destroy_qp, create);
    }
    QpPtr qp;
    for (size_t step = 0; step < kStates.size(); ++step) {
      sweep_.Each(
          Text("modify ", name, " to ", int{kStates.at(step)}),
          [&] {
            qp.reset(MakeQp(type));
            CheckErrno(qp == nullptr ? errno : 0, "ibv_create_qp_ex");
            for (size_t i = 0; i < step; ++i) {
              CheckErrno(Step(qp.get(), kStates.at(i)), "modify, step ", i);
            }
          },
          [&] { return Step(qp.get(), kStates.at(step)); },
          [&] { qp.reset(); });
    }
  }

  // Another process's handle of the one that receives.
  void OpenedQueuePair() {
    const QpPtr shared(MakeQp(IBV_QPT_XRC_RECV));
    CheckErrno(shared == nullptr ? errno : 0, "ibv_create_qp_ex");
    sweep_.CreateAndDestroy<QpPtr>("opened XRC QP", ibv_destroy_qp, [&] {
      ibv_qp_open_attr attr{};
      attr.comp_mask =
          IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
      attr.qp_num = shared->qp_num;
      attr.xrcd = xrcd_.get();
      attr.qp_type = IBV_QPT_XRC_RECV;
      return ibv_open_qp(sweep_.context(), &attr);
    });
  }

  Sweep& sweep_;
  CqPtr cq_;
  XrcdPtr xrcd_;
};

void Groups(Sweep& sweep) {
  const CqPtr cq = CreateCq(sweep.device(), Sweep::kEntries);
  ibv_qp_init_attr init{};
  init.send_cq = cq.get();
  init.recv_cq = cq.get();
  init.qp_type = IBV_QPT_UD;
  init.cap = {.max_send_wr = 4,
              .max_recv_wr = 4,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  const QpPtr qp(ibv_create_qp(sweep.pd(), &init));
  CheckErrno(qp == nullptr ? errno : 0, "ibv_create_qp");
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = Device::kPort;
  CheckErrno(ibv_modify_qp(
                 qp.get(), &attr,
                 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
             "modify to INIT");

  ibv_gid group{};
  group.raw[0] = 0xff;
  group.raw[1] = 0x0e;
  group.raw[15] = 1;
  const auto attach = [&] { return ibv_attach_mcast(qp.get(), &group, 0); };
  const auto detach = [&] { return ibv_detach_mcast(qp.get(), &group, 0); };
  sweep.Each(
      "attach to a group", [] {}, attach,
      [&] { CheckErrno(detach(), "ibv_detach_mcast"); });
  sweep.Each(
      "detach from a group", [&] { CheckErrno(attach(), "ibv_attach_mcast"); },
      detach, [] {});
}

}  // namespace

void SweepXrc(Sweep& sweep) {
  if (HasMappedQueues()) {
    Xrc(sweep).Run();
  }
  Groups(sweep);
}

}  // namespace ropcie
