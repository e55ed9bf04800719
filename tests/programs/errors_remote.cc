// SPDX-License-Identifier: GPL-2.0
// RDMA WRITE, READ and atomics: what they may do, with the bytes compared, and
// what they may not. A refused one leaves not a byte behind. The statuses are
// those of the InfiniBand Architecture Specification, volume 1, chapter 9.7.5.
#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "failure.h"
#include "pattern.h"
#include "rop_errors.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr size_t kLength = 5000;
constexpr unsigned int kRemote =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr uint32_t kImm = 0x01020304;

// What the requester is told of the responder's memory.
struct Target {
  uint64_t addr;
  uint32_t rkey;
};

struct RemoteCase {
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
  size_t length = kLength;
  size_t misaligned = 0;
  unsigned int mr_access = IBV_ACCESS_LOCAL_WRITE | kRemote;
  unsigned int qp_access = IBV_ACCESS_LOCAL_WRITE | kRemote;
  // At the responder: what the requester is told instead.
  std::function<void(Target*)> lie = [](Target*) {};
  ibv_wc_status status = IBV_WC_SUCCESS;
  bool responder_fails = true;  // when status is none of success
  uint8_t rd_atomic = 4;
};

bool IsAtomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
         opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

ibv_send_wr RemoteRequest(ibv_wr_opcode opcode, uint64_t wr_id, ibv_sge* sge,
                          const Target& target) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = sge;
  wr.num_sge = sge->length > 0 ? 1 : 0;
  wr.imm_data = kImm;
  if (IsAtomic(opcode)) {
    wr.wr.atomic.remote_addr = target.addr;
    wr.wr.atomic.rkey = target.rkey;
    wr.wr.atomic.compare_add = 5;
    wr.wr.atomic.swap = 77;
  } else {
    wr.wr.rdma.remote_addr = target.addr;
    wr.wr.rdma.rkey = target.rkey;
  }
  return wr;
}

QpConfig Config(const RemoteCase& rule) {
  QpConfig config;
  config.access = rule.qp_access;
  config.rd_atomic = rule.rd_atomic;
  config.rnr_retry = 0;
  return config;
}

class RemoteTest {
 public:
  RemoteTest(ErrorCase& test, const RemoteCase& rule)
      : test_(test),
        rule_(rule),
        connection_(Connect(test.device, test.side, Config(rule))),
        pattern_(test.side.options.seed, rule.length + 1),
        local_(test.arena.Take(rule.length, rule.misaligned, false)),
        piece_(test.arena.Take(rule.length, rule.misaligned, true)),
        mr_(RegisterMr(test.device, test.arena.At(piece_.offset),
                       rule.length > 0 ? rule.length : 1,
                       static_cast<int>(rule.mr_access))) {
    std::memcpy(test.arena.At(local_.offset), pattern_.Bytes(1, 0),
                rule.length);
    std::memcpy(Memory(), pattern_.Bytes(2, 0), rule.length);
    if (IsAtomic(rule.opcode)) {
      const uint64_t word = 5;
      std::memcpy(Memory(), &word, sizeof(word));
    }
    before_.assign(Memory(), Memory() + rule.length);
    Target mine = {reinterpret_cast<uintptr_t>(Memory()), mr_->rkey};
    rule.lie(&mine);
    target_ = test.side.channel.Exchange(mine);
  }

  void Run() {
    ibv_sge none = {0, 0, 0};
    if (!test_.requester) {
      PostRecv(qp(), 1, {});
      if (rule_.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        PostRecv(qp(), 2, {});
      }
    }
    test_.Step();
    if (test_.requester) {
      ibv_sge sge = test_.arena.Sge(local_);
      Post(test_, qp(), RemoteRequest(rule_.opcode, 1, &sge, target_));
      Post(test_, qp(), RemoteRequest(IBV_WR_SEND, 2, &none, target_));
      const bool good = rule_.status == IBV_WC_SUCCESS;
      ExpectCompletions(
          test_, connection_.send_cq.get(),
          {{1, rule_.status}, {2, good ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR}},
          "sends");
      ExpectState(test_, qp(), good ? IBV_QPS_RTS : IBV_QPS_ERR);
      ExpectFetched();
    } else {
      ExpectAtResponder();
    }
    test_.Step();
    test_.arena.CheckGuards("a remote access");
  }

