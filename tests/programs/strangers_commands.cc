// SPDX-License-Identifier: GPL-2.0
// Attempts with the victim's handles: commands as they are written to the
// device, or its ioctl. A handle is of the file that it was made with.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "failure.h"
#include "strangers.h"
#include "uverbs_raw.h"
#include "verbs_util.h"

namespace ropcie::strangers {
namespace {

constexpr uint32_t kMapped = 1;  // a driver's flag: ropcie-abi.h

Bytes Driver(uint32_t flags) {
  Bytes bytes;
  bytes.Append(std::array<uint32_t, 2>{flags, 0});
  return bytes;
}

// What one file has: a device, and what its process names itself.
struct Caller {
  const ibv_context* context;
  const Device& device;
  const Handles& own;
  void* memory;
};

// Commands on a handle. What makes objects unmakes them at once.
using Call = std::function<int(const Caller&, const Handles&)>;

template <typename Command>
int Destroy(const ibv_context* context, uint32_t number,
            uint32_t Command::*handle, uint32_t value) {
  Command command{};
  command.*handle = value;
  return WriteCommand(context, number, command);
}

template <typename Command>
Call Destroyer(uint32_t number, uint32_t Command::*field,
               uint32_t Handles::*which) {
  return [=](const Caller& caller, const Handles& of) {
    return Destroy(caller.context, number, field, of.*which);
  };
}

// Makes an object, whose handle is what answers begin with, for a moment.
template <typename Command, typename Undo>
int Make(const Caller& caller, uint32_t number, const Command& command,
         uint32_t undo_number, uint32_t Undo::*field, const Bytes& more = {}) {
  Response answer{};
  const int error =
      WriteCommand(caller.context, number, command, more, &answer);
  if (error == 0) {
    CheckErrno(Destroy(caller.context, undo_number, field, answer[0]),
               "destroying what command ", number, " has made");
  }
  return error;
}

ib_uverbs_reg_mr RegMr(uint32_t pd, void* memory) {
  ib_uverbs_reg_mr command{};
  command.start = reinterpret_cast<uintptr_t>(memory);
  command.length = kPiece;
  command.hca_va = command.start;
  command.pd_handle = pd;
  command.access_flags = kAllAccess;
  return command;
}

ib_uverbs_alloc_mw AllocMw(uint32_t pd) {
  ib_uverbs_alloc_mw command{};
  command.pd_handle = pd;
  command.mw_type = IBV_MW_TYPE_2;
  return command;
}

ib_uverbs_create_ah CreateAhCommand(uint32_t pd, const Device& device) {
  ib_uverbs_create_ah command{};
  command.pd_handle = pd;
  std::memcpy(command.attr.grh.dgid, device.gid.raw, sizeof(device.gid.raw));
  command.attr.grh.sgid_index = device.gid_index;
  command.attr.is_global = 1;
  command.attr.port_num = Device::kPort;
  command.attr.grh.hop_limit = 64;
  return command;
}

ib_uverbs_create_srq CreateSrq(uint32_t pd) {
  ib_uverbs_create_srq command{};
  command.pd_handle = pd;
  command.max_wr = kDepth;
  command.max_sge = 1;
  return command;
}

ib_uverbs_create_xsrq CreateXsrq(const Handles& of, uint32_t xrcd,
                                 uint32_t cq) {
  ib_uverbs_create_xsrq command{};
  command.srq_type = IBV_SRQT_XRC;
  command.pd_handle = of.pd;
  command.max_wr = kDepth;
  command.max_sge = 1;
  command.xrcd_handle = xrcd;
  command.cq_handle = cq;
  return command;
}

ib_uverbs_create_qp CreateQpCommand(const Handles& of,
                                    ibv_qp_type type = IBV_QPT_RC) {
  ib_uverbs_create_qp command{};
  command.pd_handle = of.pd;
  command.send_cq_handle = of.cq;
  command.recv_cq_handle = of.cq;
  command.max_send_wr = kDepth;
  command.max_recv_wr = kDepth;
  command.max_send_sge = 1;
  command.max_recv_sge = 1;
  command.qp_type = static_cast<uint8_t>(type);
  return command;
}

int MakeQp(const Caller& caller, const ib_uverbs_create_qp& command) {
  return Make(caller, IB_USER_VERBS_CMD_CREATE_QP, command,
              IB_USER_VERBS_CMD_DESTROY_QP, &ib_uverbs_destroy_qp::qp_handle);
}

int ModifyQp(const Caller& caller, uint32_t qp, ibv_qp_state state) {
  ib_uverbs_modify_qp command{};
  command.qp_handle = qp;
  command.attr_mask = IBV_QP_STATE;
  command.qp_state = static_cast<uint8_t>(state);
  if (state == IBV_QPS_INIT) {
    command.attr_mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    command.port_num = Device::kPort;
  }
  return WriteCommand(caller.context, IB_USER_VERBS_CMD_MODIFY_QP, command);
}

// `count`: 0 only makes the kernel look.
int PostSend(const ibv_context* context, uint32_t qp, uint32_t count) {
  ib_uverbs_post_send command{};
  command.qp_handle = qp;
  command.wr_count = count;
  command.wqe_size = sizeof(ib_uverbs_send_wr);
  Bytes requests;
  if (count != 0) {
    requests.Append(ib_uverbs_send_wr{});
  }
  return WriteCommand(context, IB_USER_VERBS_CMD_POST_SEND, command, requests);
}

Bytes OneReceive() {
  Bytes bytes;
  bytes.Append(ib_uverbs_recv_wr{});
  return bytes;
}

template <typename Command>
Call PostReceive(uint32_t number, uint32_t Command::*field,
                 uint32_t Handles::*which) {
  return [=](const Caller& caller, const Handles& of) {
    Command command{};
    command.*field = of.*which;
    command.wr_count = 1;
    command.wqe_size = sizeof(ib_uverbs_recv_wr);
    return WriteCommand(caller.context, number, command, OneReceive());
  };
}

template <typename Command>
Call Join(uint32_t number) {
  return [=](const Caller& caller, const Handles& of) {
    Command command{};
    std::memcpy(command.gid, caller.device.gid.raw, sizeof(command.gid));
    command.gid[0] = 0xff;  // of a group
    command.gid[1] = 0x0e;
    command.qp_handle = of.ud;
    return WriteCommand(caller.context, number, command);
  };
}

int ReregisterMr(const Caller& caller, uint32_t mr, uint32_t pd) {
  ib_uverbs_rereg_mr command{};
  command.mr_handle = mr;
  command.flags = IBV_REREG_MR_CHANGE_PD;
  command.pd_handle = pd;
  return WriteCommand(caller.context, IB_USER_VERBS_CMD_REREG_MR, command);
}

int QueryMr(const Caller& caller, const Handles& of) {
  std::array<uint64_t, 3> answers{};
  std::array<uint32_t, 2> keys{};
  return Ioctl(
      caller.context, UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR,
      {Attribute(UVERBS_ATTR_QUERY_MR_HANDLE, of.mr),
       Attribute(UVERBS_ATTR_QUERY_MR_RESP_LKEY,
                 reinterpret_cast<uintptr_t>(keys.data()), sizeof(keys[0])),
       Attribute(UVERBS_ATTR_QUERY_MR_RESP_RKEY,
                 reinterpret_cast<uintptr_t>(&keys[1]), sizeof(keys[1])),
       Attribute(UVERBS_ATTR_QUERY_MR_RESP_LENGTH,
                 reinterpret_cast<uintptr_t>(answers.data()),
                 sizeof(answers[0])),
       Attribute(UVERBS_ATTR_QUERY_MR_RESP_IOVA,
                 reinterpret_cast<uintptr_t>(&answers[1]),
                 sizeof(answers[1]))});
}

int RegisterDm(const Caller& caller, uint32_t pd, uint32_t dm) {
  std::array<uint32_t, 2> keys{};
  const uint64_t access = kAllAccess | IBV_ACCESS_ZERO_BASED;
  uint32_t made = 0;
  const int error = Ioctl(
      caller.context, UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG,
      {Attribute(UVERBS_ATTR_REG_DM_MR_HANDLE, 0),
       Attribute(UVERBS_ATTR_REG_DM_MR_OFFSET, 0, sizeof(uint64_t)),
       Attribute(UVERBS_ATTR_REG_DM_MR_LENGTH, kPiece, sizeof(uint64_t)),
       Attribute(UVERBS_ATTR_REG_DM_MR_PD_HANDLE, pd),
       Attribute(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, access, sizeof(access)),
       Attribute(UVERBS_ATTR_REG_DM_MR_DM_HANDLE, dm),
       Attribute(UVERBS_ATTR_REG_DM_MR_RESP_LKEY,
                 reinterpret_cast<uintptr_t>(keys.data()), sizeof(keys[0])),
       Attribute(UVERBS_ATTR_REG_DM_MR_RESP_RKEY,
                 reinterpret_cast<uintptr_t>(&keys[1]), sizeof(keys[1]))},
      &made);
  if (error == 0) {
    CheckErrno(Destroy(caller.context, IB_USER_VERBS_CMD_DEREG_MR,
                       &ib_uverbs_dereg_mr::mr_handle, made),
               "DEREG_MR of device memory");
  }
  return error;
}

int ImportDm(const Caller& caller, const Handles& of) {
  errno = 0;
  ibv_dm* const dm =
      ibv_import_dm(const_cast<ibv_context*>(caller.context), of.dm);
  if (dm == nullptr) {
    return errno;
  }
  ibv_unimport_dm(dm);
  return 0;
}

struct Command {
  std::string name;
  Call call;
  bool is_for_owner = true;
};

// Objects to make others with, of which one is another process's.
std::vector<Command> MakingCommands() {
  return {
      {"REG_MR in the domain",
       [](const Caller& caller, const Handles& of) {
         return Make(caller, IB_USER_VERBS_CMD_REG_MR,
                     RegMr(of.pd, caller.memory), IB_USER_VERBS_CMD_DEREG_MR,
                     &ib_uverbs_dereg_mr::mr_handle);
       }},
      {"ALLOC_MW in the domain",
       [](const Caller& caller, const Handles& of) {
         return Make(caller, IB_USER_VERBS_CMD_ALLOC_MW, AllocMw(of.pd),
                     IB_USER_VERBS_CMD_DEALLOC_MW,
                     &ib_uverbs_dealloc_mw::mw_handle);
       }},
      {"CREATE_AH in the domain",
       [](const Caller& caller, const Handles& of) {
         return Make(caller, IB_USER_VERBS_CMD_CREATE_AH,
                     CreateAhCommand(of.pd, caller.device),
                     IB_USER_VERBS_CMD_DESTROY_AH,
                     &ib_uverbs_destroy_ah::ah_handle);
       }},
      {"CREATE_SRQ in the domain",
       [](const Caller& caller, const Handles& of) {
         return Make(caller, IB_USER_VERBS_CMD_CREATE_SRQ, CreateSrq(of.pd),
                     IB_USER_VERBS_CMD_DESTROY_SRQ,
                     &ib_uverbs_destroy_srq::srq_handle);
       }},
      {"CREATE_XSRQ in the domain",
       [](const Caller& caller, const Handles& of) {
         return Make(caller, IB_USER_VERBS_CMD_CREATE_XSRQ,
                     CreateXsrq(of, caller.own.xrcd, caller.own.cq),
                     IB_USER_VERBS_CMD_DESTROY_SRQ,
                     &ib_uverbs_destroy_srq::srq_handle, Driver(kMapped));
       }},
      {"CREATE_XSRQ in the XRC domain",
       [](const Caller& caller, const Handles& of) {
         return Make(caller, IB_USER_VERBS_CMD_CREATE_XSRQ,
                     CreateXsrq(caller.own, of.xrcd, caller.own.cq),
                     IB_USER_VERBS_CMD_DESTROY_SRQ,
                     &ib_uverbs_destroy_srq::srq_handle, Driver(kMapped));
       }},
      {"CREATE_XSRQ with the CQ",
       [](const Caller& caller, const Handles& of) {
         return Make(caller, IB_USER_VERBS_CMD_CREATE_XSRQ,
                     CreateXsrq(caller.own, caller.own.xrcd, of.cq),
                     IB_USER_VERBS_CMD_DESTROY_SRQ,
                     &ib_uverbs_destroy_srq::srq_handle, Driver(kMapped));
       }},
      {"CREATE_QP in the domain",
       [](const Caller& caller, const Handles& of) {
         ib_uverbs_create_qp command = CreateQpCommand(caller.own);
         command.pd_handle = of.pd;
         return MakeQp(caller, command);
       }},
      {"CREATE_QP that sends to the CQ",
       [](const Caller& caller, const Handles& of) {
         ib_uverbs_create_qp command = CreateQpCommand(caller.own);
         command.send_cq_handle = of.cq;
         return MakeQp(caller, command);
       }},
      {"CREATE_QP that receives to the CQ",
       [](const Caller& caller, const Handles& of) {
         ib_uverbs_create_qp command = CreateQpCommand(caller.own);
         command.recv_cq_handle = of.cq;
         return MakeQp(caller, command);
       }},
      {"CREATE_QP with the SRQ",
       [](const Caller& caller, const Handles& of) {
         ib_uverbs_create_qp command = CreateQpCommand(caller.own);
         command.is_srq = 1;
         command.srq_handle = of.srq;
         return MakeQp(caller, command);
       }},
      {"CREATE_QP of a target in the XRC domain",
       [](const Caller& caller, const Handles& of) {
         ib_uverbs_create_qp command =
             CreateQpCommand(caller.own, IBV_QPT_XRC_RECV);
         command.pd_handle = of.xrcd;
         return MakeQp(caller, command);
       }},
      {"REREG_MR of one's own into the domain",
       [](const Caller& caller, const Handles& of) {
         const int error = ReregisterMr(caller, caller.own.mr, of.pd);
         return error != 0 ? error
                           : ReregisterMr(caller, caller.own.mr, caller.own.pd);
       }},
      {"DM_MR_REG in the domain",
       [](const Caller& caller, const Handles& of) {
         return RegisterDm(caller, of.pd, caller.own.dm);
       }},
      {"DM_MR_REG of the device memory",
       [](const Caller& caller, const Handles& of) {
         return RegisterDm(caller, caller.own.pd, of.dm);
       }},
  };
}

std::vector<Command> UsingCommands() {
  return {
      {"QUERY_QP",
       [](const Caller& caller, const Handles& of) {
         ib_uverbs_query_qp command{};
         command.qp_handle = of.qp;
         command.attr_mask = IBV_QP_STATE;
         return WriteCommand(caller.context, IB_USER_VERBS_CMD_QUERY_QP,
                             command);
       }},
      {"MODIFY_QP to INIT",
       [](const Caller& caller, const Handles& of) {
         return ModifyQp(caller, of.qp, IBV_QPS_INIT);
       }},
      {"POST_RECV", PostReceive(IB_USER_VERBS_CMD_POST_RECV,
                                &ib_uverbs_post_recv::qp_handle, &Handles::qp)},
      {"MODIFY_QP to ERR",
       [](const Caller& caller, const Handles& of) {
         return ModifyQp(caller, of.qp, IBV_QPS_ERR);
       }},
      {"POST_SEND",
       [](const Caller& caller, const Handles& of) {
         return PostSend(caller.context, of.qp, 1);
       }},
      {"POST_SEND of nothing",
       [](const Caller& caller, const Handles& of) {
         return PostSend(caller.context, of.qp, 0);
       }},
      {"MODIFY_QP to RESET",
       [](const Caller& caller, const Handles& of) {
         return ModifyQp(caller, of.qp, IBV_QPS_RESET);
       }},
      {"ATTACH_MCAST",
       Join<ib_uverbs_attach_mcast>(IB_USER_VERBS_CMD_ATTACH_MCAST)},
      {"DETACH_MCAST",
       Join<ib_uverbs_detach_mcast>(IB_USER_VERBS_CMD_DETACH_MCAST)},
      {"POLL_CQ",
       [](const Caller& caller, const Handles& of) {
         ib_uverbs_poll_cq command{};
         command.cq_handle = of.cq;
         command.ne = 1;
         return WriteCommand(caller.context, IB_USER_VERBS_CMD_POLL_CQ,
                             command);
       }},
      {"REQ_NOTIFY_CQ",
       [](const Caller& caller, const Handles& of) {
         ib_uverbs_req_notify_cq command{};
         command.cq_handle = of.cq;
         return WriteCommand(caller.context, IB_USER_VERBS_CMD_REQ_NOTIFY_CQ,
                             command);
       }},
      {"RESIZE_CQ",
       [](const Caller& caller, const Handles& of) {
         ib_uverbs_resize_cq command{};
         command.cq_handle = of.cq;
         command.cqe = 2 * kDepth;
         return WriteCommand(caller.context, IB_USER_VERBS_CMD_RESIZE_CQ,
                             command);
       }},
      {"QUERY_SRQ",
       [](const Caller& caller, const Handles& of) {
         ib_uverbs_query_srq command{};
         command.srq_handle = of.srq;
         return WriteCommand(caller.context, IB_USER_VERBS_CMD_QUERY_SRQ,
                             command);
       }},
      {"MODIFY_SRQ",
       [](const Caller& caller, const Handles& of) {
         ib_uverbs_modify_srq command{};
         command.srq_handle = of.srq;
         command.attr_mask = IBV_SRQ_LIMIT;
         command.srq_limit = 1;
         return WriteCommand(caller.context, IB_USER_VERBS_CMD_MODIFY_SRQ,
                             command);
       }},
      {"POST_SRQ_RECV",
       PostReceive(IB_USER_VERBS_CMD_POST_SRQ_RECV,
                   &ib_uverbs_post_srq_recv::srq_handle, &Handles::srq)},
      {"REREG_MR",
       [](const Caller& caller, const Handles& of) {
         return ReregisterMr(caller, of.mr, caller.own.pd);
       }},
      {"QUERY_MR", QueryMr},
      {"import of the device memory", ImportDm},
  };
}

// In an order in which nobody needs them any more.
std::vector<Command> DestroyingCommands() {
  const auto by_ioctl = [](uint16_t object, uint16_t method, uint16_t attribute,
                           uint32_t Handles::*which) {
    return [=](const Caller& caller, const Handles& of) {
      return Ioctl(caller.context, object, method,
                   {Attribute(attribute, of.*which)});
    };
  };
  return {
      {"DESTROY_QP", Destroyer(IB_USER_VERBS_CMD_DESTROY_QP,
                               &ib_uverbs_destroy_qp::qp_handle, &Handles::qp)},
      {"DESTROY_QP of datagrams",
       Destroyer(IB_USER_VERBS_CMD_DESTROY_QP, &ib_uverbs_destroy_qp::qp_handle,
                 &Handles::ud)},
      {"DESTROY_SRQ",
       Destroyer(IB_USER_VERBS_CMD_DESTROY_SRQ,
                 &ib_uverbs_destroy_srq::srq_handle, &Handles::srq)},
      {"DESTROY_CQ", Destroyer(IB_USER_VERBS_CMD_DESTROY_CQ,
                               &ib_uverbs_destroy_cq::cq_handle, &Handles::cq)},
      {"DESTROY_AH", Destroyer(IB_USER_VERBS_CMD_DESTROY_AH,
                               &ib_uverbs_destroy_ah::ah_handle, &Handles::ah)},
      {"DEALLOC_MW", Destroyer(IB_USER_VERBS_CMD_DEALLOC_MW,
                               &ib_uverbs_dealloc_mw::mw_handle, &Handles::mw)},
      {"DEREG_MR",
       Destroyer(IB_USER_VERBS_CMD_DEREG_MR, &ib_uverbs_dereg_mr::mr_handle,
                 &Handles::mr),
       false},  // it wants the region for what is next
      {"MR_DESTROY by ioctl",
       by_ioctl(UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY,
                UVERBS_ATTR_DESTROY_MR_HANDLE, &Handles::mr)},
      {"CLOSE_XRCD",
       Destroyer(IB_USER_VERBS_CMD_CLOSE_XRCD,
                 &ib_uverbs_close_xrcd::xrcd_handle, &Handles::xrcd)},
      {"DEALLOC_PD", Destroyer(IB_USER_VERBS_CMD_DEALLOC_PD,
                               &ib_uverbs_dealloc_pd::pd_handle, &Handles::pd)},
      {"DM_FREE by ioctl", by_ioctl(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE,
                                    UVERBS_ATTR_FREE_DM_HANDLE, &Handles::dm)},
  };
}

template <typename Command>
uint32_t Made(const ibv_context* context, uint32_t number,
              const Command& command, const Bytes& more = {}) {
  Response answer{};
  CheckErrno(WriteCommand(context, number, command, more, &answer), "command ",
             number);
  return answer[0];
}

}  // namespace

void RingDoorbell(const ibv_qp* qp) {
  CheckErrno(PostSend(qp->context, qp->handle, 0), "the doorbell");
}

uint32_t XrcdHandle(const Device& device, int fd) {
  ib_uverbs_open_xrcd command{};
  command.fd = static_cast<uint32_t>(fd);
  command.oflags = O_CREAT;
  return Made(device.context.get(), IB_USER_VERBS_CMD_OPEN_XRCD, command);
}

Handles MakeSpares(const Device& device) {
  static std::array<uint8_t, kPiece> memory;
  const ibv_context* const context = device.context.get();
  Handles made{};
  made.pd = Made(context, IB_USER_VERBS_CMD_ALLOC_PD, ib_uverbs_alloc_pd{});
  made.mr =
      Made(context, IB_USER_VERBS_CMD_REG_MR, RegMr(made.pd, memory.data()));
  made.mw = Made(context, IB_USER_VERBS_CMD_ALLOC_MW, AllocMw(made.pd));
  ib_uverbs_create_cq cq{};
  cq.cqe = kDepth;
  cq.comp_channel = -1;
  made.cq = Made(context, IB_USER_VERBS_CMD_CREATE_CQ, cq, Driver(kMapped));
  made.qp = Made(context, IB_USER_VERBS_CMD_CREATE_QP, CreateQpCommand(made));
  made.ud = Made(context, IB_USER_VERBS_CMD_CREATE_QP,
                 CreateQpCommand(made, IBV_QPT_UD));
  made.srq = Made(context, IB_USER_VERBS_CMD_CREATE_SRQ, CreateSrq(made.pd));
  made.ah = Made(context, IB_USER_VERBS_CMD_CREATE_AH,
                 CreateAhCommand(made.pd, device));
  made.xrcd = XrcdHandle(device, -1);
  ibv_alloc_dm_attr attr{};
  attr.length = kPiece;
  // Nobody gives it back but the attempt, or the end.
  const ibv_dm* const dm = ibv_alloc_dm(device.context.get(), &attr);
  CheckErrno(dm == nullptr ? errno : 0, "ibv_alloc_dm");
  made.dm = dm->handle;
  return made;
}

std::vector<Attempt> CommandAttempts() {
  std::vector<Attempt> attempts;
  for (const std::vector<Command>& list :
       {UsingCommands(), MakingCommands(), DestroyingCommands()}) {
    for (const Command& one : list) {
      attempts.push_back(
          {.name = one.name,
           .run =
               [call = one.call](Actor& actor, const Numbers& numbers) {
                 const Caller caller{actor.device.context.get(), actor.device,
                                     actor.own, actor.memory.data()};
                 // What is in use, and then what is not.
                 if (actor.IsStranger()) {
                   const int error = call(caller, numbers.used);
                   if (Answer(error) != kRefused) {
                     return Answer(error) + ", with what is in use";
                   }
                 }
                 return Answer(call(caller, numbers.spare));
               },
           .stranger = kRefused,
           .owner = one.is_for_owner ? kAccepted : ""});
    }
  }
  return attempts;
}

}  // namespace ropcie::strangers
