// SPDX-License-Identifier: GPL-2.0
// Extended reliable connections: which shared receive queue a request may name,
// and whose memory it then may use (IBTA volume 1, annex A14).
#include <fcntl.h>
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "failure.h"
#include "rop_errors.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

using XrcdPtr = std::unique_ptr<ibv_xrcd, Destroyer<ibv_close_xrcd>>;

constexpr size_t kLength = 100;
constexpr int kDepth = 4;

XrcdPtr OpenXrcd(const Device& device) {
  ibv_xrcd_init_attr attr{};
  attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attr.fd = -1;
  attr.oflags = O_CREAT;
  XrcdPtr xrcd(ibv_open_xrcd(device.context.get(), &attr));
  Check(xrcd != nullptr, "ibv_open_xrcd: ", std::strerror(errno));
  return xrcd;
}

// What the responder lets requests name.
struct Target {
  uint32_t srqn;
  uint32_t rkey;
  uint64_t addr;
};

// An initiator on the requester's side; on the other one a target and a shared
// receive queue, with memory of the queue's domain.
class Xrc {
 public:
  explicit Xrc(ErrorCase& test, uint8_t rnr_retry = 7,
               uint8_t min_rnr_timer = 12)
      : test_(test),
        xrcd_(OpenXrcd(test.device)),
        cq_(CreateCq(test.device, 2 * kDepth)),
        pd_(ibv_alloc_pd(test.device.context.get())) {
    Check(pd_ != nullptr, "ibv_alloc_pd: ", std::strerror(errno));
    config_.rnr_retry = rnr_retry;
    config_.min_rnr_timer = min_rnr_timer;
    config_.access = IBV_ACCESS_REMOTE_WRITE;
    memory_.fill(0);
    mr_.reset(ibv_reg_mr(pd_.get(), memory_.data(), memory_.size(),
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    Check(mr_ != nullptr, "ibv_reg_mr: ", std::strerror(errno));
    foreign_ = RegisterMr(test.device, memory_.data(), memory_.size(),
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    srq_ = CreateSrq(xrcd_.get());
    MakeQp();
    const QpAddress mine = AddressOf(test.device, qp_.get());
    const QpAddress peer = test.side.channel.Exchange(mine);
    ToInit(qp_.get(), config_);
    ibv_qp_attr attr = RtrAttr(test.device, peer, config_);
    CheckErrno(ibv_modify_qp(qp_.get(), &attr,
                             test.requester ? kInitiatorRtrMask : kRtrMask),
               "modify QP to RTR");
    if (test.requester) {
      attr = RtsAttr(mine.psn, config_);
      CheckErrno(ibv_modify_qp(qp_.get(), &attr, kRtsMask), "modify QP to RTS");
    }
    test.side.channel.Barrier(peer.qpn ^ mine.qpn);
  }

  SrqPtr CreateSrq(ibv_xrcd* xrcd) const {
    ibv_srq_init_attr_ex attr{};
    attr.attr = {.max_wr = kDepth, .max_sge = 1, .srq_limit = 0};
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    attr.srq_type = IBV_SRQT_XRC;
    attr.pd = pd_.get();
    attr.xrcd = xrcd;
    attr.cq = cq_.get();
    attr.srq_context = &test_;
    SrqPtr srq(ibv_create_srq_ex(test_.device.context.get(), &attr));
    Check(srq != nullptr, "ibv_create_srq_ex: ", std::strerror(errno));
    test_.report.Expect(srq->srq_context == &test_, "srq_context is lost");
    return srq;
  }

  static uint32_t NumberOf(ibv_srq* srq) {
    uint32_t number = 0;
    CheckErrno(ibv_get_srq_num(srq, &number), "ibv_get_srq_num");
    return number;
  }

  [[nodiscard]] Target Own() const {
    return {.srqn = NumberOf(srq_.get()),
            .rkey = mr_->rkey,
            .addr = reinterpret_cast<uintptr_t>(memory_.data())};
  }

  // What the responder prepared, as the requester hears of it.
  [[nodiscard]] Target Exchange(const Target& mine) const {
    return test_.side.channel.Exchange(mine);
  }

  [[nodiscard]] ibv_sge OwnSge(uint32_t length = kLength) const {
    return {.addr = reinterpret_cast<uintptr_t>(memory_.data()),
            .length = length,
            .lkey = mr_->lkey};
  }

  int Post(uint32_t srqn, ibv_wr_opcode opcode = IBV_WR_SEND,
           const Target& at = {}) {
    std::array<uint8_t, kLength> data{};
    data.fill(7);
    ibv_sge sge{.addr = reinterpret_cast<uintptr_t>(data.data()),
                .length = kLength,
                .lkey = 0};
    ibv_send_wr wr{};
    wr.wr_id = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = at.addr;
    wr.wr.rdma.rkey = at.rkey;
    wr.qp_type.xrc.remote_srqn = srqn;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp_.get(), &wr, &bad);
  }

  void ExpectSent(ibv_wc_status right) const {
    ExpectCompletions(test_, cq_.get(), {{1, right}}, "request");
  }

  void ExpectReceived(const std::vector<Completion>& right) const {
    ExpectCompletions(test_, cq_.get(), right, "receive");
  }

  void ExpectMemory(uint8_t right) const {
    for (size_t i = 0; i < kLength; ++i) {
      if (memory_[i] != right) {
        test_.report.Expect(false, "byte ", i, " is ", int{memory_[i]});
        return;
      }
    }
  }

  // The same memory in another protection domain.
  [[nodiscard]] const ibv_mr* foreign() const { return foreign_.get(); }
  [[nodiscard]] ibv_qp* qp() const { return qp_.get(); }
  [[nodiscard]] ibv_srq* srq() const { return srq_.get(); }
  [[nodiscard]] ibv_pd* pd() const { return pd_.get(); }
  [[nodiscard]] ibv_xrcd* xrcd() const { return xrcd_.get(); }
  void DestroySrq() { srq_.reset(); }

 private:
  static constexpr int kInitiatorRtrMask = IBV_QP_STATE | IBV_QP_AV |
                                           IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                           IBV_QP_RQ_PSN;

  void MakeQp() {
    ibv_qp_init_attr_ex init{};
    if (test_.requester) {
      init.qp_type = IBV_QPT_XRC_SEND;
      init.send_cq = cq_.get();
      init.cap.max_send_wr = kDepth;
      init.cap.max_send_sge = 1;
      init.cap.max_inline_data = kLength;
      init.comp_mask = IBV_QP_INIT_ATTR_PD;
      init.pd = pd_.get();
    } else {
      init.qp_type = IBV_QPT_XRC_RECV;
      init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
      init.xrcd = xrcd_.get();
    }
    qp_.reset(ibv_create_qp_ex(test_.device.context.get(), &init));
    Check(qp_ != nullptr, "ibv_create_qp_ex: ", std::strerror(errno));
  }

  ErrorCase& test_;
  QpConfig config_;
  XrcdPtr xrcd_;
  CqPtr cq_;
  PdPtr pd_;
  std::array<uint8_t, 2 * kLength> memory_{};
  MrPtr mr_;
  MrPtr foreign_;
  SrqPtr srq_;
  QpPtr qp_;
};

// One request for the queue that `prepare` names on the responder's side.
NamedCase SendCase(std::string name, ibv_wc_status right,
                   std::function<Target(Xrc*)> prepare,
                   std::function<void(Xrc*)> check = nullptr,
                   ibv_wr_opcode opcode = IBV_WR_SEND, uint8_t rnr_retry = 7) {
  return {std::move(name), [=, prepare = std::move(prepare),
                            check = std::move(check)](ErrorCase& test) {
            Xrc xrc(test, rnr_retry);
            const Target at =
                xrc.Exchange(test.requester ? Target{} : prepare(&xrc));
            if (test.requester) {
              CheckErrno(xrc.Post(at.srqn, opcode, at), "ibv_post_send");
              xrc.ExpectSent(right);
              ExpectState(test, xrc.qp(),
                          right == IBV_WC_SUCCESS ? IBV_QPS_RTS : IBV_QPS_ERR);
            }
            test.Step();
            if (!test.requester) {
              const bool alive =
                  right == IBV_WC_SUCCESS || right == IBV_WC_RNR_RETRY_EXC_ERR;
              ExpectState(test, xrc.qp(), alive ? IBV_QPS_RTR : IBV_QPS_ERR);
              if (check) {
                check(&xrc);
              }
            }
            test.Step();
          }};
}

Target WithReceive(Xrc* xrc) {
  PostSrqRecv(xrc->srq(), 9, {xrc->OwnSge()});
  return xrc->Own();
}

void QueueOfAnotherDomain(ErrorCase& test) {
  Xrc xrc(test);
  const XrcdPtr domain = OpenXrcd(test.device);
  const SrqPtr queue = xrc.CreateSrq(domain.get());
  PostSrqRecv(queue.get(), 9, {xrc.OwnSge()});
  const Target at =
      xrc.Exchange({.srqn = Xrc::NumberOf(queue.get()), .rkey = 0, .addr = 0});
  if (test.requester) {
    CheckErrno(xrc.Post(at.srqn), "ibv_post_send");
    xrc.ExpectSent(IBV_WC_REM_INV_REQ_ERR);
  }
  test.Step();
}

// One target receives for two queues.
void TwoQueues(ErrorCase& test) {
  Xrc xrc(test);
  SrqPtr second;
  Target first{};
  Target other{};
  if (!test.requester) {
    second = xrc.CreateSrq(xrc.xrcd());
    PostSrqRecv(xrc.srq(), 11, {xrc.OwnSge()});
    PostSrqRecv(second.get(), 12, {xrc.OwnSge()});
    first = xrc.Own();
    other = first;
    other.srqn = Xrc::NumberOf(second.get());
  }
  first = xrc.Exchange(first);
  other = xrc.Exchange(other);
  if (test.requester) {
    CheckErrno(xrc.Post(other.srqn), "ibv_post_send");
    xrc.ExpectSent(IBV_WC_SUCCESS);
    CheckErrno(xrc.Post(first.srqn), "ibv_post_send");
    xrc.ExpectSent(IBV_WC_SUCCESS);
  }
  test.Step();
  if (!test.requester) {
    xrc.ExpectReceived({{12, IBV_WC_SUCCESS}, {11, IBV_WC_SUCCESS}});
  }
  test.Step();
}

void NumbersThatNoQueueHas(ErrorCase& test) {
  Xrc xrc(test);
  if (test.requester) {
    for (const uint32_t srqn : {0U, 0x10000U, 0xffffffffU}) {
      test.report.ExpectErrno(xrc.Post(srqn), {EINVAL},
                              Text("queue number ", srqn));
    }
    ExpectState(test, xrc.qp(), IBV_QPS_RTS);
  } else {
    // A target has nothing to post to.
    ibv_sge sge = xrc.OwnSge();
    ibv_recv_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    test.report.ExpectErrno(ibv_post_recv(xrc.qp(), &wr, &bad),
                            {EINVAL, ENOMEM}, "receive of a target");
  }
  test.Step();
}

// A receive that comes in time: the sender waits for as long as it was told.
void ReceiveInTime(ErrorCase& test) {
  Xrc xrc(test, 6, 31);  // six times 491 ms
  const Target at = xrc.Exchange(test.requester ? Target{} : xrc.Own());
  if (test.requester) {
    CheckErrno(xrc.Post(at.srqn), "ibv_post_send");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  test.Step();
  if (test.requester) {
    xrc.ExpectSent(IBV_WC_SUCCESS);
  } else {
    PostSrqRecv(xrc.srq(), 9, {xrc.OwnSge()});
  }
  test.Step();
  if (!test.requester) {
    xrc.ExpectReceived({{9, IBV_WC_SUCCESS}});
  }
  test.Step();
}

// The queue is destroyed while a message for it arrives: its sender hears of
// that.
void QueueThatGoes(ErrorCase& test) {
  constexpr uint32_t kLong = 32U << 20;
  Xrc xrc(test);
  std::vector<uint8_t> data(kLong, test.requester ? 7 : 0);
  const MrPtr mr(
      ibv_reg_mr(xrc.pd(), data.data(), data.size(), IBV_ACCESS_LOCAL_WRITE));
  Check(mr != nullptr, "ibv_reg_mr: ", std::strerror(errno));
  ibv_sge sge{.addr = reinterpret_cast<uintptr_t>(data.data()),
              .length = kLong,
              .lkey = mr->lkey};
  if (!test.requester) {
    PostSrqRecv(xrc.srq(), 9, {sge});
  }
  const Target at = xrc.Exchange(test.requester ? Target{} : xrc.Own());
  if (test.requester) {
    ibv_send_wr wr{};
    wr.wr_id = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.qp_type.xrc.remote_srqn = at.srqn;
    ibv_send_wr* bad = nullptr;
    CheckErrno(ibv_post_send(xrc.qp(), &wr, &bad), "ibv_post_send");
    xrc.ExpectSent(IBV_WC_REM_OP_ERR);
  } else {
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::seconds(PatienceOf(test));
    const volatile uint8_t* first = data.data();
    while (*first != 7 && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    xrc.DestroySrq();
    test.report.Expect(data.back() == 0, "the message came before its end");
    xrc.ExpectReceived({});
  }
  test.Step();
  ExpectState(test, xrc.qp(), IBV_QPS_ERR);
  test.Step();
}

// A domain stays while a queue or a target is in it.
void DomainInUse(ErrorCase& test) {
  const Xrc xrc(test);
  if (!test.requester) {
    test.report.ExpectErrno(ibv_close_xrcd(xrc.xrcd()), {EBUSY},
                            "a domain with a target in it");
  }
  test.Step();
}

}  // namespace

std::vector<NamedCase> XrcCases() {
  std::vector<NamedCase> cases;
  cases.push_back(
      SendCase("XRC SEND", IBV_WC_SUCCESS, WithReceive, [](Xrc* xrc) {
        xrc->ExpectReceived({{9, IBV_WC_SUCCESS}});
        xrc->ExpectMemory(7);
      }));
  cases.push_back({"XRC with two queues", TwoQueues});
  cases.push_back(SendCase("XRC SEND for a queue that is not there",
                           IBV_WC_REM_INV_REQ_ERR, [](Xrc* xrc) {
                             Target at = WithReceive(xrc);
                             at.srqn ^= 0x8000;
                             return at;
                           }));
  cases.push_back(SendCase("XRC SEND for a queue that was destroyed",
                           IBV_WC_REM_INV_REQ_ERR, [](Xrc* xrc) {
                             const Target at = xrc->Own();
                             xrc->DestroySrq();
                             return at;
                           }));
  cases.push_back(
      {"XRC SEND for a queue of another domain", QueueOfAnotherDomain});
  cases.push_back(SendCase(
      "XRC SEND to a queue without receives", IBV_WC_RNR_RETRY_EXC_ERR,
      [](Xrc* xrc) { return xrc->Own(); }, nullptr, IBV_WR_SEND, 1));
  cases.push_back(SendCase(
      "XRC SEND that is too long", IBV_WC_REM_INV_REQ_ERR,
      [](Xrc* xrc) {
        PostSrqRecv(xrc->srq(), 9, {xrc->OwnSge(kLength - 1)});
        return xrc->Own();
      },
      [](Xrc* xrc) {
        xrc->ExpectReceived({{9, IBV_WC_LOC_LEN_ERR}});
        xrc->ExpectMemory(0);
      }));
  cases.push_back(SendCase(
      "XRC receive in memory that is not the queue's", IBV_WC_REM_OP_ERR,
      [](Xrc* xrc) {
        ibv_sge sge = xrc->OwnSge();
        sge.lkey = xrc->foreign()->lkey;
        PostSrqRecv(xrc->srq(), 9, {sge});
        return xrc->Own();
      },
      [](Xrc* xrc) {
        xrc->ExpectReceived({{9, IBV_WC_LOC_PROT_ERR}});
      }));
  cases.push_back(SendCase(
      "XRC WRITE to memory of the queue's", IBV_WC_SUCCESS,
      [](Xrc* xrc) { return xrc->Own(); },
      [](Xrc* xrc) { xrc->ExpectMemory(7); }, IBV_WR_RDMA_WRITE));
  cases.push_back(SendCase(
      "XRC WRITE to memory that is not the queue's", IBV_WC_REM_ACCESS_ERR,
      [](Xrc* xrc) {
        Target at = xrc->Own();
        at.rkey = xrc->foreign()->rkey;
        return at;
      },
      [](Xrc* xrc) { xrc->ExpectMemory(0); }, IBV_WR_RDMA_WRITE));
  cases.push_back({"XRC queue that goes in mid-message", QueueThatGoes});
  cases.push_back({"XRC SEND before there is a receive", ReceiveInTime});
  cases.push_back({"XRC queue numbers out of range", NumbersThatNoQueueHas});
  cases.push_back({"XRC domain that is in use", DomainInUse});
  return cases;
}

}  // namespace ropcie
