// SPDX-License-Identifier: GPL-2.0
// Work requests that complete in error. The statuses are those of the
// InfiniBand Architecture Specification, volume 1, chapters 10.10.3 and 9.9.
#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "failure.h"
#include "pattern.h"
#include "rop_errors.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr size_t kLength = 5000;

// Quick to give up, so that a test of giving up is short.
QpConfig Impatient() {
  QpConfig config;
  config.timeout = 10;  // 4 ms
  config.retry_cnt = 2;
  config.rnr_retry = 0;
  return config;
}

// The requester's SGE is wrong: his request fails, the next one is flushed, the
// responder does not notice.
void BadSource(ErrorCase& test, const ibv_sge& wrong) {
  const Connection connection = Connect(test.device, test.side, QpConfig());
  ibv_qp* qp = connection.qp.get();
  const ibv_sge good = test.arena.Sge(test.arena.Take(kLength, 0, false));
  if (!test.requester) {
    PostRecv(qp, 1, {good});
  }
  test.Step();
  if (test.requester) {
    PostSend(qp, 1, {wrong});
    PostSend(qp, 2, {good});
    ExpectCompletions(test, connection.send_cq.get(),
                      {{1, IBV_WC_LOC_PROT_ERR}, {2, IBV_WC_WR_FLUSH_ERR}},
                      "sends");
    ExpectState(test, qp, IBV_QPS_ERR);
  }
  test.Step();
  if (!test.requester) {
    ExpectCompletions(test, connection.recv_cq.get(), {}, "receive");
    ExpectState(test, qp, IBV_QPS_RTS);
  }
  test.Step();
}

void UnknownLkey(ErrorCase& test) {
  ibv_sge wrong = test.arena.Sge(test.arena.Take(kLength, 0, false));
  wrong.lkey ^= 0x00ffff00;
  BadSource(test, wrong);
}

void BeyondMr(ErrorCase& test) {
  ibv_sge wrong = test.arena.Sge(test.arena.Take(kLength, 0, false));
  wrong.addr = reinterpret_cast<uintptr_t>(test.arena.mr()->addr) +
               test.arena.mr()->length - kLength + 1;
  BadSource(test, wrong);
}

void BeforeMr(ErrorCase& test) {
  ibv_sge wrong = test.arena.Sge(test.arena.Take(kLength, 0, false));
  wrong.addr = reinterpret_cast<uintptr_t>(test.arena.mr()->addr) - 1;
  BadSource(test, wrong);
}

void WrappingSge(ErrorCase& test) {
  ibv_sge wrong = test.arena.Sge(test.arena.Take(kLength, 0, false));
  wrong.addr = UINT64_MAX - 100;
  BadSource(test, wrong);
}

void StaleLkey(ErrorCase& test) {
  ibv_sge wrong = test.arena.Sge(test.arena.Take(kLength, 0, false));
  {
    const MrPtr gone = RegisterMr(test.device, test.arena.At(0), kLength);
    wrong.addr = reinterpret_cast<uintptr_t>(test.arena.At(0));
    wrong.lkey = gone->lkey;
  }
  BadSource(test, wrong);
}

void LkeyOfAnotherPd(ErrorCase& test) {
  const PdPtr pd(ibv_alloc_pd(test.device.context.get()));
  Check(pd != nullptr, "ibv_alloc_pd failed");
  const MrPtr mr(ibv_reg_mr_iova2(pd.get(), test.arena.At(0), kLength,
                                  reinterpret_cast<uintptr_t>(test.arena.At(0)),
                                  IBV_ACCESS_LOCAL_WRITE));
  Check(mr != nullptr, "ibv_reg_mr failed");
  BadSource(test,
            {reinterpret_cast<uintptr_t>(test.arena.At(0)), kLength, mr->lkey});
}

// The responder's buffer is wrong: both learn of it, by these statuses.
void BadTarget(ErrorCase& test, const ibv_sge& wrong,
               ibv_wc_status at_responder, ibv_wc_status at_requester) {
  const Connection connection = Connect(test.device, test.side, QpConfig());
  ibv_qp* qp = connection.qp.get();
  const ibv_sge good = test.arena.Sge(test.arena.Take(kLength, 0, false));
  if (!test.requester) {
    PostRecv(qp, 1, {wrong});
    PostRecv(qp, 2, {good});
  }
  test.Step();
  if (test.requester) {
    PostSend(qp, 1, {good});
    PostSend(qp, 2, {good});
    ExpectCompletions(test, connection.send_cq.get(),
                      {{1, at_requester}, {2, IBV_WC_WR_FLUSH_ERR}}, "sends");
  } else {
    ExpectCompletions(test, connection.recv_cq.get(),
                      {{1, at_responder}, {2, IBV_WC_WR_FLUSH_ERR}},
                      "receives");
  }
  ExpectState(test, qp, IBV_QPS_ERR);
  test.Step();
  test.arena.CheckGuards("a receive that failed");
}

