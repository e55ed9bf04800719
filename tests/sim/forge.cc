// SPDX-License-Identifier: GPL-2.0
// What a hostile node writes into the windows of its peer.
#include <algorithm>
#include <cstring>

#include "world.h"

namespace ropcie::sim {

// For requests that name memory, and for their answers.
void World::ForgeOperands(Program* victim, ropcie_slot* slot) {
  Random* random = &env_.random;
  const Qp& qp = *victim->qp();
  switch (slot->op) {
    case ROPCIE_OP_WRITE:
    case ROPCIE_OP_READ:
    case ROPCIE_OP_CAS:
    case ROPCIE_OP_FAA:
      if (slot->op != ROPCIE_OP_WRITE) {
        slot->flags = 0;
        slot->frag_len = 0;
      }
      if (slot->op == ROPCIE_OP_READ) {
        slot->imm = static_cast<uint32_t>(random->Between(64, 4096));
      } else if (slot->op != ROPCIE_OP_WRITE) {
        slot->msg_len = 0;
      }
      if (slot->op == ROPCIE_OP_WRITE && (slot->flags & ROPCIE_F_FIRST) == 0) {
        return;
      }
      slot->reth.rkey =
          random->OneIn(4) ? random->Word() : victim->target_key();
      slot->reth.addr[0] = static_cast<uint32_t>(victim->target_address());
      slot->reth.addr[1] =
          static_cast<uint32_t>(victim->target_address() >> 32);
      return;
    case ROPCIE_OP_ATOMIC_WRITE:
      slot->flags = ROPCIE_F_FIRST | ROPCIE_F_LAST;
      slot->frag_len = slot->msg_len = ROPCIE_ATOMIC_LEN;
      slot->reth.rkey =
          random->OneIn(4) ? random->Word() : victim->target_key();
      slot->reth.addr[0] = static_cast<uint32_t>(victim->target_address());
      slot->reth.addr[1] =
          static_cast<uint32_t>(victim->target_address() >> 32);
      return;
    case ROPCIE_OP_READ_RESP:
    case ROPCIE_OP_ATOMIC_RESP:
      slot->mq = ropcie_mq_id(qp.qpn(), ROPCIE_MQ_RESPONSE);
      slot->psn =
          ropcie_psn_add(qp.next_psn(), ROPCIE_PSN_MASK - random->Below(4));
      if (slot->op == ROPCIE_OP_ATOMIC_RESP) {
        slot->flags = 0;
        slot->frag_len = slot->msg_len = 0;
        slot->orig[0] = random->Word();
      }
      return;
    default:
      return;
  }
}

// A slot that a queue pair of the victim will take seriously.
void World::ForgeFields(const Pair& pair, ropcie_slot* slot) {
  Random* random = &env_.random;
  memset(slot, 0, sizeof(*slot));
  slot->op = static_cast<uint8_t>(random->Between(1, ROPCIE_OP_END - 1));
  slot->flags = static_cast<uint8_t>(random->Below(4));
  slot->frag_len = static_cast<uint32_t>(random->Between(29, 3000));
  slot->msg_len = slot->frag_len;
  if (slot->flags != (ROPCIE_F_FIRST | ROPCIE_F_LAST)) {
    slot->msg_len += static_cast<uint32_t>(random->Between(1, 100));
  }
  const auto is_here = [&](const Connection& connection) {
    return connection.pair == &pair && connection.end[0] &&
           connection.end[0]->alive() && connection.end[1]->alive();
  };
  const auto it =
      std::find_if(connections_.begin(), connections_.end(), is_here);
  if (slot->op == ROPCIE_OP_ETH || it == connections_.end()) {
    return;
  }
  const Qp& victim = *it->end[1]->qp();
  const uint32_t jitter =
      random->OneIn(2) ? 0 : static_cast<uint32_t>(random->Below(4));
  slot->src_qpn = it->end[0]->qp()->qpn();
  slot->mq = ropcie_mq_id(victim.qpn(), ROPCIE_MQ_REQUEST);
  slot->psn = ropcie_psn_add(victim.expected_psn(), jitter);
  ForgeOperands(it->end[1].get(), slot);
  if (slot->op == ROPCIE_OP_ACK) {
    slot->mq = ropcie_mq_id(victim.qpn(), ROPCIE_MQ_RESPONSE);
    slot->flags = 0;
    slot->frag_len = slot->msg_len = 0;
    slot->psn = ropcie_psn_add(victim.next_psn(), ROPCIE_PSN_MASK - jitter);
    slot->aeth.msn = random->Word() & ROPCIE_PSN_MASK;
    slot->aeth.credits = random->Word() & ROPCIE_PSN_MASK;
    slot->aeth.syndrome = static_cast<uint8_t>(random->Below(6));
  }
}

// A record where the victim looks next.
void World::ForgeRecord(Pair* pair) {
  const Node& victim = node(pair->b);
  if (!victim.IsUp(pair->a)) {
    return;
  }
  const auto lane = static_cast<uint32_t>(env_.random.Below(Node::kLanes));
  const ropcie_lane_rx& rx = victim.rx(pair->a, lane);
  const uint64_t pos = rx.head + env_.random.Below(3);
  auto* slot = reinterpret_cast<ropcie_slot*>(pair->to_b->lane_view(lane)) +
               pos % rx.geom.slots;
  if (env_.random.OneIn(6)) {
    env_.random.Fill({reinterpret_cast<uint8_t*>(slot), sizeof(*slot)});
  } else {
    ForgeFields(*pair, slot);
  }
  slot->valid = ropcie_valid(rx.epoch, pos);
  pair->to_b->Post(slot, offsetof(ropcie_slot, valid));
  pair->to_b->Post(&slot->valid, sizeof(slot->valid));
}

// A consumer position that the victim's lane can not have.
void World::ForgePosition(Pair* pair) {
  for (uint32_t lane = 0; lane < Node::kLanes; lane++) {
    __le32* cons = &pair->to_b->control_view()->lane[lane].cons;
    const __le32 honest = *cons;
    *cons = env_.random.OneIn(2) ? env_.random.Word() : honest + 1;
    pair->to_b->Post(cons, sizeof(*cons));
    *cons = honest;
  }
}

void World::Forge() {
  Pair* pair = pairs_.front().get();
  coverage_.forgeries++;
  env_.Note("node ", pair->a, " forges");
  __le32* words = pair->to_b->words_view();
  __le32* word = &words[env_.random.Below(ROPCIE_LW_NUM)];
  switch (env_.random.Below(10)) {
    case 0:
    case 1:
      ForgePosition(pair);
      break;
    case 2:
      *word = env_.random.OneIn(2) ? env_.random.Word()
                                   : *word ^ 1U << env_.random.Below(32);
      pair->to_b->Post(word, sizeof(*word));
      break;
    case 3:  // of another version
      word = &words[ROPCIE_LW_MAGIC];
      *word = (ROPCIE_LINK_MAGIC | ROPCIE_WIRE_VERSION) + 1;
      pair->to_b->Post(word, sizeof(*word));
      break;
    default:
      ForgeRecord(pair);
      break;
  }
}

}  // namespace ropcie::sim
