// SPDX-License-Identifier: GPL-2.0
// Forks under traffic, in each way that programs do: the child only exits, it
// writes to all that it has inherited, it makes objects of its own with the
// parent's device, or it destroys one of the parent's. The parent's traffic
// goes on, and every message is verified. The last child outlives the parent.
// With RDMAV_FORK_SAFE=1 libibverbs does what ibv_fork_init() does.
#include <infiniband/verbs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "failure.h"
#include "pattern.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr uint64_t kOutstanding = 4;
constexpr size_t kMessage = 20000;  // ends in the midst of a page
constexpr int kRounds = 5;
// Messages between two forks, and while a child lives.
constexpr uint64_t kSome = 20;

class Parent {
 public:
  explicit Parent(Side& side)
      : side_(side),
        device_(OpenDevice(side)),
        pattern_(side.options.seed, kMessage),
        arena_(device_, 2 * kOutstanding * (kMessage + 4096) + 4096) {
    for (uint64_t i = 0; i < kOutstanding; ++i) {
      out_.push_back(arena_.Take(kMessage, 0, false));
      in_.push_back(arena_.Take(kMessage, 0, false));
    }
    connection_ = Connect(device_, side, {});
    while (to_receive_ < kOutstanding) {
      Receive();
    }
    side.channel.Barrier(1);
  }

  void Run() {
    const std::array<std::function<void()>, 2> children = {
        [] {}, [this] { MakeObjects(); }};
    const int rounds =
        side_.options.rounds > 0 ? side_.options.rounds : kRounds;
    for (int round = 0; round < rounds; ++round) {
      for (const auto& child : children) {
        Transfer(kSome);
        WithChild(child, 0);
      }
      // ibv_fork_init() may keep what is registered from children.
      WithChild([this] { arena_.Clear(); },
                std::getenv("RDMAV_FORK_SAFE") == nullptr ? 0 : SIGSEGV);
      DestroyInChild();
    }
    Transfer(kSome);
    OutlivedByChild();
    side_.channel.Barrier(2);
    std::cout << received_ << " messages with " << 4 * rounds
              << " forks in between, every byte right\n";
  }

 private:
  [[nodiscard]] const uint8_t* Bytes(bool mine, uint64_t message) const {
    return pattern_.Bytes(2 * message + (mine == side_.leads ? 1 : 0), 0);
  }

  void Receive() {
    PostRecv(connection_.qp.get(), to_receive_,
             {arena_.Sge(in_.at(to_receive_ % kOutstanding))});
    ++to_receive_;
  }

  // A message in each direction, so many times. Some are always under way.
  void Transfer(uint64_t count) {
    const int timeout = side_.options.timeout_s;
    for (const uint64_t end = received_ + count; received_ < end;) {
      while (sent_ < received_ + kOutstanding) {
        const Piece& piece = out_.at(sent_ % kOutstanding);
        std::memcpy(arena_.At(piece.offset), Bytes(true, sent_), kMessage);
        PostSend(connection_.qp.get(), sent_, {arena_.Sge(piece)});
        ++sent_;
      }
      const ibv_wc wc =
          WaitForSuccess(connection_.recv_cq.get(), timeout, "receive");
      Check(wc.wr_id == received_ && wc.byte_len == kMessage, "receive ",
            wc.wr_id, " of ", wc.byte_len, " bytes, not receive ", received_);
      Check(std::memcmp(arena_.At(in_.at(received_ % kOutstanding).offset),
                        Bytes(false, received_), kMessage) == 0,
            "receive ", received_, ": other bytes than were sent");
      Check(WaitForSuccess(connection_.send_cq.get(), timeout, "send").wr_id ==
                received_,
            "sends complete out of order");
      ++received_;
      Receive();
    }
  }

  static pid_t Fork(const std::function<void()>& body) {
    const pid_t child = fork();
    CheckErrno(child < 0 ? errno : 0, "fork");
    if (child == 0) {
      try {
        body();
      } catch (const Failure& failure) {
        std::cerr << "a child: " << failure.what() << "\n";
        _exit(1);
      }
      _exit(0);
    }
    return child;
  }

  // `signal` is what may end the child, or 0.
  void WithChild(const std::function<void()>& body, int signal) {
    const pid_t child = Fork(body);
    Transfer(kSome);
    int status = 0;
    CheckErrno(waitpid(child, &status, 0) < 0 ? errno : 0, "waitpid");
    Check(status == 0 || (signal != 0 && WIFSIGNALED(status) &&
                          WTERMSIG(status) == signal),
          "a child ended with status ", status);
    Transfer(kSome);
    arena_.CheckGuards("a fork");
  }

  // A child's memory is its own, the context is the parent's.
  void MakeObjects() {
    ibv_port_attr port{};
    CheckErrno(ibv_query_port(device_.context.get(), Device::kPort, &port),
               "ibv_query_port");
    const PdPtr pd(ibv_alloc_pd(device_.context.get()));
    CheckErrno(pd == nullptr ? errno : 0, "ibv_alloc_pd");
    std::vector<uint8_t> memory(3 * kMessage);
    const MrPtr mr(ibv_reg_mr_iova2(pd.get(), memory.data(), memory.size(),
                                    reinterpret_cast<uintptr_t>(memory.data()),
                                    IBV_ACCESS_LOCAL_WRITE));
    CheckErrno(mr == nullptr ? errno : 0, "ibv_reg_mr");
    const CqPtr cq = CreateCq(device_, 10);
    QpConfig config;
    const QpPtr qp = CreateQp(device_, cq.get(), cq.get(), &config);
  }

  // What is gone is gone for both.
  void DestroyInChild() {
    MrPtr mr = RegisterMr(device_, arena_.At(0), kMessage);
    WithChild([&mr] { CheckErrno(ibv_dereg_mr(mr.get()), "ibv_dereg_mr"); }, 0);
    const int error = ibv_dereg_mr(mr.release());
    Check(error == ENOENT || error == EINVAL,
          "ibv_dereg_mr of what a child has destroyed returns ", error);
  }

  // It has all of the parent's objects while it lives.
  static void OutlivedByChild() {
    std::array<int, 2> ends{};
    CheckErrno(pipe(ends.data()) < 0 ? errno : 0, "pipe");
    static_cast<void>(Fork([&ends] {
      close(ends.at(1));
      char byte = 0;
      // Until the parent is gone.
      CheckErrno(read(ends.at(0), &byte, 1) < 0 ? errno : 0, "read");
    }));
    close(ends.at(0));
  }

  Side& side_;
  Device device_;
  Pattern pattern_;
  Arena arena_;
  std::vector<Piece> out_;
  std::vector<Piece> in_;
  Connection connection_{};
  uint64_t to_receive_ = 0;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
};

void Run(Side& side) { Parent(side).Run(); }

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(argc, argv, "forks under traffic", ropcie::Run);
}
