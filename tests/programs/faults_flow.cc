// SPDX-License-Identifier: GPL-2.0
#include "faults_flow.h"

#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "failure.h"
#include "pattern.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr uint32_t kQkey = 0x1234567;
constexpr size_t kGrh = 40;
constexpr uint32_t kInline = 64;
constexpr uint8_t kFetches = 4;
constexpr std::array<size_t, 7> kLengths = {1,    28,    29,    kInline,
                                            4096, 65536, 262144};
constexpr size_t kLongest = 262144;
constexpr size_t kLong = 65536;
constexpr uint64_t kFlows = 8;
constexpr uint64_t kShared = 2 * kOutstanding;
// What a flow was without any completion, to be sure that it waited for one.
constexpr auto kWaits = std::chrono::seconds(1);
// Between two polls: a program that did not run has not waited.
constexpr auto kPollGap = std::chrono::milliseconds(50);

// Where the peer may write, and count.
struct Window {
  uint64_t address;
  uint32_t rkey;
};

Window WindowOf(const Arena& arena, const Piece& piece) {
  return {reinterpret_cast<uintptr_t>(arena.At(piece.offset)),
          arena.mr()->rkey};
}

ibv_send_wr Request(ibv_wr_opcode opcode, ibv_sge* sge) {
  ibv_send_wr wr{};
  wr.opcode = opcode;
  wr.sg_list = sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  return wr;
}

// Messages: every second one with immediate data, short ones inline.
class MessageFlow : public Flow {
 public:
  MessageFlow(const Ground& ground, uint32_t number, const std::string& kind,
              size_t longest, QpConfig config)
      : Flow(ground, number, kind),
        longest_(longest),
        header_(config.type == IBV_QPT_UD ? kGrh : 0) {
    for (uint64_t i = 0; i < kOutstanding; ++i) {
      out_.push_back(ground.arena.Take(longest, 0, false));
      in_.push_back(ground.arena.Take(header_ + longest, 0, false));
    }
    config.cap.max_inline_data = kInline;
    if (config.type == IBV_QPT_UD) {
      return;
    }
    ConnectWith(config);
    if (config.srq == nullptr) {
      ReceiveAll();
    }
  }

  void CompareWithPeer() override {
    if (!MayLose()) {
      CompareArrivals();
    }
  }

 protected:
  [[nodiscard]] size_t LengthOf(uint64_t sequence) const {
    return std::min(kLengths.at(sequence % kLengths.size()), longest_);
  }

  // Connected queue pairs lose nothing of what they take.
  [[nodiscard]] virtual bool MayLose() const { return false; }

  void Send() override {
    const uint64_t sequence = send_.posted;
    const Piece& piece = out_.at(sequence % kOutstanding);
    const size_t length = LengthOf(sequence);
    FillMine({piece.offset, length}, sequence);
    ibv_sge sge = ground_.arena.Sge({piece.offset, length});
    const bool immediate = MayLose() || sequence % 2 == 0;
    ibv_send_wr wr =
        Request(immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, &sge);
    wr.imm_data = htonl(static_cast<uint32_t>(sequence));
    Address(&wr);
    if (length <= kInline) {
      wr.send_flags |= IBV_SEND_INLINE;
      sge.lkey = 0;
    }
    PostNext(&wr);
    if (length <= kInline) {
      // Whoever posts inline may have his buffer back.
      std::memset(ground_.arena.At(piece.offset), 0, length);
    }
  }

  void Receive() override {
    PostReceive(in_.at(receive_.posted % kOutstanding));
  }

  void PostReceive(const Piece& piece) {
    ibv_sge sge = ground_.arena.Sge(piece);
    ibv_recv_wr wr{};
    wr.wr_id = receive_.posted;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    if (Posted(ibv_post_recv(qp(), &wr, &bad), "receive")) {
      ++receive_.posted;
    }
  }

  void Received(const ibv_wc& wc) override {
    Verify(wc, in_.at(wc.wr_id % kOutstanding));
  }

