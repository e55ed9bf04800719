// SPDX-License-Identifier: GPL-2.0
// Memory that the kernel gives a process, or writes of it: fresh queues and
// device memory are zero, a receive is written as far as its message goes and
// no further, all of a GRH's 40 bytes are, and nothing comes back that was not
// asked for, as what netlink tells of objects. First of all, that it would be
// seen (leak_proof.h). All that comes back is searched (fuzz_hook.h).
// --quick: only messages.
#include <infiniband/verbs.h>
#include <rdma/rdma_netlink.h>
#include <ropcie-abi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "failure.h"
#include "fuzz_hook.h"
#include "leak_proof.h"
#include "mappings.h"
#include "nldev.h"
#include "options.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr size_t kGrh = 40;
constexpr uint32_t kQkey = 0x11;
constexpr uint8_t kUntouched = 0x11;
constexpr uint8_t kBehind = 0x22;  // the message, at the sender
constexpr uint8_t kData = 0x80;    // and more: of the message
constexpr size_t kRoom = 8192;

using DmPtr = std::unique_ptr<ibv_dm, Destroyer<ibv_free_dm>>;

bool All(const uint8_t* begin, size_t length, uint8_t byte) {
  return std::all_of(begin, begin + length,
                     [byte](uint8_t one) { return one == byte; });
}

void DeviceMemory(const Device& device) {
  for (const size_t length : {4, 100, 4096, 10000}) {
    for (int turn = 0; turn < 2; ++turn) {  // what was used is used again
      ibv_alloc_dm_attr attr{
          .length = length, .log_align_req = 0, .comp_mask = 0};
      const DmPtr dm(ibv_alloc_dm(device.context.get(), &attr));
      CheckErrno(dm == nullptr ? errno : 0, "ibv_alloc_dm of ", length);
      Check((dm->comp_mask & IBV_DM_MASK_HANDLE) != 0,
            "no handle of an ibv_dm");
      std::vector<uint8_t> bytes(length, kUntouched);
      CheckErrno(ibv_memcpy_from_dm(bytes.data(), dm.get(), 0, length),
                 "ibv_memcpy_from_dm");
      Check(All(bytes.data(), length, 0), "new device memory of ", length,
            " bytes is not zero");
      std::fill(bytes.begin(), bytes.end(), kData);
      CheckErrno(ibv_memcpy_to_dm(dm.get(), 0, bytes.data(), length),
                 "ibv_memcpy_to_dm");
    }
  }
}

// So many queues, which are not used yet: at their beginning are the words of
// two rings at most.
void CheckUnused(size_t expected, const std::string& when) {
  constexpr size_t kRings = 2 * sizeof(ropcie_abi_ring);
  const std::vector<Mapping> found = Mappings();
  Check(found.size() == expected, when, ": ", found.size(), " mappings, not ",
        expected);
  for (const Mapping& queue : found) {
    Check(All(queue.begin + kRings, queue.length - kRings, 0), when,
          ": what was mapped is not zero");
  }
}

void CheckUsed() {
  const std::vector<Mapping> found = Mappings();
  Check(!found.empty(), "no queue is mapped");
  for (const Mapping& queue : found) {
    CheckMapping(queue.begin, queue.length);
  }
}

void Queues(const Device& device) {
  CheckUnused(0, "without queues");
  for (const int entries : {1, 1000}) {
    const CqPtr cq = CreateCq(device, entries);
    CheckUnused(1, "with a CQ");
    QpConfig config;
    config.cap.max_send_wr = config.cap.max_recv_wr =
        static_cast<uint32_t>(entries);
    config.cap.max_send_sge = config.cap.max_recv_sge = 3;
    const QpPtr qp = CreateQp(device, cq.get(), cq.get(), &config);
    CheckUnused(2, "with a QP");
    ibv_srq_init_attr init{};
    init.attr = {static_cast<uint32_t>(entries), 2, 0};
    const SrqPtr srq(ibv_create_srq(device.pd.get(), &init));
    CheckErrno(srq == nullptr ? errno : 0, "ibv_create_srq");
    CheckUnused(3, "with an SRQ");
    CheckErrno(ibv_resize_cq(cq.get(), 2 * entries), "ibv_resize_cq");
    ibv_srq_attr attr{static_cast<uint32_t>(2 * entries), 0, 0};
    CheckErrno(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_MAX_WR),
               "ibv_modify_srq");
    CheckUnused(3, "resized");
  }
}

