// SPDX-License-Identifier: GPL-2.0
// SEND/RECV between two sides, byte for byte: the user-space twin of the kernel
// test module. Each side sends messages of growing size to the other, which
// compares every byte with what it must be.
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <vector>

#include "failure.h"
#include "pattern.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr size_t kLongest = size_t{1} << 20;
constexpr int kRounds = 10;

// The two directions of one side have patterns of their own.
uint64_t MessageNumber(bool from_leader, uint64_t message) {
  return 2 * message + (from_leader ? 1 : 0);
}

size_t SendAndReceive(Side& side, const Connection& connection, Arena* arena,
                      const Pattern& pattern, uint64_t message, size_t length) {
  arena->Clear();
  const Piece out = arena->Take(length, 0, false);
  const Piece in = arena->Take(length, 0, false);
  std::memcpy(arena->At(out.offset),
              pattern.Bytes(MessageNumber(side.leads, message), 0), length);

  PostRecv(connection.qp.get(), message, {arena->Sge(in)});
  side.channel.Barrier(static_cast<uint32_t>(message));
  PostSend(connection.qp.get(), message, {arena->Sge(out)});
  WaitForSuccess(connection.send_cq.get(), side.options.timeout_s,
                 Text("sending ", length, " bytes"));
  const ibv_wc wc =
      WaitForSuccess(connection.recv_cq.get(), side.options.timeout_s,
                     Text("receiving ", length, " bytes"));

  Check(wc.byte_len == length, "received ", wc.byte_len, " bytes, not ",
        length);
  Check(std::memcmp(arena->At(in.offset),
                    pattern.Bytes(MessageNumber(!side.leads, message), 0),
                    length) == 0,
        "a message of ", length, " bytes arrived with others than were sent");
  arena->CheckGuards(Text("message of ", length, " bytes"));
  return length;
}

void Run(Side& side) {
  const Device device = OpenDevice(side);
  const Pattern pattern(side.options.seed, kLongest);
  Arena arena(device, 3 * kLongest);
  const Connection connection = Connect(device, side, QpConfig());
  const int rounds = side.options.rounds > 0 ? side.options.rounds : kRounds;

  uint64_t message = 0;
  size_t bytes = 0;
  for (int round = 0; round < rounds; ++round) {
    for (size_t length = 1; length <= kLongest; length *= 2) {
      bytes +=
          SendAndReceive(side, connection, &arena, pattern, ++message, length);
    }
  }
  side.channel.Barrier(0);
  std::cout << "sent " << message << " messages, " << bytes
            << " bytes, and received as many: every byte is right\n";
}

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(
      argc, argv, "SEND/RECV between two sides, byte for byte", ropcie::Run);
}
