// SPDX-License-Identifier: GPL-2.0
// Calls that must be refused with a clean errno, and queries that must tell the
// truth.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "failure.h"
#include "report.h"
#include "rop_errors.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr size_t kPage = 4096;
// IBV_QP_RATE_LIMIT and later ones are refused by libibverbs.
constexpr int kEverything = IBV_QP_RATE_LIMIT - 1;
constexpr int kInitMask =
    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

class ControlCases {
 public:
  ControlCases(const Device& device, Report* report)
      : device_(device), report_(*report), cq_(CreateCq(device, 64)) {}

  void Run() {
    report_.Case("ports, GIDs and P_Keys", [this] { Ports(); });
    report_.Case("CQ limits", [this] { CqLimits(); });
    report_.Case("QP limits", [this] { QpLimits(); });
    report_.Case("QP types and SRQs", [this] { Types(); });
    report_.Case("parent domains", [this] { ParentDomain(); });
    report_.Case("memory registration", [this] { Memory(); });
    report_.Case("objects in use", [this] { InUse(); });
    report_.Case("illegal QP transitions", [this] { Transitions(); });
    report_.Case("QP attributes out of range", [this] { Attributes(); });
    report_.Case("ibv_query_qp", [this] { Query(); });
    report_.Case("multicast groups", [this] { Groups(); });
  }

 private:
  [[nodiscard]] ibv_context* context() const { return device_.context.get(); }

  // Whoever uses an attachment up twice would keep the queue pair in use for
  // ever.
  void Groups() {
    ibv_qp_init_attr init{};
    init.send_cq = cq_.get();
    init.recv_cq = cq_.get();
    init.cap = QpConfig().cap;
    init.qp_type = IBV_QPT_UD;
    QpPtr qp(ibv_create_qp(device_.pd.get(), &init));
    Check(qp != nullptr, "ibv_create_qp: ", std::strerror(errno));
    ibv_gid group{};
    group.raw[0] = 0xff;
    group.raw[1] = 0x0e;
    group.raw[15] = 1;
    for (const uint16_t lid : {1, 2, 2}) {
      report_.ExpectErrno(ibv_attach_mcast(qp.get(), &group, lid), {0},
                          Text("attach with LID ", lid));
    }
    for (const uint16_t lid : {1, 2}) {
      report_.ExpectErrno(ibv_detach_mcast(qp.get(), &group, lid), {0},
                          Text("detach with LID ", lid));
    }
    report_.ExpectErrno(ibv_detach_mcast(qp.get(), &group, 1), {EINVAL},
                        "detach of what is not attached");
    group.raw[0] = 0xfe;
    report_.ExpectErrno(ibv_attach_mcast(qp.get(), &group, 0), {EINVAL},
                        "attach to an address of one node");
    report_.ExpectErrno(ibv_destroy_qp(qp.release()), {0},
                        "ibv_destroy_qp after all is detached");
  }

  void Ports() {
    ibv_port_attr port{};
    report_.ExpectErrno(ibv_query_port(context(), 2, &port), {EINVAL},
                        "query of port 2");
    report_.ExpectErrno(ibv_query_port(context(), 0, &port), {EINVAL},
                        "query of port 0");
    __be16 pkey = 0;
    report_.Expect(ibv_query_pkey(context(), Device::kPort, 0, &pkey) == 0 &&
                       pkey == 0xffff,
                   "P_Key 0 is not 0xffff");
    report_.Expect(device_.port.link_layer == IBV_LINK_LAYER_ETHERNET,
                   "the link layer is not Ethernet");
    report_.Expect(device_.port.max_msg_sz >= (1U << 23),
                   "messages of 8 MiB are too long");
    ibv_gid gid{};
    report_.Expect(ibv_query_gid(context(), Device::kPort,
                                 device_.port.gid_tbl_len, &gid) != 0,
                   "a GID beyond the table");
  }

  void ExpectNoCq(int entries, int vector, const std::string& what) {
    const CqPtr cq(ibv_create_cq(context(), entries, nullptr, nullptr, vector));
    report_.ExpectRefused(cq.get(), {EINVAL}, what);
  }