void ShortReceive(ErrorCase& test) {
  const Piece piece = test.arena.Take(kLength - 1, 0, false);
  BadTarget(test, test.arena.Sge(piece), IBV_WC_LOC_LEN_ERR,
            IBV_WC_REM_INV_REQ_ERR);
}

void ReceiveWithUnknownLkey(ErrorCase& test) {
  ibv_sge wrong = test.arena.Sge(test.arena.Take(kLength, 0, false));
  wrong.lkey ^= 0x00ffff00;
  BadTarget(test, wrong, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
}

void ReceiveWithoutLocalWrite(ErrorCase& test) {
  const Piece piece = test.arena.Take(kLength, 0, false);
  const MrPtr mr =
      RegisterMr(test.device, test.arena.At(piece.offset), piece.length, 0);
  ibv_sge wrong = test.arena.Sge(piece);
  wrong.lkey = mr->lkey;
  BadTarget(test, wrong, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
}

void NoReceive(ErrorCase& test, uint8_t rnr_retry) {
  QpConfig config = Impatient();
  config.rnr_retry = rnr_retry;
  const Connection connection = Connect(test.device, test.side, config);
  ibv_qp* qp = connection.qp.get();
  if (test.requester) {
    PostSend(qp, 1, {});
    PostSend(qp, 2, {});
    ExpectCompletions(test, connection.send_cq.get(),
                      {{1, IBV_WC_RNR_RETRY_EXC_ERR}, {2, IBV_WC_WR_FLUSH_ERR}},
                      "sends");
    ExpectState(test, qp, IBV_QPS_ERR);
  }
  test.Step();
  if (!test.requester) {
    ExpectState(test, qp, IBV_QPS_RTS);
  }
  test.Step();
}

// With rnr_retry 7 a request waits as long as it takes.
void LateReceive(ErrorCase& test) {
  const Connection connection = Connect(test.device, test.side, QpConfig());
  ibv_qp* qp = connection.qp.get();
  if (test.requester) {
    PostSend(qp, 1, {});
    ExpectCompletions(test, connection.send_cq.get(), {{1, IBV_WC_SUCCESS}},
                      "send");
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    PostRecv(qp, 1, {});
    ExpectCompletions(test, connection.recv_cq.get(), {{1, IBV_WC_SUCCESS}},
                      "receive");
  }
  ExpectState(test, qp, IBV_QPS_RTS);
  test.Step();
}

void PeerDestroyed(ErrorCase& test) {
  Connection connection = Connect(test.device, test.side, Impatient());
  if (!test.requester) {
    connection.qp.reset();
  }
  test.Step();
  if (test.requester) {
    PostSend(connection.qp.get(), 1, {});
    PostSend(connection.qp.get(), 2, {});
    ExpectCompletions(test, connection.send_cq.get(),
                      {{1, IBV_WC_RETRY_EXC_ERR}, {2, IBV_WC_WR_FLUSH_ERR}},
                      "sends");
    ExpectState(test, connection.qp.get(), IBV_QPS_ERR);
  }
  test.Step();
}

void PeerInError(ErrorCase& test) {
  const Connection connection = Connect(test.device, test.side, Impatient());
  if (!test.requester) {
    ToState(connection.qp.get(), IBV_QPS_ERR);
  }
  test.Step();
  if (test.requester) {
    PostSend(connection.qp.get(), 1, {});
    ExpectCompletions(test, connection.send_cq.get(),
                      {{1, IBV_WC_RETRY_EXC_ERR}}, "send");
  }
  test.Step();
}

}  // namespace

std::vector<NamedCase> CompletionCases() {
  return {
      {"send with an unknown lkey", UnknownLkey},
      {"send from beyond the MR's end", BeyondMr},
      {"send from before the MR", BeforeMr},
      {"send from an address that wraps", WrappingSge},
      {"send with the lkey of an MR that is gone", StaleLkey},
      {"send with the lkey of another PD", LkeyOfAnotherPd},
      {"receive buffer one byte too short", ShortReceive},
      {"receive with an unknown lkey", ReceiveWithUnknownLkey},
      {"receive into an MR without local write", ReceiveWithoutLocalWrite},
      {"no receive posted, rnr_retry 0",
       [](ErrorCase& test) { NoReceive(test, 0); }},
      {"no receive posted, rnr_retry 3",
       [](ErrorCase& test) { NoReceive(test, 3); }},
      {"receive posted late, rnr_retry 7", LateReceive},
      {"the peer's QP was destroyed", PeerDestroyed},
      {"the peer's QP is in ERR", PeerInError},
  };
}

}  // namespace ropcie
