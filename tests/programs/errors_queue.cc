// SPDX-License-Identifier: GPL-2.0
// Work queues: what a flush looks like, what fits into them, what may be posted
// in which state.
#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "failure.h"
#include "pattern.h"
#include "rop_errors.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr size_t kLength = 3000;

std::vector<Completion> Sequence(uint64_t first, uint64_t last,
                                 ibv_wc_status status) {
  std::vector<Completion> all;
  for (uint64_t id = first; id <= last; ++id) {
    all.push_back({id, status});
  }
  return all;
}

// Requests that can neither finish nor fail are flushed in order by a modify to
// ERR, as is what is posted later; RESET forgets everything.
void FlushInOrder(ErrorCase& test) {
  const Connection connection = Connect(test.device, test.side, QpConfig());
  ibv_qp* qp = connection.qp.get();
  if (test.requester) {
    for (uint64_t id = 1; id <= 8; ++id) {
      PostSend(qp, id, {});
      PostRecv(qp, 100 + id, {});
    }
    ToState(qp, IBV_QPS_ERR);
    ExpectCompletions(test, connection.send_cq.get(),
                      Sequence(1, 8, IBV_WC_WR_FLUSH_ERR), "sends");
    ExpectCompletions(test, connection.recv_cq.get(),
                      Sequence(101, 108, IBV_WC_WR_FLUSH_ERR), "receives");

    PostSend(qp, 9, {}, 0);  // a flush completes even if it is unsignaled
    PostRecv(qp, 109, {});
    ExpectCompletions(test, connection.send_cq.get(),
                      {{9, IBV_WC_WR_FLUSH_ERR}}, "send in ERR");
    ExpectCompletions(test, connection.recv_cq.get(),
                      {{109, IBV_WC_WR_FLUSH_ERR}}, "receive in ERR");
    ExpectState(test, qp, IBV_QPS_ERR);
    ToState(qp, IBV_QPS_RESET);
    ExpectState(test, qp, IBV_QPS_RESET);
    ExpectCompletions(test, connection.send_cq.get(), {}, "after RESET");
  }
  test.Step();
}

void ErrorInTheMiddle(ErrorCase& test) {
  const Connection connection = Connect(test.device, test.side, QpConfig());
  ibv_qp* qp = connection.qp.get();
  const ibv_sge good = test.arena.Sge(test.arena.Take(kLength, 0, false));
  ibv_sge wrong = good;
  wrong.lkey ^= 0x00ffff00;
  if (!test.requester) {
    for (uint64_t id = 1; id <= 8; ++id) {
      PostRecv(qp, id, {good});
    }
  }
  test.Step();
  if (test.requester) {
    for (uint64_t id = 1; id <= 8; ++id) {
      PostSend(qp, id, {id == 4 ? wrong : good});
    }
    std::vector<Completion> right = Sequence(1, 3, IBV_WC_SUCCESS);
    right.push_back({4, IBV_WC_LOC_PROT_ERR});
    for (const Completion& flushed : Sequence(5, 8, IBV_WC_WR_FLUSH_ERR)) {
      right.push_back(flushed);
    }
    ExpectCompletions(test, connection.send_cq.get(), right, "sends");
  }
  test.Step();
  if (!test.requester) {
    ExpectCompletions(test, connection.recv_cq.get(),
                      Sequence(1, 3, IBV_WC_SUCCESS), "receives");
  }
  test.Step();
}

// A destroyed QP's requests are gone, and nothing comes after the destroy.
void DestroyWithWork(ErrorCase& test) {
  Connection connection = Connect(test.device, test.side, QpConfig());
  if (test.requester) {
    for (uint64_t id = 1; id <= 8; ++id) {
      PostSend(connection.qp.get(), id, {});
      PostRecv(connection.qp.get(), id, {});
    }
    connection.qp.reset();
    ExpectCompletions(test, connection.send_cq.get(), {}, "after destroy");
    ExpectCompletions(test, connection.recv_cq.get(), {}, "after destroy");
  }
  test.Step();
}