  void CqLimits() {
    ExpectNoCq(0, 0, "a CQ of no entries");
    ExpectNoCq(device_.attr.max_cqe + 1, 0, "a CQ of more than max_cqe");
    ExpectNoCq(INT_MAX, 0, "a CQ of INT_MAX entries");
    ExpectNoCq(16, context()->num_comp_vectors, "a completion vector too high");
    const CqPtr largest = CreateCq(device_, device_.attr.max_cqe);
    report_.Expect(largest->cqe >= device_.attr.max_cqe,
                   "a CQ is shorter than was asked for");
  }

  void ExpectNoQp(const std::function<void(ibv_qp_init_attr*)>& change,
                  const std::string& what,
                  std::initializer_list<int> right = {EINVAL}) {
    ibv_qp_init_attr init{};
    init.send_cq = cq_.get();
    init.recv_cq = cq_.get();
    init.cap = QpConfig().cap;
    init.qp_type = IBV_QPT_RC;
    change(&init);
    const QpPtr qp(ibv_create_qp(device_.pd.get(), &init));
    report_.ExpectRefused(qp.get(), right, what);
  }

  void QpLimits() {
    const auto too_many_wrs = static_cast<uint32_t>(device_.attr.max_qp_wr) + 1;
    const auto too_many_sges = static_cast<uint32_t>(device_.attr.max_sge) + 1;
    ExpectNoQp([=](auto* init) { init->cap.max_send_wr = too_many_wrs; },
               "max_send_wr over the device's");
    ExpectNoQp([=](auto* init) { init->cap.max_recv_wr = too_many_wrs; },
               "max_recv_wr over the device's");
    ExpectNoQp([=](auto* init) { init->cap.max_send_sge = too_many_sges; },
               "max_send_sge over the device's");
    ExpectNoQp([=](auto* init) { init->cap.max_recv_sge = too_many_sges; },
               "max_recv_sge over the device's");
    ExpectNoQp([](auto* init) { init->cap.max_send_wr = UINT_MAX; },
               "max_send_wr of 2^32 - 1");
    ExpectNoQp([](auto* init) { init->cap.max_inline_data = 1U << 20; },
               "1 MiB of inline data");

    QpConfig config;
    config.cap.max_send_wr = static_cast<uint32_t>(device_.attr.max_qp_wr);
    config.cap.max_recv_wr = config.cap.max_send_wr;
    const ibv_qp_cap asked = config.cap;
    const QpPtr largest = CreateQp(device_, cq_.get(), cq_.get(), &config);
    report_.Expect(config.cap.max_send_wr >= asked.max_send_wr &&
                       config.cap.max_recv_wr >= asked.max_recv_wr,
                   "a QP is smaller than was asked for");
  }

  // What a device does not have it must refuse, not half do.
  void Types() {
    ExpectNoQp([](auto* init) { init->qp_type = static_cast<ibv_qp_type>(77); },
               "an unknown QP type", {EINVAL, EOPNOTSUPP});
    ibv_srq_init_attr init{};
    init.attr = {.max_wr = 16, .max_sge = 1, .srq_limit = 0};
    const SrqPtr srq(ibv_create_srq(device_.pd.get(), &init));
    if (device_.attr.max_srq == 0) {
      report_.ExpectRefused(srq.get(), {EOPNOTSUPP, ENOSYS},
                            "an SRQ on a device that has none");
    } else {
      report_.Expect(srq != nullptr, "no SRQ on a device that has them");
    }
    ibv_mw* mw = ibv_alloc_mw(device_.pd.get(), IBV_MW_TYPE_2);
    if (mw != nullptr) {
      report_.Expect(device_.attr.max_mw > 0, "an MW although max_mw is 0");
      CheckErrno(ibv_dealloc_mw(mw), "ibv_dealloc_mw");
    } else {
      report_.ExpectErrno(errno, {EOPNOTSUPP, ENOSYS, EINVAL}, "ibv_alloc_mw");
    }
  }

