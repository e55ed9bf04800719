// SPDX-License-Identifier: GPL-2.0
// Memory regions of another device's memory (dma-buf): each side takes a buffer
// from the vgem driver, and the other writes to it, reads from it and gives it
// work requests, byte for byte, also when the region is all that is left of it.
#include <drm.h>
#include <fcntl.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <string>

#include "failure.h"
#include "pattern.h"
#include "side.h"
#include "verbs_util.h"
#include "vgem.h"

namespace ropcie {
namespace {

constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr uint32_t kSide = 1024;  // pixels of 4 bytes
constexpr size_t kLength = size_t{1} << 20;
// The region begins within a page, and not at the buffer's first.
constexpr uint64_t kOffset = 3 * 4096 + 100;
constexpr uint64_t kIova = 0x40000000 + 100;
constexpr uint8_t kGuard = 0xa5;

void ExpectRefused(const Device& device, const std::string& what, int error,
                   uint64_t offset, size_t length, int fd, int access) {
  const MrPtr mr(
      ibv_reg_dmabuf_mr(device.pd.get(), offset, length, offset, fd, access));
  Check(mr == nullptr, what, " is registered");
  Check(errno == error, what, ": ", std::strerror(errno), ", not ",
        std::strerror(error));
}

void CheckWrongs(const Device& device, const VgemBuffer& buffer) {
  const File file(buffer.Export(DRM_CLOEXEC | DRM_RDWR));
  const uint64_t size = buffer.size();
  ExpectRefused(device, "no byte", EINVAL, 0, 0, file.get(), 0);
  ExpectRefused(device, "a byte too much", EINVAL, 0, size + 1, file.get(), 0);
  ExpectRefused(device, "the byte behind", EINVAL, size, 1, file.get(), 0);
  ExpectRefused(device, "a length that wraps", EINVAL, 4096, SIZE_MAX - 4095,
                file.get(), 0);
  ExpectRefused(device, "a file that is none", EBADF, 0, 4096, -1, 0);
  ExpectRefused(device, "another file", EINVAL, 0, 4096, device.context->cmd_fd,
                0);
}

// A file is for writing or not for as long as the buffer has one.
void CheckReadOnly(const Device& device) {
  const VgemBuffer buffer(kSide);
  const File constant(buffer.Export(DRM_CLOEXEC));
  ExpectRefused(device, "writing to what is for reading", EACCES, 0, 4096,
                constant.get(), IBV_ACCESS_LOCAL_WRITE);
  const MrPtr mr(ibv_reg_dmabuf_mr(device.pd.get(), 0, buffer.size(), 0,
                                   constant.get(), 0));
  Check(mr != nullptr, "all of it for reading: ", std::strerror(errno));
}

// How the peer reaches the region.
struct Target {
  uint64_t addr;
  uint32_t rkey;
};

struct Test {
  Side& side;
  Connection connection;
  Target peer;

  // What it transfers is at `local`, registered with `lkey`.
  void Transfer(ibv_wr_opcode opcode, uint64_t local, uint32_t lkey) const {
    ibv_sge sge = {local, kLength, lkey};
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = peer.addr;
    wr.wr.rdma.rkey = peer.rkey;
    ibv_send_wr* bad = nullptr;
    CheckErrno(ibv_post_send(connection.qp.get(), &wr, &bad), "posting");
    WaitForSuccess(connection.send_cq.get(), side.options.timeout_s,
                   Text("operation ", int{opcode}));
  }
};

void CheckBytes(const VgemBuffer& buffer, const uint8_t* expected,
                const std::string& what) {
  const uint8_t* const begin = buffer.memory();
  const auto guard = [](uint8_t byte) { return byte == kGuard; };
  Check(std::memcmp(begin + kOffset, expected, kLength) == 0, what,
        ": other bytes than were sent");
  Check(
      std::all_of(begin, begin + kOffset, guard) &&
          std::all_of(begin + kOffset + kLength, begin + buffer.size(), guard),
      what, ": bytes outside of the region have changed");
}

void Run(Side& side) {
  const Device device = OpenDevice(side);
  const Pattern pattern(side.options.seed, kLength);
  Arena arena(device, 2 * kLength);
  const Piece own = arena.Take(kLength, 0, false);
  const uint8_t* const mine = pattern.Bytes(side.leads ? 1 : 2, 0);
  const uint8_t* const others = pattern.Bytes(side.leads ? 2 : 1, 0);
  std::copy_n(mine, kLength, arena.At(own.offset));

  VgemBuffer buffer(kSide);
  std::fill_n(buffer.memory(), buffer.size(), kGuard);
  CheckWrongs(device, buffer);
  CheckReadOnly(device);
  File file(buffer.Export(DRM_CLOEXEC | DRM_RDWR));
  const MrPtr mr(ibv_reg_dmabuf_mr(device.pd.get(), kOffset, kLength, kIova,
                                   file.get(), kAccess));
  Check(mr != nullptr, "ibv_reg_dmabuf_mr: ", std::strerror(errno));

  QpConfig config;
  config.access = kAccess;
  config.rd_atomic = 1;
  Test test{side, Connect(device, side, config),
            side.channel.Exchange(Target{kIova, mr->rkey})};
  const ibv_sge sge = arena.Sge(own);
  uint32_t step = 0;

  test.Transfer(IBV_WR_RDMA_WRITE, sge.addr, sge.lkey);
  side.channel.Barrier(++step);
  CheckBytes(buffer, others, "RDMA WRITE to the buffer");

  std::fill_n(arena.At(own.offset), kLength, uint8_t{0});
  test.Transfer(IBV_WR_RDMA_READ, sge.addr, sge.lkey);
  Check(std::memcmp(arena.At(own.offset), mine, kLength) == 0,
        "RDMA READ from the buffer: other bytes than were written");
  side.channel.Barrier(++step);

  // A message from the buffer, as long as the region, to ordinary memory.
  std::copy_n(mine, kLength, buffer.memory() + kOffset);
  PostRecv(test.connection.qp.get(), 1, {sge});
  side.channel.Barrier(++step);
  PostSend(test.connection.qp.get(), 2, {{kIova, kLength, mr->lkey}});
  WaitForSuccess(test.connection.send_cq.get(), side.options.timeout_s,
                 "sending the buffer");
  WaitForSuccess(test.connection.recv_cq.get(), side.options.timeout_s,
                 "receiving the buffer");
  Check(std::memcmp(arena.At(own.offset), others, kLength) == 0,
        "SEND from the buffer: other bytes than were sent");
  side.channel.Barrier(++step);

  file.Close();
  buffer.Forget();
  side.channel.Barrier(++step);
  std::fill_n(arena.At(own.offset), kLength, uint8_t{0});
  test.Transfer(IBV_WR_RDMA_READ, sge.addr, sge.lkey);
  Check(std::memcmp(arena.At(own.offset), others, kLength) == 0,
        "RDMA READ from a buffer that was closed: other bytes");
  side.channel.Barrier(++step);
  std::cout << "a dma-buf of " << kLength
            << " bytes was written, read and sent: every byte is right\n";
}

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(
      argc, argv, "memory regions of dma-bufs between two sides", ropcie::Run);
}