int TryPostSend(ibv_qp* qp, ibv_send_wr* wr, ErrorCase& test) {
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(qp, wr, &bad);
  if (error != 0) {
    test.report.Expect(bad == wr, "a refused ibv_post_send has not set bad_wr");
  }
  return error;
}

int TryPostRecv(ibv_qp* qp, ibv_recv_wr* wr, ErrorCase& test) {
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(qp, wr, &bad);
  if (error != 0) {
    test.report.Expect(bad == wr, "a refused ibv_post_recv has not set bad_wr");
  }
  return error;
}

// As many requests as the QP was created with, and not one more.
void FullSendQueue(ErrorCase& test) {
  QpConfig config;
  config.cap.max_send_wr = 20;
  const Connection connection = Connect(test.device, test.side, config);
  ibv_qp* qp = connection.qp.get();
  const uint64_t depth = connection.config.cap.max_send_wr;
  const uint64_t peer_depth = test.side.channel.Exchange(depth);
  if (test.requester) {
    for (uint64_t id = 1; id <= depth; ++id) {
      PostSend(qp, id, {});
    }
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    test.report.ExpectErrno(TryPostSend(qp, &wr, test), {ENOMEM},
                            Text("send ", depth + 1));
  }
  test.Step();
  for (uint64_t id = 1; id <= peer_depth && !test.requester; ++id) {
    PostRecv(qp, id, {});
    ExpectCompletions(test, connection.recv_cq.get(), {{id, IBV_WC_SUCCESS}},
                      "receive");
  }
  if (test.requester) {
    ExpectCompletions(test, connection.send_cq.get(),
                      Sequence(1, depth, IBV_WC_SUCCESS), "sends");
  }
  test.Step();
}

// A list that does not fit: what fits is posted, bad_wr is the first that did
// not.
void ListTooLong(ErrorCase& test) {
  QpConfig config;
  config.cap.max_send_wr = 4;
  const Connection connection = Connect(test.device, test.side, config);
  ibv_qp* qp = connection.qp.get();
  if (test.requester) {
    const size_t depth = connection.config.cap.max_send_wr;
    std::vector<ibv_send_wr> list(depth + 2);
    for (size_t i = 0; i < list.size(); ++i) {
      list[i].wr_id = i + 1;
      list[i].opcode = IBV_WR_SEND;
      list[i].send_flags = IBV_SEND_SIGNALED;
      list[i].next = i + 1 < list.size() ? &list[i + 1] : nullptr;
    }
    ibv_send_wr* bad = nullptr;
    test.report.ExpectErrno(ibv_post_send(qp, list.data(), &bad), {ENOMEM},
                            "a list longer than the queue");
    test.report.Expect(bad == &list[depth],
                       "bad_wr is not the first request that did not fit");
    ToState(qp, IBV_QPS_ERR);
    ExpectCompletions(test, connection.send_cq.get(),
                      Sequence(1, depth, IBV_WC_WR_FLUSH_ERR), "sends");
  }
  test.Step();
}

void FullReceiveQueue(ErrorCase& test) {
  const Connection connection = Connect(test.device, test.side, QpConfig());
  if (test.requester) {
    const uint64_t depth = connection.config.cap.max_recv_wr;
    for (uint64_t id = 1; id <= depth; ++id) {
      PostRecv(connection.qp.get(), id, {});
    }
    ibv_recv_wr wr{};
    test.report.ExpectErrno(TryPostRecv(connection.qp.get(), &wr, test),
                            {ENOMEM}, Text("receive ", depth + 1));
  }
  test.Step();
}

void Unsignaled(ErrorCase& test) {
  const Connection connection = Connect(test.device, test.side, QpConfig());
  ibv_qp* qp = connection.qp.get();
  // Much more than the queue holds: each must give its place back.
  constexpr uint64_t kGroups = 40;
  for (uint64_t group = 0; group < kGroups; ++group) {
    if (!test.requester) {
      for (uint64_t id = 1; id <= 4; ++id) {
        PostRecv(qp, id, {});
      }
    }
    test.Step();
    if (test.requester) {
      for (uint64_t id = 1; id <= 3; ++id) {
        PostSend(qp, id, {}, 0);
      }
      PostSend(qp, 4, {});
      ExpectCompletions(test, connection.send_cq.get(), {{4, IBV_WC_SUCCESS}},
                        "sends");
    } else {
      ExpectCompletions(test, connection.recv_cq.get(),
                        Sequence(1, 4, IBV_WC_SUCCESS), "receives");
    }
  }
  test.Step();
}

