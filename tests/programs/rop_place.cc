// SPDX-License-Identifier: GPL-2.0
// RDMA WRITEs and READs whose payload may go straight into the memory that it
// is for: every byte is verified, the last one of a WRITE lands last, and none
// lands after the owner has taken the memory, the right or the queue pair away,
// or was told that its READ has failed, while the other side writes all the
// time. One side asks, the other owns the memory that it names.
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "failure.h"
#include "pattern.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;
constexpr size_t kRegion = 24 * kMiB;
constexpr size_t kStream = 4 * kMiB;  // memory that is written all the time
constexpr size_t kStreamWrite = 64 * kKiB;
constexpr uint32_t kStreamDepth = 8;
constexpr size_t kBatch = 12;
constexpr uint8_t kGuard = 0xa5;
constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

struct Target {
  uint64_t addr;
  uint32_t rkey;
};

// Payload bytes that this device has placed. The kernel tells what it has told
// within the last 10 ms once more.
uint64_t DirectBytes(const Side& side) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::ifstream file("/sys/class/infiniband/" + side.device +
                     "/ports/1/hw_counters/tx_direct_bytes");
  uint64_t bytes = 0;
  Check(static_cast<bool>(file >> bytes), "no counter tx_direct_bytes");
  return bytes;
}

void Post(ibv_qp* qp, ibv_wr_opcode opcode, uint64_t wr_id, ibv_sge sge,
          const Target& to) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma.remote_addr = to.addr;
  wr.wr.rdma.rkey = to.rkey;
  ibv_send_wr* bad = nullptr;
  CheckErrno(ibv_post_send(qp, &wr, &bad), "posting a WRITE or READ");
}

void PostWrite(ibv_qp* qp, uint64_t wr_id, ibv_sge sge, const Target& to) {
  Post(qp, IBV_WR_RDMA_WRITE, wr_id, sge, to);
}

void PostRead(ibv_qp* qp, uint64_t wr_id, ibv_sge sge, const Target& from) {
  Post(qp, IBV_WR_RDMA_READ, wr_id, sge, from);
}

QpConfig Config() {
  QpConfig config;
  config.access = kAccess;
  config.cap.max_send_wr = 64;
  config.rd_atomic = 8;
  return config;
}

// Both sides make the same batches from the seed.
struct Message {
  uint64_t number;
  Piece to;
};

class Verified {
 public:
  explicit Verified(Side& side, const Device& device)
      : side_(side),
        random_(static_cast<uint32_t>(side.options.seed)),
        pattern_(side.options.seed, kMiB + 5000),
        arena_(device, kRegion, kAccess),
        connection_(Connect(device, side, Config())),
        peer_(side.channel.Exchange(Target{
            arena_.mr() != nullptr ? reinterpret_cast<uint64_t>(arena_.At(0))
                                   : 0,
            arena_.mr()->rkey})) {}

  void Run() {
    const uint64_t before = DirectBytes(side_);
    uint64_t bytes = 0;
    const int batches = side_.options.rounds != 0 ? side_.options.rounds : 60;
    for (int i = 0; i < batches; i++) {
      bytes += OneBatch();
    }
    const uint64_t direct = DirectBytes(side_) - before;
    std::cout << bytes << " bytes in " << (side_.leads ? "WRITEs" : "READs")
              << " of all sizes are right, " << direct * 100 / bytes
              << "% were placed\n";
    Check(direct * 10 > bytes * 5, "only ", direct, " bytes of ", bytes,
          " were placed");
    Check(direct <= bytes, "more was placed than there is");
    Small();
  }

 private:
  // A WRITE of a few bytes does not wait for a peer that is not awake either.
  void Small() {
    constexpr uint64_t kCount = 500;
    arena_.Clear();
    std::vector<Message> small;
    for (uint64_t i = 0; i < kCount; i++) {
      small.push_back(
          {.number = number_++,
           .to = arena_.Take(1 + random_() % 64, random_() % 8, false)});
    }
    side_.channel.Barrier(++step_);
    if (side_.leads) {
      const uint64_t before = DirectBytes(side_);
      uint64_t bytes = 0;
      for (const Message& message : small) {
        Send({message});
        bytes += message.to.length;
      }
      const uint64_t direct = DirectBytes(side_) - before;
      std::cout << direct * 100 / bytes << "% of small WRITEs were placed\n";
      Check(direct * 10 > bytes * 9, "only ", direct, " bytes of ", bytes,
            " were placed");
    }
    side_.channel.Barrier(++step_);
    if (!side_.leads) {
      CheckWritten(small);
    }
    side_.channel.Barrier(++step_);
  }