 private:
  [[nodiscard]] ibv_qp* qp() const { return connection_.qp.get(); }
  [[nodiscard]] uint8_t* Memory() const {
    return test_.arena.At(piece_.offset);
  }
  [[nodiscard]] bool Good() const { return rule_.status == IBV_WC_SUCCESS; }

  void ExpectBytes(const uint8_t* bytes, const uint8_t* right,
                   const char* what) {
    test_.report.Expect(
        rule_.length == 0 || std::memcmp(bytes, right, rule_.length) == 0, what,
        " is not what it must be");
  }

  // At the requester: what came back, or that nothing has.
  void ExpectFetched() {
    const uint8_t* bytes = test_.arena.At(local_.offset);
    if (IsAtomic(rule_.opcode)) {
      uint64_t word = 0;
      std::memcpy(&word, bytes, sizeof(word));
      test_.report.Expect(!Good() || word == 5, "the atomic returned ", word);
    } else if (Good() && rule_.opcode == IBV_WR_RDMA_READ) {
      ExpectBytes(bytes, pattern_.Bytes(2, 0), "what was read");
    } else {
      ExpectBytes(bytes, pattern_.Bytes(1, 0), "the requester's memory");
    }
  }

  void ExpectAtResponder() {
    const bool imm = rule_.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    if (Good() && imm) {
      const std::vector<ibv_wc> done =
          AwaitCompletions(test_, connection_.recv_cq.get(), 2, "receives");
      test_.report.Expect(
          done[0].opcode == IBV_WC_RECV_RDMA_WITH_IMM &&
              done[0].byte_len == rule_.length && done[0].imm_data == kImm &&
              (done[0].wc_flags & IBV_WC_WITH_IMM) != 0,
          "the receive of a WRITE with immediate data is wrong");
      test_.report.Expect(done[1].opcode == IBV_WC_RECV,
                          "the SEND behind it is wrong");
    } else if (Good() || rule_.responder_fails) {
      std::vector<Completion> right = {
          {1, Good() ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR}};
      if (imm) {
        right.push_back({2, IBV_WC_WR_FLUSH_ERR});
      }
      ExpectCompletions(test_, connection_.recv_cq.get(), right, "receives");
    }
    if (!Good() && rule_.responder_fails) {
      ExpectEvent(test_, rule_.status == IBV_WC_REM_INV_REQ_ERR
                             ? IBV_EVENT_QP_REQ_ERR
                             : IBV_EVENT_QP_ACCESS_ERR);
    }
    // A requester that fails for itself has not begun, or tells nobody.
    ExpectState(test_, qp(),
                Good() || !rule_.responder_fails ? IBV_QPS_RTS : IBV_QPS_ERR);
    if (!Good()) {
      ExpectBytes(Memory(), before_.data(), "memory after a refusal");
    } else if (IsAtomic(rule_.opcode)) {
      uint64_t word = 0;
      std::memcpy(&word, Memory(), sizeof(word));
      test_.report.Expect(
          word == (rule_.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 10 : 77),
          "the atomic left ", word);
    } else if (rule_.opcode == IBV_WR_RDMA_READ) {
      ExpectBytes(Memory(), before_.data(), "memory that was read");
    } else {
      ExpectBytes(Memory(), pattern_.Bytes(1, 0), "what was written");
    }
  }

  ErrorCase& test_;
  const RemoteCase& rule_;
  Connection connection_;
  Pattern pattern_;
  Piece local_;
  Piece piece_;
  MrPtr mr_;
  std::vector<uint8_t> before_;
  Target target_{};
};

NamedCase Case(std::string name, RemoteCase rule) {
  return {std::move(name), [rule = std::move(rule)](ErrorCase& test) {
            RemoteTest(test, rule).Run();
          }};
}

