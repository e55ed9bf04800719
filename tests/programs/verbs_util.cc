// SPDX-License-Identifier: GPL-2.0
#include "verbs_util.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "failure.h"
#include "side.h"

namespace ropcie {
namespace {

constexpr int kSpins = 50;  // empty polls before we sleep

ContextPtr OpenByName(const std::string& name) {
  int count = 0;
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> list(
      ibv_get_device_list(&count), ibv_free_device_list);
  CheckErrno(list == nullptr ? errno : 0, "no list of RDMA devices");
  std::string there;
  for (int i = 0; i < count; ++i) {
    ibv_device* device = list.get()[i];
    if (name == ibv_get_device_name(device)) {
      ContextPtr context(ibv_open_device(device));
      CheckErrno(context == nullptr ? errno : 0, "cannot open ", name);
      return context;
    }
    there += Text(" ", ibv_get_device_name(device));
  }
  throw Failure(Text("there is no RDMA device '", name,
                     "' (there are:", there.empty() ? " none" : there, ")"));
}

bool IsV4Mapped(const ibv_gid& gid) {
  static constexpr std::array<uint8_t, 12> kPrefix = {0, 0, 0, 0, 0,    0,
                                                      0, 0, 0, 0, 0xff, 0xff};
  return std::equal(kPrefix.begin(), kPrefix.end(), std::begin(gid.raw));
}

// The first RoCE v2 GID, one of an IPv4 address if there is any.
uint8_t ChooseGid(ibv_context* context, const ibv_port_attr& port) {
  int best = -1;
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(context, Device::kPort, static_cast<uint32_t>(i),
                         &entry, 0) != 0 ||
        entry.gid_type != IBV_GID_TYPE_ROCE_V2) {
      continue;
    }
    if (IsV4Mapped(entry.gid)) {
      return static_cast<uint8_t>(i);
    }
    if (best < 0) {
      best = i;
    }
  }
  Check(best >= 0,
        "the device has no RoCE v2 GID: its interface is down or "
        "has no address");
  return static_cast<uint8_t>(best);
}

uint32_t RandomPsn() {
  static std::mt19937 random{std::random_device{}()};
  return random() & 0xffffff;
}

// An unreliable queue pair waits for nobody.
constexpr int kRtrMaskUc =
    kRtrMask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
constexpr int kRtsMaskUc = IBV_QP_STATE | IBV_QP_SQ_PSN;

}  // namespace

bool HasMappedQueues() {
  const char* const wish = std::getenv("ROPCIE_MAPPED_QUEUES");
  return wish == nullptr || std::strcmp(wish, "0") != 0;
}

Device OpenDevice(const Side& side) {
  Device device{};
  device.context = OpenByName(side.device);
  CheckErrno(ibv_query_device(device.context.get(), &device.attr),
             "ibv_query_device");
  CheckErrno(ibv_query_port(device.context.get(), Device::kPort, &device.port),
             "ibv_query_port");
  Check(device.port.state == IBV_PORT_ACTIVE, side.device,
        ": port 1 is not active but ", ibv_port_state_str(device.port.state));
  device.pd.reset(ibv_alloc_pd(device.context.get()));
  CheckErrno(device.pd == nullptr ? errno : 0, "ibv_alloc_pd");
  device.gid_index = side.options.gid_index >= 0
                         ? static_cast<uint8_t>(side.options.gid_index)
                         : ChooseGid(device.context.get(), device.port);
  CheckErrno(ibv_query_gid(device.context.get(), Device::kPort,
                           device.gid_index, &device.gid) != 0
                 ? errno
                 : 0,
             "ibv_query_gid ", int{device.gid_index});
  return device;
}

CqPtr CreateCq(const Device& device, int entries, ibv_comp_channel* channel) {
  CqPtr cq(ibv_create_cq(device.context.get(), entries, nullptr, channel, 0));
  CheckErrno(cq == nullptr ? errno : 0, "ibv_create_cq of ", entries);
  return cq;
}