void PostInWrongState(ErrorCase& test) {
  QpConfig config;
  const CqPtr cq = CreateCq(test.device, 16);
  const QpPtr qp = CreateQp(test.device, cq.get(), cq.get(), &config);
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND;
  ibv_recv_wr recv{};
  test.report.ExpectErrno(TryPostSend(qp.get(), &send, test), {EINVAL},
                          "send in RESET");
  test.report.ExpectErrno(TryPostRecv(qp.get(), &recv, test), {EINVAL},
                          "receive in RESET");
  ToInit(qp.get(), config);
  test.report.ExpectErrno(TryPostSend(qp.get(), &send, test), {EINVAL},
                          "send in INIT");
  CheckErrno(TryPostRecv(qp.get(), &recv, test), "receive in INIT");
  ibv_qp_attr attr =
      RtrAttr(test.device, AddressOf(test.device, qp.get()), config);
  CheckErrno(ibv_modify_qp(qp.get(), &attr, kRtrMask), "modify QP to RTR");
  test.report.ExpectErrno(TryPostSend(qp.get(), &send, test), {EINVAL},
                          "send in RTR");
  test.Step();
}

void MalformedRequests(ErrorCase& test) {
  const Connection connection = Connect(test.device, test.side, QpConfig());
  ibv_qp* qp = connection.qp.get();
  const ibv_sge good = test.arena.Sge(test.arena.Take(kLength, 0, false));

  std::vector<ibv_sge> sges(connection.config.cap.max_send_sge + 1, good);
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND;
  send.sg_list = sges.data();
  send.num_sge = static_cast<int>(sges.size());
  test.report.ExpectErrno(TryPostSend(qp, &send, test), {EINVAL},
                          "one SGE too many in a send");
  sges.assign(connection.config.cap.max_recv_sge + 1, good);
  ibv_recv_wr recv{};
  recv.sg_list = sges.data();
  recv.num_sge = static_cast<int>(sges.size());
  test.report.ExpectErrno(TryPostRecv(qp, &recv, test), {EINVAL},
                          "one SGE too many in a receive");

  send = {};
  send.opcode = static_cast<ibv_wr_opcode>(31);
  test.report.ExpectErrno(TryPostSend(qp, &send, test), {EINVAL, EOPNOTSUPP},
                          "an unknown opcode");

  // The QP must have come through all that.
  if (!test.requester) {
    PostRecv(qp, 1, {good});
  }
  test.Step();
  if (test.requester) {
    PostSend(qp, 1, {good});
    ExpectCompletions(test, connection.send_cq.get(), {{1, IBV_WC_SUCCESS}},
                      "send");
  } else {
    ExpectCompletions(test, connection.recv_cq.get(), {{1, IBV_WC_SUCCESS}},
                      "receive");
  }
  test.Step();
}

void InlineTooLong(ErrorCase& test) {
  QpConfig config;
  config.cap.max_inline_data = 64;
  const Connection connection = Connect(test.device, test.side, config);
  if (test.requester) {
    ibv_sge sge = test.arena.Sge(test.arena.Take(kLength, 0, false));
    sge.length = connection.config.cap.max_inline_data + 1;
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_INLINE;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    test.report.ExpectErrno(TryPostSend(connection.qp.get(), &wr, test),
                            {EINVAL, ENOMEM}, "too much inline data");
  }
  test.Step();
}

