// SPDX-License-Identifier: GPL-2.0
#include "node.h"

#include <algorithm>
#include <cstring>

namespace ropcie::sim {
namespace {

// In units of LinkTime(), 10 us: short, so that links come and go often.
constexpr uint64_t kBeatLimit = 400;
constexpr uint64_t kHold = 20;

constexpr uint32_t kRegions = 256;
constexpr uint32_t kCrowdRegions = 16384;

}  // namespace

void Node::AddPeer(int peer, Window* in, Window* out, Bridge* bridge,
                   bool honest) {
  Peer& p = peers_[peer];
  p.in = in;
  p.out = out;
  p.bridge = bridge;
  p.honest = honest;
  in->SetMemory([this, peer](uint64_t bus, std::span<const uint8_t> bytes) {
    TakeStore(peer, bus, bytes);
  });
}

// Without the link the window is closed, and what meets it is gone. Behind
// records that are forged a grant may be used longer than it is given, in
// either direction: an answer to a forged READ goes where the READ was that
// should have had its PSN.
void Node::TakeStore(int id, uint64_t bus, std::span<const uint8_t> bytes) {
  if (!peers_.at(id).up) {
    return;
  }
  const uint64_t in_page = bus % ROPCIE_GRANT_PAGE;
  const auto it = shown_.find(bus - in_page);
  if (it == shown_.end()) {
    Require(!peers_.at(id).honest, "node ", id,
            " writes to memory that is gone");
    return;
  }
  memcpy(it->second + in_page, bytes.data(), bytes.size());
}

void Node::Store(int id, uint64_t bus, std::vector<uint8_t> bytes) {
  peers_.at(id).out->PostTo(bus, std::move(bytes));
}

uint64_t Node::Show(uint8_t* page) {
  const uint64_t bus = next_bus_++ * ROPCIE_GRANT_PAGE;
  shown_[bus] = page;
  return bus;
}

void Node::Boot() {
  qps_.clear();
  shown_.clear();
  free_qpns_.clear();
  const uint32_t regions = env_->crowd ? kCrowdRegions : kRegions;
  slots_.assign(regions, {});
  ropcie_mr_table_init(&table_, slots_.data(), regions, env_->random.Word());
  // The driver counts on from a random number; 24 bits are enough for all.
  next_qpn_ = static_cast<uint32_t>(env_->random.Between(2, 0xf00000));
  for (auto& [id, peer] : peers_) {
    peer.up = false;
    peer.broken = false;
    peer.copies.clear();
    peer.pass = {};
    ropcie_link_init(&peer.link, &kOffer,
                     ropcie_link_offer_size(&peer.out->offer()), kBeatLimit,
                     kHold);
  }
}

void Node::Clean(Peer* peer) {
  if (env_->fault == Fault::kDirtyWindow) {
    return;
  }
  memset(peer->in->control(), 0, ROPCIE_CONTROL_SIZE);
  for (uint32_t n = 0; n < kLanes; n++) {
    auto* slots = reinterpret_cast<ropcie_slot*>(peer->in->lane(n));
    for (uint32_t i = 0; i < kOffer.geom.slots; i++) {
      slots[i].valid = 0;
    }
  }
}

// Through a register that may stay full: then the rest is written later.
void Node::PublishWords(Peer* peer) {
  struct Call {
    Random* random;
    std::vector<uint32_t> taken;
  } call{.random = &env_->random, .taken = {}};
  const bool sent =
      ropcie_word_pass_write(
          &peer->pass, &peer->link, peer->link.own.w, ROPCIE_LW_NUM, 1,
          [](void* ctx, uint32_t word, uint32_t, uint32_t) {
            auto* to = static_cast<Call*>(ctx);
            if (to->random->OneIn(64)) {
              return -EAGAIN;
            }
            to->taken.push_back(word);
            return 0;
          },
          &call) == 0;
  for (size_t i = call.taken.size(); i > 1; i--) {
    std::swap(call.taken[i - 1], call.taken[env_->random.Below(i)]);
  }
  for (const uint32_t word : call.taken) {
    __le32* view = &peer->out->words_view()[word];
    *view = peer->link.own.w[word];
    peer->out->Post(view, sizeof(*view));
  }
  // The peer has yet to see them, or this side to write them.
  busy_ |= !peer->link.told;
  ropcie_link_published(&peer->link, sent, LinkTime());
  if (sent && peer->link.state == ROPCIE_LINK_READY) {
    peer->acknowledged_as = peer->link.own.w[ROPCIE_LW_EPOCH];
  }
}

void Node::OpenLanes(Peer* peer) {
  for (uint32_t n = 0; n < kLanes; n++) {
    LaneEnd& lane = peer->lanes[n];
    const ropcie_link_offer& theirs = peer->link.peer_offer;
    ropcie_lane_tx_init(&lane.tx, peer->out->lane_view(n), &theirs.geom,
                        &peer->in->control()->lane[n].cons, lane.ends.data(),
                        peer->link.peer_epoch, env_->random.OneIn(2));
    ropcie_lane_rx_init(&lane.rx, peer->in->lane(n), &kOffer.geom,
                        &peer->out->control_view()->lane[n].cons,
                        peer->link.own.w[ROPCIE_LW_EPOCH]);
  }
  peer->up = true;
}

void Node::Lost(int id) {
  peers_.at(id).up = false;
  peers_.at(id).copies.clear();
  for (auto& [qpn, qp] : qps_) {
    if (qp->connected() && qp->peer() == id) {
      qp->LinkLost();
    }
  }
}

void Node::CarryOut(int id, uint32_t todo) {
  Peer& peer = peers_.at(id);
  if ((todo & ROPCIE_LINK_DO_LOST) != 0) {
    env_->Note("node ", id_, ": link to ", id, " lost");
    Lost(id);
  }
  // Preparing may fail for a while.
  if ((todo & ROPCIE_LINK_DO_PREPARE) != 0 && !env_->random.OneIn(8)) {
    Clean(&peer);
    todo |= ropcie_link_prepared(&peer.link);
  }
  if ((todo & ROPCIE_LINK_DO_PUBLISH) != 0) {
    PublishWords(&peer);
  }
  if ((todo & ROPCIE_LINK_DO_UP) != 0) {
    Require(peer.acknowledged_as == peer.link.own.w[ROPCIE_LW_EPOCH],
            "up, and the peer was not told");
    env_->Note("node ", id_, ": link to ", id, " up, epochs ",
               peer.link.own.w[ROPCIE_LW_EPOCH], " and ", peer.link.peer_epoch);
    OpenLanes(&peer);
  }
  Require((todo & ROPCIE_LINK_DO_REFUSE) == 0 || !peer.honest,
          "an honest peer was refused");
}

void Node::StepLink(int id) {
  Peer& peer = peers_.at(id);
  if (peer.broken) {
    peer.broken = false;
    CarryOut(id, ropcie_link_kill(&peer.link));
    return;
  }
  ropcie_link_words words;
  for (int i = 0; i < ROPCIE_LW_NUM; i++) {
    words.w[i] = READ_ONCE(peer.in->words()[i]);
  }
  uint32_t epoch = env_->random.Word();
  if (env_->fault == Fault::kDirtyWindow) {
    // Same in every life; the state machine insists on a change.
    epoch = peer.link.last_epoch == 7 ? 9 : 7;
  }
  bool* was_down = &peer.bridge->was_down[id_ > id ? 1 : 0];
  const bool up = peer.bridge->up && !*was_down;
  *was_down = false;
  CarryOut(id, ropcie_link_step(&peer.link, up, &words, epoch, LinkTime()));
}

void Node::Broken(int id, const char* what) {
  Peer& peer = peers_.at(id);
  Require(!peer.honest, "node ", id_, ": ", what, " from honest node ", id);
  peer.broken = true;
}

// The stores of a record: those before its valid word as the sender made them,
// or as what lies between may deliver them, without a fence.
void Node::PostRecord(Peer* peer, uint32_t lane, uint64_t pos,
                      std::span<const ropcie_vec> payload) {
  const ropcie_lane_tx& tx = peer->lanes[lane].tx;
  const uint64_t index = pos % tx.geom.slots;
  ropcie_slot* slot = &tx.slots[index];
  const size_t number = lane * size_t{tx.geom.slots} + index;
  std::vector<ropcie_vec> stores(payload.begin(), payload.end());
  stores.push_back({.base = slot, .len = offsetof(ropcie_slot, valid)});
  if (env_->torn) {
    for (uint64_t n = env_->random.Below(6); n > 0; n--) {
      ropcie_vec* one = &stores[env_->random.Below(stores.size())];
      const auto cut = static_cast<uint32_t>(env_->random.Below(one->len + 1));
      const ropcie_vec rest = {.base = static_cast<uint8_t*>(one->base) + cut,
                               .len = one->len - cut};
      one->len = cut;
      stores.push_back(rest);
    }
    for (size_t i = stores.size(); i > 1; i--) {
      std::swap(stores[i - 1], stores[env_->random.Below(i)]);
    }
  }
  const bool first = env_->Fails(Fault::kValidFirst);
  if (first) {
    peer->out->PostOf(number, true, &slot->valid, sizeof(slot->valid));
  }
  for (const ropcie_vec& store : stores) {
    peer->out->PostOf(number, false, store.base, store.len);
  }
  if (!first) {
    peer->out->PostOf(number, true, &slot->valid, sizeof(slot->valid));
  }
}

// Whatever lies in the next slot is taken for a record.
void Node::TakeEarly(Peer* peer, uint32_t lane) {
  const ropcie_lane_rx& rx = peer->lanes[lane].rx;
  auto* slots = reinterpret_cast<ropcie_slot*>(peer->in->lane(lane));
  ropcie_slot* slot = &slots[rx.head % rx.geom.slots];
  if (slot->op != 0) {
    slot->valid = ropcie_valid(rx.epoch, rx.head);
  }
}

int Node::StartCopy(Peer* peer, uint32_t lane, const ropcie_hdr& hdr,
                    const std::vector<ropcie_vec>& vec) {
  Copy copy{.lane = lane, .hole = {}, .payload = {}};
  const int ret = ropcie_lane_reserve(&peer->lanes[lane].tx, &hdr, &copy.hole);
  if (ret != 0) {
    return ret;
  }
  for (const ropcie_vec& run : vec) {
    const auto* from = static_cast<const uint8_t*>(run.base);
    copy.payload.insert(copy.payload.end(), from, from + run.len);
  }
  if (env_->Fails(Fault::kEarlyHeader)) {
    ropcie_lane_fill(&peer->lanes[lane].tx, &copy.hole);
    PostRecord(peer, lane, copy.hole.pos, {});
    return 0;
  }
  peer->copies.push_back(std::move(copy));
  return 0;
}

bool Node::EndCopy(int id) {
  Peer& peer = peers_.at(id);
  if (peer.copies.empty()) {
    return false;
  }
  const auto it =
      peer.copies.begin() +
      static_cast<ptrdiff_t>(env_->random.Below(peer.copies.size()));
  const Copy copy = std::move(*it);
  peer.copies.erase(it);
  size_t off = 0;
  for (uint32_t i = 0; i < copy.hole.ndst; i++) {
    const ropcie_vec& run = copy.hole.dst[i];
    memcpy(run.base, copy.payload.data() + off, run.len);
    off += run.len;
  }
  ropcie_lane_fill(&peer.lanes[copy.lane].tx, &copy.hole);
  PostRecord(&peer, copy.lane, copy.hole.pos, {copy.hole.dst, copy.hole.ndst});
  return true;
}

int Node::Send(int id, uint32_t key, const ropcie_hdr& hdr,
               const std::vector<ropcie_vec>& vec) {
  Peer& peer = peers_.at(id);
  if (!Reaches(id)) {
    return -ENOTCONN;
  }
  busy_ = true;
  // Other users of the lane take its space now and then.
  if (env_->random.OneIn(24)) {
    return -EAGAIN;
  }
  ropcie_lane_tx* tx = &peer.lanes[key % kLanes].tx;
  const uint64_t pos = tx->head;
  const uint64_t pay = tx->pay_head;
  const bool dma =
      env_->dma && ropcie_hdr_ring_len(&hdr) != 0 && env_->random.OneIn(2);
  const int ret = dma ? StartCopy(&peer, key % kLanes, hdr, vec)
                      : ropcie_lane_send(tx, &hdr, vec.data(),
                                         static_cast<uint32_t>(vec.size()));
  if (ret == -EPROTO) {
    Broken(id, "impossible consumer position");
    return -ENOTCONN;
  }
  if (ret != 0 || dma) {
    return ret;
  }
  std::vector<ropcie_vec> payload;
  if (ropcie_hdr_ring_len(&hdr) != 0) {
    const auto off = static_cast<uint32_t>(pay % tx->geom.bytes);
    const uint32_t first = std::min(hdr.frag_len, tx->geom.bytes - off);
    payload = {{.base = tx->payload + off, .len = first},
               {.base = tx->payload, .len = hdr.frag_len - first}};
  }
  PostRecord(&peer, key % kLanes, pos, payload);
  return 0;
}

bool Node::Pending(int id) const {
  const Peer& peer = peers_.at(id);
  return peer.up && std::any_of(peer.lanes.begin(), peer.lanes.end(),
                                [](const LaneEnd& lane) {
                                  return ropcie_lane_peek(&lane.rx);
                                });
}

bool Node::Delivered(int id, uint32_t key) {
  const Peer& peer = peers_.at(id);
  return !peer.up ||
         (ropcie_lane_tx_idle(&peer.lanes[key % kLanes].tx) && !Pending(id));
}

uint64_t Node::Position(int id, uint32_t key) const {
  return peers_.at(id).lanes[key % kLanes].tx.head;
}

bool Node::Passed(int id, uint32_t key, uint64_t pos) const {
  const Peer& peer = peers_.at(id);
  return !peer.up || ropcie_lane_tx_passed(&peer.lanes[key % kLanes].tx, pos);
}

void Node::Dispatch(int peer, const ropcie_rec& rec, std::vector<Qp*>* owing) {
  const auto it = qps_.find(ropcie_mq_qpn(rec.hdr.mq));
  if (it == qps_.end()) {
    return;
  }
  Qp* qp = it->second.get();
  if (ropcie_mq_dir(rec.hdr.mq) == ROPCIE_MQ_RESPONSE) {
    qp->OnResponse(peer, rec);
  } else if (qp->OnRequest(peer, rec) &&
             std::find(owing->begin(), owing->end(), qp) == owing->end()) {
    owing->push_back(qp);
  }
}

int Node::Drain(int id, uint32_t n, int most, bool publish) {
  Peer& peer = peers_.at(id);
  if (!peer.up || peer.broken) {
    return 0;
  }
  ropcie_lane_rx* rx = &peer.lanes[n].rx;
  std::vector<Qp*> owing;
  int count = 0;
  int ret = 0;
  while (count < most) {
    if (env_->Fails(Fault::kTakeEarly)) {
      TakeEarly(&peer, n);
    }
    ropcie_rec rec;
    ret = ropcie_lane_recv(rx, &rec);
    if (ret != 0 && peer.honest) {
      Require(peer.in->Landed(
                  n * size_t{rx->geom.slots} + rx->head % rx->geom.slots,
                  ropcie_valid(rx->epoch, rx->head)),
              "node ", id_, " takes a record that is not there");
    }
    if (ret <= 0) {
      break;
    }
    Dispatch(id, rec, &owing);
    const uint64_t published = rx->published;
    ropcie_lane_consume(rx, &rec);
    if (rx->published != published) {
      peer.out->Post(rx->cons, sizeof(*rx->cons));
    }
    count++;
  }
  // Answers go out before the position that covers them.
  for (Qp* qp : owing) {
    qp->Answer();
  }
  if (publish) {
    Publish(id, n);
  }
  if (ret < 0) {
    Broken(id, "malformed record");
  }
  return count;
}

void Node::Publish(int id, uint32_t n) {
  Peer& peer = peers_.at(id);
  if (!peer.up) {
    return;
  }
  ropcie_lane_rx* rx = &peer.lanes[n].rx;
  const uint64_t published = rx->published;
  ropcie_lane_publish(rx);
  if (rx->published != published) {
    peer.out->Post(rx->cons, sizeof(*rx->cons));
  }
}

Qp* Node::CreateQp(QpUser* user) {
  uint32_t qpn = next_qpn_;
  if (!free_qpns_.empty() && env_->random.OneIn(2)) {
    qpn = free_qpns_.back();
    free_qpns_.pop_back();
  } else {
    next_qpn_++;
  }
  return qps_.emplace(qpn, std::make_unique<Qp>(env_, this, qpn, user))
      .first->second.get();
}

void Node::DestroyQp(Qp* qp) {
  free_qpns_.push_back(qp->qpn());
  qps_.erase(qp->qpn());
}

void Node::AddMr(ropcie_mr_core* mr) {
  Require(ropcie_mr_add(&table_, mr) == 0, "region table is full");
}

bool Node::Linked(int peer, const Node& other) const {
  const Peer& here = peers_.at(peer);
  const Peer& there = other.peers_.at(id_);
  return here.up && there.up && !here.broken && !there.broken &&
         here.link.peer_epoch == there.link.own.w[ROPCIE_LW_EPOCH] &&
         there.link.peer_epoch == here.link.own.w[ROPCIE_LW_EPOCH];
}

void Node::RunAll() {
  for (auto& [qpn, qp] : qps_) {
    qp->Run();
  }
}

uint64_t Node::NextDeadline() const {
  uint64_t next = 0;
  for (const auto& [qpn, qp] : qps_) {
    const uint64_t deadline = qp->deadline();
    if (deadline != 0 && (next == 0 || deadline < next)) {
      next = deadline;
    }
  }
  return next;
}

}  // namespace ropcie::sim
