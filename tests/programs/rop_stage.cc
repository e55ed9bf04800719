// SPDX-License-Identifier: GPL-2.0
// A program that is at one stage of its life for ever: it makes a call, and
// undoes it, again and again, or sleeps in it, and says "at STAGE" when it is
// there. It is killed, or its device goes; then the call fails with EIO, and
// what is left can be closed. Wants a device that reaches itself.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "failure.h"
#include "pattern.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr size_t kMemory = size_t{64} * 4096;
constexpr size_t kMessage = 4096;

class Stage {
 public:
  explicit Stage(const Side& side)
      : device_(OpenDevice(side)),
        channel_(ibv_create_comp_channel(device_.context.get())),
        arena_(device_, kMemory) {
    CheckErrno(channel_ == nullptr ? errno : 0, "ibv_create_comp_channel");
    cq_ = CreateCq(device_, 256, channel_.get());
    sge_ = arena_.Sge(arena_.Take(kMessage, 0, false));
    qp_ = MakeQp();
    for (size_t i = 0; i < 3; ++i) {
      CheckErrno(Modify(qp_.get(), i), "modify QP, step ", i);
    }
  }

  // Returns the errno that ended it.
  int Run(const std::string& name) {
    const std::map<std::string, std::function<int()>> calls = {
        {"open", [this] { return Open(); }},
        {"pd", [this] { return Pd(); }},
        {"mr", [this] { return Mr(IBV_ACCESS_LOCAL_WRITE); }},
        {"odp",
         [this] { return Mr(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND); }},
        {"mw", [this] { return Mw(); }},
        {"dm", [this] { return Dm(); }},
        {"xrc", [this] { return Xrc(); }},
        {"srq", [this] { return Srq(); }},
        {"ah", [this] { return Ah(); }},
        {"cq", [this] { return Cq(); }},
        {"qp", [this] { return Qp(0); }},
        {"init", [this] { return Qp(1); }},
        {"rtr", [this] { return Qp(2); }},
        {"rts", [this] { return Qp(3); }},
        {"post", [this] { return Post(); }},
        {"poll", [this] { return Poll(); }},
        {"event", [this] { return Event(); }},
        {"wait", [this] { return Wait(); }},
        {"async", [this] { return Async(); }},
    };
    const auto call = calls.find(name);
    Check(call != calls.end(), "there is no stage '", name, "'");
    int error = 0;
    if (name != "event" && name != "wait" && name != "async") {
      error = call->second();
      CheckErrno(error, name);
    }
    std::cout << "at " << name << "\n" << std::flush;
    while (error == 0) {
      error = call->second();
    }
    return error;
  }

 private:
  static int Made(const void* object) { return object == nullptr ? errno : 0; }

  [[nodiscard]] int Open() const {
    const ContextPtr context(ibv_open_device(device_.context->device));
    return Made(context.get());
  }

  [[nodiscard]] int Pd() const {
    ibv_pd* const pd = ibv_alloc_pd(device_.context.get());
    return pd == nullptr ? errno : ibv_dealloc_pd(pd);
  }

  int Mr(unsigned int access) {
    ibv_mr* const mr =
        ibv_reg_mr_iova2(device_.pd.get(), arena_.At(0), kMemory, 0, access);
    return mr == nullptr ? errno : ibv_dereg_mr(mr);
  }

  [[nodiscard]] int Mw() const {
    ibv_mw* const mw = ibv_alloc_mw(device_.pd.get(), IBV_MW_TYPE_2);
    return mw == nullptr ? errno : ibv_dealloc_mw(mw);
  }

  [[nodiscard]] int Dm() const {
    ibv_alloc_dm_attr attr{};
    attr.length = kMessage;
    ibv_dm* const dm = ibv_alloc_dm(device_.context.get(), &attr);
    return dm == nullptr ? errno : ibv_free_dm(dm);
  }

  [[nodiscard]] int Xrc() const {
    ibv_xrcd_init_attr init{};
    init.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    init.fd = -1;
    init.oflags = O_CREAT;
    ibv_xrcd* const xrcd = ibv_open_xrcd(device_.context.get(), &init);
    return xrcd == nullptr ? errno : ibv_close_xrcd(xrcd);
  }

  [[nodiscard]] int Srq() const {
    ibv_srq_init_attr init{};
    init.attr = {.max_wr = 1000, .max_sge = 1, .srq_limit = 0};
    ibv_srq* const srq = ibv_create_srq(device_.pd.get(), &init);
    return srq == nullptr ? errno : ibv_destroy_srq(srq);
  }

  [[nodiscard]] int Ah() const {
    ibv_ah_attr attr = AddressTo(device_, device_.gid);
    ibv_ah* const ah = ibv_create_ah(device_.pd.get(), &attr);
    return ah == nullptr ? errno : ibv_destroy_ah(ah);
  }