// A CAS whose comparison fails changes nothing, and says what is there.
void CompareFails(ErrorCase& test) {
  RemoteCase rule;
  rule.qp_access = IBV_ACCESS_LOCAL_WRITE | kRemote;
  const Connection connection = Connect(test.device, test.side, Config(rule));
  const Piece piece = test.arena.Take(8, 0, false);
  const MrPtr mr =
      RegisterMr(test.device, test.arena.At(piece.offset), 8,
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
  const uint64_t there = test.requester ? 1 : 6;
  std::memcpy(test.arena.At(piece.offset), &there, sizeof(there));
  const Target target = test.side.channel.Exchange(Target{
      reinterpret_cast<uintptr_t>(test.arena.At(piece.offset)), mr->rkey});
  if (test.requester) {
    ibv_sge sge = test.arena.Sge(piece);
    Post(test, connection.qp.get(),
         RemoteRequest(IBV_WR_ATOMIC_CMP_AND_SWP, 1, &sge, target));
    ExpectCompletions(test, connection.send_cq.get(), {{1, IBV_WC_SUCCESS}},
                      "atomic");
  }
  test.Step();
  uint64_t word = 0;
  std::memcpy(&word, test.arena.At(piece.offset), sizeof(word));
  test.report.Expect(word == 6, "the word is ", word, ", expected 6");
}

// More READs than may be outstanding, and atomics among them, in one list.
void ManyFetches(ErrorCase& test) {
  constexpr size_t kReads = 20;
  constexpr size_t kPart = 20000;
  RemoteCase rule;
  rule.rd_atomic = 3;
  const Connection connection = Connect(test.device, test.side, Config(rule));
  const Pattern pattern(test.side.options.seed, kReads * kPart);
  const Piece piece = test.arena.Take(kReads * kPart, 3, false);
  const Piece words = test.arena.Take((kReads + 1) * 8, 0, false);
  const MrPtr mr =
      RegisterMr(test.device, test.arena.At(0), 1 << 20,
                 IBV_ACCESS_LOCAL_WRITE | static_cast<int>(kRemote));
  std::memset(test.arena.At(words.offset), 0, words.length);
  if (!test.requester) {
    std::memcpy(test.arena.At(piece.offset), pattern.Bytes(3, 0), piece.length);
  }
  const auto offset = reinterpret_cast<uintptr_t>(test.arena.At(0));
  const Target base = test.side.channel.Exchange(Target{offset, mr->rkey});
  if (test.requester) {
    std::vector<Completion> right;
    for (size_t i = 0; i < kReads; ++i) {
      ibv_sge sge = test.arena.Sge({piece.offset + i * kPart, kPart});
      Post(test, connection.qp.get(),
           RemoteRequest(IBV_WR_RDMA_READ, 2 * i, &sge,
                         {base.addr + piece.offset + i * kPart, base.rkey}));
      sge = test.arena.Sge({words.offset + (i + 1) * 8, 8});
      Post(test, connection.qp.get(),
           RemoteRequest(IBV_WR_ATOMIC_FETCH_AND_ADD, 2 * i + 1, &sge,
                         {base.addr + words.offset, base.rkey}));
      right.push_back({2 * i, IBV_WC_SUCCESS});
      right.push_back({2 * i + 1, IBV_WC_SUCCESS});
    }
    ExpectCompletions(test, connection.send_cq.get(), right, "fetches");
    test.report.Expect(std::memcmp(test.arena.At(piece.offset),
                                   pattern.Bytes(3, 0), piece.length) == 0,
                       "what was read is wrong");
    for (size_t i = 0; i < kReads; ++i) {
      uint64_t word = 0;
      std::memcpy(&word, test.arena.At(words.offset + (i + 1) * 8),
                  sizeof(word));
      test.report.Expect(word == 5 * i, "atomic ", i, " returned ", word);
    }
  }
  test.Step();
  test.arena.CheckGuards("many fetches");
}

// An atomic returns eight bytes, and no other number.
void AtomicOfFourBytes(ErrorCase& test) {
  const Connection connection =
      Connect(test.device, test.side, Config(RemoteCase()));
  if (test.requester) {
    ibv_sge sge = test.arena.Sge(test.arena.Take(4, 0, false));
    ibv_send_wr wr = RemoteRequest(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, &sge, {});
    ibv_send_wr* bad = nullptr;
    test.report.ExpectErrno(ibv_post_send(connection.qp.get(), &wr, &bad),
                            {EINVAL}, "an atomic of four bytes");
  }
  test.Step();
}

std::vector<NamedCase> GoodCases() {
  std::vector<NamedCase> cases;
  for (const size_t length : {0, 1, 16, 17, 28, 29, 5000, 16384, 100001}) {
    for (const auto& [opcode, name] :
         {std::pair{IBV_WR_RDMA_WRITE, "WRITE"},
          std::pair{IBV_WR_RDMA_WRITE_WITH_IMM, "WRITE with immediate data"},
          std::pair{IBV_WR_RDMA_READ, "READ"}}) {
      cases.push_back(
          Case(Text(name, " of ", length, " bytes"),
               {.opcode = opcode, .length = length, .misaligned = length % 7}));
    }
  }
  cases.push_back(Case("fetch and add",
                       {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .length = 8}));
  cases.push_back(Case("compare and swap",
                       {.opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .length = 8}));
  cases.push_back({"compare and swap that does not compare", CompareFails});
  cases.push_back(
      {"more READs and atomics than may be outstanding", ManyFetches});
  cases.push_back({"atomic of four bytes", AtomicOfFourBytes});
  cases.push_back(
      Case("WRITE of no bytes with an unknown rkey",
           {.length = 0, .lie = [](Target* t) { t->rkey ^= 0xffff00; }}));
  return cases;
}

// The same wrongs for each opcode.
void AddWrongs(std::vector<NamedCase>* cases, const std::string& name,
               ibv_wr_opcode opcode, size_t length, unsigned int right) {
  const unsigned int others = (kRemote & ~right) | IBV_ACCESS_LOCAL_WRITE;
  const auto add = [&](const std::string& what, RemoteCase rule) {
    rule.opcode = opcode;
    rule.length = length;
    cases->push_back(Case(name + " " + what, rule));
  };
  const ibv_wc_status denied = IBV_WC_REM_ACCESS_ERR;
  add("that the MR does not allow", {.mr_access = others, .status = denied});
  add("that the QP does not allow",
      {.qp_access = others, .status = IBV_WC_REM_INV_REQ_ERR});
  add("with an unknown rkey",
      {.lie = [](Target* t) { t->rkey ^= 0xffff00; }, .status = denied});
  add("with another tag",
      {.lie = [](Target* t) { t->rkey ^= 1; }, .status = denied});
  add("beyond the MR's end",
      {.lie = [](Target* t) { t->addr += 8; }, .status = denied});
  add("before the MR",
      {.lie = [](Target* t) { t->addr -= 8; }, .status = denied});
  add("at an address that wraps",
      {.lie = [](Target* t) { t->addr = UINT64_MAX - 7; }, .status = denied});
}

// A READ into memory that may not be written fails at home.
void ReadIntoReadOnly(ErrorCase& test) {
  const Connection connection =
      Connect(test.device, test.side, Config(RemoteCase()));
  const Piece piece = test.arena.Take(kLength, 0, false);
  const MrPtr mr = RegisterMr(
      test.device, test.arena.At(piece.offset), kLength,
      test.requester ? 0 : IBV_ACCESS_LOCAL_WRITE | static_cast<int>(kRemote));
  const Target target = test.side.channel.Exchange(Target{
      reinterpret_cast<uintptr_t>(test.arena.At(piece.offset)), mr->rkey});
  if (test.requester) {
    ibv_sge sge = test.arena.Sge(piece);
    sge.lkey = mr->lkey;
    Post(test, connection.qp.get(),
         RemoteRequest(IBV_WR_RDMA_READ, 1, &sge, target));
    ExpectCompletions(test, connection.send_cq.get(),
                      {{1, IBV_WC_LOC_PROT_ERR}}, "READ");
    ExpectState(test, connection.qp.get(), IBV_QPS_ERR);
  }
  test.Step();
  if (!test.requester) {
    ExpectState(test, connection.qp.get(), IBV_QPS_RTS);
  }
  test.Step();
}

// The keys of an MR die with it, also for the peer.
void StaleRkey(ErrorCase& test) {
  RemoteCase rule;
  rule.status = IBV_WC_REM_ACCESS_ERR;
  rule.lie = [&test](Target* target) {
    const ibv_mr* all = test.arena.mr();
    const MrPtr gone =
        RegisterMr(test.device, all->addr, all->length,
                   IBV_ACCESS_LOCAL_WRITE | static_cast<int>(kRemote));
    target->rkey = gone->rkey;
  };
  RemoteTest(test, rule).Run();
}

// No receive for immediate data: an RNR NAK, and nobody fails but the sender.
void ImmediateDataWithoutReceive(ErrorCase& test) {
  const Connection connection =
      Connect(test.device, test.side, Config(RemoteCase()));
  const Piece piece = test.arena.Take(kLength, 0, false);
  const MrPtr mr =
      RegisterMr(test.device, test.arena.At(piece.offset), kLength,
                 IBV_ACCESS_LOCAL_WRITE | static_cast<int>(kRemote));
  const Target target = test.side.channel.Exchange(Target{
      reinterpret_cast<uintptr_t>(test.arena.At(piece.offset)), mr->rkey});
  if (test.requester) {
    ibv_sge sge = test.arena.Sge(piece);
    Post(test, connection.qp.get(),
         RemoteRequest(IBV_WR_RDMA_WRITE_WITH_IMM, 1, &sge, target));
    ExpectCompletions(test, connection.send_cq.get(),
                      {{1, IBV_WC_RNR_RETRY_EXC_ERR}}, "WRITE");
  }
  test.Step();
  if (!test.requester) {
    ExpectState(test, connection.qp.get(), IBV_QPS_RTS);
  }
  test.Step();
}

// Eight bytes, and no other number: from a list, and inline.
void AtomicWriteOfFourBytes(ErrorCase& test) {
  QpConfig config = Config(RemoteCase());
  config.cap.max_inline_data = 16;
  const Connection connection = Connect(test.device, test.side, config);
  if (test.requester) {
    for (const size_t length : {4, 16}) {
      ibv_sge sge = test.arena.Sge(test.arena.Take(length, 0, false));
      ibv_send_wr wr = RemoteRequest(IBV_WR_ATOMIC_WRITE, 1, &sge, {});
      for (const unsigned int flags : {0, int{IBV_SEND_INLINE}}) {
        wr.send_flags = flags;
        ibv_send_wr* bad = nullptr;
        test.report.ExpectErrno(ibv_post_send(connection.qp.get(), &wr, &bad),
                                {EINVAL}, "an atomic write of another length");
      }
    }
  }
  test.Step();
}

// All ones and all zeros in turn: who looks at the word sees one or the other.
void AtomicWritesAreWhole(ErrorCase& test) {
  constexpr uint64_t kWrites = 500;
  constexpr uint64_t kLast = 0x1111111111111111;
  QpConfig config = Config(RemoteCase());
  config.send_ops = IBV_QP_EX_WITH_ATOMIC_WRITE;
  const Connection connection = Connect(test.device, test.side, config);
  const Piece piece = test.arena.Take(8, 0, false);
  auto* word = reinterpret_cast<uint64_t*>(test.arena.At(piece.offset));
  *word = 0;
  const MrPtr mr = RegisterMr(test.device, word, piece.length,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  const Target target = test.side.channel.Exchange(
      Target{reinterpret_cast<uintptr_t>(word), mr->rkey});
  if (test.requester) {
    ibv_qp_ex* qp = ibv_qp_to_qp_ex(connection.qp.get());
    for (uint64_t i = 0; i <= kWrites; ++i) {
      const uint64_t value = i == kWrites ? kLast : i % 2 - 1;
      ibv_wr_start(qp);
      qp->wr_id = i;
      qp->wr_flags = IBV_SEND_SIGNALED;
      ibv_wr_atomic_write(qp, target.rkey, target.addr, &value);
      test.report.ExpectErrno(ibv_wr_complete(qp), {0}, "ibv_wr_complete");
      WaitForSuccess(connection.send_cq.get(), test.side.options.timeout_s,
                     "an atomic write");
    }
  } else {
    const auto end = std::chrono::steady_clock::now() +
                     std::chrono::seconds(test.side.options.timeout_s);
    uint64_t seen = 0;
    do {
      seen = std::atomic_ref(*word).load();
    } while ((seen == 0 || ~seen == 0) &&
             std::chrono::steady_clock::now() < end);
    test.report.Expect(seen == kLast, "the word was ", seen);
  }
  test.Step();
}

// ibv_wr_atomic_write() takes the value when it is called; fenced between two
// atomics, each of which says what it found.
void AtomicWriteThatIsBuilt(ErrorCase& test) {
  constexpr uint64_t kValue = 0x0123456789abcdef;
  QpConfig config = Config(RemoteCase());
  config.send_ops =
      IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  const Connection connection = Connect(test.device, test.side, config);
  const Piece piece = test.arena.Take(16, 0, false);
  const MrPtr mr =
      RegisterMr(test.device, test.arena.At(piece.offset), piece.length,
                 IBV_ACCESS_LOCAL_WRITE | static_cast<int>(kRemote));
  uint64_t words[2] = {5, 5};
  std::memcpy(test.arena.At(piece.offset), words, sizeof(words));
  const Target target = test.side.channel.Exchange(Target{
      reinterpret_cast<uintptr_t>(test.arena.At(piece.offset)), mr->rkey});
  if (test.requester) {
    ibv_qp_ex* qp = ibv_qp_to_qp_ex(connection.qp.get());
    ibv_wr_start(qp);
    qp->wr_flags = IBV_SEND_SIGNALED;
    for (uint64_t i = 0; i < 2; ++i) {
      qp->wr_id = i + 1;
      ibv_wr_atomic_fetch_add(qp, target.rkey, target.addr, 1);
      const ibv_sge sge = test.arena.Sge({piece.offset + 8 * i, 8});
      ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length);
      if (i == 0) {
        uint64_t value = kValue;
        qp->wr_id = 7;
        qp->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
        ibv_wr_atomic_write(qp, target.rkey, target.addr, &value);
        value = 0;
      }
    }
    test.report.ExpectErrno(ibv_wr_complete(qp), {0}, "ibv_wr_complete");
    const std::vector<ibv_wc> done = AwaitCompletions(
        test, connection.send_cq.get(), 3, "an atomic write between atomics");
    test.report.Expect(done[1].wr_id == 7 && done[1].status == IBV_WC_SUCCESS &&
                           done[1].opcode == IBV_WC_ATOMIC_WRITE,
                       "its completion is wrong");
    std::memcpy(words, test.arena.At(piece.offset), sizeof(words));
    test.report.Expect(words[0] == 5 && words[1] == kValue,
                       "the atomics found ", words[0], " and ", words[1]);
  }
  test.Step();
  if (!test.requester) {
    std::memcpy(words, test.arena.At(piece.offset), sizeof(words));
    test.report.Expect(words[0] == kValue + 1 && words[1] == 5,
                       "the memory is ", words[0], ", ", words[1]);
  }
  test.Step();
}

}  // namespace

