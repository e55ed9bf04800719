// SPDX-License-Identifier: GPL-2.0
#include "program.h"

#include <algorithm>
#include <array>

namespace ropcie::sim {

Program::Program(Env* env, Node* node, const ProgramOptions& options)
    : env_(env),
      node_(node),
      options_(options),
      qp_(node->CreateQp(this)),
      qpn_(qp_->qpn()),
      source_(env, Qp::kDepth * options.cell, Qp::kPd, 0),
      sink_(env, Qp::kDepth * options.cell, Qp::kPd, ROPCIE_ACCESS_LOCAL_WRITE),
      fetched_(env, Qp::kDepth * options.cell, Qp::kPd,
               ROPCIE_ACCESS_LOCAL_WRITE, env->direct ? ROPCIE_GRANT_SHIFT : 0),
      target_(env, Qp::kDepth * options.cell, Qp::kPd,
              ROPCIE_ACCESS_LOCAL_WRITE | ROPCIE_ACCESS_REMOTE_WRITE |
                  ROPCIE_ACCESS_REMOTE_READ,
              env->direct ? ROPCIE_GRANT_SHIFT : 0),
      offer_(env, options.cell, Qp::kPd, ROPCIE_ACCESS_REMOTE_READ),
      words_(env, 32, Qp::kPd,
             ROPCIE_ACCESS_LOCAL_WRITE | ROPCIE_ACCESS_REMOTE_ATOMIC) {
  for (Region* region : Regions()) {
    node->AddMr(region->mr());
  }
  std::vector<uint8_t> bytes(options.cell);
  FillFromKey(env->random.Next(), bytes);
  offer_.Write(0, bytes);
  words_.Write(0, std::vector<uint8_t>(32));
}

Program::~Program() { Leave(); }

std::array<Region*, 6> Program::Regions() {
  return {&source_, &sink_, &fetched_, &target_, &offer_, &words_};
}

void Program::Leave() {
  if (!alive()) {
    return;
  }
  for (Region* region : Regions()) {
    node_->DelMr(region->mr());
  }
  node_->DestroyQp(qp_);
  qp_ = nullptr;
}

void Program::Meet(Program* other, const QpAttr& attr) {
  other_ = other;
  attr_ = attr;
  if (options_.storm) {
    rnr_.emplace(attr.sq_psn, attr.rnr_retry);
  }
  qp_->Connect(attr);
}

void Program::Die() {
  CheckMemory();
  qp_ = nullptr;
}

bool Program::Healthy() const {
  return alive() &&
         (qp_->state() == ROPCIE_QPS_RTR || qp_->state() == ROPCIE_QPS_RTS ||
          qp_->state() == ROPCIE_QPS_SQD || qp_->state() == ROPCIE_QPS_SQE);
}

bool Program::Responds() const {
  return alive() && !closing_ && ropcie_qp_responds(qp_->state());
}

uint32_t Program::RandomLength() {
  switch (env_->random.Below(4)) {
    case 0:
      return static_cast<uint32_t>(env_->random.Below(30));
    case 1:
      return static_cast<uint32_t>(env_->random.Below(options_.cell + 1));
    case 2:  // around a multiple of the record size
      return std::min<uint32_t>(
          options_.cell,
          attr_.frag * static_cast<uint32_t>(env_->random.Below(5)) +
              static_cast<uint32_t>(env_->random.Below(2)));
    default:
      return static_cast<uint32_t>(env_->random.Below(100));
  }
}

// Makes one entry of a list unusable. `from` becomes its place in the bytes.
bool Program::Spoil(std::vector<ropcie_sge>* list, uint32_t* from) {
  *from = 0;
  for (ropcie_sge& sge : *list) {
    if (sge.length == 0 || env_->random.OneIn(2)) {
      *from += sge.length;
      continue;
    }
    switch (env_->random.Below(4)) {
      case 0:  // may be read, but not written
        if (sge.lkey == source_.mr()->key) {
          *from += sge.length;
          continue;
        }
        sge = {.addr = source_.Address(0),
               .length = std::min(sge.length, options_.cell),
               .lkey = source_.mr()->key};
        break;
      case 1:
        sge.lkey ^= 1U << env_->random.Below(32);
        break;
      case 2:
        sge.addr += sink_.mr()->length * 2;
        break;
      default:
        sge.addr = env_->random.Next() | uint64_t{1} << 63;
        break;
    }
    return true;
  }
  return false;
}

bool Program::TakesReceive(const Message& message) {
  return ropcie_op_receives(message.op, (message.flags & ROPCIE_WR_IMM) != 0);
}

// Each send has a part of every region to itself until it is done.
uint32_t Program::SlotOf(size_t index) const {
  return static_cast<uint32_t>(index % Qp::kDepth) * options_.cell;
}

// Makes what the peer is to touch unusable.
void Program::Deny(SendRequest* request) {
  switch (env_->random.Below(4)) {
    case 0:
      request->rkey ^= 1U << env_->random.Below(32);
      break;
    case 1:
      request->raddr += uint64_t{8} * Qp::kDepth * options_.cell;
      break;
    case 2:
      request->raddr = UINT64_MAX - 7;
      break;
    default:  // may be written by receives, and by nobody else
      request->rkey = other_->sink_.mr()->key;
      request->raddr = other_->sink_.Address(0) & ~uint64_t{7};
      break;
  }
}

// What nobody changes, or what was just written: requests are executed in
// order.
void Program::PlanRead(Message* message, SendRequest* request) {
  const Message* const before = sends_.empty() ? nullptr : &sends_.back();
  if (before != nullptr && ropcie_op_writes(before->op) && !before->bad &&
      !before->denied && env_->random.OneIn(2)) {
    message->reads_back = true;
    message->key = before->key;
    message->length = before->length;
    message->remote_off = before->remote_off;
    request->rkey = other_->target_.mr()->key;
    request->raddr = other_->target_.Address(message->remote_off);
    return;
  }
  message->remote_off = static_cast<uint32_t>(
      env_->random.Below(options_.cell - message->length + 1));
  request->rkey = other_->offer_.mr()->key;
  request->raddr = other_->offer_.Address(message->remote_off);
}

// What the peer's memory a request is for.
void Program::Plan(Message* message, size_t index, bool mischief,
                   SendRequest* request) {
  switch (message->op) {
    case ROPCIE_OP_WRITE:
      // Sometimes over the one before, which may be under way: in order.
      message->remote_off =
          SlotOf(index > 0 && env_->random.OneIn(3) ? index - 1 : index);
      request->rkey = other_->target_.mr()->key;
      request->raddr = other_->target_.Address(message->remote_off);
      break;
    case ROPCIE_OP_ATOMIC_WRITE: {
      // Aligned; the region may begin anywhere.
      const uint64_t cell = other_->target_.Address(SlotOf(index));
      request->raddr = (cell + 7) & ~uint64_t{7};
      request->rkey = other_->target_.mr()->key;
      message->remote_off =
          SlotOf(index) + static_cast<uint32_t>(request->raddr - cell);
      break;
    }
    case ROPCIE_OP_READ:
      PlanRead(message, request);
      break;
    case ROPCIE_OP_FAA:
    case ROPCIE_OP_CAS: {
      const bool cas = message->op == ROPCIE_OP_CAS;
      request->raddr =
          other_->words_.Address(other_->FirstWord()) + (cas ? 8 : 0);
      request->rkey = other_->words_.mr()->key;
      message->nth = atomics_[cas ? 1 : 0]++;
      request->compare_add = cas ? message->nth : 1;
      request->swap = message->nth + 1;
      break;
    }
    default:
      return;
  }
  if (mischief && message->length > 0 && env_->random.OneIn(60)) {
    message->denied = true;
    Deny(request);
  }
}

void Program::PostSend(bool mischief) {
  static constexpr std::array<uint8_t, 11> kOps = {
      ROPCIE_OP_SEND,  ROPCIE_OP_SEND,         ROPCIE_OP_SEND,  ROPCIE_OP_WRITE,
      ROPCIE_OP_WRITE, ROPCIE_OP_ATOMIC_WRITE, ROPCIE_OP_READ,  ROPCIE_OP_FAA,
      ROPCIE_OP_CAS,   ROPCIE_LOCAL_REG_MR,    ROPCIE_LOCAL_INV};
  if (!alive() || !ropcie_qp_may_post_send(qp_->state()) ||
      qp_->sends_pending() == Qp::kDepth) {
    return;
  }
  const size_t index = sends_.size();
  Message message{};
  message.key = env_->random.Next();
  message.op = kOps[env_->random.Below(kOps.size())];
  if (env_->direct && env_->random.OneIn(2)) {
    message.op = env_->random.OneIn(3) ? ROPCIE_OP_READ : ROPCIE_OP_WRITE;
  }
  if (options_.storm && ropcie_op_fetches(message.op)) {
    message.op = ROPCIE_OP_SEND;
  }
  if (options_.unreliable && ropcie_op_reliable(message.op)) {
    message.op = env_->random.OneIn(2) ? ROPCIE_OP_SEND : ROPCIE_OP_WRITE;
  }
  message.length = RandomLength();
  if (options_.unreliable && !sends_.empty() && env_->random.OneIn(2)) {
    message.length = sends_.back().length;  // easily taken one for the other
  }
  message.imm = env_->random.Word();
  message.flags = static_cast<uint8_t>(env_->random.Below(16));
  message.late = qp_->state() == ROPCIE_QPS_ERR;
  const bool fetches = ropcie_op_fetches(message.op);
  const bool local = ropcie_op_is_local(message.op);
  if (message.op == ROPCIE_OP_FAA || message.op == ROPCIE_OP_CAS ||
      message.op == ROPCIE_OP_ATOMIC_WRITE) {
    message.length = ROPCIE_ATOMIC_LEN;
    message.flags &= static_cast<uint8_t>(~ROPCIE_WR_IMM);
  }
  if (local) {
    message.length = 0;
    message.flags &= static_cast<uint8_t>(~ROPCIE_WR_IMM);
  }
  SendRequest request = {.wr_id = index,
                         .op = message.op,
                         .flags = message.flags,
                         .imm = message.imm};
  Plan(&message, index, mischief, &request);

  const uint32_t off = fetches ? PlanSink(index) : SlotOf(index);
  message.sink = off;
  if (!fetches) {
    std::vector<uint8_t> bytes(message.length);
    FillFromKey(message.key, bytes);
    source_.Write(off, bytes);
  }
  const bool whole = env_->direct && message.op == ROPCIE_OP_READ;
  std::vector<ropcie_sge> list =
      CutIntoSges(env_, fetches ? &fetched_ : &source_, off, message.length,
                  whole ? 1 : Qp::kMaxSge);
  if (mischief && !local && env_->random.OneIn(60)) {
    uint32_t from = 0;
    message.bad = Spoil(&list, &from);
  }
  if (TakesReceive(message)) {
    message.nth = takers_.size();
    takers_.push_back(index);
  }
  env_->Note("node ", node_->id(), " qp ", qpn_, ": send ", index, ", op ",
             int{message.op}, ", ", message.length, " bytes",
             message.bad ? ", bad key" : "",
             message.denied ? ", bad remote key" : "");
  if (ropcie_op_writes(message.op) && !message.denied) {
    Overwrite(message);
  }
  sends_.push_back(message);
  Require(qp_->PostSend(request, list), "a send queue with room refuses");
  if (qp_->state() == ROPCIE_QPS_ERR || qp_->state() == ROPCIE_QPS_SQE ||
      env_->random.OneIn(2)) {
    qp_->Run();  // the poster's own context
  }
}

// Where what it fetches goes: now and then where that of the one before does.
uint32_t Program::PlanSink(size_t index) {
  const bool again =
      index > 0 && ropcie_op_fetches(sends_.back().op) && env_->random.OneIn(3);
  const uint32_t sink = again ? sends_.back().sink : SlotOf(index);
  for (size_t i = sends_done_; i < sends_.size(); i++) {
    Message& message = sends_[i];
    message.overwritten |=
        ropcie_op_fetches(message.op) && message.sink == sink;
  }
  return sink;
}

// What is written before to the same place may not be there any more. A READ
// before has it, if the later one waits for that (IBTA: the fence).
void Program::Overwrite(const Message& by) {
  for (size_t i = sends_done_; i < sends_.size(); i++) {
    Message& message = sends_[i];
    const bool from_there =
        ropcie_op_writes(message.op) ||
        (message.reads_back && (by.flags & ROPCIE_WR_FENCE) == 0);
    message.overwritten |= from_there && !message.denied &&
                           message.remote_off < by.remote_off + by.length &&
                           by.remote_off < message.remote_off + message.length;
  }
}

void Program::PostRecv(bool mischief) {
  if (!alive() || !ropcie_qp_may_post_recv(qp_->state()) ||
      qp_->receives_ready() == Qp::kDepth) {
    return;
  }
  const size_t index = receives_.size();
  Receive receive = {
      .off = static_cast<uint32_t>(index % Qp::kDepth) * options_.cell,
      .room = options_.cell,
      .bad = false,
      .bad_from = 0};
  if (mischief && env_->random.OneIn(40)) {
    receive.room = static_cast<uint32_t>(env_->random.Below(receive.room));
  }
  std::vector<ropcie_sge> list =
      CutIntoSges(env_, &sink_, receive.off, receive.room, Qp::kMaxSge);
  if (mischief && env_->random.OneIn(60)) {
    receive.bad = Spoil(&list, &receive.bad_from);
  }
  env_->Note("node ", node_->id(), " qp ", qpn_, ": receive ", index, ", ",
             receive.room, " bytes", receive.bad ? ", bad key" : "");
  receives_.push_back(receive);
  Require(qp_->PostRecv(index, list), "a receive queue with room refuses");
  if (qp_->state() == ROPCIE_QPS_ERR || env_->random.OneIn(2)) {
    qp_->Run();
  }
}

void Program::OfferReceive(bool mischief) {
  if (hospitality_ == Hospitality::kReady ||
      (hospitality_ == Hospitality::kLate && env_->random.OneIn(8))) {
    PostRecv(mischief);
  }
}

bool Program::StarvesForEver() const {
  return hospitality_ == Hospitality::kNever && other_->attr_.rnr_retry < 7;
}

void Program::FillReceives() {
  while (Healthy() && qp_->receives_ready() < Qp::kDepth) {
    PostRecv(false);
  }
}

void Program::Close() {
  if (!alive()) {
    return;
  }
  closing_ = true;
  qp_->ToError();
  CheckState();
  CheckMemory();
  qp_->Reset();
  Leave();
}

}  // namespace ropcie::sim