  void Verify(const ibv_wc& wc, const Piece& piece) {
    const std::string what = What("receive", receive_.completed - 1);
    const bool immediate = (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
    if (MayLose()) {
      Check(immediate, what, " has no immediate data");
      Check(ntohl(wc.imm_data) >= next_, what, ": message ", ntohl(wc.imm_data),
            " behind message ", next_ - 1);
      next_ = ntohl(wc.imm_data);
    } else {
      Check(immediate == (next_ % 2 == 0) &&
                (!immediate || ntohl(wc.imm_data) == next_),
            what, ": other immediate data than was sent");
    }
    const size_t length = LengthOf(next_);
    Check(wc.byte_len == header_ + length, what, ": ", wc.byte_len,
          " bytes, not ", header_ + length);
    CheckBytes(ground_.arena.At(piece.offset + header_), Bytes(false, next_),
               length, what);
    ++next_;
  }

 private:
  size_t longest_;
  size_t header_;
  std::vector<Piece> out_;
  std::vector<Piece> in_;
  uint64_t next_ = 0;  // message that is received next
};

class UnreliableFlow : public MessageFlow {
 public:
  UnreliableFlow(const Ground& ground, uint32_t number)
      : MessageFlow(ground, number, "UC", kLong, Config()) {}

 protected:
  [[nodiscard]] bool MayLose() const override { return true; }

 private:
  static QpConfig Config() {
    QpConfig config;
    config.type = IBV_QPT_UC;
    return config;
  }
};

// Goes on while nobody is there, and arrives again when the peer is back.
class DatagramFlow : public MessageFlow {
 public:
  DatagramFlow(const Ground& ground, uint32_t number)
      : MessageFlow(ground, number, "UD", LongestDatagram(ground.device),
                    Config()) {
    QpConfig config = Config();
    config.cap.max_inline_data = kInline;
    const Device& device = ground.device;
    connection_.send_cq = CreateCq(
        device, static_cast<int>(config.cap.max_send_wr), ground.channel);
    connection_.recv_cq = CreateCq(
        device, static_cast<int>(config.cap.max_recv_wr), ground.channel);
    connection_.qp = CreateQp(device, connection_.send_cq.get(),
                              connection_.recv_cq.get(), &config);
    connection_.config = config;
    ToRtsUd(qp(), kQkey);
    ReceiveAll();
    const QpAddress mine = AddressOf(device, qp());
    connection_.peer = ground.side.channel.Exchange(mine);
    ah_ = CreateAh(device, connection_.peer.gid);
  }

  [[nodiscard]] bool connected() const override { return false; }

  void PostInError() override {
    Check(StateOf(qp()) == IBV_QPS_RTS, name(), " is in state ", StateOf(qp()),
          ", not RTS");
    closed_ = true;
    ToState(qp(), IBV_QPS_ERR);
    MessageFlow::PostInError();
  }

 protected:
  [[nodiscard]] bool MayLose() const override { return true; }

  [[nodiscard]] bool MayFail(ibv_wc_status status) const override {
    return closed_ && status == IBV_WC_WR_FLUSH_ERR;
  }

  void Address(ibv_send_wr* wr) const override {
    wr->wr.ud.ah = ah_.get();
    wr->wr.ud.remote_qpn = connection_.peer.qpn;
    wr->wr.ud.remote_qkey = kQkey;
  }

  void Received(const ibv_wc& wc) override {
    Check((wc.wc_flags & IBV_WC_GRH) != 0 && wc.src_qp == connection_.peer.qpn,
          What("receive", wc.wr_id), " is from nowhere");
    MessageFlow::Received(wc);
  }

 private:
  static QpConfig Config() {
    QpConfig config;
    config.type = IBV_QPT_UD;
    return config;
  }

  static size_t LongestDatagram(const Device& device) {
    return size_t{128} << device.port.active_mtu;
  }

  AhPtr ah_;
  bool closed_ = false;
};

// WRITE with immediate data: chains of messages that answer each other, so that
// none is overwritten before it was read.
class ImmediateFlow : public Flow {
 public:
  ImmediateFlow(const Ground& ground, uint32_t number)
      : Flow(ground, number, "WRITE with immediate") {
    for (uint64_t i = 0; i < kOutstanding; ++i) {
      out_.push_back(ground.arena.Take(kLong, 0, false));
    }
    for (uint64_t i = 0; i < kOutstanding; ++i) {
      in_.push_back(ground.arena.Take(kLong, 0, false));
      windows_.at(i) =
          ground.side.channel.Exchange(WindowOf(ground.arena, in_.back()));
    }
    QpConfig config;
    config.access |= IBV_ACCESS_REMOTE_WRITE;
    ConnectWith(config);
    ReceiveAll();
  }

