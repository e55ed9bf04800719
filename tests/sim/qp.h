// SPDX-License-Identifier: GPL-2.0
// A queue pair as a driver runs it: the same calls to requester and responder
// in the same order as kernel/driver/{work,rx,qp,post}.c, without its locks,
// threads and timers, which the scheduler stands for. It tells its user what
// completes and judges nothing.
#ifndef ROPCIE_TESTS_SIM_QP_H
#define ROPCIE_TESTS_SIM_QP_H

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/core.h"
#include "env.h"

namespace ropcie::sim {

class Node;

struct QpAttr {
  int peer = 0;
  uint32_t dest_qpn = 0;
  uint32_t sq_psn = 0;
  uint32_t rq_psn = 0;
  uint32_t frag = 0;
  bool unreliable = false;
  uint8_t retry_cnt = 0;
  uint8_t rnr_retry = 0;
  uint8_t min_rnr_timer = 0;
  uint8_t max_rd_atomic = 0;       // to ask for
  uint8_t max_dest_rd_atomic = 0;  // to take
  uint16_t srqn = 0;               // XRC: what each request names; 0 for RC
  uint64_t timeout_ns = 0;
};

// A work request, but for its list.
struct SendRequest {
  uint64_t wr_id = 0;
  uint8_t op = ROPCIE_OP_SEND;  // or enum ropcie_local_op
  uint8_t flags = 0;
  uint32_t imm = 0;
  uint32_t rkey = 0;
  uint64_t raddr = 0;
  uint64_t compare_add = 0;
  uint64_t swap = 0;
};

struct RecvWqe {
  uint64_t wr_id;
  uint64_t length;
  std::vector<ropcie_sge> sge;
};

struct RecvDone {
  uint64_t wr_id = 0;
  uint8_t status = ROPCIE_WC_SUCCESS;
  uint32_t length = 0;
  uint32_t imm = 0;
  bool has_imm = false;
  bool solicited = false;
};

// Who owns a queue pair.
class QpUser {
 public:
  virtual ~QpUser() = default;
  // A local operation is carried out: it succeeds.
  virtual void OnExecute(uint64_t wr_id) = 0;
  // A request is in the lane; an acknowledge has come.
  virtual void OnSent(const ropcie_hdr& hdr) = 0;
  virtual void OnAcknowledge(const ropcie_hdr& hdr) = 0;
  virtual void OnSendDone(const ropcie_req_comp& comp) = 0;
  virtual void OnRecvDone(const RecvDone& done) = 0;
  // A request of the peer was refused; the completions that follow come from
  // that.
  virtual void OnRefused() = 0;
  // It may send again after an error.
  virtual void OnResumed() = 0;
  // The link is lost; the completions that follow come from that.
  virtual void OnLinkLost() = 0;
};

class Qp {
 public:
  static constexpr uint32_t kDepth = 16;
  static constexpr uint32_t kMaxSge = 4;
  static constexpr uint32_t kPd = 3;
  // Runs that so many bytes of a list may be in: pages have 64 and more.
  static constexpr uint32_t GatherVecs(uint32_t len) {
    return len / 64 + 2 * kMaxSge;
  }

  Qp(Env* env, Node* node, uint32_t qpn, QpUser* user);

  // The usual way up; every transition goes through the table.
  void Connect(const QpAttr& attr);
  void ReadyToSend();
  void Drain();    // RTS to SQD
  void Resume();   // SQD or SQE to RTS
  void ToError();  // also from inside
  void Reset();

  // False when the queue is full or the state does not allow it.
  bool PostSend(const SendRequest& request,
                const std::vector<ropcie_sge>& list);
  bool PostRecv(uint64_t wr_id, const std::vector<ropcie_sge>& list);

  // A work consumer's turn.
  void Run();
  // A record came; true when an answer is owed.
  bool OnRequest(int peer, const ropcie_rec& rec);
  void OnResponse(int peer, const ropcie_rec& rec);
  void Answer();
  void LinkLost();

  // Takes the grants back that the peer has, and gives others when asked.
  void Withdraw();
  // The same for good, and gives up what it holds itself.
  void EndPlacement();
  [[nodiscard]] bool placement_is_over() const {
    return out_.num == 0 && !bye_;
  }

  // It fails when its peer has returned the memory of its READs.
  [[nodiscard]] bool fails_late() const { return deadline_ != 0; }