  void CheckWritten(const std::vector<Message>& batch) {
    for (const Message& message : batch) {
      Check(std::memcmp(arena_.At(message.to.offset),
                        pattern_.Bytes(message.number, 0),
                        message.to.length) == 0,
            "message ", message.number, " of ", message.to.length, " bytes at ",
            message.to.offset, " is not what was written");
    }
    arena_.CheckGuards("the memory of WRITEs");
  }

  size_t Length() {
    constexpr std::array<size_t, 8> kNear = {4096,  8192,    16384, 65536,
                                             32768, 1000000, kMiB,  80 * kKiB};
    const size_t near = kNear[random_() % kNear.size()];
    switch (random_() % 4) {
      case 0:
        return near;
      case 1:
        return near + random_() % 17 - 8;
      case 2:
        return 1 + random_() % 9000;
      default:
        return 1 + random_() % kMiB;
    }
  }

  uint64_t OneBatch() {
    std::vector<Message> batch;
    uint64_t bytes = 0;
    arena_.Clear();
    for (size_t i = 0; i < kBatch; i++) {
      const size_t length = Length();
      const size_t misaligned = random_() % 2 != 0 ? random_() % 64 : 0;
      const bool crossing = random_() % 4 == 0;
      const Piece to = arena_.Take(length, misaligned, crossing);
      batch.push_back({.number = number_++, .to = to});
      bytes += length;
    }
    side_.channel.Barrier(++step_);  // the peer's memory is clean, too
    if (side_.leads) {
      Send(batch);
    }
    side_.channel.Barrier(++step_);
    if (!side_.leads) {
      CheckWritten(batch);
    }
    side_.channel.Barrier(++step_);
    if (side_.leads) {
      FetchBack(batch);
    }
    side_.channel.Barrier(++step_);
    return bytes;
  }

  // What was written, into where it came from.
  void FetchBack(const std::vector<Message>& batch) {
    for (const Message& message : batch) {
      std::fill_n(arena_.At(message.to.offset), message.to.length, kGuard);
    }
    for (const Message& message : batch) {
      PostRead(connection_.qp.get(), message.number, arena_.Sge(message.to),
               {peer_.addr + message.to.offset, peer_.rkey});
    }
    for (const ibv_wc& wc :
         WaitFor(connection_.send_cq.get(), batch.size(),
                 side_.options.timeout_s, "READs of a batch")) {
      CheckSuccess(wc, "a READ");
    }
    for (const Message& message : batch) {
      Check(std::memcmp(arena_.At(message.to.offset),
                        pattern_.Bytes(message.number, 0),
                        message.to.length) == 0,
            "message ", message.number, " of ", message.to.length, " bytes at ",
            message.to.offset, " is not what was read");
    }
    arena_.CheckGuards("the memory of READs");
  }

  // From the same place of the own arena, which is as large.
  void Send(const std::vector<Message>& batch) {
    for (const Message& message : batch) {
      std::copy_n(pattern_.Bytes(message.number, 0), message.to.length,
                  arena_.At(message.to.offset));
      PostWrite(connection_.qp.get(), message.number, arena_.Sge(message.to),
                {peer_.addr + message.to.offset, peer_.rkey});
    }
    for (const ibv_wc& wc :
         WaitFor(connection_.send_cq.get(), batch.size(),
                 side_.options.timeout_s, "WRITEs of a batch")) {
      CheckSuccess(wc, "a WRITE");
    }
  }

  Side& side_;
  std::mt19937 random_;
  Pattern pattern_;
  Arena arena_;
  Connection connection_;
  Target peer_;
  uint64_t number_ = 1;
  uint32_t step_ = 0;
};

// What the owner may take away.
struct Owned {
  const Device& device;
  ibv_pd* pd;
  uint8_t* memory;
  uint8_t* other;
  MrPtr mr;
  Connection connection;
};

struct Way {
  const char* name;
  std::vector<ibv_wc_status> expected;  // of the first WRITE that fails
  std::function<void(Owned*)> take_away;
};

void ModifyState(Owned* owned, ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  CheckErrno(ibv_modify_qp(owned->connection.qp.get(), &attr, IBV_QP_STATE),
             "ibv_modify_qp");
}

