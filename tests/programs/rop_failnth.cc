// SPDX-License-Identifier: GPL-2.0
// Every call of the control path, with each of the kernel's allocations and
// copies in it failing in turn (CONFIG_FAULT_INJECTION): the call fails with an
// errno that says so, or does without; what was there is as before, and the
// same call works when it is made again. When all is done, it says "done" and
// waits for a line, so that somebody can look whether anything is left.
// Wants a device that reaches itself, and --nodes 1.
#include <fcntl.h>
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include "failnth.h"
#include "failure.h"
#include "injector.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

class Objects {
 public:
  explicit Objects(Sweep& sweep)
      : sweep_(sweep), device_(sweep.device()), context_(sweep.context()) {}

  void Run() {
    Contexts();
    Domains();
    CompletionQueues();
    SharedQueues();
    Addresses();
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
      QueuePairs(type);
    }
    Posting();
  }

 private:
  using Step = Sweep::Step;
  static constexpr int kEntries = Sweep::kEntries;

  void Contexts() {
    // libibverbs looks elsewhere when it cannot open a file, and tells of that.
    sweep_.Query("open device", [&] {
      const ContextPtr context(ibv_open_device(context_->device));
      return context == nullptr ? ENOMEM : 0;
    });
    ibv_device_attr attr{};
    sweep_.Query("query device",
                 [&] { return ibv_query_device(context_, &attr); });
    ibv_port_attr port{};
    sweep_.Query("query port", [&] {
      return ibv_query_port(context_, Device::kPort, &port);
    });
    ChannelPtr channel;
    sweep_.Create("create channel", &channel,
                  [&] { return ibv_create_comp_channel(context_); });
  }

  void Domains() {
    sweep_.CreateAndDestroy<PdPtr>("PD", ibv_dealloc_pd,
                                   [&] { return ibv_alloc_pd(context_); });
    sweep_.CreateAndDestroy<XrcdPtr>("XRC domain", ibv_close_xrcd, [&] {
      ibv_xrcd_init_attr init{};
      init.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
      init.fd = -1;
      init.oflags = O_CREAT;
      return ibv_open_xrcd(context_, &init);
    });
  }

  void CompletionQueues() {
    sweep_.CreateAndDestroy<CqPtr>("CQ", ibv_destroy_cq, [&] {
      return ibv_create_cq(context_, kEntries, nullptr, nullptr, 0);
    });
    CqPtr cq;
    sweep_.Each(
        "resize CQ", [&] { cq = CreateCq(device_, kEntries); },
        [&] { return ibv_resize_cq(cq.get(), 4 * kEntries); },
        [&] { cq.reset(); });
    cq = CreateCq(device_, kEntries);
    sweep_.Query("modify CQ", [&] {
      ibv_modify_cq_attr attr{};
      attr.attr_mask = IBV_CQ_ATTR_MODERATE;
      attr.moderate = {.cq_count = 4, .cq_period = 10};
      return ibv_modify_cq(cq.get(), &attr);
    });
    sweep_.Query("request event",
                 [&] { return ibv_req_notify_cq(cq.get(), 0); });
    cq = CreateCq(device_, kEntries);
    sweep_.Query("poll", [&] {
      ibv_wc wc{};
      errno = 0;
      const int count = ibv_poll_cq(cq.get(), 1, &wc);
      Check(count >= 0 || errno != 0, "ibv_poll_cq fails without an errno");
      return count < 0 ? errno : 0;
    });
  }

  SrqPtr MakeSrq() {
    ibv_srq_init_attr init{};
    init.attr.max_wr = kEntries;
    init.attr.max_sge = 1;
    return SrqPtr(ibv_create_srq(device_.pd.get(), &init));
  }

  void SharedQueues() {
    sweep_.CreateAndDestroy<SrqPtr>("SRQ", ibv_destroy_srq,
                                    [&] { return MakeSrq().release(); });
    SrqPtr srq;
    const Step fresh = [&] {
      srq = MakeSrq();
      CheckErrno(srq == nullptr ? errno : 0, "ibv_create_srq");
    };
    sweep_.Each(
        "resize SRQ", fresh,
        [&] {
          ibv_srq_attr attr{};
          attr.max_wr = 4 * kEntries;
          return ibv_modify_srq(srq.get(), &attr, IBV_SRQ_MAX_WR);
        },
        [&] { srq.reset(); });
    fresh();
    sweep_.Query("SRQ limit", [&] {
      ibv_srq_attr attr{};
      attr.srq_limit = 4;
      return ibv_modify_srq(srq.get(), &attr, IBV_SRQ_LIMIT);
    });
    sweep_.Query("query SRQ", [&] {
      ibv_srq_attr attr{};
      return ibv_query_srq(srq.get(), &attr);
    });
  }

  void Addresses() {
    sweep_.CreateAndDestroy<AhPtr>("AH", ibv_destroy_ah, [&] {
      ibv_ah_attr attr = AddressTo(device_, device_.gid);
      return ibv_create_ah(device_.pd.get(), &attr);
    });
  }

  ibv_qp* MakeQp(ibv_qp_type type, ibv_cq* cq) {
    ibv_qp_init_attr init{};
    init.send_cq = cq;
    init.recv_cq = cq;
    init.qp_type = type;
    init.cap = {.max_send_wr = 64,
                .max_recv_wr = 64,
                .max_send_sge = 2,
                .max_recv_sge = 2,
                .max_inline_data = 64};
    return ibv_create_qp(device_.pd.get(), &init);
  }

  // From RESET, with itself.
  static int Step1(ibv_qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = Device::kPort;
    attr.qkey = 1;
    return ibv_modify_qp(
        qp, &attr,
        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
            (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
  }

  int Step2(ibv_qp* qp) {
    ibv_qp_attr attr = RtrAttr(
        device_, {device_.gid, qp->qp_num, 0, device_.port.active_mtu}, {});
    constexpr int kUcMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                            IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    return ibv_modify_qp(qp, &attr,
                         qp->qp_type == IBV_QPT_RC   ? kRtrMask
                         : qp->qp_type == IBV_QPT_UC ? kUcMask
                                                     : int{IBV_QP_STATE});
  }

  static int Step3(ibv_qp* qp) {
    ibv_qp_attr attr = RtsAttr(0, {});
    return ibv_modify_qp(
        qp, &attr,
        qp->qp_type == IBV_QPT_RC ? kRtsMask : IBV_QP_STATE | IBV_QP_SQ_PSN);
  }

  static int StepTo(ibv_qp* qp, ibv_qp_state state) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
  }

  void QueuePairs(ibv_qp_type type) {
    const std::string name = Text("QP of type ", int{type});
    const CqPtr cq = CreateCq(device_, kEntries);
    sweep_.CreateAndDestroy<QpPtr>(name, ibv_destroy_qp,
                                   [&] { return MakeQp(type, cq.get()); });
    QpPtr qp;
    const std::array<std::function<int(ibv_qp*)>, 5> steps = {
        [](ibv_qp* one) { return Step1(one); },
        [this](ibv_qp* one) { return Step2(one); },
        [](ibv_qp* one) { return Step3(one); },
        [](ibv_qp* one) { return StepTo(one, IBV_QPS_ERR); },
        [](ibv_qp* one) { return StepTo(one, IBV_QPS_RESET); }};
    const std::array<ibv_qp_state, 6> states = {IBV_QPS_RESET, IBV_QPS_INIT,
                                                IBV_QPS_RTR,   IBV_QPS_RTS,
                                                IBV_QPS_ERR,   IBV_QPS_RESET};
    for (size_t step = 0; step < steps.size(); ++step) {
      sweep_.Each(
          Text("modify ", name, " to ", int{states.at(step + 1)}),
          [&] {
            qp.reset(MakeQp(type, cq.get()));
            CheckErrno(qp == nullptr ? errno : 0, "ibv_create_qp");
            for (size_t i = 0; i < step; ++i) {
              CheckErrno(steps.at(i)(qp.get()), "modify, step ", i);
            }
          },
          [&] {
            const int error = steps.at(step)(qp.get());
            Check(error == 0 || qp->state == states.at(step), name,
                  " was not modified, and has state ", int{qp->state});
            return error;
          },
          [&] {
            Check(StateOf(qp.get()) == states.at(step + 1), name,
                  " has another state than it was given");
            qp.reset();
          });
    }
    qp.reset(MakeQp(type, cq.get()));
    sweep_.Query("query " + name, [&] {
      ibv_qp_attr attr{};
      ibv_qp_init_attr init{};
      return ibv_query_qp(qp.get(), &attr, IBV_QP_STATE | IBV_QP_CAP, &init);
    });
  }

  // With itself. What was posted completes, whatever has failed.
  void Posting() {
    const CqPtr cq = CreateCq(device_, kEntries);
    const QpPtr qp(MakeQp(IBV_QPT_RC, cq.get()));
    CheckErrno(qp == nullptr ? errno : 0, "ibv_create_qp");
    CheckErrno(Step1(qp.get()), "modify to INIT");
    CheckErrno(Step2(qp.get()), "modify to RTR");
    CheckErrno(Step3(qp.get()), "modify to RTS");
    const MrPtr mr = RegisterMr(device_, sweep_.memory(), Sweep::kMemory);
    const Step receive = [&] {
      PostRecv(qp.get(), 1, {{sweep_.address(), 8, mr->lkey}});
    };
    const auto send = [&] {
      ibv_sge sge{sweep_.address() + 4096, 8, mr->lkey};
      ibv_send_wr wr{};
      wr.sg_list = &sge;
      wr.num_sge = 1;
      wr.opcode = IBV_WR_SEND;
      wr.send_flags = IBV_SEND_SIGNALED;
      ibv_send_wr* bad = nullptr;
      return ibv_post_send(qp.get(), &wr, &bad);
    };
    const Step both = [&] {
      for (const ibv_wc& wc : WaitFor(cq.get(), 2, 60, "a message to itself")) {
        CheckSuccess(wc, "a message to itself");
      }
    };
    sweep_.Each("post send", receive, send, both);
    sweep_.Each(
        "post receive", [] {},
        [&] {
          ibv_recv_wr wr{};
          ibv_sge sge{sweep_.address(), 8, mr->lkey};
          wr.sg_list = &sge;
          wr.num_sge = 1;
          ibv_recv_wr* bad = nullptr;
          return ibv_post_recv(qp.get(), &wr, &bad);
        },
        [&] {
          CheckErrno(send(), "ibv_post_send");
          both();
        });
  }

  Sweep& sweep_;
  const Device& device_;
  ibv_context* context_;
};

void Run(Side& side) {
  if (!side.leads) {
    return;
  }
  const Injector injector;
  Check(injector.works(), "this kernel has no fault injection");
  const Device device = OpenDevice(side);
  Sweep sweep(device, injector);
  Objects(sweep).Run();
  SweepMemory(sweep);
  SweepXrc(sweep);
  sweep.Report();
  std::cout << "done\n" << std::flush;
  std::string line;
  std::getline(std::cin, line);
}

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(argc, argv,
                            "every call with everything in it failing in turn",
                            ropcie::Run);
}
