// SPDX-License-Identifier: GPL-2.0
// One machine: links and lanes to its peers, regions, queue pairs; the calls
// that kernel/ntb_if makes of the core, when the scheduler says so. What it
// holds is lost at a restart, but not the memory of its windows.
#ifndef ROPCIE_TESTS_SIM_NODE_H
#define ROPCIE_TESTS_SIM_NODE_H

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/core.h"
#include "env.h"
#include "qp.h"
#include "window.h"

namespace ropcie::sim {

class Node {
 public:
  Node(Env* env, int id) : env_(env), id_(id) {}

  // `in` is written by the peer, `out` by this node. A peer that is not
  // honest may break the protocol.
  void AddPeer(int peer, Window* in, Window* out, Bridge* bridge, bool honest);
  void Boot();

  // In all of these `id` is the peer, `n` a lane.
  // Link work: look at the peer's words and do what the state machine says.
  void StepLink(int id);
  // Takes up to `most` records of a lane; returns how many.
  int Drain(int id, uint32_t n, int most, bool publish);
  void Publish(int id, uint32_t n);

  // For queue pairs.
  int Send(int id, uint32_t key, const ropcie_hdr& hdr,
           const std::vector<ropcie_vec>& vec);
  bool Delivered(int id, uint32_t key);
  // How far the lane is, and whether the peer has consumed what was before.
  [[nodiscard]] uint64_t Position(int id, uint32_t key) const;
  [[nodiscard]] bool Passed(int id, uint32_t key, uint64_t pos) const;
  // Bytes to the memory of a peer.
  void Store(int id, uint64_t bus, std::vector<uint8_t> bytes);
  // Lets peers reach a page, from then on until it is hidden.
  uint64_t Show(uint8_t* page);
  void Hide(uint64_t bus) { shown_.erase(bus); }
  void CountPlaced() { placed_++; }
  [[nodiscard]] uint64_t placed() const { return placed_; }
  // The peer does not do what it has to.
  void GiveUp(int id) { peers_.at(id).broken = true; }
  ropcie_mr_core* FindMr(uint32_t key) { return ropcie_mr_find(&table_, key); }

  // For programs.
  // May give the number of one that was destroyed, whose records may still be
  // under way.
  Qp* CreateQp(QpUser* user);
  void DestroyQp(Qp* qp);
  void AddMr(ropcie_mr_core* mr);
  void DelMr(ropcie_mr_core* mr) { ropcie_mr_del(&table_, mr); }

  // For the scheduler.
  [[nodiscard]] int id() const { return id_; }
  [[nodiscard]] bool IsUp(int peer) const { return peers_.at(peer).up; }
  [[nodiscard]] bool Trusts(int peer) const { return peers_.at(peer).honest; }
  // Can be sent to: it is up, and has not been given up.
  [[nodiscard]] bool Reaches(int peer) const {
    return IsUp(peer) && !peers_.at(peer).broken;
  }
  [[nodiscard]] bool Linked(int peer, const Node& other) const;
  [[nodiscard]] bool Pending(int id) const;
  void RunAll();
  // Whether a record was sent, or met a crowded lane, or words of a link were
  // not out yet, since the last call.
  bool TakeBusy() { return std::exchange(busy_, false); }
  void SetBusy() { busy_ = true; }
  // The DMA engine is done with a copy to this peer, if there is one.
  bool EndCopy(int id);
  [[nodiscard]] uint64_t NextDeadline() const;
  // Epoch and position that a forger needs to be looked at.
  [[nodiscard]] const ropcie_lane_rx& rx(int peer, uint32_t lane) const {
    return peers_.at(peer).lanes[lane].rx;
  }

  static constexpr uint32_t kLanes = 2;
  static constexpr ropcie_link_offer kOffer = {
      .lanes = kLanes, .geom = {.slots = 64, .bytes = 131072}, .features = 0};

 private:
  struct LaneEnd {
    ropcie_lane_tx tx{};
    ropcie_lane_rx rx{};
    std::vector<u64> ends = std::vector<u64>(kOffer.geom.slots);
  };
  // What the DMA engine has to do.
  struct Copy {
    uint32_t lane;
    ropcie_lane_hole hole;
    std::vector<uint8_t> payload;
  };
  struct Peer {
    Window* in = nullptr;
    Window* out = nullptr;
    Bridge* bridge = nullptr;
    bool honest = true;
    ropcie_peer_link link{};
    ropcie_word_pass pass{};
    std::vector<LaneEnd> lanes = std::vector<LaneEnd>(kLanes);
    std::vector<Copy> copies;
    bool up = false;
    bool broken = false;  // the protocol was; the link work gives it up
    uint32_t acknowledged_as = 0;  // own epoch whose acknowledge is all out
  };

  void CarryOut(int id, uint32_t todo);
  void Clean(Peer* peer);
  void PublishWords(Peer* peer);
  void TakeStore(int id, uint64_t bus, std::span<const uint8_t> bytes);
  void OpenLanes(Peer* peer);
  void Lost(int id);
  void Broken(int id, const char* what);
  void PostRecord(Peer* peer, uint32_t lane, uint64_t pos,
                  std::span<const ropcie_vec> payload);
  static void TakeEarly(Peer* peer, uint32_t lane);
  int StartCopy(Peer* peer, uint32_t lane, const ropcie_hdr& hdr,
                const std::vector<ropcie_vec>& vec);
  void Dispatch(int peer, const ropcie_rec& rec, std::vector<Qp*>* owing);
  [[nodiscard]] uint64_t LinkTime() const { return env_->now / 10000; }

  Env* env_;
  int id_;
  bool busy_ = false;
  std::map<int, Peer> peers_;
  std::vector<ropcie_mr_slot> slots_;
  ropcie_mr_table table_{};
  std::map<uint32_t, std::unique_ptr<Qp>> qps_;
  std::vector<uint32_t> free_qpns_;
  uint32_t next_qpn_ = 0;
  std::map<uint64_t, uint8_t*> shown_;  // pages by bus address
  uint64_t next_bus_ = 1;
  uint64_t placed_ = 0;
};

}  // namespace ropcie::sim

#endif  // ROPCIE_TESTS_SIM_NODE_H