const std::vector<Way>& Ways() {
  static const std::vector<Way> ways = {
      {"deregister",
       {IBV_WC_REM_ACCESS_ERR},
       [](Owned* owned) { owned->mr.reset(); }},
      {"reregister",
       {IBV_WC_REM_ACCESS_ERR},
       [](Owned* owned) {
         CheckErrno(
             ibv_rereg_mr(owned->mr.get(), IBV_REREG_MR_CHANGE_TRANSLATION,
                          owned->pd, owned->other, kStream, 0),
             "ibv_rereg_mr");
       }},
      {"withdraw",
       {IBV_WC_REM_INV_REQ_ERR},
       [](Owned* owned) {
         ibv_qp_attr attr{};
         attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE;
         CheckErrno(ibv_modify_qp(owned->connection.qp.get(), &attr,
                                  IBV_QP_ACCESS_FLAGS),
                    "taking REMOTE_WRITE away");
       }},
      {"error",
       {IBV_WC_RETRY_EXC_ERR},
       [](Owned* owned) { ModifyState(owned, IBV_QPS_ERR); }},
      {"reset",
       {IBV_WC_RETRY_EXC_ERR},
       [](Owned* owned) { ModifyState(owned, IBV_QPS_RESET); }},
      {"destroy",
       {IBV_WC_RETRY_EXC_ERR},
       [](Owned* owned) { owned->connection.qp.reset(); }},
  };
  return ways;
}

// WRITEs from one end of the peer's memory to the other until one fails.
void WriteUntilItFails(Side& side, Connection* connection, const Arena& arena,
                       const Piece& from, const Target& to, const Way& way) {
  const ibv_sge sge = arena.Sge(from);
  uint64_t sent = 0;
  const auto post = [&] {
    const uint64_t at = sent++ * kStreamWrite % kStream;
    PostWrite(connection->qp.get(), sent, sge, {to.addr + at, to.rkey});
  };
  for (uint32_t i = 0; i < kStreamDepth; i++) {
    post();
  }
  for (;;) {
    const ibv_wc wc = WaitFor(connection->send_cq.get(), 1,
                              side.options.timeout_s, way.name)[0];
    if (wc.status != IBV_WC_SUCCESS) {
      Check(
          std::count(way.expected.begin(), way.expected.end(), wc.status) == 1,
          way.name, ": a WRITE fails with ", ibv_wc_status_str(wc.status));
      return;
    }
    post();
  }
}

bool AnyWritten(const uint8_t* memory) {
  const volatile uint8_t* at = memory + kStream - 1;
  return *at != kGuard;
}

void CheckUntouched(const uint8_t* memory, const char* when) {
  const uint8_t* end = memory + kStream;
  const uint8_t* at =
      std::find_if(memory, end, [](uint8_t byte) { return byte != kGuard; });
  Check(at == end, when, ": byte ", at - memory,
        " was written after it was taken away");
}

void OneWay(Side& side, const Device& device, const Way& way) {
  Arena arena(device, 2 * kStream);
  const Piece source = arena.Take(kStreamWrite, 0, false);
  std::memset(arena.At(source.offset), 0x11, kStreamWrite);
  auto memory = std::make_unique<uint8_t[]>(kStream);
  auto other = std::make_unique<uint8_t[]>(kStream);
  std::memset(memory.get(), kGuard, kStream);
  std::memset(other.get(), kGuard, kStream);
  Owned owned{.device = device,
              .pd = device.pd.get(),
              .memory = memory.get(),
              .other = other.get(),
              .mr = RegisterMr(device, memory.get(), kStream, kAccess),
              .connection = Connect(device, side, Config())};
  const Target peer = side.channel.Exchange(
      Target{reinterpret_cast<uint64_t>(memory.get()), owned.mr->rkey});
  const uint64_t before = DirectBytes(side);
  if (side.leads) {
    WriteUntilItFails(side, &owned.connection, arena, source, peer, way);
    Check(DirectBytes(side) != before, way.name, ": nothing was placed");
  } else {
    // All of it twice: then the peer has been given the memory.
    for (int lap = 0; lap < 3; lap++) {
      while (!AnyWritten(memory.get())) {
        std::this_thread::yield();
      }
      std::memset(memory.get(), kGuard, kStream);
    }
    way.take_away(&owned);
    std::memset(memory.get(), kGuard, kStream);
  }
  side.channel.Barrier(100);
  if (!side.leads) {
    CheckUntouched(memory.get(), way.name);
  }
  side.channel.Barrier(101);
}