// Everything that `rdma resource show` asks, while there is one of each.
void Netlink(const Device& device) {
  const CqPtr cq = CreateCq(device, 10);
  QpConfig config;
  const QpPtr qp = CreateQp(device, cq.get(), cq.get(), &config);
  ToInit(qp.get(), config);
  ibv_srq_init_attr init{};
  init.attr = {10, 1, 0};
  const SrqPtr srq(ibv_create_srq(device.pd.get(), &init));
  CheckErrno(srq == nullptr ? errno : 0, "ibv_create_srq");
  std::vector<uint8_t> memory(100);
  const MrPtr mr = RegisterMr(device, memory.data(), memory.size());
  const int fd = OpenNldev();
  CheckErrno(fd < 0 ? errno : 0, "no netlink socket");
  std::array<size_t, RDMA_NLDEV_NUM_OPS> answers{};
  constexpr uint32_t kDevices = 4;  // the first numbers
  for (uint32_t number = 0; number < kDevices; ++number) {
    for (const uint16_t question : kNldevQuestions) {
      answers[question] += AskNldev(fd, question, true, number) +
                           AskNldev(fd, question, false, number);
    }
  }
  close(fd);
  for (const uint16_t question :
       {RDMA_NLDEV_CMD_GET, RDMA_NLDEV_CMD_PORT_GET, RDMA_NLDEV_CMD_RES_GET,
        RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_CMD_RES_CQ_GET,
        RDMA_NLDEV_CMD_RES_MR_GET, RDMA_NLDEV_CMD_RES_PD_GET,
        RDMA_NLDEV_CMD_RES_CTX_GET, RDMA_NLDEV_CMD_RES_SRQ_GET,
        RDMA_NLDEV_CMD_STAT_GET}) {
    Check(answers[question] != 0, "netlink: no answer to ", question);
  }
}

// Memory to send from and to receive in.
class Memory {
 public:
  explicit Memory(const Device& device)
      : bytes_(2 * kRoom), mr_(RegisterMr(device, bytes_.data(), 2 * kRoom)) {}

  ibv_sge Message(size_t length) {
    std::fill_n(bytes_.begin(), kRoom, kBehind);
    for (size_t i = 0; i < length; ++i) {
      bytes_[i] = static_cast<uint8_t>(kData + i % 11);
    }
    return {reinterpret_cast<uintptr_t>(bytes_.data()),
            static_cast<uint32_t>(length), mr_->lkey};
  }
  ibv_sge Room() {
    std::fill_n(received(), kRoom, kUntouched);
    return {reinterpret_cast<uintptr_t>(received()), kRoom, mr_->lkey};
  }

  // A message of so many bytes behind a header, and nothing else.
  void Check(size_t header, size_t length) {
    for (size_t i = 0; i < length; ++i) {
      ropcie::Check(received()[header + i] == kData + i % 11, "a message of ",
                    length, ": byte ", i, " is ", int{received()[header + i]});
    }
    const size_t end = header + length;
    ropcie::Check(All(received() + end, kRoom - end, kUntouched),
                  "a message of ", length,
                  " bytes: memory behind it was written");
  }

  uint8_t* received() { return bytes_.data() + kRoom; }

 private:
  std::vector<uint8_t> bytes_;
  MrPtr mr_;
};

// What the header says is the kernel's tests' (tests/core/datagram_test.cc):
// there is nothing else in it.
void CheckGrh(const uint8_t* grh, const ibv_gid& from, const ibv_gid& to) {
  constexpr size_t kV4 = 20;
  constexpr size_t kHostBits = 12;  // of a GID that stands for an IPv4 address
  if (grh[0] >> 4 == 6) {
    Check(std::memcmp(grh + 8, from.raw, sizeof(from)) == 0 &&
              std::memcmp(grh + 24, to.raw, sizeof(to)) == 0,
          "GRH: other addresses");
    return;
  }
  Check(All(grh, kV4, 0), "GRH: something before the IPv4 header");
  Check(grh[kV4] == 0x45 && All(grh + kV4 + 4, 2, 0),
        "GRH: that is no IPv4 header");
  Check(std::memcmp(grh + 32, from.raw + kHostBits, 4) == 0 &&
            std::memcmp(grh + 36, to.raw + kHostBits, 4) == 0,
        "GRH: other IPv4 addresses");
}