std::vector<NamedCase> AtomicWriteCases() {
  std::vector<NamedCase> cases;
  cases.push_back(
      Case("atomic write", {.opcode = IBV_WR_ATOMIC_WRITE, .length = 8}));
  cases.push_back({"atomic write that is built", AtomicWriteThatIsBuilt});
  cases.push_back({"atomic writes are whole", AtomicWritesAreWhole});
  cases.push_back({"atomic write of four bytes", AtomicWriteOfFourBytes});
  cases.push_back(Case("atomic write on a QP that may have none outstanding",
                       {.opcode = IBV_WR_ATOMIC_WRITE,
                        .length = 8,
                        .status = IBV_WC_LOC_QP_OP_ERR,
                        .responder_fails = false,
                        .rd_atomic = 0}));
  cases.push_back(Case("atomic write at an odd address",
                       {.opcode = IBV_WR_ATOMIC_WRITE,
                        .length = 8,
                        .lie = [](Target* t) { t->addr += 4; },
                        .status = IBV_WC_REM_INV_REQ_ERR}));
  AddWrongs(&cases, "atomic write", IBV_WR_ATOMIC_WRITE, 8,
            IBV_ACCESS_REMOTE_WRITE);
  return cases;
}

std::vector<NamedCase> RemoteCases() {
  std::vector<NamedCase> cases = GoodCases();
  AddWrongs(&cases, "WRITE", IBV_WR_RDMA_WRITE, kLength,
            IBV_ACCESS_REMOTE_WRITE);
  AddWrongs(&cases, "READ", IBV_WR_RDMA_READ, kLength, IBV_ACCESS_REMOTE_READ);
  AddWrongs(&cases, "atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, 8,
            IBV_ACCESS_REMOTE_ATOMIC);
  cases.push_back(
      Case("atomic at an odd address", {.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
                                        .length = 8,
                                        .lie = [](Target* t) { t->addr += 4; },
                                        .status = IBV_WC_REM_INV_REQ_ERR}));
  cases.push_back(Case("WRITE with immediate data and an unknown rkey",
                       {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                        .lie = [](Target* t) { t->rkey ^= 0xffff00; },
                        .status = IBV_WC_REM_ACCESS_ERR}));
  cases.push_back(Case("READ on a QP that may have none outstanding",
                       {.opcode = IBV_WR_RDMA_READ,
                        .status = IBV_WC_LOC_QP_OP_ERR,
                        .responder_fails = false,
                        .rd_atomic = 0}));
  cases.push_back(
      {"READ into memory that may not be written", ReadIntoReadOnly});
  cases.push_back({"WRITE with the rkey of an MR that is gone", StaleRkey});
  cases.push_back(
      {"immediate data without a receive", ImmediateDataWithoutReceive});
  return cases;
}

}  // namespace ropcie
