// SPDX-License-Identifier: GPL-2.0
// libibverbs for tests: objects that destroy themselves, RC connections,
// waiting for completions with an end. Everything here throws Failure when a
// call fails that should not; tests of failures call libibverbs themselves.
#ifndef ROPCIE_TESTS_PROGRAMS_VERBS_UTIL_H_
#define ROPCIE_TESTS_PROGRAMS_VERBS_UTIL_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "side.h"

namespace ropcie {

// A failing destructor must not go unseen, and must not throw.
template <auto kDestroy>
struct Destroyer {
  template <typename T>
  void operator()(T* object) const {
    const int error = kDestroy(object);
    if (error != 0) {
      std::fprintf(stderr, "destroying a verbs object failed: %s\n",
                   std::strerror(error));
    }
  }
};

using ContextPtr = std::unique_ptr<ibv_context, Destroyer<ibv_close_device>>;
using PdPtr = std::unique_ptr<ibv_pd, Destroyer<ibv_dealloc_pd>>;
using MrPtr = std::unique_ptr<ibv_mr, Destroyer<ibv_dereg_mr>>;
using CqPtr = std::unique_ptr<ibv_cq, Destroyer<ibv_destroy_cq>>;
using QpPtr = std::unique_ptr<ibv_qp, Destroyer<ibv_destroy_qp>>;
using SrqPtr = std::unique_ptr<ibv_srq, Destroyer<ibv_destroy_srq>>;
using AhPtr = std::unique_ptr<ibv_ah, Destroyer<ibv_destroy_ah>>;
using ChannelPtr =
    std::unique_ptr<ibv_comp_channel, Destroyer<ibv_destroy_comp_channel>>;

// An open device with a PD and the GID that connections use.
struct Device {
  ContextPtr context;
  PdPtr pd;
  ibv_device_attr attr;
  ibv_port_attr port;
  ibv_gid gid;
  uint8_t gid_index;
  static constexpr uint8_t kPort = 1;
};

Device OpenDevice(const Side& side);

// Does libibverbs map queues? What uverbs has no commands for needs that:
// memory windows, XRC, atomic writes.
bool HasMappedQueues();

// What a QP is created with, and the attributes of its connection.
struct QpConfig {
  ibv_qp_type type = IBV_QPT_RC;  // or IBV_QPT_UC
  ibv_qp_cap cap{
      .max_send_wr = 64,
      .max_recv_wr = 64,
      .max_send_sge = 1,
      .max_recv_sge = 1,
      .max_inline_data = 0,
  };
  unsigned int access = IBV_ACCESS_LOCAL_WRITE;
  uint8_t min_rnr_timer = 12;  // 0.64 ms
  uint8_t rnr_retry = 7;       // for ever
  uint8_t retry_cnt = 7;
  uint8_t timeout = 14;  // 67 ms
  uint8_t rd_atomic = 0;
  ibv_srq* srq = nullptr;
  int recv_cqe = 0;  // entries of the receive CQ; 0 for max_recv_wr
  ibv_comp_channel* channel = nullptr;  // of both CQs
  uint64_t send_ops = 0;  // IBV_QP_EX_WITH_*, for ibv_qp_to_qp_ex()
};

// How the peer reaches a QP.
struct QpAddress {
  ibv_gid gid;
  uint32_t qpn;
  uint32_t psn;
  uint32_t mtu;
};

CqPtr CreateCq(const Device& device, int entries,
               ibv_comp_channel* channel = nullptr);
MrPtr RegisterMr(const Device& device, void* start, size_t length,
                 int access = IBV_ACCESS_LOCAL_WRITE);

// Creates a QP in RESET; config->cap becomes what the device gave.
QpPtr CreateQp(const Device& device, ibv_cq* send_cq, ibv_cq* recv_cq,
               QpConfig* config);

// For datagrams to a GID, from the device's own.
ibv_ah_attr AddressTo(const Device& device, const ibv_gid& gid);
AhPtr CreateAh(const Device& device, const ibv_gid& gid);

QpAddress AddressOf(const Device& device, const ibv_qp* qp);
void ToInit(ibv_qp* qp, const QpConfig& config);
ibv_qp_attr RtrAttr(const Device& device, const QpAddress& peer,
                    const QpConfig& config);
ibv_qp_attr RtsAttr(uint32_t psn, const QpConfig& config);
constexpr int kRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                         IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRtsMask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
                         IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_MAX_QP_RD_ATOMIC;

// INIT to RTS; the PSN of our own direction is that of `mine`.
void ToRts(ibv_qp* qp, const Device& device, const QpAddress& mine,
           const QpAddress& peer, const QpConfig& config);
void ToState(ibv_qp* qp, ibv_qp_state state);
// One of unreliable datagrams, from RESET to RTS.
void ToRtsUd(ibv_qp* qp, uint32_t qkey, uint32_t psn = 0);
ibv_qp_state StateOf(ibv_qp* qp);

// An RC QP with CQs of its own, connected to one that the peer makes meanwhile.
struct Connection {
  QpConfig config;
  CqPtr send_cq;
  CqPtr recv_cq;
  QpPtr qp;
  QpAddress peer;
};

Connection Connect(const Device& device, Side& side, QpConfig config);

// Polls until there are `count` completions, whatever their status, or the time
// is over: the result has those that came.
std::vector<ibv_wc> WaitUpTo(ibv_cq* cq, size_t count, int timeout_s,
                             const std::string& what);

// Polls until there are `count` completions, whatever their status, or throws
// after timeout_s with a text that begins with `what`.
std::vector<ibv_wc> WaitFor(ibv_cq* cq, size_t count, int timeout_s,
                            const std::string& what);

// The same for one completion, which must be a success.
ibv_wc WaitForSuccess(ibv_cq* cq, int timeout_s, const std::string& what);

void CheckSuccess(const ibv_wc& wc, const std::string& what);

// Post one work request; they throw if it is refused.
void PostSend(ibv_qp* qp, uint64_t wr_id, std::vector<ibv_sge> sges,
              unsigned int flags = IBV_SEND_SIGNALED);
void PostRecv(ibv_qp* qp, uint64_t wr_id, std::vector<ibv_sge> sges);
void PostSrqRecv(ibv_srq* srq, uint64_t wr_id, std::vector<ibv_sge> sges);

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_VERBS_UTIL_H_
