// SPDX-License-Identifier: GPL-2.0
// Traffic of each kind for rop_faults: every message is verified, every work
// request is accounted for, and what ends it must end as the rules say.
#ifndef ROPCIE_TESTS_PROGRAMS_FAULTS_FLOW_H_
#define ROPCIE_TESTS_PROGRAMS_FAULTS_FLOW_H_

#include <infiniband/verbs.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pattern.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {

using Clock = std::chrono::steady_clock;

// What all flows of a round share. The arena may be read, written to and
// counted in by the peer. With a channel each completion queue raises events.
struct Ground {
  Side& side;
  const Device& device;
  Arena& arena;
  const Pattern& pattern;
  ibv_comp_channel* channel = nullptr;
};

constexpr uint64_t kOutstanding = 4;  // in each direction of each QP

// One half of a QP: what was posted, and what of it has completed.
struct Half {
  uint64_t posted = 0;
  uint64_t completed = 0;
  uint64_t good = 0;
  uint64_t mark = 0;
  bool failed = false;
};

class Flow {
 public:
  Flow(const Ground& ground, uint32_t number, const std::string& kind);
  virtual ~Flow() = default;
  Flow(const Flow&) = delete;
  Flow(Flow&&) = delete;
  Flow& operator=(const Flow&) = delete;
  Flow& operator=(Flow&&) = delete;

  // The first messages, when the peer is ready.
  virtual void Start() { SendAll(); }

  // Takes what has completed; goes on with the next unless that is over. Adds
  // the queues that had something.
  void Poll(std::vector<const ibv_cq*>* busy);

  // The next completion of either half raises an event.
  void Arm() const;

  // Of all that was posted, nothing is left.
  [[nodiscard]] virtual bool drained() const {
    return send_.completed == send_.posted &&
           receive_.completed == receive_.posted;
  }

  // What is posted in ERR is flushed as well.
  virtual void PostInError();

  // What has been executed is what was posted, neither more nor twice. After
  // the loss, over the side channel; also without a device.
  virtual void CompareWithPeer() {}

  // All that is under way will have been posted later.
  void Mark() {
    send_.mark = send_.good;
    receive_.mark = receive_.good;
  }
  [[nodiscard]] virtual bool warm() const {
    return send_.good > send_.mark + kOutstanding &&
           receive_.good > receive_.mark + kOutstanding;
  }

  [[nodiscard]] bool failed() const { return send_.failed || receive_.failed; }
  [[nodiscard]] bool refused() const { return refused_; }
  // The first error was that of a send that nobody has answered.
  [[nodiscard]] bool exhausted() const { return exhausted_; }
  // Its link is its own: it ends with that. A datagram's does not.
  [[nodiscard]] virtual bool connected() const { return true; }
  // From the last success to the first error.
  [[nodiscard]] Clock::duration Silence() const { return bad_ - good_; }
  [[nodiscard]] Clock::time_point last_good() const { return good_; }
  [[nodiscard]] Clock::time_point first_bad() const { return bad_; }
  [[nodiscard]] uint64_t verified() const { return verified_; }
  [[nodiscard]] ibv_qp* qp() const { return connection_.qp.get(); }
  [[nodiscard]] ibv_cq* cq() const { return connection_.recv_cq.get(); }
  [[nodiscard]] bool shares_receives() const {
    return connection_.config.srq != nullptr;
  }
  [[nodiscard]] const std::string& name() const { return name_; }
  // For people.
  [[nodiscard]] std::string Progress() const;

  // Posts to a device that is gone, and what that returns.
  [[nodiscard]] int PostedSend() const;
  [[nodiscard]] int PostedReceive() const;

