// SPDX-License-Identifier: GPL-2.0
// One end of a connection: a program that posts, and knows what must come of
// it. All rules about completions and payload are judged here, against the
// program at the other end and never against the engines' state.
#ifndef ROPCIE_TESTS_SIM_PROGRAM_H
#define ROPCIE_TESTS_SIM_PROGRAM_H

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "env.h"
#include "node.h"
#include "qp.h"
#include "region.h"
#include "rnr.h"

namespace ropcie::sim {

// How a program treats who sends to it.
enum class Hospitality {
  kReady,  // receives are posted
  kLate,   // now and then, and not all
  kNever,  // but when it is not in trouble any more
};

struct ProgramOptions {
  uint32_t cell = 1024;  // largest message
  bool honest = true;    // nobody forges records on this link
  bool storm = false;    // many RNR NAKs, and nothing that fetches
  bool unreliable = false;
  bool calm = false;  // nothing gets lost
};

class Program : public QpUser {
 public:
  Program(Env* env, Node* node, const ProgramOptions& options);
  ~Program() override;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void Meet(Program* other, const QpAttr& attr);
  // Posts if there is room; `mischief` allows bad keys and short receives.
  void PostSend(bool mischief);
  void PostRecv(bool mischief);
  void OfferReceive(bool mischief);  // if it is that hospitable
  void FillReceives();
  void Treat(Hospitality hospitality) { hospitality_ = hospitality; }
  // Whether those who send to it are to find out.
  [[nodiscard]] bool StarvesForEver() const;
  // The machine went away under the program.
  void Die();
  // Ends the connection: everything has completed, or does now.
  void Close();

  void OnExecute(uint64_t wr_id) override;
  void OnSent(const ropcie_hdr& hdr) override;
  void OnAcknowledge(const ropcie_hdr& hdr) override;
  void OnSendDone(const ropcie_req_comp& comp) override;
  void OnRecvDone(const RecvDone& done) override;
  void OnRefused() override { refused_ = true; }
  void OnResumed() override;
  void OnLinkLost() override { link_lost_ = true; }

  // Records of an earlier connection may be under way.
  void AllowStale(bool stale) { stale_ = stale; }

  // In the error state nothing stays posted; a drained queue stays drained.
  void CheckState();
  // No byte but those of receives has changed.
  void CheckMemory();
  // Everything that was sent has arrived.
  void CheckQuiet() const;

  [[nodiscard]] bool alive() const { return qp_ != nullptr; }
  [[nodiscard]] Qp* qp() const { return qp_; }
  [[nodiscard]] bool Healthy() const;
  // Nothing is left to wait for.
  [[nodiscard]] bool Settled() const;
  [[nodiscard]] int node() const { return node_->id(); }
  [[nodiscard]] size_t sent() const { return sends_.size(); }
  // What a peer that knows the keys may write to.
  [[nodiscard]] uint32_t target_key() { return target_.mr()->key; }
  [[nodiscard]] uint64_t target_address() const { return target_.Address(0); }

 private:
  struct Message {
    uint64_t key;
    uint32_t length;
    uint32_t imm;
    uint8_t op;  // enum ropcie_op or enum ropcie_local_op
    uint8_t flags;
    bool bad;          // a local key cannot be used
    bool denied;       // the remote key cannot
    bool late;         // posted in the error state
    bool done;         // completed with success
    bool given_back;   // completed otherwise
    bool overwritten;  // by a later WRITE, or the answer to a later request
    bool reads_back;   // what the request before it writes
    uint32_t remote_off;
    uint32_t sink;  // in fetched_
    uint64_t nth;   // among those that take a receive, or are this atomic
  };
  struct Receive {
    uint32_t off;
    uint32_t room;
    bool bad;
    uint32_t bad_from;  // first byte that can not be placed
  };

  std::array<Region*, 6> Regions();
  void Leave();
  void Plan(Message* message, size_t index, bool mischief,
            SendRequest* request);
  void PlanRead(Message* message, SendRequest* request);
  void Deny(SendRequest* request);
  void Overwrite(const Message& by);
  void CheckEffect(const Message& message, size_t index);
  [[nodiscard]] static bool TakesReceive(const Message& message);
  [[nodiscard]] uint32_t SlotOf(size_t index) const;
  uint32_t PlanSink(size_t index);
  uint32_t RandomLength();
  bool Spoil(std::vector<ropcie_sge>* list, uint32_t* from);
  void CheckSuccess(const Message& message, size_t index);
  void CheckCause(uint8_t status, const Message& message, size_t index) const;
  void CheckArrival(const RecvDone& done, const Receive& receive);
  void CheckWritten(size_t last);
  void CheckUnreliable(const RecvDone& done, const Receive& receive);
  [[nodiscard]] bool IsThat(const Message& message, const RecvDone& done,
                            const Receive& receive) const;
  void CheckReceiveError(uint8_t status, const Receive& receive) const;
  [[nodiscard]] bool Responds() const;
  // Of the two in words_, aligned; the region may begin anywhere.
  [[nodiscard]] uint32_t FirstWord() {
    return static_cast<uint32_t>(-words_.Address(0) & 7);
  }

  Env* env_;
  Node* node_;
  ProgramOptions options_;
  Qp* qp_;
  uint32_t qpn_;
  QpAttr attr_;
  Program* other_ = nullptr;
  Region source_;   // of SENDs and WRITEs
  Region sink_;     // of receives
  Region fetched_;  // of what READs and atomics bring
  Region target_;   // of the peer's WRITEs
  Region offer_;    // for the peer's READs
  Region words_;    // for the peer's atomics: one for each opcode
  std::vector<Message> sends_;
  std::vector<size_t> takers_;  // sends that take a receive
  uint64_t atomics_[2] = {};    // FAA, CAS
  std::vector<Receive> receives_;
  size_t sends_done_ = 0;
  size_t next_executed_ = 0;  // local operations before it were carried out
  size_t receives_done_ = 0;
  size_t arrived_ = 0;     // messages received with success
  size_t next_taker_ = 0;  // unreliable: those before it were, or never are
  uint8_t send_error_ = 0;
  uint8_t receive_error_ = 0;  // that is no flush
  bool flushed_ = false;       // receives are
  uint32_t refusals_ = 0;      // RNR NAKs
  bool link_lost_ = false;
  bool refused_ = false;  // a request of the peer
  bool closing_ = false;
  bool stale_ = false;
  bool drained_ = false;  // in SQD
  Hospitality hospitality_ = Hospitality::kReady;
  std::optional<RnrRule> rnr_;
};

}  // namespace ropcie::sim

#endif  // ROPCIE_TESTS_SIM_PROGRAM_H