MrPtr RegisterMr(const Device& device, void* start, size_t length, int access) {
  // ibv_reg_mr is a macro with a cast that C++ checkers complain about.
  MrPtr mr(ibv_reg_mr_iova2(device.pd.get(), start, length,
                            reinterpret_cast<uintptr_t>(start),
                            static_cast<unsigned int>(access)));
  CheckErrno(mr == nullptr ? errno : 0, "ibv_reg_mr of ", length,
             " bytes, access ", access);
  return mr;
}

QpPtr CreateQp(const Device& device, ibv_cq* send_cq, ibv_cq* recv_cq,
               QpConfig* config) {
  ibv_qp_init_attr_ex init{};
  init.send_cq = send_cq;
  init.recv_cq = recv_cq;
  init.cap = config->cap;
  init.srq = config->srq;
  init.qp_type = config->type;
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  init.pd = device.pd.get();
  if (config->send_ops != 0) {
    init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = config->send_ops;
  }
  QpPtr qp(ibv_create_qp_ex(device.context.get(), &init));
  CheckErrno(qp == nullptr ? errno : 0, "ibv_create_qp_ex");
  config->cap = init.cap;
  return qp;
}

AhPtr CreateAh(const Device& device, const ibv_gid& gid) {
  ibv_ah_attr attr = AddressTo(device, gid);
  AhPtr ah(ibv_create_ah(device.pd.get(), &attr));
  CheckErrno(ah == nullptr ? errno : 0, "ibv_create_ah");
  return ah;
}

QpAddress AddressOf(const Device& device, const ibv_qp* qp) {
  return {device.gid, qp->qp_num, RandomPsn(), device.port.active_mtu};
}

void ToInit(ibv_qp* qp, const QpConfig& config) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = 0;
  attr.port_num = Device::kPort;
  attr.qp_access_flags = config.access;
  CheckErrno(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                               IBV_QP_ACCESS_FLAGS),
             "modify QP to INIT");
}

ibv_ah_attr AddressTo(const Device& device, const ibv_gid& gid) {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = Device::kPort;
  attr.grh.dgid = gid;
  attr.grh.sgid_index = device.gid_index;
  attr.grh.hop_limit = 64;
  return attr;
}

ibv_qp_attr RtrAttr(const Device& device, const QpAddress& peer,
                    const QpConfig& config) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = static_cast<ibv_mtu>(
      std::min<uint32_t>(peer.mtu, device.port.active_mtu));
  attr.dest_qp_num = peer.qpn;
  attr.rq_psn = peer.psn;
  attr.max_dest_rd_atomic = config.rd_atomic;
  attr.min_rnr_timer = config.min_rnr_timer;
  attr.ah_attr = AddressTo(device, peer.gid);
  return attr;
}

ibv_qp_attr RtsAttr(uint32_t psn, const QpConfig& config) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = psn;
  attr.timeout = config.timeout;
  attr.retry_cnt = config.retry_cnt;
  attr.rnr_retry = config.rnr_retry;
  attr.max_rd_atomic = config.rd_atomic;
  return attr;
}

void ToRts(ibv_qp* qp, const Device& device, const QpAddress& mine,
           const QpAddress& peer, const QpConfig& config) {
  const bool reliable = config.type == IBV_QPT_RC;
  ibv_qp_attr attr = RtrAttr(device, peer, config);
  CheckErrno(ibv_modify_qp(qp, &attr, reliable ? kRtrMask : kRtrMaskUc),
             "modify QP to RTR");
  attr = RtsAttr(mine.psn, config);
  CheckErrno(ibv_modify_qp(qp, &attr, reliable ? kRtsMask : kRtsMaskUc),
             "modify QP to RTS");
}

void ToState(ibv_qp* qp, ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  CheckErrno(ibv_modify_qp(qp, &attr, IBV_QP_STATE), "modify QP to state ",
             state);
}

