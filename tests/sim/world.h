// SPDX-License-Identifier: GPL-2.0
// The scheduler: chooses what happens next, from the seed alone, then lets the
// trouble end and requires that everything comes to its end.
#ifndef ROPCIE_TESTS_SIM_WORLD_H
#define ROPCIE_TESTS_SIM_WORLD_H

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "env.h"
#include "node.h"
#include "program.h"
#include "window.h"

namespace ropcie::sim {

// The last of so many seeds is a crowd.
inline constexpr uint64_t kCrowdEvery = 8192;

struct Options {
  uint64_t seed = 0;
  bool trace = false;
  Fault fault = Fault::kNone;
};

// What a run did, to see that a set of seeds reaches everything.
struct Coverage {
  uint64_t events = 0;
  uint64_t messages = 0;
  uint64_t placed = 0;  // records of WRITEs, past the lanes
  uint64_t connections = 0;
  uint64_t link_cuts = 0;
  uint64_t restarts = 0;
  uint64_t forgeries = 0;
};

class World {
 public:
  explicit World(const Options& options);

  // Throws Violation.
  void Run();
  [[nodiscard]] const Coverage& coverage() const { return coverage_; }
  // Differs when anything went another way.
  uint64_t Fingerprint() { return env_.now ^ env_.random.Next(); }

 private:
  enum Event {
    kPostSend,
    kPostRecv,
    kDeliver,
    kDrain,
    kPublish,
    kRun,
    kStepLink,
    kTime,
    kConnect,
    kMend,
    kBreakQp,
    kDrainQp,
    kWithdraw,
    kCut,
    kRestart,
    kForge,
    kEvents
  };

  struct Pair {
    int a;
    int b;
    Bridge bridge;
    bool honest = true;
    std::unique_ptr<Window> to_a;
    std::unique_ptr<Window> to_b;
  };

  struct Connection {
    Pair* pair;
    ProgramOptions options;
    std::unique_ptr<Program> end[2];
  };

  void ChooseProfile();
  void ChooseCrowd();
  void BuildNodes();
  void BuildConnections();
  Event Choose();
  void Happen(Event event);
  void HappenToLinks(Event event);
  void CheckAll(bool memory);

  void Deliver();
  void Drain();
  void PassTime();
  void Cut();
  void Restart(int id);
  void Forge();
  void ForgeOperands(Program* victim, ropcie_slot* slot);
  void ForgeFields(const Pair& pair, ropcie_slot* slot);
  void ForgeRecord(Pair* pair);
  void ForgePosition(Pair* pair);
  void Connect(Connection* connection);
  void Close(Connection* connection);
  void CloseEnd(const Pair& pair, Program* program);
  void AwaitReturns(const Pair& pair, Qp* qp);
  void Mend(Connection* connection);
  static bool Broken(const Connection& connection);

  // Everybody gets a turn; returns whether any record moved.
  bool FairRound();
  void Settle(const char* what);
  bool Settled() const;
  bool Linked() const;
  void Gather();
  void EndTrouble();
  void Prove();

  Node& node(int id) { return *nodes_[id]; }
  Pair& RandomPair() { return *pairs_[env_.random.Below(pairs_.size())]; }
  Connection& RandomConnection() {
    return connections_[env_.random.Below(connections_.size())];
  }
  Program* RandomProgram();
  uint32_t NewPsn(int node, uint32_t qpn, bool* reused);

  Env env_;
  Coverage coverage_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Pair>> pairs_;
  std::vector<Connection> connections_;
  std::map<std::pair<int, uint32_t>, uint32_t> last_psn_;  // of dead QPs
  std::array<uint32_t, kEvents> weights_{};
  uint32_t weight_sum_ = 0;
  int num_nodes_ = 2;
  int num_events_ = 0;
  bool hostile_ = false;
  bool storm_ = false;  // of RNR NAKs
  int famine_ = 0;      // rounds without a receive, after the trouble
  bool mischief_ = true;
  uint32_t cell_ = 1024;
  int at_once_ = 1;  // how often an event happens
  uint64_t tick_ = 1000;
};

}  // namespace ropcie::sim

#endif  // ROPCIE_TESTS_SIM_WORLD_H