  // Ends the case otherwise: the domain is gone.
  static void CheckPdBusy(ibv_pd* pd, const std::string& what) {
    const int error = ibv_dealloc_pd(pd);
    Check(error == EBUSY, "a domain with ", what, ": error ", error);
  }

  void XrcOfParent(ibv_pd* pd) {
    if ((device_.attr.device_cap_flags & IBV_DEVICE_XRC) == 0) {
      return;
    }
    ibv_xrcd_init_attr domain{};
    domain.comp_mask =
        unsigned{IBV_XRCD_INIT_ATTR_FD} | unsigned{IBV_XRCD_INIT_ATTR_OFLAGS};
    domain.fd = -1;
    domain.oflags = O_CREAT;
    ibv_xrcd* const xrcd = ibv_open_xrcd(context(), &domain);
    CheckErrno(xrcd == nullptr ? errno : 0, "ibv_open_xrcd");
    ibv_srq_init_attr_ex init{};
    init.attr = {.max_wr = 1, .max_sge = 1, .srq_limit = 0};
    init.comp_mask =
        unsigned{IBV_SRQ_INIT_ATTR_TYPE} | unsigned{IBV_SRQ_INIT_ATTR_PD} |
        unsigned{IBV_SRQ_INIT_ATTR_XRCD} | unsigned{IBV_SRQ_INIT_ATTR_CQ};
    init.srq_type = IBV_SRQT_XRC;
    init.pd = pd;
    init.cq = cq_.get();
    init.xrcd = xrcd;
    SrqPtr srq(ibv_create_srq_ex(context(), &init));
    CheckErrno(srq == nullptr ? errno : 0, "ibv_create_srq_ex");
    CheckPdBusy(pd, "an XRC SRQ");
    srq.reset();
    CheckErrno(ibv_close_xrcd(xrcd), "ibv_close_xrcd");
  }