// READs until one fails; when all of them have, their memory is the program's
// again. Either end makes them fail.
void FailReads(Side& side, const Device& device, bool locally) {
  auto memory = std::make_unique<uint8_t[]>(kStream);
  std::memset(memory.get(), 0x22, kStream);
  Owned owned{.device = device,
              .pd = device.pd.get(),
              .memory = memory.get(),
              .other = nullptr,
              .mr = RegisterMr(device, memory.get(), kStream, kAccess),
              .connection = Connect(device, side, Config())};
  const Target peer = side.channel.Exchange(
      Target{reinterpret_cast<uint64_t>(memory.get()), owned.mr->rkey});
  const uint64_t before = DirectBytes(side);
  if (!side.leads) {
    side.channel.Barrier(200);
    if (!locally) {
      owned.mr.reset();
    }
    side.channel.Barrier(201);
    side.channel.Barrier(202);
    Check(DirectBytes(side) != before, "no answer was placed");
    return;
  }
  uint32_t sent = 0;
  uint32_t ended = 0;
  const auto post = [&] {
    const uint64_t at = sent++ * kStreamWrite % kStream;
    const ibv_sge sge = {.addr = reinterpret_cast<uint64_t>(memory.get()) + at,
                         .length = kStreamWrite,
                         .lkey = owned.mr->lkey};
    PostRead(owned.connection.qp.get(), sent, sge, {peer.addr + at, peer.rkey});
  };
  const auto one_ends = [&] {
    const ibv_wc wc = WaitFor(owned.connection.send_cq.get(), 1,
                              side.options.timeout_s, "a READ")[0];
    Check(wc.wr_id == ++ended, "READ ", wc.wr_id, " completes out of order");
    return wc.status;
  };
  while (sent < kStreamDepth) {
    post();
  }
  while (ended < 3 * kStream / kStreamWrite) {
    Check(one_ends() == IBV_WC_SUCCESS, "a READ fails");
    post();
  }
  side.channel.Barrier(200);
  if (locally) {
    ModifyState(&owned, IBV_QPS_ERR);
  }
  ibv_wc_status status = one_ends();
  for (; status == IBV_WC_SUCCESS; status = one_ends()) {
    post();
  }
  Check(status == (locally ? IBV_WC_WR_FLUSH_ERR : IBV_WC_REM_ACCESS_ERR),
        "the first READ that fails does with ", ibv_wc_status_str(status));
  while (ended < sent) {
    status = one_ends();
    Check(status == IBV_WC_WR_FLUSH_ERR, "a READ behind it ends with ",
          ibv_wc_status_str(status));
  }
  std::memset(memory.get(), kGuard, kStream);
  side.channel.Barrier(201);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CheckUntouched(memory.get(), "READs that fail");
  side.channel.Barrier(202);
}

// Two READs into one place, the first of them too small to be placed: what is
// there in the end is what the second one brought.
void AnswersInOrder(Side& side, const Device& device) {
  constexpr int kRounds = 500;
  constexpr uint32_t kSmall = 2048;
  auto memory = std::make_unique<uint8_t[]>(2 * kStreamWrite);
  std::memset(memory.get(), 0x33, kStreamWrite);
  std::memset(memory.get() + kStreamWrite, 0x44, kStreamWrite);
  const MrPtr mr = RegisterMr(device, memory.get(), 2 * kStreamWrite, kAccess);
  const Connection connection = Connect(device, side, Config());
  const Target peer = side.channel.Exchange(
      Target{reinterpret_cast<uint64_t>(memory.get()), mr->rkey});
  const uint64_t before = DirectBytes(side);
  ibv_sge sge = {.addr = reinterpret_cast<uint64_t>(memory.get()),
                 .length = kSmall,
                 .lkey = mr->lkey};
  for (int i = 0; side.leads && i < kRounds; i++) {
    std::memset(memory.get(), kGuard, kStreamWrite);
    sge.length = kSmall;
    PostRead(connection.qp.get(), i, sge, peer);
    sge.length = kStreamWrite;
    PostRead(connection.qp.get(), i, sge,
             {peer.addr + kStreamWrite, peer.rkey});
    for (const ibv_wc& wc : WaitFor(connection.send_cq.get(), 2,
                                    side.options.timeout_s, "two READs")) {
      CheckSuccess(wc, "a READ");
    }
    const uint8_t* end = memory.get() + kStreamWrite;
    const uint8_t* at = std::find_if(end - kStreamWrite, end,
                                     [](uint8_t byte) { return byte != 0x44; });
    Check(at == end, "round ", i, ": byte ", at - memory.get(),
          " is not of the READ that was posted last");
  }
  side.channel.Barrier(300);
  if (!side.leads) {
    Check(DirectBytes(side) != before, "no answer was placed");
  }
}