std::vector<size_t> Lengths() {
  std::vector<size_t> lengths;
  for (size_t length = 1; length < 70; ++length) {
    lengths.push_back(length);
  }
  for (const size_t length : {127, 256, 257, 511, 899}) {
    lengths.push_back(length);
  }
  return lengths;
}

// Both sides send, one after the other.
template <typename Send, typename Receive>
void Messages(Side& side, const Send& send, const Receive& receive) {
  uint32_t step = 0;
  for (const size_t length : Lengths()) {
    for (const bool leader : {true, false}) {
      if (side.leads != leader) {
        receive(length, [&] { side.channel.Barrier(++step); });
      } else {
        side.channel.Barrier(++step);
        send(length);
      }
    }
  }
  side.channel.Barrier(++step);
  CheckUsed();
}

void Connected(Side& side, const Device& device, ibv_qp_type type) {
  QpConfig config;
  config.type = type;
  const Connection connection = Connect(device, side, config);
  Memory memory(device);
  const int timeout_s = side.options.timeout_s;
  Messages(
      side,
      [&](size_t length) {
        PostSend(connection.qp.get(), length, {memory.Message(length)});
        WaitForSuccess(connection.send_cq.get(), timeout_s, "a send");
      },
      [&](size_t length, const auto& ready) {
        PostRecv(connection.qp.get(), length, {memory.Room()});
        ready();
        const ibv_wc wc =
            WaitForSuccess(connection.recv_cq.get(), timeout_s, "a receive");
        Check(wc.byte_len == length, "a receive of ", wc.byte_len);
        memory.Check(0, length);
      });
}

void Datagrams(Side& side, const Device& device) {
  const CqPtr send_cq = CreateCq(device, 10);
  const CqPtr recv_cq = CreateCq(device, 10);
  QpConfig config;
  config.type = IBV_QPT_UD;
  const QpPtr qp = CreateQp(device, send_cq.get(), recv_cq.get(), &config);
  ToRtsUd(qp.get(), kQkey);
  const QpAddress peer = side.channel.Exchange(AddressOf(device, qp.get()));
  const AhPtr ah = CreateAh(device, peer.gid);
  Memory memory(device);
  const int timeout_s = side.options.timeout_s;
  Messages(
      side,
      [&](size_t length) {
        ibv_sge sge = memory.Message(length);
        ibv_send_wr wr{};
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.ud = {ah.get(), peer.qpn, kQkey};
        ibv_send_wr* bad = nullptr;
        CheckErrno(ibv_post_send(qp.get(), &wr, &bad), "ibv_post_send");
        WaitForSuccess(send_cq.get(), timeout_s, "a datagram");
      },
      [&](size_t length, const auto& ready) {
        PostRecv(qp.get(), length, {memory.Room()});
        ready();
        const ibv_wc wc =
            WaitForSuccess(recv_cq.get(), timeout_s, "a datagram's receive");
        Check(wc.byte_len == kGrh + length, "a datagram of ", wc.byte_len);
        CheckGrh(memory.received(), peer.gid, device.gid);
        memory.Check(kGrh, length);
      });
}

void Run(Side& side) {
  const Device device = OpenDevice(side);
  if (!side.options.quick) {
    DeviceMemory(device);
    Queues(device);
    Netlink(device);
  }
  Connected(side, device, IBV_QPT_RC);
  Connected(side, device, IBV_QPT_UC);
  Datagrams(side, device);
}

}  // namespace
}  // namespace ropcie

constexpr const char* kDescription = "what the kernel gives is clean";

int main(int argc, char** argv) {
  const bool quick = ropcie::ParseOptions(argc, argv, kDescription).quick;
  try {
    if (!quick) {
      ropcie::ProveThatLeaksAreFound();
    }
  } catch (const std::exception& error) {
    std::cerr << "FAILED: " << error.what() << "\n";
    return 1;
  }
  return ropcie::RunProgram(argc, argv, kDescription, ropcie::Run);
}