  void Start() override {
    for (uint64_t chain = 0; ground_.side.leads && chain < kOutstanding;
         ++chain) {
      Answer(chain);
    }
  }

  void CompareWithPeer() override { CompareArrivals(); }

 protected:
  void Send() override { Answer(0); }

  void Receive() override {
    ibv_recv_wr wr{};
    wr.wr_id = receive_.posted;
    ibv_recv_wr* bad = nullptr;
    if (Posted(ibv_post_recv(qp(), &wr, &bad), "receive")) {
      ++receive_.posted;
    }
  }

  void AfterSent(const ibv_wc& wc) override { static_cast<void>(wc); }

  void Received(const ibv_wc& wc) override {
    const std::string what = What("receive", wc.wr_id);
    Check(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM &&
              (wc.wc_flags & IBV_WC_WITH_IMM) != 0,
          what, " has opcode ", wc.opcode);
    const uint64_t number = ntohl(wc.imm_data);
    const uint64_t chain = number % kOutstanding;
    Check(number / kOutstanding == received_.at(chain), what, ": message ",
          number / kOutstanding, " of chain ", chain, ", not ",
          received_.at(chain));
    Check(wc.byte_len == LengthOf(number), what, ": ", wc.byte_len, " bytes");
    CheckBytes(ground_.arena.At(in_.at(chain).offset), Bytes(false, number),
               LengthOf(number), what);
    ++received_.at(chain);
  }

  void AfterReceived(const ibv_wc& wc) override {
    Receive();
    Answer(ntohl(wc.imm_data) % kOutstanding);
  }

 private:
  static size_t LengthOf(uint64_t number) {
    return std::min(kLengths.at(number % kLengths.size()), kLong);
  }

  void Answer(uint64_t chain) {
    const uint64_t number = sent_.at(chain)++ * kOutstanding + chain;
    const Piece piece{out_.at(chain).offset, LengthOf(number)};
    FillMine(piece, number);
    ibv_sge sge = ground_.arena.Sge(piece);
    ibv_send_wr wr = Request(IBV_WR_RDMA_WRITE_WITH_IMM, &sge);
    wr.imm_data = htonl(static_cast<uint32_t>(number));
    wr.wr.rdma.remote_addr = windows_.at(chain).address;
    wr.wr.rdma.rkey = windows_.at(chain).rkey;
    PostNext(&wr);
  }

  std::vector<Piece> out_;
  std::vector<Piece> in_;
  std::array<Window, kOutstanding> windows_{};
  std::array<uint64_t, kOutstanding> sent_{};
  std::array<uint64_t, kOutstanding> received_{};
};

// In turn: WRITE, READ of what was written, and two atomics on a counter that
// nobody else counts with. The peer's program has nothing to do.
class OneSidedFlow : public Flow {
 public:
  OneSidedFlow(const Ground& ground, uint32_t number)
      : Flow(ground, number, "WRITE, READ, atomics") {
    for (uint64_t i = 0; i < 2; ++i) {
      out_.push_back(ground.arena.Take(kLong, 0, false));
      in_.push_back(ground.arena.Take(kLong, 0, false));
      written_.push_back(ground.arena.Take(kLong, 0, false));
      windows_.at(i) =
          ground.side.channel.Exchange(WindowOf(ground.arena, written_.back()));
    }
    for (uint64_t i = 0; i < kOutstanding; ++i) {
      results_.push_back(ground.arena.Take(sizeof(uint64_t), 0, false));
    }
    counter_ = ground.arena.Take(sizeof(uint64_t), 0, false);
    std::memset(ground.arena.At(counter_.offset), 0, counter_.length);
    remote_counter_ =
        ground.side.channel.Exchange(WindowOf(ground.arena, counter_));
    QpConfig config;
    config.access |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                     IBV_ACCESS_REMOTE_ATOMIC;
    config.rd_atomic = kFetches;
    ConnectWith(config);
  }

