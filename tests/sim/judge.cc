// SPDX-License-Identifier: GPL-2.0
// What a program requires of its completions and its memory.
#include <cstring>

#include "program.h"

namespace ropcie::sim {

void Program::OnExecute(uint64_t wr_id) {
  env_->Note("node ", node_->id(), " qp ", qpn_, ": executes ", wr_id);
  Require(wr_id >= sends_done_ && wr_id < sends_.size() &&
              ropcie_op_is_local(sends_[wr_id].op),
          "executed what is not to be executed: ", wr_id);
  Require(wr_id >= next_executed_, "executed again, or out of order: ", wr_id);
  next_executed_ = wr_id + 1;
}

void Program::OnSent(const ropcie_hdr& hdr) {
  if (rnr_) {
    rnr_->Sent(hdr, env_->now);
  }
}

void Program::OnAcknowledge(const ropcie_hdr& hdr) {
  refusals_ += hdr.syndrome == ROPCIE_RNR_NAK ? 1 : 0;
  if (rnr_) {
    rnr_->Heard(hdr, env_->now);
  }
}

void Program::OnSendDone(const ropcie_req_comp& comp) {
  const size_t index = sends_done_++;
  env_->Note("node ", node_->id(), " qp ", qpn_, ": send ", comp.wr_id,
             " done, status ", int{comp.status});
  Require(index < sends_.size(), "a send completes twice");
  Require(comp.wr_id == index, "sends complete out of order: ", comp.wr_id,
          " instead of ", index);
  Message& message = sends_[index];
  Require(comp.length == message.length &&
              (comp.flags & ~ROPCIE_WR_DONE) == message.flags &&
              comp.op == message.op,
          "a completion tells of another request");
  if (comp.status == ROPCIE_WC_SUCCESS) {
    CheckSuccess(message, index);
    message.done = true;
    return;
  }
  // What there is of its data is not touched any more.
  fetched_.Accept(message.sink, options_.cell);
  message.given_back = true;
  if (send_error_ == 0) {
    send_error_ = comp.status;
    CheckCause(comp.status, message, index);
  } else {
    Require(comp.status == ROPCIE_WC_WR_FLUSH_ERR, "status ", int{comp.status},
            " behind an error");
  }
}

void Program::OnResumed() {
  Require(sends_done_ == sends_.size(), "a send outlives an error");
  send_error_ = 0;
}

void Program::CheckSuccess(const Message& message, size_t index) {
  Require(send_error_ == 0, "success behind an error");
  Require(!drained_, "a drained send queue goes on");
  if (!options_.honest) {
    return;
  }
  Require(!message.bad, "success of a request with a bad key");
  if (options_.unreliable) {
    return;
  }
  Require(!message.denied, "success of a request with a bad remote key");
  Require(!TakesReceive(message) || message.nth < other_->arrived_, "send ",
          index, " succeeded, but it was not received");
  CheckEffect(message, index);
  // An answer of this connection: what there was of an earlier one came before.
  stale_ &= ropcie_op_is_local(message.op);
}

// What the request was for has happened, and happened once.
void Program::CheckEffect(const Message& message, size_t index) {
  std::vector<uint8_t> bytes(message.length);
  switch (message.op) {
    case ROPCIE_OP_WRITE:
    case ROPCIE_OP_ATOMIC_WRITE:
      if (message.overwritten) {
        other_->target_.Accept(message.remote_off, message.length);
        break;
      }
      FillFromKey(message.key, bytes);
      Require(other_->target_.Arrived(message.remote_off, bytes), "write ",
              index, ": the peer's memory is not what was written");
      break;
    case ROPCIE_OP_READ:
      if (message.overwritten) {
        fetched_.Accept(message.sink, message.length);
        break;
      }
      if (message.reads_back) {
        FillFromKey(message.key, bytes);
      } else {
        bytes = other_->offer_.Read(message.remote_off, message.length);
      }
      Require(fetched_.Arrived(message.sink, bytes), "read ", index,
              ": not what the peer's memory holds");
      break;
    case ROPCIE_OP_FAA:
    case ROPCIE_OP_CAS:
      if (message.overwritten) {
        fetched_.Accept(message.sink, message.length);
        break;
      }
      memcpy(bytes.data(), &message.nth, sizeof(message.nth));
      Require(fetched_.Arrived(message.sink, bytes), "atomic ", index,
              ": not executed once and in order");
      break;
    case ROPCIE_LOCAL_REG_MR:
    case ROPCIE_LOCAL_INV:
      Require(index < next_executed_, "send ", index,
              " succeeded, but it was not executed");
      break;
    default:
      break;
  }
}

void Program::CheckCause(uint8_t status, const Message& message,
                         size_t index) const {
  if (!options_.honest) {
    return;
  }
  const bool is_head = TakesReceive(message) && message.nth == other_->arrived_;
  bool has_cause = false;
  switch (status) {
    case ROPCIE_WC_RETRY_EXC_ERR:
      has_cause = link_lost_ || !node_->Reaches(attr_.peer) ||
                  (!options_.unreliable &&
                   (!env_->timely || stale_ || !other_->Responds()));
      break;
    case ROPCIE_WC_RNR_RETRY_EXC_ERR:
      has_cause = rnr_ ? rnr_->UsedUp()
                       : attr_.rnr_retry < 7 && refusals_ > attr_.rnr_retry;
      break;
    case ROPCIE_WC_LOC_PROT_ERR:
      has_cause = message.bad;
      break;
    case ROPCIE_WC_REM_ACCESS_ERR:
      has_cause = message.denied && !options_.unreliable;
      break;
    case ROPCIE_WC_REM_INV_REQ_ERR:
      has_cause = is_head && other_->receive_error_ == ROPCIE_WC_LOC_LEN_ERR;
      break;
    case ROPCIE_WC_REM_OP_ERR:
      has_cause = is_head && other_->receive_error_ == ROPCIE_WC_LOC_PROT_ERR;
      break;
    case ROPCIE_WC_WR_FLUSH_ERR:
      has_cause = closing_ || message.late ||
                  ((receive_error_ != 0 || refused_) && !link_lost_);
      break;
    default:
      break;
  }
  Require(has_cause, "node ", node_->id(), " qp ", qpn_, ": send ", index,
          " failed with status ", int{status}, " for no reason");
}

void Program::OnRecvDone(const RecvDone& done) {
  const size_t index = receives_done_++;
  env_->Note("node ", node_->id(), " qp ", qpn_, ": receive ", done.wr_id,
             " done, status ", int{done.status}, ", ", done.length, " bytes");
  Require(index < receives_.size(), "a receive completes twice");
  Require(done.wr_id == index, "receives complete out of order: ", done.wr_id,
          " instead of ", index);
  const Receive& receive = receives_[index];
  const bool flushed = done.status == ROPCIE_WC_WR_FLUSH_ERR;
  if (done.status == ROPCIE_WC_SUCCESS) {
    Require(receive_error_ == 0 && !flushed_,
            "a receive succeeds behind an error");
    CheckArrival(done, receive);
    return;
  }
  Require(flushed || (receive_error_ == 0 && !flushed_), "receive status ",
          int{done.status}, " behind an error");
  if (!flushed) {
    CheckReceiveError(done.status, receive);
    receive_error_ = done.status;
  }
  if (!flushed_ && done.status != ROPCIE_WC_LOC_LEN_ERR) {
    sink_.Accept(receive.off, receive.room);  // part of a message
  }
  flushed_ |= flushed;
}

bool Program::IsThat(const Message& message, const RecvDone& done,
                     const Receive& receive) const {
  const bool imm = (message.flags & ROPCIE_WR_IMM) != 0;
  if (message.bad || message.denied || done.length != message.length ||
      done.has_imm != imm || (imm && done.imm != message.imm) ||
      done.solicited != ((message.flags & ROPCIE_WR_SOLICITED) != 0)) {
    return false;
  }
  std::vector<uint8_t> bytes(message.length);
  FillFromKey(message.key, bytes);
  return message.op == ROPCIE_OP_WRITE
             ? target_.Read(message.remote_off, message.length) == bytes
             : message.length <= receive.room &&
                   sink_.Read(receive.off, message.length) == bytes;
}

// A message may be missed, but what comes is whole, in order, and comes once.
void Program::CheckUnreliable(const RecvDone& done, const Receive& receive) {
  const auto& takers = other_->takers_;
  size_t at = next_taker_;
  while (at < takers.size() &&
         !IsThat(other_->sends_[takers[at]], done, receive)) {
    at++;
  }
  // Messages of an earlier connection look like those of this one.
  Require(at < takers.size() || stale_, "receive ", done.wr_id,
          ": no message that has not come is like this");
  if (at < takers.size()) {
    next_taker_ = at + 1;
    // Nothing of an earlier connection comes behind it; a short one may be
    // that.
    stale_ &= done.length < sizeof(uint64_t);
  }
  // Behind it there may be more of one that was missed.
  sink_.Accept(receive.off, receive.room);
}

void Program::CheckArrival(const RecvDone& done, const Receive& receive) {
  const size_t index = arrived_++;
  if (!options_.honest) {
    sink_.Accept(receive.off, receive.room);
    return;
  }
  if (options_.unreliable) {
    CheckUnreliable(done, receive);
    return;
  }
  Require(index < other_->takers_.size(), "received what was not sent");
  const Message& message = other_->sends_[other_->takers_[index]];
  const bool imm = (message.flags & ROPCIE_WR_IMM) != 0;
  Require(!message.bad && !message.denied,
          "received a message whose key was bad");
  Require(done.length == message.length, "message ", index, " has ",
          done.length, " bytes, not ", message.length);
  Require(done.has_imm == imm && (!imm || done.imm == message.imm), "message ",
          index, ": wrong immediate data");
  Require(done.solicited == ((message.flags & ROPCIE_WR_SOLICITED) != 0),
          "message ", index, ": solicited is wrong");
  CheckWritten(other_->takers_[index]);
  if (message.op == ROPCIE_OP_WRITE) {
    return;
  }
  Require(done.length <= receive.room, "message ", index, " is too long");
  Require(!receive.bad || message.length <= receive.bad_from,
          "received through a bad key");
  std::vector<uint8_t> bytes(message.length);
  FillFromKey(message.key, bytes);
  Require(sink_.Arrived(receive.off, bytes), "message ", index,
          ": the payload is not what was sent");
}

// Who is told of a message has all that was written before it.
void Program::CheckWritten(size_t last) {
  for (size_t i = other_->sends_done_; i <= last; i++) {
    const Message& message = other_->sends_[i];
    if (!ropcie_op_writes(message.op) || message.overwritten) {
      continue;
    }
    std::vector<uint8_t> bytes(message.length);
    FillFromKey(message.key, bytes);
    Require(target_.Read(message.remote_off, message.length) == bytes, "send ",
            i, ": what was written before a message is not there");
  }
}

void Program::CheckReceiveError(uint8_t status, const Receive& receive) const {
  if (!options_.honest) {
    return;
  }
  if (options_.unreliable) {
    Require(status == ROPCIE_WC_LOC_PROT_ERR && receive.bad,
            "a receive fails with status ", int{status});
    return;
  }
  Require(arrived_ < other_->takers_.size(),
          "a receive fails without a message");
  const Message& message = other_->sends_[other_->takers_[arrived_]];
  Require(message.op == ROPCIE_OP_SEND, "a WRITE fails a receive");
  if (status == ROPCIE_WC_LOC_LEN_ERR) {
    Require(message.length > receive.room, "the message was not too long");
  } else {
    Require(status == ROPCIE_WC_LOC_PROT_ERR && receive.bad &&
                message.length > receive.bad_from,
            "a receive fails with status ", int{status}, " for no reason");
  }
}

void Program::CheckState() {
  Require(
      !rnr_ || !rnr_->UsedUp() || send_error_ == ROPCIE_WC_RNR_RETRY_EXC_ERR,
      "no retry is left after an RNR NAK, and nothing fails");
  drained_ = alive() && qp_->state() == ROPCIE_QPS_SQD && qp_->drained();
  if (!alive() || qp_->state() != ROPCIE_QPS_ERR || qp_->fails_late()) {
    return;
  }
  Require(!options_.honest || closing_ || link_lost_ || receive_error_ != 0 ||
              (!options_.unreliable && (send_error_ != 0 || refused_)),
          "a connection ends for no reason");
  Require(sends_done_ == sends_.size(), sends_.size() - sends_done_,
          " sends never complete");
  Require(receives_done_ == receives_.size(), receives_.size() - receives_done_,
          " receives never complete");
}

void Program::CheckMemory() {
  // The receive in use may have got part of its message.
  if (receives_done_ < receives_.size()) {
    const Receive& receive = receives_[receives_done_];
    sink_.Accept(receive.off, receive.room);
  }
  for (const Message& send : sends_) {
    if (!send.done && !send.given_back) {
      fetched_.Accept(send.sink, options_.cell);
    }
  }
  for (size_t i = 0; other_ != nullptr && i < other_->sends_.size(); i++) {
    const Message& message = other_->sends_[i];
    if (ropcie_op_writes(static_cast<uint8_t>(message.op)) &&
        (!message.done || options_.unreliable) && !message.denied) {
      target_.Accept(message.remote_off, message.length);
    }
  }
  if (!options_.honest) {
    target_.Accept(0, Qp::kDepth * options_.cell);
    fetched_.Accept(0, Qp::kDepth * options_.cell);
  }
  words_.Accept(FirstWord(), 2 * ROPCIE_ATOMIC_LEN);
  Require(target_.Intact(), "memory outside the WRITEs was written");
  Require(fetched_.Intact(), "memory outside the READs was written");
  Require(words_.Intact(), "memory around the atomics was written");
  Require(offer_.Intact(), "memory that may only be read was written");
  Require(source_.Intact(), "the memory of sends was written");
  Require(sink_.Intact(), "memory outside the receives was written");
}

bool Program::Settled() const {
  if (!alive() || qp_->sends_pending() == 0) {
    return true;
  }
  // IBTA: with timeout 0 one waits for a dead queue pair for ever.
  return attr_.timeout_ns == 0 && !other_->Responds();
}

void Program::CheckQuiet() const {
  if (!options_.honest || !Healthy() || !other_->Healthy()) {
    return;
  }
  Require(sends_done_ == sends_.size(), "a send did not complete");
  if (options_.unreliable && !options_.calm) {
    return;
  }
  Require(other_->arrived_ == takers_.size(), "a message did not arrive");
  for (uint32_t i = 0; i < 2; i++) {
    std::vector<uint8_t> bytes(ROPCIE_ATOMIC_LEN);
    memcpy(bytes.data(), &atomics_[i], bytes.size());
    Require(other_->words_.Read(other_->FirstWord() + i * ROPCIE_ATOMIC_LEN,
                                ROPCIE_ATOMIC_LEN) == bytes,
            "atomics were executed again");
  }
}

}  // namespace ropcie::sim