// A CQ without room for a completion is in error, and so is the QP whose
// completion was lost. Nobody else is.
void CqOverflow(ErrorCase& test) {
  constexpr uint64_t kMessages = 8;
  QpConfig config;
  config.timeout = 10;
  config.retry_cnt = 2;
  config.recv_cqe = test.requester ? 0 : 4;
  const Connection connection = Connect(test.device, test.side, config);
  ibv_qp* qp = connection.qp.get();
  if (!test.requester) {
    for (uint64_t id = 1; id <= kMessages; ++id) {
      PostRecv(qp, id, {});
    }
  }
  test.Step();
  if (test.requester) {
    for (uint64_t id = 1; id <= kMessages; ++id) {
      PostSend(qp, id, {});
    }
    const std::vector<ibv_wc> done =
        AwaitCompletions(test, connection.send_cq.get(), kMessages, "sends");
    test.report.Expect(done[3].status == IBV_WC_SUCCESS &&
                           done[kMessages - 1].status != IBV_WC_SUCCESS,
                       "not what fits succeeds, but something else");
  } else {
    bool cq_error = false;
    bool qp_fatal = false;
    while (!cq_error || !qp_fatal) {
      const std::optional<ibv_event_type> event = NextEvent(test);
      if (!event) {
        break;
      }
      cq_error |= event == IBV_EVENT_CQ_ERR;
      qp_fatal |= event == IBV_EVENT_QP_FATAL;
    }
    ExpectState(test, qp, IBV_QPS_ERR);
    ExpectCompletions(test, connection.recv_cq.get(),
                      Sequence(1, 4, IBV_WC_SUCCESS), "receives");
  }
  test.Step();
}