  int Cq() {
    ibv_cq* const cq =
        ibv_create_cq(device_.context.get(), 1000, nullptr, channel_.get(), 0);
    return cq == nullptr ? errno : ibv_destroy_cq(cq);
  }

  QpPtr MakeQp() {
    ibv_qp_init_attr init{};
    init.send_cq = cq_.get();
    init.recv_cq = cq_.get();
    init.qp_type = IBV_QPT_RC;
    init.cap = {.max_send_wr = 64,
                .max_recv_wr = 64,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    return QpPtr(ibv_create_qp(device_.pd.get(), &init));
  }

  // From RESET to RTS, with itself.
  int Modify(ibv_qp* qp, size_t step) {
    const QpConfig config;
    ibv_qp_attr attr{};
    switch (step) {
      case 0:
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = Device::kPort;
        return ibv_modify_qp(qp, &attr,
                             IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                 IBV_QP_ACCESS_FLAGS);
      case 1:
        attr = RtrAttr(device_,
                       {device_.gid, qp->qp_num, 0, device_.port.active_mtu},
                       config);
        return ibv_modify_qp(qp, &attr, kRtrMask);
      default:
        attr = RtsAttr(0, config);
        return ibv_modify_qp(qp, &attr, kRtsMask);
    }
  }

  int Qp(size_t steps) {
    QpPtr qp = MakeQp();
    int error = Made(qp.get());
    for (size_t i = 0; error == 0 && i < steps; ++i) {
      error = Modify(qp.get(), i);
    }
    if (error == 0) {
      error = ibv_destroy_qp(qp.release());
    }
    return error;
  }

  // Messages to itself; a completion is taken for each that is posted.
  int Post() {
    ibv_recv_wr receive{};
    receive.sg_list = &sge_;
    receive.num_sge = 1;
    ibv_recv_wr* bad_receive = nullptr;
    int error = ibv_post_recv(qp_.get(), &receive, &bad_receive);
    if (error != 0) {
      return error;
    }
    ibv_send_wr send{};
    send.sg_list = &sge_;
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad_send = nullptr;
    error = ibv_post_send(qp_.get(), &send, &bad_send);
    for (int taken = 0; error == 0 && taken < 2;) {
      ibv_wc wc{};
      const int count = ibv_poll_cq(cq_.get(), 1, &wc);
      error = count < 0 ? -count : 0;
      if (count > 0) {
        CheckSuccess(wc, "a message to itself");
        ++taken;
      }
    }
    return error;
  }

  int Poll() {
    ibv_wc wc{};
    const int count = ibv_poll_cq(cq_.get(), 1, &wc);
    Check(count <= 0, "a completion of nothing");
    return -count;
  }

  int Event() {
    const int error = ibv_req_notify_cq(cq_.get(), 0);
    return error != 0 ? error : GetEvent();
  }

  // As a program that waits for other files, too.
  int Wait() {
    const int error = ibv_req_notify_cq(cq_.get(), 0);
    if (error != 0) {
      return error;
    }
    pollfd wait = {channel_->fd, POLLIN, 0};
    CheckErrno(poll(&wait, 1, -1) == 1 ? 0 : errno, "poll");
    Check(wait.revents == POLLERR, "poll says ", wait.revents,
          ", not POLLERR, of a channel whose device has gone");
    return GetEvent();
  }

  [[nodiscard]] int GetEvent() const {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    errno = 0;
    const int ret = ibv_get_cq_event(channel_.get(), &cq, &context);
    Check(ret != 0, "an event of nothing");
    return errno;
  }

  // The event is the end: nobody is told a second time.
  [[nodiscard]] int Async() const {
    for (;;) {
      ibv_async_event event{};
      if (ibv_get_async_event(device_.context.get(), &event) != 0) {
        return errno;
      }
      ibv_ack_async_event(&event);
      if (event.event_type == IBV_EVENT_DEVICE_FATAL) {
        return EIO;
      }
    }
  }

  Device device_;
  ChannelPtr channel_;
  Arena arena_;
  CqPtr cq_;
  QpPtr qp_;
  ibv_sge sge_{};
};

void Run(Side& side) {
  if (!side.leads) {
    return;
  }
  const int error = Stage(side).Run(side.options.stage);
  // A device that is not there any more cannot be opened, whatever is missing.
  const bool is_right =
      error == EIO || (side.options.stage == "open" &&
                       (error == ENXIO || error == ENODEV || error == ENOENT));
  Check(is_right, "the device has gone: ", std::strerror(error));
  std::cout << "the device has gone\n";
}

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(
      argc, argv, "a program at one stage of its life, for ever", ropcie::Run);
}