void ToRtsUd(ibv_qp* qp, uint32_t qkey, uint32_t psn) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = Device::kPort;
  attr.qkey = qkey;
  CheckErrno(ibv_modify_qp(
                 qp, &attr,
                 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
             "modify UD QP to INIT");
  ToState(qp, IBV_QPS_RTR);
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = psn;
  CheckErrno(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN),
             "modify UD QP to RTS");
}

ibv_qp_state StateOf(ibv_qp* qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  CheckErrno(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), "ibv_query_qp");
  return attr.qp_state;
}

Connection Connect(const Device& device, Side& side, QpConfig config) {
  Connection connection{};
  connection.send_cq = CreateCq(
      device, static_cast<int>(config.cap.max_send_wr), config.channel);
  connection.recv_cq =
      CreateCq(device,
               config.recv_cqe != 0 ? config.recv_cqe
                                    : static_cast<int>(config.cap.max_recv_wr),
               config.channel);
  connection.qp = CreateQp(device, connection.send_cq.get(),
                           connection.recv_cq.get(), &config);
  ToInit(connection.qp.get(), config);
  const QpAddress mine = AddressOf(device, connection.qp.get());
  connection.peer = side.channel.Exchange(mine);
  ToRts(connection.qp.get(), device, mine, connection.peer, config);
  connection.config = config;
  // Nothing may be sent to a QP that is not ready to receive.
  side.channel.Barrier(connection.peer.qpn ^ mine.qpn);
  return connection;
}

std::vector<ibv_wc> WaitUpTo(ibv_cq* cq, size_t count, int timeout_s,
                             const std::string& what) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(timeout_s);
  std::vector<ibv_wc> done(count);
  size_t got = 0;
  int empty = 0;
  while (got < count) {
    const int now = ibv_poll_cq(cq, static_cast<int>(count - got), &done[got]);
    Check(now >= 0, what, ": ibv_poll_cq failed");
    got += static_cast<size_t>(now);
    if (now == 0) {
      if (std::chrono::steady_clock::now() >= end) {
        break;
      }
      // With one CPU, spinning would keep what we wait for from happening.
      if (++empty > kSpins) {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    }
  }
  done.resize(got);
  return done;
}

std::vector<ibv_wc> WaitFor(ibv_cq* cq, size_t count, int timeout_s,
                            const std::string& what) {
  std::vector<ibv_wc> done = WaitUpTo(cq, count, timeout_s, what);
  Check(done.size() == count, what, ": ", done.size(), " of ", count,
        " completions after ", timeout_s, " s");
  return done;
}

ibv_wc WaitForSuccess(ibv_cq* cq, int timeout_s, const std::string& what) {
  const ibv_wc wc = WaitFor(cq, 1, timeout_s, what).front();
  CheckSuccess(wc, what);
  return wc;
}

void CheckSuccess(const ibv_wc& wc, const std::string& what) {
  Check(wc.status == IBV_WC_SUCCESS, what, ": wr_id ", wc.wr_id,
        " completed with ", ibv_wc_status_str(wc.status), " (vendor error ",
        wc.vendor_err, ")");
}

void PostSend(ibv_qp* qp, uint64_t wr_id, std::vector<ibv_sge> sges,
              unsigned int flags) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = flags;
  ibv_send_wr* bad = nullptr;
  CheckErrno(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

void PostRecv(ibv_qp* qp, uint64_t wr_id, std::vector<ibv_sge> sges) {
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  ibv_recv_wr* bad = nullptr;
  CheckErrno(ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
}

void PostSrqRecv(ibv_srq* srq, uint64_t wr_id, std::vector<ibv_sge> sges) {
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  ibv_recv_wr* bad = nullptr;
  CheckErrno(ibv_post_srq_recv(srq, &wr, &bad), "ibv_post_srq_recv");
}

}  // namespace ropcie