  // A parent domain stays as a protection domain does, for what is made of it.
  void ParentDomain() {
    ibv_parent_domain_init_attr parent{};
    parent.pd = device_.pd.get();
    ibv_pd* const pd = ibv_alloc_parent_domain(context(), &parent);
    if (pd == nullptr) {
      report_.ExpectErrno(errno, {EOPNOTSUPP}, "ibv_alloc_parent_domain");
      return;
    }
    {
      ibv_qp_init_attr init{};
      init.qp_type = IBV_QPT_UD;
      init.send_cq = init.recv_cq = cq_.get();
      init.cap = {.max_send_wr = 1,
                  .max_recv_wr = 1,
                  .max_send_sge = 1,
                  .max_recv_sge = 1,
                  .max_inline_data = 0};
      const QpPtr qp(ibv_create_qp(pd, &init));
      CheckErrno(qp == nullptr ? errno : 0, "ibv_create_qp");
      CheckPdBusy(pd, "a QP");
    }
    {
      ibv_srq_init_attr init{};
      init.attr = {.max_wr = 1, .max_sge = 1, .srq_limit = 0};
      const SrqPtr srq(ibv_create_srq(pd, &init));
      CheckErrno(srq == nullptr ? errno : 0, "ibv_create_srq");
      CheckPdBusy(pd, "an SRQ");
    }
    XrcOfParent(pd);
    ibv_ah_attr to{};
    to.is_global = 1;
    to.port_num = 1;
    CheckErrno(ibv_query_gid(context(), 1, 0, &to.grh.dgid), "ibv_query_gid");
    ibv_ah* const ah = ibv_create_ah(pd, &to);
    CheckErrno(ah == nullptr ? errno : 0, "ibv_create_ah");
    CheckPdBusy(pd, "an address");
    CheckErrno(ibv_destroy_ah(ah), "ibv_destroy_ah");
    CheckErrno(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  }

  void ExpectNoMr(void* start, size_t length, unsigned int access,
                  std::initializer_list<int> right, const std::string& what) {
    const MrPtr mr(ibv_reg_mr_iova2(device_.pd.get(), start, length,
                                    reinterpret_cast<uintptr_t>(start),
                                    access));
    report_.ExpectRefused(mr.get(), right, what);
  }

  void Memory() {
    auto* memory = static_cast<uint8_t*>(mmap(
        nullptr, 4 * kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CheckErrno(memory == MAP_FAILED ? errno : 0, "mmap");
    ExpectNoMr(memory, kPage, IBV_ACCESS_LOCAL_WRITE, {EFAULT},
               "read-only memory with local write");
    ExpectNoMr(memory, kPage, IBV_ACCESS_REMOTE_WRITE, {EINVAL},
               "remote write without local write");
    ExpectNoMr(memory, kPage, IBV_ACCESS_REMOTE_ATOMIC, {EINVAL},
               "remote atomics without local write");
    ExpectNoMr(memory, kPage, 1U << 18, {EINVAL, EOPNOTSUPP},
               "an unknown access flag");
    CheckErrno(munmap(memory + 2 * kPage, 2 * kPage) != 0 ? errno : 0,
               "munmap");
    ExpectNoMr(memory, 4 * kPage, 0, {EFAULT, ENOMEM},
               "memory with an unmapped end");
    ExpectNoMr(memory, SIZE_MAX - kPage, 0, {EINVAL, EFAULT, ENOMEM},
               "a length that wraps");
    {
      const MrPtr one = RegisterMr(device_, memory, 1, 0);
      const MrPtr two = RegisterMr(device_, memory + 4095, 2, 0);
      report_.Expect(one->lkey != two->lkey, "two MRs with one lkey");
    }
    munmap(memory, 2 * kPage);
  }

  void InUse() {
    ibv_pd* pd = ibv_alloc_pd(context());
    Check(pd != nullptr, "ibv_alloc_pd failed");
    uint64_t word = 0;
    ibv_mr* mr = ibv_reg_mr_iova2(pd, &word, sizeof(word),
                                  reinterpret_cast<uintptr_t>(&word), 0);
    Check(mr != nullptr, "ibv_reg_mr failed");
    report_.ExpectErrno(ibv_dealloc_pd(pd), {EBUSY}, "dealloc a PD with an MR");
    CheckErrno(ibv_dereg_mr(mr), "ibv_dereg_mr");
    CheckErrno(ibv_dealloc_pd(pd), "ibv_dealloc_pd");

    ibv_cq* cq = ibv_create_cq(context(), 16, nullptr, nullptr, 0);
    Check(cq != nullptr, "ibv_create_cq failed");
    QpConfig config;
    QpPtr qp = CreateQp(device_, cq, cq, &config);
    report_.ExpectErrno(ibv_destroy_cq(cq), {EBUSY}, "destroy a CQ with a QP");
    qp.reset();
    CheckErrno(ibv_destroy_cq(cq), "ibv_destroy_cq");
  }

  // A new QP, connected to itself as far as `state`, and gone after one modify
  // that must be refused and must leave it in its state.
  void ExpectNoModify(
      ibv_qp_state state, const std::string& what, int mask,
      const std::function<ibv_qp_attr(const QpAddress&)>& make) {
    QpConfig config;
    const QpPtr qp = CreateQp(device_, cq_.get(), cq_.get(), &config);
    const QpAddress self = AddressOf(device_, qp.get());
    BringTo(qp.get(), self, state);
    ibv_qp_attr attr = make(self);
    report_.ExpectErrno(ibv_modify_qp(qp.get(), &attr, mask), {EINVAL}, what);
    const ibv_qp_state after = StateOf(qp.get());
    report_.Expect(after == state, what, ": state ", state, " became ", after);
  }

  void BringTo(ibv_qp* qp, const QpAddress& self, ibv_qp_state state) {
    const QpConfig config;
    if (state == IBV_QPS_RESET) {
      return;
    }
    ToInit(qp, config);
    if (state == IBV_QPS_INIT) {
      return;
    }
    ibv_qp_attr attr = RtrAttr(device_, self, config);
    CheckErrno(ibv_modify_qp(qp, &attr, kRtrMask), "modify QP to RTR");
    if (state == IBV_QPS_RTR) {
      return;
    }
    attr = RtsAttr(self.psn, config);
    CheckErrno(ibv_modify_qp(qp, &attr, kRtsMask), "modify QP to RTS");
    if (state == IBV_QPS_ERR) {
      ToState(qp, state);
    }
  }

  [[nodiscard]] ibv_qp_attr Rtr(const QpAddress& self) const {
    return RtrAttr(device_, self, QpConfig());
  }

  static ibv_qp_attr Rts(const QpAddress& self) {
    return RtsAttr(self.psn, QpConfig());
  }

  static ibv_qp_attr Init() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = Device::kPort;
    return attr;
  }

  void Transitions() {
    const auto rtr = [this](const QpAddress& self) { return Rtr(self); };
    const auto rts = [](const QpAddress& self) { return Rts(self); };
    const auto init = [](const QpAddress&) { return Init(); };

    ExpectNoModify(IBV_QPS_RESET, "RESET to RTR", kRtrMask, rtr);
    ExpectNoModify(IBV_QPS_RESET, "RESET to RTS", kRtsMask, rts);
    ExpectNoModify(IBV_QPS_INIT, "INIT to RTS", kRtsMask, rts);
    ExpectNoModify(IBV_QPS_INIT, "INIT to RTR without a destination",
                   kRtrMask & ~IBV_QP_DEST_QPN, rtr);
    ExpectNoModify(IBV_QPS_INIT, "INIT to RTR without a path",
                   kRtrMask & ~IBV_QP_AV, rtr);
    ExpectNoModify(IBV_QPS_RTR, "RTR to RTR", kRtrMask, rtr);
    ExpectNoModify(IBV_QPS_RTR, "RTR to RTS without a PSN",
                   kRtsMask & ~IBV_QP_SQ_PSN, rts);
    ExpectNoModify(IBV_QPS_RTS, "RTS to RTR", kRtrMask, rtr);
    ExpectNoModify(IBV_QPS_RTS, "RTS to INIT", kInitMask, init);
    ExpectNoModify(IBV_QPS_ERR, "ERR to RTS", kRtsMask, rts);
    ExpectNoModify(IBV_QPS_ERR, "ERR to INIT", kInitMask, init);

    // A QP that went to ERR and RESET can be used again.
    QpConfig config;
    const QpPtr qp = CreateQp(device_, cq_.get(), cq_.get(), &config);
    const QpAddress self = AddressOf(device_, qp.get());
    BringTo(qp.get(), self, IBV_QPS_ERR);
    ToState(qp.get(), IBV_QPS_RESET);
    BringTo(qp.get(), self, IBV_QPS_RTS);
  }

  void ExpectNoInit(const std::string& what,
                    const std::function<void(ibv_qp_attr*)>& change) {
    ExpectNoModify(IBV_QPS_RESET, what, kInitMask, [&](const QpAddress&) {
      ibv_qp_attr attr = Init();
      change(&attr);
      return attr;
    });
  }

  void ExpectNoRtr(const std::string& what,
                   const std::function<void(ibv_qp_attr*)>& change) {
    ExpectNoModify(IBV_QPS_INIT, what, kRtrMask, [&](const QpAddress& self) {
      ibv_qp_attr attr = Rtr(self);
      change(&attr);
      return attr;
    });
  }

  void ExpectNoRts(const std::string& what,
                   const std::function<void(ibv_qp_attr*)>& change) {
    ExpectNoModify(IBV_QPS_RTR, what, kRtsMask, [&](const QpAddress& self) {
      ibv_qp_attr attr = Rts(self);
      change(&attr);
      return attr;
    });
  }

  void Attributes() {
    const int responder = std::min(device_.attr.max_qp_rd_atom + 1, 255);
    const int initiator = std::min(device_.attr.max_qp_init_rd_atom + 1, 255);

    ExpectNoInit("port 2", [](auto* attr) { attr->port_num = 2; });
    ExpectNoInit("P_Key index out of range", [this](auto* attr) {
      attr->pkey_index = device_.attr.max_pkeys;
    });
    ExpectNoRtr("path MTU 0",
                [](auto* attr) { attr->path_mtu = static_cast<ibv_mtu>(0); });
    ExpectNoRtr("path MTU 6",
                [](auto* attr) { attr->path_mtu = static_cast<ibv_mtu>(6); });
    ExpectNoRtr("path MTU over the port's", [this](auto* attr) {
      attr->path_mtu = static_cast<ibv_mtu>(device_.port.active_mtu + 1);
    });
    ExpectNoRtr("GID index out of range",
                [](auto* attr) { attr->ah_attr.grh.sgid_index = 255; });
    ExpectNoRtr("no GRH", [](auto* attr) { attr->ah_attr.is_global = 0; });
    ExpectNoRtr("too many responder resources", [=](auto* attr) {
      attr->max_dest_rd_atomic = static_cast<uint8_t>(responder);
    });
    ExpectNoRtr("min_rnr_timer 32",
                [](auto* attr) { attr->min_rnr_timer = 32; });
    ExpectNoRts("too many initiator resources", [=](auto* attr) {
      attr->max_rd_atomic = static_cast<uint8_t>(initiator);
    });
    ExpectNoRts("rnr_retry 8", [](auto* attr) { attr->rnr_retry = 8; });
    ExpectNoRts("retry_cnt 8", [](auto* attr) { attr->retry_cnt = 8; });
    ExpectNoRts("timeout 32", [](auto* attr) { attr->timeout = 32; });
  }

  void Query() {
    QpConfig config;
    config.cap.max_send_wr = 33;
    config.timeout = 13;
    config.retry_cnt = 5;
    config.rnr_retry = 6;
    config.min_rnr_timer = 9;
    const QpPtr qp = CreateQp(device_, cq_.get(), cq_.get(), &config);
    report_.Expect(StateOf(qp.get()) == IBV_QPS_RESET, "new QP not in RESET");
    ToInit(qp.get(), config);
    report_.Expect(StateOf(qp.get()) == IBV_QPS_INIT, "not in INIT");
    const QpAddress self = AddressOf(device_, qp.get());
    ToRts(qp.get(), device_, self, self, config);

    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    CheckErrno(ibv_query_qp(qp.get(), &attr, kEverything, &init),
               "ibv_query_qp");
    const auto expect = [this](const std::string& what, uint64_t got,
                               uint64_t right) {
      report_.Expect(got == right, what, " is ", got, ", not ", right);
    };
    expect("qp_state", attr.qp_state, IBV_QPS_RTS);
    expect("cur_qp_state", attr.cur_qp_state, IBV_QPS_RTS);
    expect("dest_qp_num", attr.dest_qp_num, self.qpn);
    expect("rq_psn", attr.rq_psn, self.psn);
    expect("sq_psn", attr.sq_psn, self.psn);
    expect("path_mtu", attr.path_mtu, device_.port.active_mtu);
    expect("timeout", attr.timeout, 13);
    expect("retry_cnt", attr.retry_cnt, 5);
    expect("rnr_retry", attr.rnr_retry, 6);
    expect("min_rnr_timer", attr.min_rnr_timer, 9);
    expect("port_num", attr.port_num, Device::kPort);
    expect("access flags", attr.qp_access_flags, config.access);
    expect("sgid_index", attr.ah_attr.grh.sgid_index, device_.gid_index);
    report_.Expect(std::equal(std::begin(self.gid.raw), std::end(self.gid.raw),
                              std::begin(attr.ah_attr.grh.dgid.raw)),
                   "dgid is another");
    expect("max_send_wr", init.cap.max_send_wr, config.cap.max_send_wr);
    expect("max_recv_wr", init.cap.max_recv_wr, config.cap.max_recv_wr);
    expect("max_send_sge", init.cap.max_send_sge, config.cap.max_send_sge);
    expect("qp_type", init.qp_type, IBV_QPT_RC);
  }

  const Device& device_;
  Report& report_;
  CqPtr cq_;
};

}  // namespace

void RunControlCases(Side& side, const Device& device, Report* report) {
  ControlCases(device, report).Run();
  side.channel.Barrier(0);
}

}  // namespace ropcie