  [[nodiscard]] bool warm() const override {
    return send_.good > send_.mark + 2 * kOutstanding;
  }

  void CompareWithPeer() override {
    struct Counts {
      uint64_t good;
      uint64_t posted;
    };
    const Counts peer =
        ground_.side.channel.Exchange(Counts{send_.good, send_.posted});
    CompareAtomics(AtomicsIn(peer.good), AtomicsIn(peer.posted));
    CompareWritten(WritesIn(peer.good), WritesIn(peer.posted));
  }

 protected:
  void Send() override {
    const uint64_t cycle = send_.posted / kKinds;
    const Window& window = windows_.at(cycle % 2);
    const Piece out{out_.at(cycle % 2).offset, LengthOf(cycle)};
    const Piece in{in_.at(cycle % 2).offset, LengthOf(cycle)};
    ibv_sge sge{};
    ibv_send_wr wr = Request(kOpcodes.at(send_.posted % kKinds), &sge);
    switch (wr.opcode) {
      case IBV_WR_RDMA_WRITE:
        FillMine(out, cycle);
        sge = ground_.arena.Sge(out);
        break;
      case IBV_WR_RDMA_READ:
        std::memset(ground_.arena.At(in.offset), 0, in.length);
        sge = ground_.arena.Sge(in);
        break;
      default:
        sge = ground_.arena.Sge(results_.at(send_.posted % kOutstanding));
    }
    if (wr.opcode == IBV_WR_RDMA_WRITE || wr.opcode == IBV_WR_RDMA_READ) {
      wr.wr.rdma.remote_addr = window.address;
      wr.wr.rdma.rkey = window.rkey;
    } else {
      wr.wr.atomic.remote_addr = remote_counter_.address;
      wr.wr.atomic.rkey = remote_counter_.rkey;
      const bool adds = wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
      wr.wr.atomic.compare_add = adds ? 1 : 2 * cycle + 1;
      wr.wr.atomic.swap = 2 * cycle + 2;
    }
    PostNext(&wr);
  }

  void Sent(const ibv_wc& wc) override {
    const uint64_t cycle = wc.wr_id / kKinds;
    const uint64_t kind = wc.wr_id % kKinds;
    const std::string what = What("send", wc.wr_id);
    Check(wc.opcode == kDone.at(kind), what, " has opcode ", wc.opcode);
    if (wc.opcode == IBV_WC_RDMA_READ) {
      CheckBytes(ground_.arena.At(in_.at(cycle % 2).offset), Bytes(true, cycle),
                 LengthOf(cycle), what);
    } else if (wc.opcode != IBV_WC_RDMA_WRITE) {
      const uint64_t was = Word(results_.at(wc.wr_id % kOutstanding));
      Check(was == 2 * cycle + kind - 2, what, ": the counter was ", was,
            ", not ", 2 * cycle + kind - 2);
    }
  }

 private:
  static constexpr uint64_t kKinds = 4;
  static constexpr std::array<ibv_wr_opcode, kKinds> kOpcodes = {
      IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
      IBV_WR_ATOMIC_CMP_AND_SWP};
  static constexpr std::array<ibv_wc_opcode, kKinds> kDone = {
      IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ, IBV_WC_FETCH_ADD, IBV_WC_COMP_SWAP};

  static size_t LengthOf(uint64_t cycle) {
    return std::min(kLengths.at(cycle % kLengths.size()), kLong);
  }

  // An atomic whose answer is lost was executed or not, but not twice.
  void CompareAtomics(uint64_t good, uint64_t posted) const {
    const uint64_t counted = Word(counter_);
    Check(counted >= good && counted <= posted, name(), ": the peer's ", good,
          " of ", posted, " atomics have succeeded, and ", counted,
          " were executed");
  }