// Completions of a QP may be on their way to one thread while another destroys
// it.
void DestroyWhilePolled(ErrorCase& test) {
  constexpr int kRounds = 200;
  QpConfig config;
  const CqPtr cq = CreateCq(test.device, 1024);
  std::atomic<bool> over{false};
  std::atomic<bool> wrong{false};
  std::thread poller([&] {
    std::array<ibv_wc, 16> wc{};
    while (!over) {
      const int count =
          ibv_poll_cq(cq.get(), static_cast<int>(wc.size()), wc.data());
      for (int i = 0; i < count; ++i) {
        wrong = wrong || wc.at(i).wr_id != wc.at(i).qp_num ||
                wc.at(i).status != IBV_WC_WR_FLUSH_ERR;
      }
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    const QpPtr qp = CreateQp(test.device, cq.get(), cq.get(), &config);
    ToInit(qp.get(), config);
    ToState(qp.get(), IBV_QPS_ERR);
    for (int i = 0; i < 8; ++i) {
      PostRecv(qp.get(), qp->qp_num, {});
    }
  }
  over = true;
  poller.join();
  test.report.Expect(!wrong, "a completion is of another QP");
  test.Step();
}

// A queue pair takes what it has in a long CQ along when it goes. What others
// have there is polled meanwhile, each once and in order.
void DestroyWithManyPolled(ErrorCase& test) {
  constexpr uint64_t kMany = 2000;
  QpConfig config;
  config.cap.max_recv_wr = kMany;
  const CqPtr cq = CreateCq(test.device, 2 * kMany);
  QpPtr goes = CreateQp(test.device, cq.get(), cq.get(), &config);
  const QpPtr stays = CreateQp(test.device, cq.get(), cq.get(), &config);
  for (ibv_qp* const qp : {goes.get(), stays.get()}) {
    ToInit(qp, config);
    ToState(qp, IBV_QPS_ERR);
  }
  const uint32_t number = stays->qp_num;
  for (uint64_t id = 0; id < kMany; ++id) {
    PostRecv(goes.get(), id, {});
    PostRecv(stays.get(), id, {});
  }
  std::atomic<bool> gone{false};
  uint64_t next = 0;
  bool wrong = false;
  const auto poll = [&] {
    std::array<ibv_wc, 3> wc{};
    const bool alone = gone;
    const int count =
        ibv_poll_cq(cq.get(), static_cast<int>(wc.size()), wc.data());
    for (int i = 0; i < count; ++i) {
      if (wc.at(i).qp_num == number) {
        wrong = wrong || wc.at(i).wr_id != next++;
      } else {
        wrong = wrong || alone;
      }
    }
    return count > 0;
  };
  std::thread poller([&] {
    while (!gone) {
      poll();
    }
  });
  goes.reset();
  gone = true;
  poller.join();
  while (poll()) {
  }
  test.report.Expect(!wrong, "a completion is out of order, or of one gone");
  test.report.Expect(next == kMany, next, " completions of one that stays, ",
                     kMany, " expected");
  test.Step();
}

void ModifySrq(ErrorCase& test, ibv_srq* srq, int mask, uint32_t value,
               int right, const std::string& what) {
  ibv_srq_attr attr = {.max_wr = value, .max_sge = 0, .srq_limit = value};
  const int error = ibv_modify_srq(srq, &attr, mask);
  test.report.Expect(error == right, what, ": error ", error, ", expected ",
                     right);
}

// A shared receive queue: who gets what, its limit, what is left of it.
void SharedReceives(ErrorCase& test) {
  ibv_srq_init_attr init{};
  init.attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0};
  const SrqPtr srq(ibv_create_srq(test.device.pd.get(), &init));
  CheckErrno(srq == nullptr ? errno : 0, "ibv_create_srq");
  QpConfig config;
  config.srq = test.requester ? nullptr : srq.get();
  const Connection connection = Connect(test.device, test.side, config);
  ibv_qp* qp = connection.qp.get();
  ibv_recv_wr recv{};
  ibv_recv_wr* bad = nullptr;
  if (!test.requester) {
    for (uint64_t id = 1; id <= init.attr.max_wr; ++id) {
      PostSrqRecv(srq.get(), id, {});
    }
    test.report.Expect(ibv_post_srq_recv(srq.get(), &recv, &bad) == ENOMEM,
                       "more receives than an SRQ holds");
    ModifySrq(test, srq.get(), IBV_SRQ_LIMIT, 3, 0, "limit");
    ModifySrq(test, srq.get(), IBV_SRQ_LIMIT, 99, EINVAL, "limit too high");
    test.report.ExpectErrno(ibv_post_recv(qp, &recv, &bad), {EINVAL},
                            "ibv_post_recv on a QP with an SRQ");
    test.report.Expect(ibv_destroy_srq(srq.get()) == EBUSY,
                       "an SRQ in use is destroyed");
  }
  test.Step();
  if (test.requester) {
    for (uint64_t id = 1; id <= 6; ++id) {
      PostSend(qp, id, {});
    }
    ExpectCompletions(test, connection.send_cq.get(),
                      Sequence(1, 6, IBV_WC_SUCCESS), "sends");
  } else {
    test.report.Expect(NextEvent(test) == IBV_EVENT_SRQ_LIMIT_REACHED,
                       "no event of the limit");
    ExpectCompletions(test, connection.recv_cq.get(),
                      Sequence(1, 6, IBV_WC_SUCCESS), "receives");
    ModifySrq(test, srq.get(), IBV_SRQ_MAX_WR, 1, EINVAL, "too small");
    ModifySrq(test, srq.get(), IBV_SRQ_MAX_WR, 100, 0, "larger");
    for (uint64_t id = 9; id <= 99; ++id) {
      PostSrqRecv(srq.get(), id, {});
    }
    ibv_srq_attr attr{};
    CheckErrno(ibv_query_srq(srq.get(), &attr), "ibv_query_srq");
    test.report.Expect(attr.max_wr >= 100 && attr.srq_limit == 0,
                       "the SRQ's attributes are wrong");
  }
  test.Step();
  if (test.requester) {
    for (uint64_t id = 1; id <= 50; ++id) {
      PostSend(qp, id, {});
    }
    ExpectCompletions(test, connection.send_cq.get(),
                      Sequence(1, 50, IBV_WC_SUCCESS), "sends");
  } else {
    ExpectCompletions(test, connection.recv_cq.get(),
                      Sequence(7, 56, IBV_WC_SUCCESS), "receives");
    ToState(qp, IBV_QPS_ERR);
    test.report.Expect(NextEvent(test) == IBV_EVENT_QP_LAST_WQE_REACHED,
                       "no event of the last receive");
    ExpectCompletions(test, connection.recv_cq.get(), {}, "after ERR");
  }
  test.Step();
}

// Two queue pairs of a type without acknowledgements, and what is sent on them.
class Unheard {
 public:
  Unheard(ErrorCase& test, ibv_qp_type type, ibv_srq* srq)
      : test_(test), connection_(Make(test, type, srq)) {
    if (type == IBV_QPT_UD) {
      ah_ = CreateAh(test.device, connection_.peer.gid);
    }
  }

  void Send(uint64_t wr_id, const Piece& piece, const std::string& what) {
    ibv_sge sge = test_.arena.Sge(piece);
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (ah_ != nullptr) {
      wr.wr.ud.ah = ah_.get();
      wr.wr.ud.remote_qpn = connection_.peer.qpn;
      wr.wr.ud.remote_qkey = kQkey;
    }
    ibv_send_wr* bad = nullptr;
    CheckErrno(ibv_post_send(connection_.qp.get(), &wr, &bad), "ibv_post_send");
    ExpectCompletions(test_, connection_.send_cq.get(),
                      {{wr_id, IBV_WC_SUCCESS}}, what);
  }

  [[nodiscard]] ibv_cq* recv_cq() const { return connection_.recv_cq.get(); }

 private:
  static constexpr uint32_t kQkey = 0x1234;

  static Connection Make(ErrorCase& test, ibv_qp_type type, ibv_srq* srq) {
    Connection made;
    made.config.type = type;
    made.config.srq = srq;
    if (type != IBV_QPT_UD) {
      return Connect(test.device, test.side, made.config);
    }
    made.send_cq = CreateCq(test.device, 8);
    made.recv_cq = CreateCq(test.device, 8);
    made.qp = CreateQp(test.device, made.send_cq.get(), made.recv_cq.get(),
                       &made.config);
    ToRtsUd(made.qp.get(), kQkey);
    made.peer =
        test.side.channel.Exchange(AddressOf(test.device, made.qp.get()));
    return made;
  }

  ErrorCase& test_;
  Connection connection_;
  AhPtr ah_;
};

// A message without acknowledgement that is too long for a shared receive is
// dropped, and takes it from nobody.
void TooLongForShared(ErrorCase& test, ibv_qp_type type) {
  constexpr size_t kRoom = 64;  // a datagram's with its 40 bytes of GRH
  ibv_srq_init_attr init{};
  init.attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0};
  const SrqPtr srq(ibv_create_srq(test.device.pd.get(), &init));
  CheckErrno(srq == nullptr ? errno : 0, "ibv_create_srq");
  ibv_srq* const shared = test.requester ? nullptr : srq.get();
  Unheard first(test, type, shared);
  Unheard second(test, type, shared);
  const Piece piece = test.arena.Take(2 * kRoom, 1, false);
  if (!test.requester) {
    PostSrqRecv(srq.get(), 1, {test.arena.Sge({piece.offset, kRoom})});
  }
  test.Step();
  if (test.requester) {
    first.Send(1, piece, "too long");
    second.Send(2, {piece.offset, kRoom / 4}, "fits");
  } else {
    ExpectCompletions(test, second.recv_cq(), {{1, IBV_WC_SUCCESS}},
                      "receive that another had no use for");
    ExpectCompletions(test, first.recv_cq(), {}, "too long");
  }
  test.Step();
}

}  // namespace

