// SPDX-License-Identifier: GPL-2.0
// What a seed makes of a world: how much of what happens, between whom.
#include <array>
#include <utility>

#include "world.h"

namespace ropcie::sim {
namespace {

// Connections of a crowd.
constexpr uint64_t kCrowd = 2100;

}  // namespace

World::World(const Options& options) : env_(options.seed) {
  env_.fault = options.fault;
  env_.trace = options.trace;
  ChooseProfile();
  env_.crowd = options.seed % kCrowdEvery == kCrowdEvery - 1;
  if (env_.crowd) {
    ChooseCrowd();
  }
  BuildNodes();
  BuildConnections();
}

// Each seed has its own taste: some things happen often, some never.
void World::ChooseProfile() {
  constexpr std::array<uint32_t, 5> kTaste = {0, 1, 3, 10, 30};
  Random* random = &env_.random;
  num_nodes_ = static_cast<int>(random->Between(2, random->OneIn(3) ? 4 : 2));
  num_events_ = static_cast<int>(random->Between(200, 1200));
  env_.timely = !random->OneIn(3);
  env_.impatient = !env_.timely && random->OneIn(2);
  env_.paging = random->OneIn(3);
  env_.dma = random->OneIn(3);
  env_.torn = random->OneIn(3);
  env_.direct = !env_.dma && random->OneIn(2);
  hostile_ = random->OneIn(6);
  storm_ = !hostile_ && !env_.direct && random->OneIn(6);
  famine_ = storm_ ? static_cast<int>(random->Below(100)) : 0;
  mischief_ = !random->OneIn(3);
  cell_ = random->OneIn(8) ? 40000 : 1024;
  tick_ = uint64_t{1} << random->Between(8, 14);
  for (int event = kPostSend; event <= kTime; event++) {
    weights_[event] = 1 + kTaste[random->Below(kTaste.size())];
  }
  weights_[kConnect] = 5;
  weights_[kMend] = 2;
  weights_[kTime] = 1 + weights_[kTime] / 4;
  for (const Event event : {kBreakQp, kDrainQp, kCut, kRestart}) {
    weights_[event] = random->OneIn(2) ? 0 : 1;
  }
  weights_[kDrainQp] *= 4;
  weights_[kWithdraw] = env_.direct && random->OneIn(2) ? 2 : 0;
  weights_[kForge] = hostile_ ? 3 : 0;
  for (const uint32_t weight : weights_) {
    weight_sum_ += weight;
  }
}

// Little for each of many.
void World::ChooseCrowd() {
  num_nodes_ = static_cast<int>(env_.random.Between(2, 3));
  num_events_ = static_cast<int>(env_.random.Between(200, 500));
  env_.direct = hostile_ = env_.impatient = false;
  weight_sum_ -= std::exchange(weights_[kForge], 0);
  env_.timely = true;  // so many take their time
  cell_ = 128;
  at_once_ = 32;
}

void World::BuildNodes() {
  for (int id = 0; id < num_nodes_; id++) {
    nodes_.push_back(std::make_unique<Node>(&env_, id));
  }
  for (int a = 0; a < num_nodes_; a++) {
    for (int b = a + 1; b < num_nodes_; b++) {
      auto pair = std::make_unique<Pair>();
      pair->a = a;
      pair->b = b;
      pair->honest = !hostile_ || !pairs_.empty();
      pair->to_a = std::make_unique<Window>(Node::kOffer, &pair->bridge);
      pair->to_b = std::make_unique<Window>(Node::kOffer, &pair->bridge);
      node(a).AddPeer(b, pair->to_a.get(), pair->to_b.get(), &pair->bridge,
                      pair->honest);
      node(b).AddPeer(a, pair->to_b.get(), pair->to_a.get(), &pair->bridge,
                      pair->honest);
      pairs_.push_back(std::move(pair));
    }
  }
  for (const auto& each : nodes_) {
    each->Boot();
  }
}

void World::BuildConnections() {
  for (const auto& pair : pairs_) {
    const uint64_t count =
        env_.crowd ? kCrowd / pairs_.size() : env_.random.Between(1, 3);
    for (uint64_t n = count; n > 0; n--) {
      Connection connection{};
      connection.pair = pair.get();
      connection.options = {.cell = cell_,
                            .honest = pair->honest,
                            .storm = storm_,
                            .unreliable = env_.random.OneIn(6)};
      connections_.push_back(std::move(connection));
    }
  }
}

// A queue pair number that is used again gets a PSN far from its old ones, as
// chance gives in 24 bits: so records of the earlier connection are told apart.
uint32_t World::NewPsn(int node, uint32_t qpn, bool* reused) {
  const auto it = last_psn_.find({node, qpn});
  *reused = it != last_psn_.end();
  if (*reused) {
    return ropcie_psn_add(it->second, static_cast<uint32_t>(env_.random.Between(
                                          1 << 20, 15 << 20)));
  }
  if (env_.random.OneIn(3)) {
    return ROPCIE_PSN_MASK - env_.random.Word() % 64;
  }
  return env_.random.Word() & ROPCIE_PSN_MASK;
}

void World::Connect(Connection* connection) {
  Pair* pair = connection->pair;
  if (connection->end[0] || !node(pair->a).Linked(pair->b, node(pair->b))) {
    return;
  }
  coverage_.connections++;
  const std::array<int, 2> ids = {pair->a, pair->b};
  std::array<QpAttr, 2> attr;
  // To the engines, XRC is RC that names a queue.
  const auto srqn = static_cast<uint16_t>(
      !connection->options.unreliable && env_.random.OneIn(4)
          ? env_.random.Between(1, UINT16_MAX)
          : 0);
  int reused_numbers = 0;
  const auto frag = static_cast<uint32_t>(
      cell_ > 10000 ? 16384 : env_.random.Between(1, 8) * 64);
  for (int i = 0; i < 2; i++) {
    connection->end[i] =
        std::make_unique<Program>(&env_, &node(ids[i]), connection->options);
    attr[i].peer = ids[1 - i];
    attr[i].frag = frag;
    attr[i].srqn = srqn;
    bool reused = false;
    attr[i].sq_psn = NewPsn(ids[i], connection->end[i]->qp()->qpn(), &reused);
    reused_numbers += reused ? 1 : 0;
    attr[i].unreliable = connection->options.unreliable;
    attr[i].retry_cnt = static_cast<uint8_t>(env_.random.Below(8));
    attr[i].rnr_retry = static_cast<uint8_t>(
        env_.random.Between(connection->options.storm ? 0 : 4, 7));
    attr[i].min_rnr_timer = static_cast<uint8_t>(env_.random.Between(1, 14));
    attr[i].max_rd_atomic =
        static_cast<uint8_t>(env_.random.Between(1, ROPCIE_RSP_DEPTH));
    attr[i].timeout_ns = env_.random.OneIn(5)
                             ? 0
                             : 4096ULL << env_.random.Between(
                                   env_.timely ? 16 : 6, env_.timely ? 18 : 14);
  }
  // Without PSNs that count, both have to be those of an earlier connection.
  const bool stale = reused_numbers > (connection->options.unreliable ? 1 : 0);
  for (int i = 0; i < 2; i++) {
    connection->end[i]->AllowStale(stale);
    attr[i].rq_psn = attr[1 - i].sq_psn;
    attr[i].max_dest_rd_atomic = attr[1 - i].max_rd_atomic;
    attr[i].dest_qpn = connection->end[1 - i]->qp()->qpn();
    connection->end[i]->Meet(connection->end[1 - i].get(), attr[i]);
  }
  for (const auto& end : connection->end) {
    if (connection->options.storm) {
      constexpr std::array<Hospitality, 3> kAny = {
          Hospitality::kReady, Hospitality::kLate, Hospitality::kNever};
      end->Treat(kAny[env_.random.Below(kAny.size())]);
    }
    for (uint64_t n = env_.random.Below(Qp::kDepth); n > 0; n--) {
      end->OfferReceive(mischief_);
    }
    end->qp()->ReadyToSend();
  }
  env_.Note("connect node ", ids[0], " qp ", attr[1].dest_qpn, " and node ",
            ids[1], " qp ", attr[0].dest_qpn);
}

}  // namespace ropcie::sim