  // The last of the peer's WRITEs to each place that has succeeded is there,
  // but for what the next one, if there was one, has replaced.
  void CompareWritten(uint64_t good, uint64_t posted) const {
    for (uint64_t back = 1; back <= std::min(good, written_.size()); ++back) {
      const uint64_t cycle = good - back;
      const uint64_t next = cycle + written_.size();
      const uint8_t* const data =
          ground_.arena.At(written_.at(cycle % written_.size()).offset);
      const size_t replaced =
          next < posted ? std::min(LengthOf(next), LengthOf(cycle)) : 0;
      for (size_t i = 0; i < LengthOf(cycle); ++i) {
        Check(data[i] == Bytes(false, cycle)[i] ||
                  (i < replaced && data[i] == Bytes(false, next)[i]),
              name(), ": byte ", i, " of the peer's WRITE ", cycle,
              ", which has succeeded, is not there");
      }
    }
  }

  // Of the first so many requests.
  static uint64_t WritesIn(uint64_t requests) {
    return (requests + kKinds - 1) / kKinds;
  }
  static uint64_t AtomicsIn(uint64_t requests) {
    const uint64_t rest = requests % kKinds;
    return requests / kKinds * 2 + (rest > 2 ? rest - 2 : 0);
  }

  [[nodiscard]] uint64_t Word(const Piece& piece) const {
    uint64_t word = 0;
    std::memcpy(&word, ground_.arena.At(piece.offset), sizeof(word));
    return word;
  }

  std::vector<Piece> out_;
  std::vector<Piece> in_;
  std::vector<Piece> written_;  // by the peer
  std::vector<Piece> results_;
  Piece counter_{};
  std::array<Window, 2> windows_{};
  Window remote_counter_{};
};

}  // namespace

class SharedReceives {
 public:
  explicit SharedReceives(const Ground& ground) : ground_(ground) {
    ibv_srq_init_attr init{};
    init.attr.max_wr = kShared;
    init.attr.max_sge = 1;
    srq_.reset(ibv_create_srq(ground.device.pd.get(), &init));
    CheckErrno(srq_ == nullptr ? errno : 0, "ibv_create_srq");
    for (uint64_t i = 0; i < kShared; ++i) {
      pieces_.push_back(ground.arena.Take(kLong, 0, false));
      CheckErrno(Post(i), "ibv_post_srq_recv");
    }
  }

  [[nodiscard]] ibv_srq* srq() const { return srq_.get(); }

  // Returns an errno.
  int Post(uint64_t index) {
    ibv_sge sge = ground_.arena.Sge(pieces_.at(index));
    ibv_recv_wr wr{};
    wr.wr_id = index;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    const int error = ibv_post_srq_recv(srq_.get(), &wr, &bad);
    posted_.at(index) = error == 0;
    return error;
  }

  const Piece& Take(uint64_t index, const std::string& what) {
    Check(index < kShared && posted_.at(index), what,
          " has a shared receive that is not posted: ", index);
    posted_.at(index) = false;
    return pieces_.at(index);
  }

  // Filled up, the queue has all that have not completed: it can not be made
  // smaller.
  void ExpectNoneLost() {
    for (uint64_t i = 0; i < kShared; ++i) {
      if (!posted_.at(i)) {
        CheckErrno(Post(i), "ibv_post_srq_recv");
      }
    }
    ibv_srq_attr attr{};
    attr.max_wr = kShared - 1;
    Check(ibv_modify_srq(srq_.get(), &attr, IBV_SRQ_MAX_WR) == EINVAL,
          "a shared receive is neither posted nor completed");
  }

 private:
  const Ground& ground_;
  SrqPtr srq_;
  std::vector<Piece> pieces_;
  std::array<bool, kShared> posted_{};
};

namespace {

class SharedFlow : public MessageFlow {
 public:
  SharedFlow(const Ground& ground, uint32_t number, SharedReceives* shared)
      : MessageFlow(ground, number, "SRQ", kLong, Config(*shared)),
        shared_(shared) {}

 protected:
  void TakeReceive(const ibv_wc& wc) override {
    taken_ = shared_->Take(wc.wr_id, What("receive", receive_.completed));
    ++receive_.posted;
  }
  void Received(const ibv_wc& wc) override { Verify(wc, taken_); }
  void AfterReceived(const ibv_wc& wc) override {
    static_cast<void>(Posted(shared_->Post(wc.wr_id), "shared receive"));
  }
  // There is none of its own.
  void Receive() override {}

 private:
  static QpConfig Config(const SharedReceives& shared) {
    QpConfig config;
    config.srq = shared.srq();
    return config;
  }