// Zeros are sent from the null region, and what it receives is dropped.
void NullRegion(ErrorCase& test) {
  constexpr size_t kPart = 5000;
  QpConfig config;
  config.cap.max_send_sge = 3;
  config.cap.max_recv_sge = 3;
  const Connection connection = Connect(test.device, test.side, config);
  ibv_mr* const mr = ibv_alloc_null_mr(test.device.pd.get());
  const bool there =
      test.side.channel.Exchange<uint32_t>(mr != nullptr ? 1 : 0) != 0 &&
      mr != nullptr;
  if (!there) {
    test.report.Expect(mr != nullptr || errno == EOPNOTSUPP,
                       "ibv_alloc_null_mr: ", std::strerror(errno));
    return;
  }
  test.report.Expect(mr->pd == test.device.pd.get() && mr->length == SIZE_MAX,
                     "the null region does not say what it is");
  const Piece piece = test.arena.Take(3 * kPart, 1, false);
  uint8_t* const bytes = test.arena.At(piece.offset);
  std::memset(bytes, test.requester ? 1 : 2, piece.length);
  // The first part here, the second nowhere, the third here again.
  const auto list = [&](uint64_t nowhere) {
    return std::vector<ibv_sge>{
        test.arena.Sge({piece.offset, kPart}),
        {.addr = nowhere, .length = uint32_t{kPart}, .lkey = mr->lkey},
        test.arena.Sge({piece.offset + 2 * kPart, kPart})};
  };
  if (!test.requester) {
    PostRecv(connection.qp.get(), 1, {test.arena.Sge(piece)});
    PostRecv(connection.qp.get(), 2, list(UINT64_MAX - kPart - 1));
  }
  test.Step();
  if (test.requester) {
    PostSend(connection.qp.get(), 1, list(12345));
    PostSend(connection.qp.get(), 2, {test.arena.Sge(piece)});
    ExpectCompletions(test, connection.send_cq.get(),
                      Sequence(1, 2, IBV_WC_SUCCESS), "sends");
  } else {
    ExpectCompletions(test, connection.recv_cq.get(),
                      Sequence(1, 2, IBV_WC_SUCCESS), "receives");
    // Zeros came first; the ones that came then were dropped there.
    for (size_t i = 0; i < 3 * kPart; ++i) {
      const uint8_t right = i / kPart == 1 ? 0 : 1;
      if (bytes[i] != right) {
        test.report.Expect(false, "byte ", i, " is ", int{bytes[i]}, ", not ",
                           int{right});
        break;
      }
    }
  }
  test.Step();
  CheckErrno(ibv_dereg_mr(mr), "ibv_dereg_mr");
}