 protected:
  // Each posts the next; Receive() where the flow has receives.
  virtual void Send() = 0;
  virtual void Receive() {}
  // Where a datagram is for.
  virtual void Address(ibv_send_wr* wr) const { static_cast<void>(wr); }
  // A success, in its order: throws unless it is right.
  virtual void Sent(const ibv_wc& wc) { static_cast<void>(wc); }
  virtual void Received(const ibv_wc& wc) { static_cast<void>(wc); }
  // What a success allows to post.
  virtual void AfterSent(const ibv_wc& wc) {
    static_cast<void>(wc);
    Send();
  }
  virtual void AfterReceived(const ibv_wc& wc) {
    static_cast<void>(wc);
    Receive();
  }
  // May a send end in this way, as the first that fails?
  [[nodiscard]] virtual bool MayFail(ibv_wc_status status) const {
    return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_WR_FLUSH_ERR;
  }
  // Connected and reliable: what has succeeded at one end has come to the
  // other.
  void CompareArrivals() const;
  // Which receive has completed; most complete in order.
  virtual void TakeReceive(const ibv_wc& wc);

  void SendAll() {
    while (send_.posted < kOutstanding) {
      Send();
    }
  }
  void ReceiveAll() {
    while (receive_.posted < kOutstanding) {
      Receive();
    }
  }
  void ConnectWith(QpConfig config);
  // Message `sequence` in this direction, or the peer's.
  [[nodiscard]] const uint8_t* Bytes(bool mine, uint64_t sequence) const;
  void CheckBytes(const uint8_t* data, const uint8_t* expected, size_t length,
                  const std::string& what);
  void FillMine(const Piece& piece, uint64_t sequence) const;
  // Posts to the send queue as the next of this flow.
  void PostNext(ibv_send_wr* wr);
  // False if the device refuses it because it has gone, as it may.
  bool Posted(int error, const char* what);
  [[nodiscard]] std::string What(const char* half, uint64_t number) const;

  Ground ground_;
  uint32_t number_;
  std::string name_;
  Connection connection_{};
  Half send_;
  Half receive_;

 private:
  void Completed(const ibv_wc& wc, bool receives);
  void Failed(const ibv_wc& wc, bool receives);

  Clock::time_point good_;
  Clock::time_point bad_;
  Clock::time_point polled_;
  Clock::duration quiet_{};  // without any completion, while it was polled
  bool owes_exhausted_ = false;
  bool exhausted_ = false;
  bool refused_ = false;
  uint64_t verified_ = 0;
};

// Receives of several queue pairs; each completes once, in any order.
class SharedReceives;

// One of each kind, and what they share; connected with the peer's.
class Flows {
 public:
  explicit Flows(const Ground& ground);
  ~Flows();
  Flows(const Flows&) = delete;
  Flows(Flows&&) = delete;
  Flows& operator=(const Flows&) = delete;
  Flows& operator=(Flows&&) = delete;

  // Returns the queues in which something had completed.
  std::vector<const ibv_cq*> Poll() {
    std::vector<const ibv_cq*> busy;
    for (const auto& flow : flows_) {
      flow->Poll(&busy);
    }
    return busy;
  }

  // Is it so for all flows, or for all that are connected?
  template <typename Predicate>
  [[nodiscard]] bool All(const Predicate& is) const {
    return std::all_of(flows_.begin(), flows_.end(),
                       [&is](const auto& flow) { return is(*flow); });
  }
  template <typename Predicate>
  [[nodiscard]] bool AllConnected(const Predicate& is) const {
    return All(
        [&is](const Flow& flow) { return !flow.connected() || is(flow); });
  }
  template <typename Predicate>
  [[nodiscard]] bool AnyConnected(const Predicate& is) const {
    return !AllConnected([&is](const Flow& flow) { return !is(flow); });
  }
  template <typename Action>
  void ForEach(const Action& action) const {
    for (const auto& flow : flows_) {
      action(*flow);
    }
  }

  // All connected ones have ended: each shared receive completed, or is there.
  void ExpectNoReceiveLost();

  // Bytes of memory that they take.
  static size_t ArenaSize();

 private:
  std::unique_ptr<SharedReceives> shared_;
  std::vector<std::unique_ptr<Flow>> flows_;
};

// Of the longest message of any kind.
size_t LongestMessage();

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_FAULTS_FLOW_H_