  SharedReceives* shared_;
  Piece taken_{};
};

}  // namespace

Flow::Flow(const Ground& ground, uint32_t number, const std::string& kind)
    : ground_(ground),
      number_(number),
      name_(Text("QP ", number, " (", kind, ")")),
      good_(Clock::now()),
      polled_(Clock::now()) {}

void Flow::ConnectWith(QpConfig config) {
  if (ground_.side.options.peer_may_die) {
    // A peer's queue pairs are destroyed a little before its device goes: it
    // is the link's loss that ends these, not that nobody answers.
    config.timeout = 20;  // 4.3 s
  }
  config.channel = ground_.channel;
  connection_ = Connect(ground_.device, ground_.side, config);
}

void Flow::Arm() const {
  for (const CqPtr* const cq : {&connection_.send_cq, &connection_.recv_cq}) {
    CheckErrno(ibv_req_notify_cq(cq->get(), 0), name_, ": ibv_req_notify_cq");
  }
}

void Flow::Poll(std::vector<const ibv_cq*>* busy) {
  const Clock::time_point now = Clock::now();
  quiet_ += std::min<Clock::duration>(now - polled_, kPollGap);
  polled_ = now;
  for (const bool receives : {false, true}) {
    std::array<ibv_wc, 2 * kOutstanding> done{};
    ibv_cq* const cq =
        (receives ? connection_.recv_cq : connection_.send_cq).get();
    const int count =
        ibv_poll_cq(cq, static_cast<int>(done.size()), done.data());
    if (count < 0 && ground_.side.options.loses_device) {
      refused_ = true;
      return;
    }
    Check(count >= 0, name_, ": ibv_poll_cq failed");
    if (count > 0) {
      busy->push_back(cq);
    }
    for (int i = 0; i < count; ++i) {
      Completed(done.at(static_cast<size_t>(i)), receives);
    }
  }
}

bool Flow::Posted(int error, const char* what) {
  if (error == EIO && ground_.side.options.loses_device) {
    refused_ = true;
    return false;
  }
  CheckErrno(error, name_, ": ", what, " is not posted");
  return true;
}

void Flow::PostNext(ibv_send_wr* wr) {
  wr->wr_id = send_.posted;
  ibv_send_wr* bad = nullptr;
  if (Posted(ibv_post_send(qp(), wr, &bad), "send")) {
    ++send_.posted;
  }
}

int Flow::PostedSend() const {
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  Address(&wr);
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(qp(), &wr, &bad);
  Check(error == 0 || bad == &wr, name_, ": bad_wr is another");
  return error;
}

int Flow::PostedReceive() const {
  ibv_recv_wr wr{};
  ibv_recv_wr* bad = nullptr;
  const int error = shares_receives()
                        ? ibv_post_srq_recv(connection_.config.srq, &wr, &bad)
                        : ibv_post_recv(qp(), &wr, &bad);
  Check(error == 0 || bad == &wr, name_, ": bad_wr is another");
  return error;
}

void Flow::CompareArrivals() const {
  struct Counts {
    uint64_t good;
    uint64_t posted;
  };
  const Counts peer =
      ground_.side.channel.Exchange(Counts{send_.good, send_.posted});
  // Nobody has looked at what came last to a device that has gone.
  const bool all_seen = !ground_.side.options.loses_device;
  Check(
      (receive_.good >= peer.good || !all_seen) && receive_.good <= peer.posted,
      name(), ": the peer's ", peer.good, " of ", peer.posted,
      " messages have succeeded, and ", receive_.good, " have come");
}

void Flow::PostInError() {
  Check(StateOf(qp()) == IBV_QPS_ERR, name_, " is in state ", StateOf(qp()),
        ", not ERR");
  Send();
  Receive();
}

void Flow::TakeReceive(const ibv_wc& wc) {
  const std::string what = What("receive", receive_.completed);
  Check(receive_.completed < receive_.posted, what, " was never posted");
  Check(wc.wr_id == receive_.completed, what, ": ", wc.wr_id, " has completed");
}