// SQD: what has begun ends, of which an event tells when it was asked for; what
// is posted then waits (IBTA 10.3.1.5).
void Drain(ErrorCase& test) {
  constexpr uint64_t kSends = 5;
  const Connection connection = Connect(test.device, test.side, QpConfig());
  ibv_qp* qp = connection.qp.get();
  if (!test.requester) {
    for (uint64_t id = 1; id <= kSends; ++id) {
      PostRecv(qp, id, {});
    }
  }
  test.Step();
  if (test.requester) {
    for (uint64_t id = 1; id < kSends; ++id) {
      PostSend(qp, id, {});
    }
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    CheckErrno(
        ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
        "modify QP to SQD");
    ExpectEvent(test, IBV_EVENT_SQ_DRAINED);
    ibv_qp_init_attr init{};
    CheckErrno(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), "ibv_query_qp");
    test.report.Expect(attr.qp_state == IBV_QPS_SQD && attr.sq_draining == 0,
                       "the QP is in state ", attr.qp_state, ", sq_draining ",
                       int{attr.sq_draining});
    PostSend(qp, kSends, {});
  }
  test.Step();
  if (test.requester) {
    ToState(qp, IBV_QPS_RTS);
    ExpectCompletions(test, connection.send_cq.get(),
                      Sequence(1, kSends, IBV_WC_SUCCESS), "sends");
  } else {
    ExpectCompletions(test, connection.recv_cq.get(),
                      Sequence(1, kSends, IBV_WC_SUCCESS), "receives");
  }
  test.Step();
}