  [[nodiscard]] uint32_t qpn() const { return qpn_; }
  [[nodiscard]] ropcie_qps state() const { return state_; }
  [[nodiscard]] int peer() const { return attr_.peer; }
  [[nodiscard]] bool connected() const { return connected_; }
  [[nodiscard]] uint64_t deadline() const {
    return deadline_ != 0 ? deadline_ : req_.deadline;
  }
  [[nodiscard]] uint32_t sends_pending() const {
    return ropcie_req_pending(&req_);
  }
  [[nodiscard]] size_t receives_ready() const { return rq_.size(); }
  [[nodiscard]] uint32_t next_psn() const { return req_.next_psn; }
  [[nodiscard]] uint32_t expected_psn() const { return rsp_.epsn; }
  [[nodiscard]] bool drained() const { return ropcie_req_drained(&req_); }

 private:
  static constexpr uint32_t kStride =
      sizeof(ropcie_send_wqe) + kMaxSge * sizeof(ropcie_sge);

  void Modify(ropcie_qps next, uint32_t mask);
  ropcie_mr_core* GetMr(const ropcie_sge& piece, uint32_t access);
  bool Gather(const ropcie_send_wqe& wqe, uint32_t off, uint32_t len);
  int SendRecord(ropcie_req_rec* rec);
  void SendLoop();
  void CompleteSends();
  void FlushSends();
  void CompleteReceive(const ropcie_hdr* hdr, uint8_t status);
  void TellReceive(const RecvDone& done);
  void Flush();
  bool Place(const ropcie_rec& rec, std::span<const ropcie_sge> list,
             uint32_t off);
  bool PlaceRemote(const ropcie_rec& rec, const ropcie_rsp_place& where);
  bool Execute(const ropcie_hdr& hdr, uint64_t* orig);
  void Deny();
  int SendAnswer(ropcie_hdr* hdr);
  bool Acknowledge(const ropcie_hdr& hdr);
  bool Response(const ropcie_rec& rec);
  bool ScatterPiece(const ropcie_mr_core& mr, const ropcie_sge& piece,
                    const ropcie_rec& rec, uint32_t from);
  struct Given {
    std::vector<__le64> bus;
  };
  int Tell(ropcie_hdr hdr, enum ropcie_mq_dir dir, std::vector<__le64>* bus);
  void FlushPlacement();
  bool FlushReturns();
  bool AnswerAsk();
  void Release(int at);
  void HearPlacement(const ropcie_rec& rec);
  void HearGrant(const ropcie_rec& rec);
  void PlacementLost();
  ropcie_hold* Find(uint32_t key, bool sink, uint64_t addr, uint32_t len);
  ropcie_hold* Choose(ropcie_req_rec* rec, bool* wait);
  void Store(const ropcie_hold& hold, uint64_t addr, uint32_t len);
  bool FailsLate();
  enum Side { kRequester, kResponder, kSides };
  bool NotThere(Side side, uint32_t length);
  void BringIn();
  void Request(const ropcie_rec& rec);
  void UnreliableRequest(const ropcie_rec& rec);
  void Refuse();

  Env* env_;
  Node* node_;
  uint32_t qpn_;
  QpUser* user_;
  ropcie_qps state_ = ROPCIE_QPS_RESET;
  bool connected_ = false;
  QpAttr attr_;
  std::vector<uint64_t> ring_;
  ropcie_requester req_{};
  ropcie_responder rsp_{};
  std::deque<RecvWqe> rq_;
  std::vector<ropcie_vec> vec_;
  std::optional<RecvDone> held_;  // Fault::kWrongOrder
  std::array<bool, kSides> paging_{};
  bool fetch_again_ = false;
  ropcie_grants out_{};
  std::array<Given, ROPCIE_GRANTS> given_;
  ropcie_holds in_{};
  uint64_t laned_ = 0;  // the lane behind the last answer with data
  std::map<uint32_t, std::vector<void*>> pages_;  // by number of the grant
  std::optional<ropcie_hdr> ask_;
  std::optional<ropcie_hdr> question_;
  bool bye_ = false;
  uint64_t missing_ = 0;  // the next requests
  uint64_t deadline_ = 0;
};

}  // namespace ropcie::sim

#endif  // ROPCIE_TESTS_SIM_QP_H
