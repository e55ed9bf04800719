// SPDX-License-Identifier: GPL-2.0
// What a key allows, in one place. The statuses are those of the InfiniBand
// Architecture Specification, volume 1, chapters 9.7.5 and 10.6.
#include <infiniband/verbs.h>

#include <string>

#include "failure.h"
#include "keys.h"

namespace ropcie::keys {
namespace {

// What the region has to allow for its part in the operation.
unsigned int Needs(const Case& one) {
  if (one.where == Where::kReceive) {
    return IBV_ACCESS_LOCAL_WRITE;
  }
  if (one.where == Where::kLocal) {
    return IsFetch(one.op) ? IBV_ACCESS_LOCAL_WRITE : 0;
  }
  switch (one.op) {
    case Op::kRead:
      return IBV_ACCESS_REMOTE_READ;
    case Op::kFetchAdd:
    case Op::kCompareSwap:
      return IBV_ACCESS_REMOTE_ATOMIC;
    default:
      return IBV_ACCESS_REMOTE_WRITE;
  }
}

// Does the key name what was prepared?
bool KeyIsGood(const Case& one) {
  switch (one.state) {
    case State::kValid:
    case State::kRecycledNow:
    case State::kReregistered:
    case State::kMoved:
      return true;
    case State::kOtherQueuePair:
      // A window of type 2B is for the peer of one queue pair.
      return one.kind == Kind::kWindow1;
    default:
      return false;
  }
}

// An address that wraps around is never within: no range here goes so far.
bool Within(const Range& range) {
  return !range.absolute && range.offset < kRegion &&
         range.length <= kRegion - range.offset;
}

// The null region has every address, as far as they do not wrap around, but
// nothing for peers.
bool Covers(const Case& one) {
  return one.kind == Kind::kNull
             ? one.where != Where::kRemote && !one.range.absolute
             : Within(one.range);
}

bool DomainIsRight(const Case& one) {
  // IBTA 10.2.9.4: that of the shared queue counts for its receives.
  const bool shared =
      one.service == Service::kShared && one.where == Where::kReceive;
  return one.domain == (shared ? Domain::kOther : Domain::kSame);
}

bool Allowed(const Case& one) {
  const unsigned int access =
      one.kind == Kind::kNull ? unsigned{IBV_ACCESS_LOCAL_WRITE} : one.access;
  return KeyIsGood(one) && DomainIsRight(one) &&
         (access & Needs(one)) == Needs(one) && Covers(one) &&
         (one.where == Where::kRemote || !IsWindow(one.kind));
}

bool BindAllowed(const Case& one) {
  const unsigned int writes =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  if (one.window_domain != Domain::kSame) {
    return false;
  }
  if (one.op == Op::kBind1 && one.range.length == 0) {
    return true;  // to nothing
  }
  return KeyIsGood(one) && one.domain == Domain::kSame && !IsWindow(one.kind) &&
         one.kind != Kind::kNull && (one.access & IBV_ACCESS_MW_BIND) != 0 &&
         one.range.length > 0 && Within(one.range) &&
         ((one.window_access & writes) == 0 ||
          (one.access & IBV_ACCESS_LOCAL_WRITE) != 0) &&
         // Zero based windows are of type 2.
         (one.op == Op::kBind2 ||
          (one.window_access & IBV_ACCESS_ZERO_BASED) == 0);
}

// To make it invalid again is no error; a peer needs some right to it, which
// one that never was bound does not give. Windows of type 2B only.
bool InvalidateAllowed(const Case& one) {
  const bool good = one.state == State::kValid ||
                    one.state == State::kInvalidated ||
                    one.state == State::kInvalidatedByPeer ||
                    (one.state == State::kNotBound && one.op == Op::kLocalInv);
  return good && one.domain == Domain::kSame &&
         (one.kind == Kind::kWindow2 || one.kind == Kind::kWindow2Zero) &&
         (one.op == Op::kLocalInv || (one.access & kRemoteAccess) != 0);
}

Outcome RefusedByResponder(ibv_wc_status status, ibv_event_type event) {
  return {.status = status,
          .receive = IBV_WC_WR_FLUSH_ERR,
          .responder_fails = true,
          .event = event};
}

Outcome Success(const Case& one) {
  Outcome outcome;
  const bool moves = !IsBind(one.op) && one.op != Op::kLocalInv;
  outcome.local = moves && IsFetch(one.op) ? Placed::kAll : Placed::kNothing;
  outcome.remote =
      moves && one.op != Op::kRead ? Placed::kAll : Placed::kNothing;
  return outcome;
}

bool Misaligned(const Case& one) {
  return IsAtomic(one.op) && one.range.offset % kWord != 0;
}

Outcome JudgeRemote(const Case& one) {
  // IBTA 9.7.4.1.3: the queue pair is asked before the region is.
  if (one.where == Where::kRemote && Misaligned(one)) {
    return RefusedByResponder(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
  }
  // IBTA 9.7.4.1.4: the key of no bytes is not looked at.
  if (one.where == Where::kRemote && one.range.length > 0 && !Allowed(one)) {
    return RefusedByResponder(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
  }
  return Success(one);
}

Outcome JudgeReceive(const Case& one) {
  if (one.range.length == 0 || Allowed(one)) {
    return Success(one);
  }
  const bool is_short = one.range.length <= kShort;
  return {.status = IBV_WC_REM_OP_ERR,
          .receive = IBV_WC_LOC_PROT_ERR,
          .responder_fails = true,
          .remote = is_short ? Placed::kNothing : Placed::kPerhaps};
}

Outcome JudgeLocal(const Case& one) {
  if (one.range.length == 0 || Allowed(one)) {
    return Success(one);
  }
  const Placed perhaps =
      one.range.length <= kShort ? Placed::kNothing : Placed::kPerhaps;
  Outcome outcome{.status = IBV_WC_LOC_PROT_ERR};
  if (IsFetch(one.op)) {
    // It is executed before there is anything to place.
    outcome.remote = IsAtomic(one.op) ? Placed::kPerhaps : Placed::kNothing;
    outcome.local = perhaps;
  } else {
    outcome.remote = perhaps;
  }
  return outcome;
}

Outcome JudgeInvalidate(const Case& one) {
  if (InvalidateAllowed(one)) {
    return Success(one);
  }
  // A memory management operation error.
  if (one.op == Op::kLocalInv) {
    return {.status = IBV_WC_MW_BIND_ERR};
  }
  // The message is there; its key is refused.
  Outcome outcome =
      RefusedByResponder(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
  outcome.receive = IBV_WC_REM_INV_REQ_ERR;
  outcome.remote = Placed::kPerhaps;
  return outcome;
}

Outcome JudgeReliable(const Case& one) {
  // Whether the queue pair allows it is asked first; it is always asked by the
  // responder, so not of what never leaves the requester.
  const Outcome outcome = one.where == Where::kLocal     ? JudgeLocal(one)
                          : one.where == Where::kReceive ? JudgeReceive(one)
                                                         : JudgeRemote(one);
  Case remote = one;
  remote.where = Where::kRemote;
  const unsigned int right = IsSend(one.op) ? 0 : Needs(remote);
  const bool leaves = one.where != Where::kLocal || IsFetch(one.op) ||
                      outcome.status == IBV_WC_SUCCESS;
  if (leaves && (one.qp_access & right) != right) {
    return RefusedByResponder(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
  }
  return outcome;
}

// IBTA 9.8.2.2, 9.8.3.2: nobody answers. What a peer has no right to is
// dropped, and the responder goes on; its own receives are its own fault.
Outcome JudgeUnreliable(const Case& one) {
  Outcome outcome = JudgeReliable(one);
  switch (outcome.status) {
    case IBV_WC_SUCCESS:
    case IBV_WC_LOC_PROT_ERR:
      return outcome;
    case IBV_WC_REM_OP_ERR:
      outcome.status = IBV_WC_SUCCESS;
      return outcome;
    default:
      return {.dropped = true};
  }
}

}  // namespace

bool IsWindow(Kind kind) {
  return kind == Kind::kWindow1 || kind == Kind::kWindow2 ||
         kind == Kind::kWindow2Zero;
}

bool IsAtomic(Op op) {
  return op == Op::kFetchAdd || op == Op::kCompareSwap ||
         op == Op::kAtomicWrite;
}

bool IsBind(Op op) { return op == Op::kBind1 || op == Op::kBind2; }

bool IsInvalidate(Op op) { return op == Op::kLocalInv || op == Op::kSendInv; }

bool IsSend(Op op) {
  return op == Op::kSend || op == Op::kSendImm || op == Op::kSendInv;
}

bool IsFetch(Op op) {
  return op == Op::kRead || op == Op::kFetchAdd || op == Op::kCompareSwap;
}

bool TakesReceive(Op op) { return IsSend(op) || op == Op::kWriteImm; }

bool IsUnreliable(Service service) {
  return service == Service::kUnreliable || service == Service::kDatagram;
}

bool LengthIsHuge(const Case& one) { return one.range.length > kArea; }

Outcome Judge(const Case& one) {
  if (IsBind(one.op)) {
    return {.status = BindAllowed(one) ? IBV_WC_SUCCESS : IBV_WC_MW_BIND_ERR};
  }
  if (IsInvalidate(one.op)) {
    return JudgeInvalidate(one);
  }
  return IsUnreliable(one.service) ? JudgeUnreliable(one) : JudgeReliable(one);
}

std::string Name(Kind kind) {
  static constexpr const char* kNames[] = {
      "pinned",  "on demand", "low",      "high",      "device memory",
      "dma-buf", "null",      "window 1", "window 2B", "zero based window 2B"};
  return kNames[static_cast<int>(kind)];
}

std::string Name(const Case& one) {
  static constexpr const char* kOps[] = {"SEND",
                                         "SEND with immediate data",
                                         "WRITE",
                                         "WRITE with immediate data",
                                         "READ",
                                         "fetch and add",
                                         "compare and swap",
                                         "atomic write",
                                         "bind type 1",
                                         "bind type 2B",
                                         "LOCAL_INV",
                                         "SEND with invalidate"};
  static constexpr const char* kServices[] = {"RC", "UC", "UD", "RC with SRQ"};
  static constexpr const char* kWheres[] = {"local", "remote", "receive"};
  static constexpr const char* kDomainNames[] = {"own", "other", "foreign"};
  static constexpr const char* kStates[] = {"valid",
                                            "other tag",
                                            "other index",
                                            "0",
                                            "all ones",
                                            "deregistered",
                                            "recycled",
                                            "new at a recycled index",
                                            "re-registered",
                                            "moved",
                                            "not bound",
                                            "unbound",
                                            "key of an earlier bind",
                                            "invalidated",
                                            "invalidated by the peer",
                                            "bound on another QP"};
  std::string text = Text(
      kServices[static_cast<int>(one.service)], " ",
      kOps[static_cast<int>(one.op)], ", ",
      kWheres[static_cast<int>(one.where)], " ", Name(one.kind), ", access ",
      one.access, ", ", kDomainNames[static_cast<int>(one.domain)], " PD, key ",
      kStates[static_cast<int>(one.state)], ", ");
  if (one.state == State::kTag) {
    text += Text("^ ", int{one.tag}, ", ");
  }
  text +=
      Text(one.range.length, " bytes at ", one.range.absolute ? "address " : "",
           static_cast<int64_t>(one.range.offset));
  if (one.state == State::kRecycled) {
    text += Text(", now of ", Name(one.now));
  }
  if (IsWindow(one.kind)) {
    text +=
        Text(", of ", one.exact ? "all of " : "a part of ", Name(one.parent));
  }
  if (IsBind(one.op)) {
    text += Text(", window's access ", one.window_access, ", its PD ",
                 kDomainNames[static_cast<int>(one.window_domain)]);
  } else {
    text += Text(", QP's access ", one.qp_access);
  }
  return text;
}

}  // namespace ropcie::keys