void Flow::Completed(const ibv_wc& wc, bool receives) {
  Half* const half = receives ? &receive_ : &send_;
  if (receives) {
    TakeReceive(wc);
  } else {
    const std::string what = What("send", send_.completed);
    Check(send_.completed < send_.posted, what, " was never posted");
    Check(wc.wr_id == send_.completed, what, ": ", wc.wr_id, " has completed");
  }
  ++half->completed;
  if (wc.status != IBV_WC_SUCCESS) {
    Failed(wc, receives);
    quiet_ = {};
    return;
  }
  Check(!half->failed, What(receives ? "receive" : "send", half->completed - 1),
        " is a success behind an error");
  quiet_ = {};
  if (!failed()) {
    good_ = Clock::now();
  }
  receives ? Received(wc) : Sent(wc);
  ++half->good;
  if (!failed() && !refused_) {
    receives ? AfterReceived(wc) : AfterSent(wc);
  }
}

void Flow::Failed(const ibv_wc& wc, bool receives) {
  const std::string what = What(receives ? "receive" : "send",
                                (receives ? receive_ : send_).completed - 1);
  const bool first_send = !receives && !send_.failed;
  if (!failed()) {
    bad_ = Clock::now();
    // What was sent and not answered for so long was under way.
    owes_exhausted_ = quiet_ > kWaits &&
                      send_.posted - send_.completed + (receives ? 0 : 1) > 0;
  }
  Check(MayFail(wc.status), what, " completed with ",
        ibv_wc_status_str(wc.status));
  Check(first_send || wc.status == IBV_WC_WR_FLUSH_ERR, what,
        " completed with ", ibv_wc_status_str(wc.status),
        " and is not the first that fails");
  Check(!first_send || !owes_exhausted_ || wc.status == IBV_WC_RETRY_EXC_ERR,
        what, " was not answered, and completed with ",
        ibv_wc_status_str(wc.status));
  exhausted_ |= wc.status == IBV_WC_RETRY_EXC_ERR;
  (receives ? receive_ : send_).failed = true;
}

std::string Flow::Progress() const {
  return Text(name_, ": of ", send_.posted, " sends ", send_.completed,
              " completed, ", send_.good, " well; of ", receive_.posted,
              " receives ", receive_.completed, ", ", receive_.good, " well",
              exhausted_ ? "; nobody answered" : "",
              refused_ ? "; refused" : "");
}

const uint8_t* Flow::Bytes(bool mine, uint64_t sequence) const {
  const uint64_t from_leader = mine == ground_.side.leads ? 1 : 0;
  return ground_.pattern.Bytes(
      ((sequence * kFlows) + number_) * 2 + from_leader, 0);
}

void Flow::FillMine(const Piece& piece, uint64_t sequence) const {
  std::memcpy(ground_.arena.At(piece.offset), Bytes(true, sequence),
              piece.length);
}

void Flow::CheckBytes(const uint8_t* data, const uint8_t* expected,
                      size_t length, const std::string& what) {
  Check(std::memcmp(data, expected, length) == 0, what,
        ": other bytes than were sent");
  ++verified_;
}

std::string Flow::What(const char* half, uint64_t number) const {
  return Text(half, " ", number, " of ", name_);
}

Flows::Flows(const Ground& ground)
    : shared_(std::make_unique<SharedReceives>(ground)) {
  uint32_t number = 0;
  flows_.push_back(std::make_unique<MessageFlow>(ground, number++, "SEND",
                                                 kLongest, QpConfig{}));
  flows_.push_back(std::make_unique<OneSidedFlow>(ground, number++));
  flows_.push_back(std::make_unique<ImmediateFlow>(ground, number++));
  flows_.push_back(std::make_unique<UnreliableFlow>(ground, number++));
  flows_.push_back(std::make_unique<DatagramFlow>(ground, number++));
  for (int i = 0; i < 2; ++i) {
    flows_.push_back(
        std::make_unique<SharedFlow>(ground, number++, shared_.get()));
  }
}

Flows::~Flows() = default;

void Flows::ExpectNoReceiveLost() { shared_->ExpectNoneLost(); }

size_t Flows::ArenaSize() {
  return 4 * kOutstanding * kLongest + kFlows * 3 * kOutstanding * kLong;
}

size_t LongestMessage() { return kLongest; }

}  // namespace ropcie
