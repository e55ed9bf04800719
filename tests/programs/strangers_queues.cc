// SPDX-License-Identifier: GPL-2.0
// Attempts with the numbers of the victim's queues: of queue pairs that are
// connected to others, or know who may send by a Q_Key, of shared receive
// queues, of address handles, and where rings are mapped.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "failure.h"
#include "mappings.h"
#include "strangers.h"
#include "verbs_util.h"

namespace ropcie::strangers {
namespace {

const std::string kNoAnswer = Of(IBV_WC_RETRY_EXC_ERR);

// A queue pair whose peer has another one.
QpConfig Unwanted(ibv_qp_type type) {
  QpConfig config;
  config.type = type;
  config.access = kAllAccess;
  config.rd_atomic = 4;
  config.timeout = 12;  // 17 ms
  config.retry_cnt = 1;
  return config;
}

// How the victim's peer would reach it.
QpAddress At(const Numbers& numbers, const Queue& queue) {
  return {numbers.gid, queue.qpn, queue.psn, IBV_MTU_1024};
}

struct Uninvited {
  ibv_qp_type type;
  ibv_wr_opcode opcode;
  Queue Numbers::*to;
  bool elsewhere;  // on the device of the one that is connected
};

// Sends to a queue pair of the victim's what it expects next, of another.
std::string Intrude(Actor& actor, const Numbers& numbers,
                    const Uninvited& how) {
  const Device& device = how.elsewhere ? *actor.elsewhere : actor.device;
  const MrPtr mr = RegisterMr(device, actor.memory.data(), kPiece);
  const CqPtr cq = CreateCq(device, kDepth);
  const Queue& to = numbers.*how.to;
  const QpAddress peer = At(numbers, to);
  QpConfig config = Unwanted(how.type);
  QpPtr qp;
  if (how.type == IBV_QPT_XRC_SEND) {
    qp = CreateInitiator(device, cq.get());
    ConnectInitiator(qp.get(), device, to.psn, peer, config);
  } else {
    qp = CreateQp(device, cq.get(), cq.get(), &config);
    const QpAddress mine{device.gid, qp->qp_num, to.psn, peer.mtu};
    ToInit(qp.get(), config);
    ToRts(qp.get(), device, mine, peer, config);
  }
  ibv_sge sge{.addr = reinterpret_cast<uintptr_t>(actor.memory.data()),
              .length = kPiece,
              .lkey = mr->lkey};
  ibv_send_wr wr = Request(how.opcode, &sge, numbers.pinned);
  if (how.type == IBV_QPT_XRC_SEND) {
    wr.qp_type.xrc.remote_srqn = numbers.srqn;
  }
  std::string status = Send(qp.get(), wr);
  NothingComes(cq.get());  // but it may arrive late
  return status;
}

uint32_t Violations(const Device& device) {
  ibv_port_attr port{};
  CheckErrno(ibv_query_port(device.context.get(), Device::kPort, &port),
             "ibv_query_port");
  return port.qkey_viol_cntr;
}

// A datagram for that queue pair of the victim's.
std::string Datagram(Actor& actor, const Numbers& numbers, uint32_t qpn,
                     uint32_t qkey) {
  const Datagrams datagrams(actor.device, kOwnQkey);
  const AhPtr ah = CreateAh(actor.device, numbers.gid);
  const uint32_t before = Violations(actor.device);
  ibv_sge sge = actor.Out(kPiece - kGrh);
  const std::string status =
      Send(datagrams.qp.get(), DatagramRequest(&sge, ah.get(), qpn, qkey));
  // It is sent; now it has to arrive.
  for (int i = 0; i < 100 && Violations(actor.device) == before; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Violations(actor.device) != before ? status + ", and a violation"
                                            : status;
}

// An initiator and a target of one's own, connected.
struct XrcPair {
  XrcPair(const Actor& actor, ibv_cq* cq, uint8_t rnr_retry)
      : from(CreateInitiator(actor.device, cq)),
        to(CreateTarget(actor.device, actor.xrcd)) {
    const QpAddress here = AddressOf(actor.device, from.get());
    const QpAddress there = AddressOf(actor.device, to.get());
    QpConfig config = Unwanted(IBV_QPT_RC);
    config.retry_cnt = 7;
    config.timeout = 14;
    config.rnr_retry = rnr_retry;
    ConnectTarget(to.get(), actor.device, here, config);
    ConnectInitiator(from.get(), actor.device, here.psn, there, config);
  }

  QpPtr from;
  QpPtr to;
};

// A message for the shared queue of that number.
std::string ForQueue(Actor& actor, uint32_t srqn) {
  const CqPtr cq = CreateCq(actor.device, kDepth);
  const XrcPair pair(actor, cq.get(), 0);
  ibv_sge sge = actor.Out();
  ibv_send_wr wr = Request(IBV_WR_SEND, &sge);
  wr.qp_type.xrc.remote_srqn = srqn;
  return Send(pair.from.get(), wr);
}

// The first message turns a target to a shared queue, whose domain then says
// what may be written. One's own queue is no way to the victim's memory.
std::string WriteForQueue(Actor& actor, const Numbers& numbers) {
  const CqPtr cq = CreateCq(actor.device, kDepth);
  const SrqPtr srq = CreateXrcSrq(actor.device, actor.xrcd, cq.get());
  uint32_t own = 0;
  CheckErrno(ibv_get_srq_num(srq.get(), &own), "ibv_get_srq_num");
  const XrcPair pair(actor, cq.get(), QpConfig{}.rnr_retry);
  ibv_sge sge = actor.Out();
  ibv_send_wr wr = Request(IBV_WR_RDMA_WRITE, &sge, numbers.pinned);
  wr.qp_type.xrc.remote_srqn = own;
  return Send(pair.from.get(), wr);
}

// A target of the victim's as one's own receive side.
std::string OpenTarget(Actor& actor, const Numbers& numbers) {
  ibv_qp_open_attr attr{};
  attr.comp_mask =
      IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  attr.qp_num = numbers.xrc.qpn;
  attr.xrcd = actor.xrcd;
  attr.qp_type = IBV_QPT_XRC_RECV;
  const QpPtr qp(ibv_open_qp(actor.device.context.get(), &attr));
  return Answer(qp == nullptr ? errno : 0);
}

std::string OpenDomain(Actor& actor, const Numbers& numbers, int flags) {
  const int fd = open(numbers.xrcd_file.data(), flags | O_CLOEXEC);
  if (fd < 0) {
    return Answer(errno);
  }
  std::string answer = kAccepted;
  try {
    const XrcdPtr xrcd = OpenXrcd(actor.device, fd);
  } catch (const Failure& failure) {
    answer = failure.what();
  }
  close(fd);
  return answer;
}

std::string NamedAh(Actor& actor, const Numbers& numbers, bool own) {
  const AhPtr ah = CreateAh(actor.device, actor.device.gid);
  HandWritten queue(actor.device, ah.get());
  return queue.SendTo(own ? queue.number() : numbers.ah_number);
}

// All that the victim has mapped, in one's own file.
std::string Map(Actor& actor, const Numbers& numbers) {
  uint64_t end = 0;
  if (actor.IsStranger()) {
    const Pair some(actor);
    for (const Mapping& own : MappingsOf(actor.device.context->cmd_fd)) {
      end = std::max(end, own.offset + own.length);
    }
  }
  std::string answer;
  for (uint32_t i = 0; i < numbers.num_mappings; ++i) {
    const Mapping& one = numbers.mappings.at(i);
    Check(one.offset >= end, "the stranger has that offset, too: ", one.offset);
    void* const at =
        mmap(nullptr, one.length, PROT_READ | PROT_WRITE, MAP_SHARED,
             actor.device.context->cmd_fd, static_cast<off_t>(one.offset));
    const std::string now = Answer(at == MAP_FAILED ? errno : 0);
    if (at != MAP_FAILED) {
      munmap(at, one.length);
    }
    if (!answer.empty() && answer != now) {
      return Text(answer, ", then ", now);
    }
    answer = now;
  }
  return answer;
}

void AddUninvited(bool elsewhere, std::vector<Attempt>* to) {
  const std::string from =
      elsewhere ? ", from the device of its peer" : ", from its own device";
  const auto add = [&](const std::string& name, const Uninvited& how,
                       const std::string& stranger) {
    to->push_back({.name = name + from,
                   .run =
                       [how](Actor& actor, const Numbers& numbers) {
                         return Intrude(actor, numbers, how);
                       },
                   .stranger = stranger,
                   .owner = {}});
  };
  add("SEND to a connected queue pair",
      {IBV_QPT_RC, IBV_WR_SEND, &Numbers::rc, elsewhere}, kNoAnswer);
  add("WRITE to a connected queue pair",
      {IBV_QPT_RC, IBV_WR_RDMA_WRITE, &Numbers::rc, elsewhere}, kNoAnswer);
  add("READ by a connected queue pair",
      {IBV_QPT_RC, IBV_WR_RDMA_READ, &Numbers::rc, elsewhere}, kNoAnswer);
  add("UC SEND to a connected queue pair",
      {IBV_QPT_UC, IBV_WR_SEND, &Numbers::uc, elsewhere}, kSuccess);
  add("UC WRITE to a connected queue pair",
      {IBV_QPT_UC, IBV_WR_RDMA_WRITE, &Numbers::uc, elsewhere}, kSuccess);
  if (HasMappedQueues()) {
    add("SEND to a connected target",
        {IBV_QPT_XRC_SEND, IBV_WR_SEND, &Numbers::xrc, elsewhere}, kNoAnswer);
    add("WRITE to a connected target",
        {IBV_QPT_XRC_SEND, IBV_WR_RDMA_WRITE, &Numbers::xrc, elsewhere},
        kNoAnswer);
  }
}

// `told`: of a violation, which its own port counts.
void AddDatagrams(bool told, std::vector<Attempt>* to) {
  const std::string violation =
      told ? kSuccess + ", and a violation" : kSuccess;
  const auto add = [&](const std::string& name, auto run,
                       const std::string& stranger, int heard) {
    to->push_back({.name = name,
                   .run = run,
                   .stranger = stranger,
                   .owner = {},
                   .stranger_heard = heard});
  };
  // Whoever knows it may send; so it is the Q_Key that matters below.
  add(
      "datagram with the Q_Key",
      [](Actor& actor, const Numbers& numbers) {
        return Datagram(actor, numbers, numbers.ud_qpn, numbers.qkey);
      },
      kSuccess, 1);
  add(
      "datagram with another Q_Key",
      [](Actor& actor, const Numbers& numbers) {
        return Datagram(actor, numbers, numbers.ud_qpn, numbers.qkey ^ 1);
      },
      violation, 0);
  add(
      "datagram with the Q_Key of the sender's queue pair",
      [](Actor& actor, const Numbers& numbers) {
        return Datagram(actor, numbers, numbers.ud_qpn,
                        numbers.qkey | 0x80000000);
      },
      violation, 0);
  add(
      "datagram to a connected queue pair",
      [](Actor& actor, const Numbers& numbers) {
        return Datagram(actor, numbers, numbers.rc.qpn, numbers.qkey);
      },
      kSuccess, 0);
}

}  // namespace

std::vector<Attempt> FarQueueAttempts() {
  std::vector<Attempt> attempts;
  AddUninvited(true, &attempts);
  AddDatagrams(false, &attempts);
  return attempts;
}

std::vector<Attempt> QueueAttempts() {
  std::vector<Attempt> attempts;
  AddUninvited(false, &attempts);
  AddUninvited(true, &attempts);
  AddDatagrams(true, &attempts);
  if (!HasMappedQueues()) {
    return attempts;
  }
  attempts.push_back({.name = "XRC SEND for the shared queue",
                      .run =
                          [](Actor& actor, const Numbers& numbers) {
                            return ForQueue(actor, numbers.srqn);
                          },
                      .stranger = Of(IBV_WC_REM_INV_REQ_ERR),
                      .owner = kSuccess,
                      .owner_heard = 1});
  attempts.push_back({.name = "XRC WRITE by way of one's own shared queue",
                      .run = WriteForQueue,
                      .stranger = Of(IBV_WC_REM_ACCESS_ERR),
                      .owner = kSuccess,
                      .changes = true});
  attempts.push_back({.name = "ibv_open_qp of the target",
                      .run = OpenTarget,
                      .stranger = kRefused,
                      .owner = kAccepted});
  attempts.push_back({.name = "ibv_open_xrcd of the domain's file",
                      .run =
                          [](Actor& actor, const Numbers& numbers) {
                            return OpenDomain(actor, numbers, O_RDONLY);
                          },
                      .stranger = std::strerror(EACCES),
                      .owner = kAccepted});
  attempts.push_back({.name = "ibv_open_xrcd of a mere path to it",
                      .run =
                          [](Actor& actor, const Numbers& numbers) {
                            return OpenDomain(actor, numbers, O_PATH);
                          },
                      .stranger = "ibv_open_xrcd: Bad file descriptor",
                      .owner = "ibv_open_xrcd: Bad file descriptor"});
  attempts.push_back({.name = "address handle of one's own, by its number",
                      .run =
                          [](Actor& actor, const Numbers& numbers) {
                            return NamedAh(actor, numbers, true);
                          },
                      .stranger = kSuccess,
                      .owner = kSuccess});
  attempts.push_back({.name = "address handle of the victim, by its number",
                      .run =
                          [](Actor& actor, const Numbers& numbers) {
                            return NamedAh(actor, numbers, false);
                          },
                      .stranger = Of(IBV_WC_LOC_QP_OP_ERR),
                      .owner = kSuccess});
  attempts.push_back({.name = "mmap of the victim's queues and device memory",
                      .run = Map,
                      .stranger = kRefused,
                      .owner = kAccepted});
  return attempts;
}

}  // namespace ropcie::strangers