// A message that comes before RTS: the responder may go on (IBTA 11.6.3.1).
void Established(ErrorCase& test) {
  QpConfig config;
  const CqPtr cq = CreateCq(test.device, 16);
  const QpPtr qp = CreateQp(test.device, cq.get(), cq.get(), &config);
  ToInit(qp.get(), config);
  const QpAddress mine = AddressOf(test.device, qp.get());
  const QpAddress peer = test.side.channel.Exchange(mine);
  ibv_qp_attr attr = RtrAttr(test.device, peer, config);
  CheckErrno(ibv_modify_qp(qp.get(), &attr, kRtrMask), "modify QP to RTR");
  if (test.requester) {
    attr = RtsAttr(mine.psn, config);
    CheckErrno(ibv_modify_qp(qp.get(), &attr, kRtsMask), "modify QP to RTS");
  } else {
    PostRecv(qp.get(), 1, {});
  }
  test.Step();
  if (test.requester) {
    PostSend(qp.get(), 1, {});
  } else {
    ExpectEvent(test, IBV_EVENT_COMM_EST);
  }
  ExpectCompletions(test, cq.get(), {{1, IBV_WC_SUCCESS}}, "the first message");
  test.Step();
}

uint64_t Now(clockid_t clock) {
  timespec now{};
  CheckErrno(clock_gettime(clock, &now) != 0 ? errno : 0, "clock_gettime");
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 +
         static_cast<uint64_t>(now.tv_nsec);
}

// A completion of a CQ that was made with `flag` has the time of `clock`.
void ExpectStamp(const ErrorCase& test, uint64_t flag, clockid_t clock,
                 uint64_t (*read)(ibv_cq_ex* cq)) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 16;
  attr.wc_flags = flag;
  ibv_cq_ex* const cq = ibv_create_cq_ex(test.device.context.get(), &attr);
  CheckErrno(cq == nullptr ? errno : 0, "ibv_create_cq_ex");
  const CqPtr owner(ibv_cq_ex_to_cq(cq));
  QpConfig config;
  const QpPtr qp = CreateQp(test.device, owner.get(), owner.get(), &config);
  ToInit(qp.get(), config);
  const uint64_t before = Now(clock);
  ToState(qp.get(), IBV_QPS_ERR);
  PostRecv(qp.get(), 1, {});  // is flushed
  ibv_poll_cq_attr poll{};
  CheckErrno(ibv_start_poll(cq, &poll), "ibv_start_poll");
  const uint64_t stamp = read(cq);
  ibv_end_poll(cq);
  test.report.Expect(before <= stamp && stamp <= Now(clock),
                     "a completion at " + std::to_string(stamp) +
                         ", posted after " + std::to_string(before));
}

void TimeStamps(ErrorCase& test) {
  ibv_device_attr_ex attr{};
  CheckErrno(ibv_query_device_ex(test.device.context.get(), nullptr, &attr),
             "ibv_query_device_ex");
  if (attr.completion_timestamp_mask == 0) {
    return;
  }
  ExpectStamp(test, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, CLOCK_MONOTONIC,
              ibv_wc_read_completion_ts);
  ExpectStamp(test, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
              CLOCK_REALTIME, ibv_wc_read_completion_wallclock_ns);
}

std::vector<NamedCase> QueueCases() {
  return {
      {"flush in order", FlushInOrder},
      {"an error in the middle of a queue", ErrorInTheMiddle},
      {"destroy a QP with work", DestroyWithWork},
      {"send queue full", FullSendQueue},
      {"list longer than the send queue", ListTooLong},
      {"receive queue full", FullReceiveQueue},
      {"unsignaled sends", Unsignaled},
      {"post in the wrong state", PostInWrongState},
      {"malformed work requests", MalformedRequests},
      {"too much inline data", InlineTooLong},
      {"shared receive queue", SharedReceives},
      {"too long for a shared receive",
       [](ErrorCase& test) { TooLongForShared(test, IBV_QPT_UC); }},
      {"datagram too long for a shared receive",
       [](ErrorCase& test) { TooLongForShared(test, IBV_QPT_UD); }},
      {"a CQ overflows", CqOverflow},
      {"the null region", NullRegion},
      {"a send queue is drained", Drain},
      {"a message before RTS", Established},
      {"time stamps", TimeStamps},
      {"QPs are destroyed while their CQ is polled", DestroyWhilePolled},
      {"one with much in its CQ is destroyed", DestroyWithManyPolled},
  };
}

}  // namespace ropcie