// What a large WRITE finds no grants for it asks for on its way: a few later
// none has to be asked for any more.
void LargeFromTheStart(Side& side, const Device& device) {
  constexpr size_t kLength = 16 * kMiB;
  constexpr int kFirst = 5;
  auto memory = std::make_unique<uint8_t[]>(kLength);
  std::memset(memory.get(), 0x55, kLength);
  const MrPtr mr = RegisterMr(device, memory.get(), kLength, kAccess);
  const Connection connection = Connect(device, side, Config());
  const Target peer = side.channel.Exchange(
      Target{reinterpret_cast<uint64_t>(memory.get()), mr->rkey});
  const ibv_sge sge = {.addr = reinterpret_cast<uint64_t>(memory.get()),
                       .length = kLength,
                       .lkey = mr->lkey};
  uint64_t before = 0;
  for (int i = 0; side.leads && i <= kFirst; i++) {
    if (i == kFirst) {
      before = DirectBytes(side);
    }
    PostWrite(connection.qp.get(), i, sge, peer);
    WaitForSuccess(connection.send_cq.get(), side.options.timeout_s,
                   "a large WRITE");
  }
  side.channel.Barrier(400);
  const uint64_t direct = side.leads ? DirectBytes(side) - before : kLength;
  Check(direct * 4 > kLength * 3, "after ", kFirst, " WRITEs of ", kLength,
        " bytes only ", direct, " of the next were placed");
}

// The end of a message is there: so is all of it.
void LastWordLast(Side& side, const Device& device) {
  constexpr size_t kLength = 64 * kKiB - 24;
  constexpr int kMessages = 300;
  Arena arena(device, 4 * kLength, kAccess);
  const Piece piece = arena.Take(kLength, 8, false);
  uint8_t* const bytes = arena.At(piece.offset);
  std::memset(bytes, 0, kLength);
  const Connection connection = Connect(device, side, Config());
  const Target peer = side.channel.Exchange(
      Target{reinterpret_cast<uint64_t>(bytes), arena.mr()->rkey});
  for (int i = 1; i <= kMessages; i++) {
    const auto value = static_cast<uint8_t>(i % 251 + 1);
    if (side.leads) {
      std::memset(bytes, value, kLength);
      PostWrite(connection.qp.get(), i, arena.Sge(piece), peer);
      WaitForSuccess(connection.send_cq.get(), side.options.timeout_s,
                     "a WRITE that is polled");
    } else {
      const volatile uint8_t* last = bytes + kLength - 1;
      while (*last != value) {
      }
      std::atomic_thread_fence(std::memory_order_acquire);
      Check(std::all_of(bytes, bytes + kLength,
                        [&](uint8_t byte) { return byte == value; }),
            "message ", i, " has its end, but not all of it");
    }
    side.channel.Barrier(1000 + i);
  }
}

void Run(Side& side) {
  const Device device = OpenDevice(side);
  Verified(side, device).Run();
  AnswersInOrder(side, device);
  if (side.leads) {
    std::cout << "answers land in the order of their READs\n";
  }
  LargeFromTheStart(side, device);
  LastWordLast(side, device);
  if (side.leads) {
    std::cout << "the end of a message lands last\n";
  }
  for (const Way& way : Ways()) {
    for (int round = 0; round < (side.options.quick ? 1 : 3); round++) {
      OneWay(side, device, way);
    }
    if (side.leads) {
      std::cout << way.name << ": nothing was written afterwards\n";
    }
  }
  for (int round = 0; round < (side.options.quick ? 1 : 5); round++) {
    FailReads(side, device, true);
    FailReads(side, device, false);
  }
  if (side.leads) {
    std::cout << "READs that fail: nothing was written afterwards\n";
  }
}

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(argc, argv, "direct placement, verified",
                            ropcie::Run);
}
