// SPDX-License-Identifier: GPL-2.0
// Attempts with the victim's keys: as an lkey in lists, as an rkey through a
// queue pair of one's own, to bind windows with, and to take away.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "failure.h"
#include "strangers.h"
#include "verbs_util.h"

namespace ropcie::strangers {
namespace {

using Which = Region Numbers::*;

const std::string kBytes = kSuccess + ", bytes came";
const std::string kLocal = Of(IBV_WC_LOC_PROT_ERR);
const std::string kDenied = Of(IBV_WC_REM_ACCESS_ERR);

constexpr int kAtomicWrite = 15;  // <infiniband/verbs.h> has no name for it yet
constexpr unsigned int kBindAccess =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

std::string WithBytes(const Actor& actor, const std::string& status) {
  return actor.Came() ? status + ", bytes came" : status;
}

ibv_sge Foreign(const Region& region, uint32_t length = kPiece) {
  return {.addr = region.addr, .length = length, .lkey = region.lkey};
}

// Both ends of a message.
std::string Both(const std::string& receiver, const std::string& sender) {
  return receiver == sender ? receiver
                            : Text(receiver, ", to the sender: ", sender);
}

Region Own(const ibv_sge& sge) { return {sge.lkey, sge.lkey, sge.addr}; }

std::string SendFrom(Actor& actor, const Region& region, ibv_qp_type type) {
  const Pair pair(actor, type);
  PostRecv(pair.to.get(), 1, {actor.In()});
  ibv_sge sge = Foreign(region);
  const std::string status = Send(pair.from.get(), Request(IBV_WR_SEND, &sge));
  if (status == kSuccess) {
    return WithBytes(actor, Next(pair.received.get()));
  }
  return WithBytes(actor, status);
}

std::string DatagramFrom(Actor& actor, const Region& region) {
  const Datagrams datagrams(actor.device, kOwnQkey);
  const AhPtr ah = CreateAh(actor.device, actor.device.gid);
  PostRecv(datagrams.qp.get(), 1, {actor.In(kPiece + kGrh)});
  ibv_sge sge = Foreign(region);
  const std::string status =
      Send(datagrams.qp.get(),
           DatagramRequest(&sge, ah.get(), datagrams.qp->qp_num, kOwnQkey));
  if (status == kSuccess) {
    return WithBytes(actor, Next(datagrams.received.get()));
  }
  return WithBytes(actor, status);
}

std::string ReceiveInto(Actor& actor, const Region& region, ibv_qp_type type) {
  const Pair pair(actor, type);
  PostRecv(pair.to.get(), 1, {Foreign(region)});
  ibv_sge sge = actor.Out();
  const std::string status = Send(pair.from.get(), Request(IBV_WR_SEND, &sge));
  return Both(Next(pair.received.get()), status);
}

std::string SharedReceiveInto(Actor& actor, const Region& region) {
  ibv_srq_init_attr init{};
  init.attr.max_wr = kDepth;
  init.attr.max_sge = 1;
  const SrqPtr srq(ibv_create_srq(actor.device.pd.get(), &init));
  CheckErrno(srq == nullptr ? errno : 0, "ibv_create_srq");
  PostSrqRecv(srq.get(), 1, {Foreign(region)});
  const Pair pair(actor, IBV_QPT_RC, srq.get());
  ibv_sge sge = actor.Out();
  const std::string status = Send(pair.from.get(), Request(IBV_WR_SEND, &sge));
  return Both(Next(pair.received.get()), status);
}

std::string DatagramInto(Actor& actor, const Region& region) {
  const Datagrams datagrams(actor.device, kOwnQkey);
  const AhPtr ah = CreateAh(actor.device, actor.device.gid);
  PostRecv(datagrams.qp.get(), 1, {Foreign(region)});
  ibv_sge sge = actor.Out(kPiece - kGrh);
  const std::string status =
      Send(datagrams.qp.get(),
           DatagramRequest(&sge, ah.get(), datagrams.qp->qp_num, kOwnQkey));
  return Both(Next(datagrams.received.get()), status);
}

std::string WriteFrom(Actor& actor, const Region& region) {
  const Pair pair(actor);
  ibv_sge sge = Foreign(region);
  const std::string status =
      Send(pair.from.get(), Request(IBV_WR_RDMA_WRITE, &sge, Own(actor.In())));
  return WithBytes(actor, status);
}

// What is fetched goes where the stranger may not write.
std::string FetchInto(Actor& actor, const Region& region,
                      ibv_wr_opcode opcode) {
  const Pair pair(actor);
  const uint32_t length = opcode == IBV_WR_RDMA_READ ? kPiece : 8;
  ibv_sge sge = Foreign(region, length);
  return Send(pair.from.get(), Request(opcode, &sge, Own(actor.Out())));
}

// An operation on memory of the victim, by way of a queue pair of one's own.
std::string Remote(Actor& actor, const Region& region, ibv_wr_opcode opcode,
                   ibv_qp_type type = IBV_QPT_RC) {
  const Pair pair(actor, type);
  const bool fetches = opcode == IBV_WR_RDMA_READ ||
                       opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
                       opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  const bool word = static_cast<int>(opcode) == kAtomicWrite ||
                    (fetches && opcode != IBV_WR_RDMA_READ);
  const uint32_t length = word ? 8 : kPiece;
  ibv_sge sge = fetches ? actor.In(length) : actor.Out(length);
  if (opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    PostRecv(pair.to.get(), 1, {});
  }
  const std::string status =
      Send(pair.from.get(), Request(opcode, &sge, region));
  if (type == IBV_QPT_UC) {
    // Nobody says that it was not placed; what comes next goes behind it.
    NothingComes(pair.received.get());
  }
  return WithBytes(actor, status);
}

// libibverbs asks of a region what the victim has told.
ibv_mr Forged(const Actor& actor, const Region& region) {
  ibv_mr mr{};
  mr.context = actor.device.context.get();
  mr.pd = actor.device.pd.get();
  // NOLINTNEXTLINE(performance-no-int-to-ptr): it is somebody else's address
  mr.addr = reinterpret_cast<void*>(region.addr);
  mr.length = kPiece;
  mr.lkey = region.lkey;
  mr.rkey = region.rkey;
  return mr;
}

ibv_send_wr BindRequest(ibv_mw* mw, ibv_mr* mr) {
  ibv_send_wr wr = Request(IBV_WR_BIND_MW, nullptr);
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  wr.bind_mw.bind_info = {.mr = mr,
                          .addr = reinterpret_cast<uintptr_t>(mr->addr),
                          .length = kPiece,
                          .mw_access_flags = kBindAccess};
  return wr;
}

std::string BindTo(Actor& actor, const Region& region, ibv_mw_type type) {
  const MwPtr mw(ibv_alloc_mw(actor.device.pd.get(), type));
  CheckErrno(mw == nullptr ? errno : 0, "ibv_alloc_mw");
  const Pair pair(actor);
  ibv_mr mr = Forged(actor, region);
  const ibv_send_wr wr = BindRequest(mw.get(), &mr);
  if (type == IBV_MW_TYPE_2) {
    return Send(pair.from.get(), wr);
  }
  ibv_mw_bind bind{.wr_id = 1,
                   .send_flags = IBV_SEND_SIGNALED,
                   .bind_info = wr.bind_mw.bind_info};
  const int error = ibv_bind_mw(pair.from.get(), mw.get(), &bind);
  return error != 0 ? Answer(error) : Next(pair.sent.get());
}

// The victim's window is to show one's own memory.
std::string BindForeign(Actor& actor, const Numbers& numbers) {
  ibv_mw mw{};
  mw.context = actor.device.context.get();
  mw.pd = actor.device.pd.get();
  mw.rkey = numbers.unbound;
  mw.type = IBV_MW_TYPE_2;
  const Pair pair(actor);
  ibv_mr mr = Forged(actor, Own(actor.In()));
  return Send(pair.from.get(), BindRequest(&mw, &mr));
}

std::string WriteThrough(Actor& actor, ibv_qp* from, uint32_t key) {
  ibv_sge sge = actor.Out();
  return Send(
      from, Request(IBV_WR_RDMA_WRITE, &sge, {key, key, Own(actor.In()).addr}));
}

std::string LocalInvalidate(ibv_qp* qp, uint32_t key) {
  ibv_send_wr wr = Request(IBV_WR_LOCAL_INV, nullptr);
  wr.invalidate_rkey = key;
  return Send(qp, wr);
}

std::string SendInvalidate(Actor& actor, const Pair& pair, uint32_t key) {
  PostRecv(pair.to.get(), 1, {actor.In()});
  ibv_sge sge = actor.Out();
  ibv_send_wr wr = Request(IBV_WR_SEND_WITH_INV, &sge);
  wr.invalidate_rkey = key;
  const std::string status = Send(pair.from.get(), wr);
  return Both(Next(pair.received.get()), status);
}

// The same attempts with a key that is one's own: what is refused else is the
// key, and not the request. The window works before, and does not after.
std::string InvalidateOwn(Actor& actor, bool by_send) {
  const Pair pair(actor);
  uint32_t key = 0;
  const MwPtr mw = OwnWindow(actor, pair.to.get(), &key);
  const std::string before = WriteThrough(actor, pair.from.get(), key);
  const std::string status = by_send ? SendInvalidate(actor, pair, key)
                                     : LocalInvalidate(pair.to.get(), key);
  return Text(before, ", ", status, ", ",
              WriteThrough(actor, pair.from.get(), key));
}

// Brings memory of a region on demand in.
std::string Advise(Actor& actor, const Region& region) {
  ibv_sge sge = Foreign(region);
  return Answer(ibv_advise_mr(actor.device.pd.get(),
                              IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
                              IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
}

struct Operation {
  const char* name;
  ibv_wr_opcode opcode;
  std::string owner;
  bool changes;
};

void AddLocal(const std::string& of, Which which, std::vector<Attempt>* to) {
  const auto add = [&](const std::string& name, auto run,
                       const std::string& stranger, const std::string& owner,
                       bool changes = false) {
    to->push_back({.name = name + of,
                   .run =
                       [=](Actor& actor, const Numbers& numbers) {
                         return run(actor, numbers.*which);
                       },
                   .stranger = stranger,
                   .owner = owner,
                   .changes = changes});
  };
  const std::string refused = Both(kLocal, Of(IBV_WC_REM_OP_ERR));
  const std::string unnoticed = Both(kLocal, kSuccess);

  for (const auto& [type, name] :
       {std::pair{IBV_QPT_RC, ""}, std::pair{IBV_QPT_UC, "UC "}}) {
    add(
        Text(name, "SEND of "),
        [type = type](Actor& actor, const Region& region) {
          return SendFrom(actor, region, type);
        },
        kLocal, kBytes);
    add(
        Text(name, "receive into "),
        [type = type](Actor& actor, const Region& region) {
          return ReceiveInto(actor, region, type);
        },
        type == IBV_QPT_RC ? refused : unnoticed, kSuccess, true);
  }
  add("datagram of ", DatagramFrom, kLocal, kBytes);
  add("receive of a datagram into ", DatagramInto, unnoticed, kSuccess, true);
  add("receive of a shared queue into ", SharedReceiveInto, refused, kSuccess,
      true);
  add("WRITE from ", WriteFrom, kLocal, kBytes);
  for (const auto& [opcode, name] :
       {std::pair{IBV_WR_RDMA_READ, "READ into "},
        std::pair{IBV_WR_ATOMIC_CMP_AND_SWP, "compare-and-swap's answer into "},
        std::pair{IBV_WR_ATOMIC_FETCH_AND_ADD,
                  "fetch-and-add's answer into "}}) {
    add(
        name,
        [opcode = opcode](Actor& actor, const Region& region) {
          return FetchInto(actor, region, opcode);
        },
        kLocal, kSuccess, true);
  }
}

// `windows`: what becomes of those of the owner's that another queue pair has.
void AddRemote(const std::string& of, Which which, bool is_window,
               bool anybodys, bool atomic_write, std::vector<Attempt>* to) {
  std::vector<Operation> operations = {
      {"WRITE to ", IBV_WR_RDMA_WRITE, kSuccess, true},
      {"WRITE with immediate data to ", IBV_WR_RDMA_WRITE_WITH_IMM, kSuccess,
       true},
      {"READ of ", IBV_WR_RDMA_READ, kBytes, false}};
  if (!is_window) {
    operations.push_back(
        {"compare-and-swap of ", IBV_WR_ATOMIC_CMP_AND_SWP, kBytes, true});
    operations.push_back(
        {"fetch-and-add to ", IBV_WR_ATOMIC_FETCH_AND_ADD, kBytes, true});
  }
  if (!is_window && atomic_write) {
    operations.push_back({"atomic write to ",
                          static_cast<ibv_wr_opcode>(kAtomicWrite), kSuccess,
                          true});
  }
  for (const Operation& one : operations) {
    to->push_back({.name = one.name + of,
                   .run =
                       [which, opcode = one.opcode](Actor& actor,
                                                    const Numbers& numbers) {
                         return Remote(actor, numbers.*which, opcode);
                       },
                   .stranger = kDenied,
                   .owner = anybodys ? one.owner : kDenied,
                   .changes = one.changes && anybodys});
  }
  // Who sends unreliably is not told.
  to->push_back({.name = "UC WRITE to " + of,
                 .run =
                     [which](Actor& actor, const Numbers& numbers) {
                       return Remote(actor, numbers.*which, IBV_WR_RDMA_WRITE,
                                     IBV_QPT_UC);
                     },
                 .stranger = kSuccess,
                 .owner = kSuccess,
                 .changes = anybodys});
}

void AddWindows(std::vector<Attempt>* to) {
  for (const auto& [type, name] :
       {std::pair{IBV_MW_TYPE_1, "window of type 1"},
        std::pair{IBV_MW_TYPE_2, "window of type 2"}}) {
    to->push_back({.name = Text("bind of a ", name, " to a region"),
                   .run =
                       [type = type](Actor& actor, const Numbers& numbers) {
                         return BindTo(actor, numbers.pinned, type);
                       },
                   .stranger = Of(IBV_WC_MW_BIND_ERR),
                   .owner = kSuccess});
  }
  to->push_back({.name = "bind of the victim's window",
                 .run = BindForeign,
                 .stranger = Of(IBV_WC_MW_BIND_ERR),
                 .owner = kSuccess});
  // Only the queue pair that has bound it may: not another one of the victim's.
  for (const auto& [which, name] :
       {std::pair{&Numbers::pinned, "a region"},
        std::pair{&Numbers::window_1, "a window of type 1"},
        std::pair{&Numbers::window_2, "a window of type 2"}}) {
    const std::string local = Of(IBV_WC_MW_BIND_ERR);
    const std::string remote = Both(Of(IBV_WC_REM_INV_REQ_ERR), kDenied);
    to->push_back({.name = Text("LOCAL_INV of ", name),
                   .run =
                       [which = which](Actor& actor, const Numbers& numbers) {
                         return LocalInvalidate(Pair(actor).from.get(),
                                                (numbers.*which).rkey);
                       },
                   .stranger = local,
                   .owner = local});
    to->push_back({.name = Text("SEND that invalidates ", name),
                   .run =
                       [which = which](Actor& actor, const Numbers& numbers) {
                         return SendInvalidate(actor, Pair(actor),
                                               (numbers.*which).rkey);
                       },
                   .stranger = remote,
                   .owner = remote});
  }
  for (const bool by_send : {false, true}) {
    const std::string right = Text(kSuccess, ", ", kSuccess, ", ", kDenied);
    to->push_back(
        {.name = Text(by_send ? "SEND that invalidates" : "LOCAL_INV of",
                      " a window of one's own"),
         .run =
             [by_send](Actor& actor, const Numbers& /*numbers*/) {
               return InvalidateOwn(actor, by_send);
             },
         .stranger = right,
         .owner = right});
  }
}

}  // namespace

MwPtr OwnWindow(Actor& actor, ibv_qp* qp, uint32_t* key) {
  MwPtr mw(ibv_alloc_mw(actor.device.pd.get(), IBV_MW_TYPE_2));
  CheckErrno(mw == nullptr ? errno : 0, "ibv_alloc_mw");
  ibv_mr mr = Forged(actor, Own(actor.In()));
  const ibv_send_wr wr = BindRequest(mw.get(), &mr);
  const std::string status = Send(qp, wr);
  Check(status == kSuccess, "bind of one's own window: ", status);
  *key = wr.bind_mw.rkey;
  return mw;
}

std::vector<Attempt> KeyAttempts(const Device& device) {
  ibv_device_attr_ex attr{};
  CheckErrno(ibv_query_device_ex(device.context.get(), nullptr, &attr),
             "ibv_query_device_ex");
  const bool atomic_write =
      HasMappedQueues() && (attr.device_cap_flags_ex & uint64_t{1} << 40) != 0;
  std::vector<Attempt> attempts;
  for (const auto& [which, name] :
       {std::pair{&Numbers::pinned, "a region"},
        std::pair{&Numbers::on_demand, "a region on demand"},
        std::pair{&Numbers::device_memory, "device memory"}}) {
    AddLocal(name, which, &attempts);
    AddRemote(name, which, false, true, atomic_write, &attempts);
  }
  attempts.push_back({.name = "advice on a region on demand",
                      .run =
                          [](Actor& actor, const Numbers& numbers) {
                            return Advise(actor, numbers.on_demand);
                          },
                      .stranger = std::strerror(EPERM),
                      .owner = kAccepted});
  if (HasMappedQueues()) {
    AddRemote("a window of type 1", &Numbers::window_1, true, true, false,
              &attempts);
    AddRemote("a window of type 2", &Numbers::window_2, true, false, false,
              &attempts);
    AddWindows(&attempts);
  }
  return attempts;
}

}  // namespace ropcie::strangers
