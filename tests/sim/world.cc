// SPDX-License-Identifier: GPL-2.0
#include "world.h"

#include <algorithm>

namespace ropcie::sim {
namespace {

// Rounds in which a fair scheduler must bring everything to its end.
constexpr int kFairRounds = 2000;
constexpr int kCheckMemoryEvery = 200;

}  // namespace

bool World::Broken(const Connection& connection) {
  return connection.end[0] &&
         (!connection.end[0]->Healthy() || !connection.end[1]->Healthy());
}

// The memory of a program that ends is its own when its peer has returned it.
void World::AwaitReturns(const Pair& pair, Qp* qp) {
  const int other = qp->peer();
  const int own = pair.a == other ? pair.b : pair.a;
  qp->EndPlacement();
  for (int round = 0; !qp->placement_is_over(); round++) {
    Require(round < 1000, "a grant is never returned");
    if (round > 500) {
      Require(!pair.honest, "an honest peer does not return a grant");
      node(own).GiveUp(other);
    }
    for (Window* window : {pair.to_a.get(), pair.to_b.get()}) {
      window->Deliver(window->in_flight());
    }
    node(own).StepLink(other);
    node(other).StepLink(own);
    for (uint32_t lane = 0; lane < Node::kLanes; lane++) {
      node(own).Drain(other, lane, 64, true);
      node(other).Drain(own, lane, 64, true);
    }
    node(own).RunAll();
    node(other).RunAll();
  }
}

void World::CloseEnd(const Pair& pair, Program* program) {
  if (program->alive()) {
    const Qp& qp = *program->qp();
    AwaitReturns(pair, program->qp());
    last_psn_[{program->node(), qp.qpn()}] = qp.next_psn();
    program->Close();
  }
}

void World::Close(Connection* connection) {
  if (!connection->end[0]) {
    return;
  }
  for (const auto& end : connection->end) {
    coverage_.messages += end->sent();
    CloseEnd(*connection->pair, end.get());
  }
  for (auto& end : connection->end) {
    end.reset();
  }
}

void World::Mend(Connection* connection) {
  if (Broken(*connection)) {
    Close(connection);
  }
}

Program* World::RandomProgram() {
  return RandomConnection().end[env_.random.Below(2)].get();
}

World::Event World::Choose() {
  auto ticket = static_cast<uint32_t>(env_.random.Below(weight_sum_));
  int event = 0;
  while (ticket >= weights_[event]) {
    ticket -= weights_[event++];
  }
  return static_cast<Event>(event);
}

void World::Deliver() {
  Pair& pair = RandomPair();
  Window& window = env_.random.OneIn(2) ? *pair.to_a : *pair.to_b;
  // Mostly all, sometimes just a part of a record.
  const size_t most = env_.random.OneIn(2) ? window.in_flight() : 8;
  for (uint64_t n = env_.random.Below(8); n > 0; n--) {
    node(pair.a).EndCopy(pair.b);
    node(pair.b).EndCopy(pair.a);
  }
  window.Deliver(env_.random.Below(most + 1));
}

void World::Drain() {
  const Pair& pair = RandomPair();
  const bool to_a = env_.random.OneIn(2);
  Node& who = node(to_a ? pair.a : pair.b);
  who.Drain(to_a ? pair.b : pair.a,
            static_cast<uint32_t>(env_.random.Below(Node::kLanes)),
            static_cast<int>(env_.random.Between(1, 20)), env_.random.OneIn(2));
}

void World::PassTime() {
  // Where everybody is in time, a deadline passes only when all that could be
  // done before it has been done.
  if (env_.timely) {
    for (int i = 0; i < 200 && FairRound(); i++) {
    }
  }
  uint64_t next = 0;
  for (const auto& each : nodes_) {
    const uint64_t deadline = each->NextDeadline();
    if (deadline != 0 && (next == 0 || deadline < next)) {
      next = deadline;
    }
  }
  if (next > env_.now && env_.random.OneIn(2)) {
    env_.now = next;
  } else {
    env_.now += env_.random.Below(200000);
  }
  env_.Note("time passes");
}

void World::Cut() {
  Pair& pair = RandomPair();
  pair.bridge.up = !pair.bridge.up;
  env_.Note("link ", pair.a, "-", pair.b, pair.bridge.up ? " back" : " cut");
  if (!pair.bridge.up) {
    coverage_.link_cuts++;
    pair.bridge.was_down[0] = pair.bridge.was_down[1] = true;
    pair.to_a->LoseFlight();
    pair.to_b->LoseFlight();
  }
}

void World::Restart(int id) {
  coverage_.restarts++;
  env_.Note("node ", id, " restarts");
  for (const auto& pair : pairs_) {
    if (pair->a != id && pair->b != id) {
      continue;
    }
    // What it had written may still arrive, or some of it.
    Window& out = pair->a == id ? *pair->to_b : *pair->to_a;
    out.Deliver(env_.random.Below(out.in_flight() + 1));
    out.LoseFlight();
  }
  for (Connection& connection : connections_) {
    for (const auto& end : connection.end) {
      const bool here = connection.pair->a == id ? &end == &connection.end[0]
                                                 : &end == &connection.end[1];
      if (end && here &&
          (connection.pair->a == id || connection.pair->b == id) &&
          end->alive()) {
        end->Die();
      }
    }
  }
  node(id).Boot();
}

void World::Happen(Event event) {
  Program* program = nullptr;
  switch (event) {
    case kPostSend:
      program = RandomProgram();
      if (program != nullptr) {
        program->PostSend(mischief_);
      }
      break;
    case kPostRecv:
      program = RandomProgram();
      if (program != nullptr) {
        program->OfferReceive(mischief_);
      }
      break;
    case kRun:
      program = RandomProgram();
      if (program != nullptr && program->alive()) {
        program->qp()->Run();
      }
      break;
    case kBreakQp: {
      // One program ends; the other has yet to notice.
      Connection& connection = RandomConnection();
      if (connection.end[0] && env_.random.OneIn(4)) {
        CloseEnd(*connection.pair, connection.end[env_.random.Below(2)].get());
      }
      break;
    }
    case kDrainQp:
      program = RandomProgram();
      if (program != nullptr && program->alive()) {
        if (program->qp()->state() == ROPCIE_QPS_RTS) {
          program->qp()->Drain();
        } else if (program->qp()->state() == ROPCIE_QPS_SQD ||
                   program->qp()->state() == ROPCIE_QPS_SQE) {
          program->qp()->Resume();
        }
      }
      break;
    case kWithdraw:
      program = RandomProgram();
      if (program != nullptr && program->alive()) {
        program->qp()->Withdraw();
      }
      break;
    case kConnect:
      Connect(&RandomConnection());
      break;
    case kMend:
      Mend(&RandomConnection());
      break;
    default:
      HappenToLinks(event);
      break;
  }
}

void World::HappenToLinks(Event event) {
  const Pair& pair = RandomPair();
  const bool a = env_.random.OneIn(2);
  switch (event) {
    case kDeliver:
      Deliver();
      break;
    case kDrain:
      Drain();
      break;
    case kPublish:
      node(a ? pair.a : pair.b)
          .Publish(a ? pair.b : pair.a,
                   static_cast<uint32_t>(env_.random.Below(Node::kLanes)));
      break;
    case kStepLink:
      node(a ? pair.a : pair.b).StepLink(a ? pair.b : pair.a);
      break;
    case kTime:
      PassTime();
      break;
    case kCut:
      // A link that is down is mended sooner than one that is up is cut.
      if (!pair.bridge.up || env_.random.OneIn(4)) {
        Cut();
      }
      break;
    case kRestart:
      if (env_.random.OneIn(4)) {
        Restart(static_cast<int>(env_.random.Below(num_nodes_)));
      }
      break;
    case kForge:
      Forge();
      break;
    default:
      break;
  }
}

void World::CheckAll(bool memory) {
  for (const Connection& connection : connections_) {
    for (const auto& end : connection.end) {
      if (end && end->alive()) {
        end->CheckState();
        if (memory) {
          end->CheckMemory();
        }
      }
    }
  }
}

void World::Run() {
  if (env_.crowd) {
    Gather();
  }
  for (int i = 0; i < num_events_; i++) {
    const Event event = Choose();
    env_.now += env_.random.Below(tick_);
    coverage_.events++;
    for (int n = 0; n < (event < kCut ? at_once_ : 1); n++) {
      Happen(event);
    }
    CheckAll(i % kCheckMemoryEvery == 0);
  }
  Die(env_.fault);
  EndTrouble();
  Settle("after the trouble");
  CheckAll(true);
  Prove();
}

bool World::FairRound() {
  bool moved = false;
  for (const auto& pair : pairs_) {
    while (node(pair->a).EndCopy(pair->b) || node(pair->b).EndCopy(pair->a)) {
      moved = true;
    }
    for (Window* window : {pair->to_a.get(), pair->to_b.get()}) {
      window->Deliver(window->in_flight());
    }
    node(pair->a).StepLink(pair->b);
    node(pair->b).StepLink(pair->a);
    for (uint32_t lane = 0; lane < Node::kLanes; lane++) {
      moved |= node(pair->a).Drain(pair->b, lane, 64, true) > 0;
      moved |= node(pair->b).Drain(pair->a, lane, 64, true) > 0;
    }
  }
  for (const auto& each : nodes_) {
    each->RunAll();
    moved |= each->TakeBusy();
  }
  CheckAll(false);
  return moved;
}

bool World::Linked() const {
  return std::all_of(pairs_.begin(), pairs_.end(), [this](const auto& pair) {
    return nodes_[pair->a]->Linked(pair->b, *nodes_[pair->b]);
  });
}

// All connections of a crowd are there before it begins.
void World::Gather() {
  for (int round = 0; !Linked(); round++) {
    Require(round < kFairRounds, "links do not come up");
    FairRound();
    env_.now += 50000;
  }
  for (Connection& connection : connections_) {
    Connect(&connection);
  }
}

bool World::Settled() const {
  if (!Linked()) {
    return false;
  }
  return std::all_of(
      connections_.begin(), connections_.end(), [](const Connection& c) {
        return !c.end[0] || (c.end[0]->Settled() && c.end[1]->Settled());
      });
}

void World::Settle(const char* what) {
  for (int round = 0; round < kFairRounds; round++) {
    const bool moved = FairRound();
    for (const Connection& connection : connections_) {
      for (const auto& end : connection.end) {
        if (end && end->alive() && round >= famine_ && !end->StarvesForEver()) {
          end->FillReceives();
        }
      }
    }
    if (!moved && Settled()) {
      for (const Connection& connection : connections_) {
        for (const auto& end : connection.end) {
          if (end) {
            end->CheckQuiet();
          }
        }
      }
      return;
    }
    env_.now += 50000;
    if (!moved) {
      PassTime();
    }
  }
  Violate("something hangs ", what);
}

void World::EndTrouble() {
  env_.Note("trouble ends");
  mischief_ = false;
  env_.paging = false;
  env_.lossy = false;
  for (const auto& pair : pairs_) {
    pair->bridge.up = true;
    if (!pair->honest) {
      Restart(pair->a);  // what was forged has left its traces
    }
  }
  for (const Connection& connection : connections_) {
    for (const auto& end : connection.end) {
      if (end && end->alive() && end->qp()->state() == ROPCIE_QPS_SQD) {
        end->qp()->Resume();
        end->CheckState();
      }
    }
  }
}

// When all is over, new connections work on every link.
void World::Prove() {
  famine_ = 0;
  for (Connection& connection : connections_) {
    Close(&connection);
    connection.options.honest = true;
    connection.options.storm = false;
    connection.options.calm = true;
    Connect(&connection);
    Require(connection.end[0] != nullptr, "no new connection can be made");
  }
  for (const Connection& connection : connections_) {
    for (const auto& end : connection.end) {
      end->FillReceives();
      end->PostSend(false);
      end->PostSend(false);
    }
  }
  Settle("at the end");
  for (Connection& connection : connections_) {
    Require(!Broken(connection), "a connection fails after all trouble");
    Close(&connection);
  }
  for (const auto& each : nodes_) {
    coverage_.placed += each->placed();
  }
}

}  // namespace ropcie::sim
