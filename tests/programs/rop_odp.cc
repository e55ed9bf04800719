// SPDX-License-Identifier: GPL-2.0
// On-demand paging: memory regions that are brought in when they are used,
// given up when the process wants it, and follow what it maps. The same
// operations go to memory that was never touched, that has gone meanwhile, that
// has moved, that comes and goes all the while, and that is none.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "failure.h"
#include "pattern.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr unsigned int kRemote =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr int kOnDemand = IBV_ACCESS_ON_DEMAND;
constexpr int kAll = static_cast<int>(kRemote | IBV_ACCESS_LOCAL_WRITE);
constexpr size_t kPage = 4096;
constexpr size_t kLength = 1024 * kPage;

// Memory of a file that only this process knows: what is mapped can be dropped
// and is there again when it is touched.
class Memory {
 public:
  explicit Memory(size_t length = kLength)
      : length_(length), file_(memfd_create("rop_odp", MFD_CLOEXEC)) {
    CheckErrno(file_ < 0 || ftruncate(file_, Off(length)) != 0 ? errno : 0,
               "memory of ", length, " bytes");
    begin_ = Map(nullptr, PROT_READ | PROT_WRITE, MAP_SHARED, file_);
  }
  ~Memory() {
    munmap(begin_, length_);
    close(file_);
  }
  Memory(const Memory&) = delete;
  Memory(Memory&&) = delete;
  Memory& operator=(const Memory&) = delete;
  Memory& operator=(Memory&&) = delete;

  [[nodiscard]] uint8_t* At(size_t offset = 0) const { return begin_ + offset; }
  [[nodiscard]] uint64_t Address(size_t offset = 0) const {
    return reinterpret_cast<uintptr_t>(begin_ + offset);
  }
  [[nodiscard]] size_t length() const { return length_; }

  // The file's pages stay, but this process has none of them.
  void Drop() const {
    CheckErrno(madvise(begin_, length_, MADV_DONTNEED) != 0 ? errno : 0,
               "madvise");
  }
  // Other memory, of zeros, at the same address.
  void Replace(int protection = PROT_READ | PROT_WRITE) {
    Map(begin_, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1);
  }
  // Nothing is there any more, and nothing else will be.
  void Unmap(size_t offset, size_t length) const {
    const void* const memory =
        mmap(begin_ + offset, length, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CheckErrno(memory == MAP_FAILED ? errno : 0, "mmap of a hole");
  }

 private:
  static off_t Off(size_t length) { return static_cast<off_t>(length); }

  uint8_t* Map(uint8_t* where, int protection, int flags, int file) const {
    void* const memory = mmap(where, length_, protection, flags, file, 0);
    CheckErrno(memory == MAP_FAILED ? errno : 0, "mmap");
    return static_cast<uint8_t*>(memory);
  }

  size_t length_;
  int file_;
  uint8_t* begin_;
};

// Gives memory its pages as they are missed: zeros, and their number in front.
class Supplier {
 public:
  explicit Supplier(const Memory& memory)
      : memory_(memory),
        file_(static_cast<int>(
            syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK))) {
    if (file_ < 0) {
      return;
    }
    uffdio_api api{};
    api.api = UFFD_API;
    Control(UFFDIO_API, &api);
    uffdio_register range{};
    range.range = {memory.Address(), memory.length()};
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    Control(UFFDIO_REGISTER, &range);
    thread_ = std::thread([this] { Serve(); });
  }
  ~Supplier() {
    stop_ = true;
    if (thread_.joinable()) {
      thread_.join();
    }
    close(file_);
  }
  Supplier(const Supplier&) = delete;
  Supplier(Supplier&&) = delete;
  Supplier& operator=(const Supplier&) = delete;
  Supplier& operator=(Supplier&&) = delete;

  [[nodiscard]] bool works() const { return file_ >= 0; }

 private:
  void Control(uint64_t request, void* data) const {
    CheckErrno(ioctl(file_, request, data) != 0 ? errno : 0, "userfaultfd");
  }

  void Serve() {
    constexpr int kPollMs = 100;
    std::vector<uint8_t> page(kPage);
    while (!stop_) {
      pollfd ready{file_, POLLIN, 0};
      uffd_msg message{};
      if (poll(&ready, 1, kPollMs) <= 0 ||
          read(file_, &message, sizeof(message)) !=
              static_cast<ssize_t>(sizeof(message))) {
        continue;
      }
      const uint64_t address = message.arg.pagefault.address / kPage * kPage;
      const uint64_t number = (address - memory_.Address()) / kPage;
      std::memcpy(page.data(), &number, sizeof(number));
      uffdio_copy copy{};
      copy.dst = address;
      copy.src = reinterpret_cast<uintptr_t>(page.data());
      copy.len = kPage;
      if (ioctl(file_, UFFDIO_COPY, &copy) != 0 && errno != EEXIST) {
        CheckErrno(errno, "UFFDIO_COPY");
      }
    }
  }

  const Memory& memory_;
  int file_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// How the peer reaches a region.
struct Target {
  uint64_t addr;
  uint32_t rkey;
};

void PostOneSided(const Connection& connection, ibv_wr_opcode opcode,
                  ibv_sge sge, const Target& peer, size_t offset) {
  ibv_send_wr wr{};
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic.remote_addr = peer.addr + offset;
    wr.wr.atomic.rkey = peer.rkey;
    wr.wr.atomic.compare_add = 5;
  } else {
    wr.wr.rdma.remote_addr = peer.addr + offset;
    wr.wr.rdma.rkey = peer.rkey;
  }
  ibv_send_wr* bad = nullptr;
  CheckErrno(ibv_post_send(connection.qp.get(), &wr, &bad), "posting");
}

class Paging {
 public:
  explicit Paging(Side& side)
      : side_(side),
        device_(OpenDevice(side)),
        pattern_(side.options.seed, kLength) {
    ibv_device_attr_ex attr{};
    CheckErrno(ibv_query_device_ex(device_.context.get(), nullptr, &attr),
               "ibv_query_device_ex");
    Check((attr.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0,
          "the device has no on-demand paging");
    Renew();
  }

  void Run() {
    Untouched();
    FollowsWhatIsMapped();
    Fork();
    Holes();
    Churn();
    Window();
    Reregister();
    ReregisterForReading();
    SharedReceives();
    ReadOnly();
    Secret();
    Supplied();
    Advice();
    Refused();
    std::cout << "on-demand paging: every byte is right\n";
  }

 private:
  [[nodiscard]] MrPtr Register(const Memory& memory, int access = kAll) const {
    return RegisterMr(device_, memory.At(), memory.length(),
                      access | kOnDemand);
  }

  void Meet() { side_.channel.Barrier(++step_); }

  // A connection; that of before may have ended.
  void Renew() {
    QpConfig config;
    config.access = IBV_ACCESS_LOCAL_WRITE | kRemote;
    config.rd_atomic = 4;
    config.timeout = 18;  // 1 s
    connection_.reset();
    connection_.emplace(Connect(device_, side_, config));
  }

  // First one side does it while the other waits, then the other way round.
  void InTurn(const std::function<void()>& active,
              const std::function<void()>& passive) {
    for (const bool leader : {true, false}) {
      Meet();
      if (leader == side_.leads) {
        active();
      } else {
        passive();
      }
      Meet();
    }
  }

  ibv_wc Do(ibv_wr_opcode opcode, ibv_sge sge, const Target& peer,
            size_t offset) {
    PostOneSided(*connection_, opcode, sge, peer, offset);
    return WaitFor(connection_->send_cq.get(), 1, side_.options.timeout_s,
                   Text("operation ", int{opcode}))
        .front();
  }

  // With a WRITE of @written behind it, to @to, which must be flushed.
  ibv_wc DoBefore(ibv_wr_opcode opcode, ibv_sge sge, const Target& peer,
                  size_t offset, ibv_sge written, size_t to = 0) {
    PostOneSided(*connection_, opcode, sge, peer, offset);
    PostOneSided(*connection_, IBV_WR_RDMA_WRITE, written, peer, to);
    const std::vector<ibv_wc> done =
        WaitFor(connection_->send_cq.get(), 2, side_.options.timeout_s,
                Text("operation ", int{opcode}, " and a WRITE"));
    Check(done.at(1).status == IBV_WC_WR_FLUSH_ERR,
          "a WRITE behind: ", ibv_wc_status_str(done.at(1).status));
    return done.at(0);
  }

  void Succeed(ibv_wr_opcode opcode, ibv_sge sge, const Target& peer,
               size_t offset) {
    CheckSuccess(Do(opcode, sge, peer, offset),
                 Text("operation ", int{opcode}, " of ", sge.length,
                      " bytes at ", offset));
  }

  void CheckBytes(const uint8_t* got, uint64_t message, size_t length,
                  const std::string& what) {
    const uint8_t* const right = pattern_.Bytes(message, 0);
    Check(std::memcmp(got, right, length) == 0, what, ": byte ",
          std::mismatch(got, got + length, right).first - got, " of ", length,
          " is wrong");
  }

  static ibv_sge Sge(const Memory& memory, const MrPtr& mr, size_t offset,
                     size_t length) {
    return {memory.Address(offset), static_cast<uint32_t>(length), mr->lkey};
  }

  void ExpectStatus(ibv_cq* cq, ibv_wc_status status,
                    const std::string& what) const {
    const ibv_wc wc = WaitFor(cq, 1, side_.options.timeout_s, what).front();
    Check(wc.status == status, what, ": ", ibv_wc_status_str(wc.status),
          ", not ", ibv_wc_status_str(status));
  }

  // One of each operation, of any length, to and from memory that is not there.
  void Exchange(const Memory& mine, const MrPtr& mr, const Target& peer,
                size_t offset, size_t length) {
    const std::string what = Text(length, " bytes at ", offset);
    const uint64_t number = side_.leads ? 1 : 2;
    ibv_qp* const qp = connection_->qp.get();
    ibv_cq* const send_cq = connection_->send_cq.get();
    ibv_cq* const recv_cq = connection_->recv_cq.get();
    const ibv_sge sge = Sge(mine, mr, offset, length);

    // SEND into memory that nobody has touched, or that is gone.
    InTurn(
        [&] {
          std::memcpy(mine.At(offset), pattern_.Bytes(number, 0), length);
          mine.Drop();
          Meet();
          PostSend(qp, 1, {sge});
          WaitForSuccess(send_cq, side_.options.timeout_s, "SEND of " + what);
        },
        [&] {
          mine.Drop();
          PostRecv(qp, 2, {sge});
          Meet();
          WaitForSuccess(recv_cq, side_.options.timeout_s, "receive " + what);
          CheckBytes(mine.At(offset), 3 - number, length, "SEND of " + what);
        });
    // WRITE, and READ what was written back to where it came from.
    InTurn(
        [&] {
          std::memcpy(mine.At(offset), pattern_.Bytes(number, 0), length);
          mine.Drop();
          Succeed(IBV_WR_RDMA_WRITE, sge, peer, offset);
          std::memset(mine.At(offset), 0, length);
          mine.Drop();
          Succeed(IBV_WR_RDMA_READ, sge, peer, offset);
          CheckBytes(mine.At(offset), number, length, "READ of " + what);
        },
        [&] { mine.Drop(); });
  }

  void Atomics(const Memory& mine, const MrPtr& mr, const Target& peer) {
    InTurn(
        [&] {
          Meet();
          for (uint64_t i = 0; i < 3; i++) {
            mine.Drop();
            Succeed(IBV_WR_ATOMIC_FETCH_AND_ADD, Sge(mine, mr, kPage, 8), peer,
                    8 * kPage + 64);
            uint64_t before = 0;
            std::memcpy(&before, mine.At(kPage), sizeof(before));
            Check(before == 5 * i, "fetch and add: ", before, ", not ", 5 * i);
          }
        },
        [&] {
          std::memset(mine.At(8 * kPage + 64), 0, 8);
          mine.Drop();
          Meet();
        });
  }

  void Untouched() {
    const Memory memory;
    const MrPtr mr = Register(memory);
    std::vector<unsigned char> present(kLength / kPage);
    CheckErrno(mincore(memory.At(), kLength, present.data()) != 0 ? errno : 0,
               "mincore");
    Check(std::all_of(present.begin(), present.end(),
                      [](unsigned char page) { return (page & 1) == 0; }),
          "registering memory has brought it in");
    const Target peer =
        side_.channel.Exchange(Target{memory.Address(), mr->rkey});
    for (const size_t length : {size_t{1}, size_t{64}, kPage, 3 * kPage,
                                size_t{65536}, kLength / 2, kLength - 100}) {
      for (const size_t offset : {size_t{0}, kPage - 3, size_t{100}}) {
        if (offset + length <= kLength) {
          Exchange(memory, mr, peer, offset, length);
        }
      }
    }
    Atomics(memory, mr, peer);
  }

  // A region is of addresses, not of the memory that was there once.
  void FollowsWhatIsMapped() {
    Memory memory;
    const MrPtr mr = Register(memory);
    const Target peer =
        side_.channel.Exchange(Target{memory.Address(), mr->rkey});
    const uint64_t number = side_.leads ? 1 : 2;
    const ibv_sge sge = Sge(memory, mr, 0, kLength);
    InTurn(
        [&] {
          Succeed(IBV_WR_RDMA_READ, sge, peer, 0);
          Meet();
          Meet();
          Succeed(IBV_WR_RDMA_READ, sge, peer, 0);
          CheckBytes(memory.At(), 3 - number, kLength, "replaced memory");
        },
        [&] {
          Meet();
          memory.Replace();
          std::memcpy(memory.At(), pattern_.Bytes(number, 0), kLength);
          Meet();
        });
  }

  // After a fork the first to write has another page. The parent's is the
  // region's, whoever that is.
  void Fork() {
    Memory memory(16 * kPage);
    memory.Replace();
    std::memset(memory.At(), 1, memory.length());
    const MrPtr mr = Register(memory);
    const Target peer =
        side_.channel.Exchange(Target{memory.Address(), mr->rkey});
    const Memory own(16 * kPage);
    const MrPtr own_mr = Register(own);
    const ibv_sge sge = Sge(own, own_mr, 0, own.length());
    InTurn(
        [&] {
          // The peer's pages are brought in before they are shared.
          Succeed(IBV_WR_RDMA_READ, sge, peer, 0);
          Meet();
          Meet();
          std::memset(own.At(), 3, own.length());
          Succeed(IBV_WR_RDMA_WRITE, Sge(own, own_mr, 0, own.length() / 2),
                  peer, 0);
          Succeed(IBV_WR_RDMA_READ, sge, peer, 0);
          Check(own.At()[0] == 3 && own.At()[own.length() - 1] == 2,
                "the peer's memory after a fork: ", int{own.At()[0]}, ", ",
                int{own.At()[own.length() - 1]});
        },
        [&] {
          Meet();
          std::array<int, 2> pipe_ends{};
          CheckErrno(pipe(pipe_ends.data()) != 0 ? errno : 0, "pipe");
          const pid_t child = fork();
          CheckErrno(child < 0 ? errno : 0, "fork");
          if (child == 0) {
            char end = 0;
            close(pipe_ends[1]);
            (void)(read(pipe_ends[0], &end, 1) == 0);
            _exit(std::all_of(memory.At(), memory.At(memory.length()),
                              [](uint8_t byte) { return byte == 1; })
                      ? 0
                      : 1);
          }
          close(pipe_ends[0]);
          std::memset(memory.At(memory.length() / 2), 2, memory.length() / 2);
          Meet();
          // The other side ends this turn with a Meet() of InTurn().
          child_ = child;
          child_pipe_ = pipe_ends[1];
        });
    close(child_pipe_);
    int status = 0;
    CheckErrno(waitpid(child_, &status, 0) < 0 ? errno : 0, "waitpid");
    Check(status == 0, "the child's memory was written to: ", status);
    Check(memory.At()[0] == 3 && memory.At()[memory.length() - 1] == 2,
          "the parent's memory after a fork is wrong");
  }

  // One side's request fails, on a connection that ends with it, and then the
  // other's.
  void Fail(
      const std::function<ibv_wc()>& active, ibv_wc_status status,
      const std::string& what, const std::function<void()>& before = [] {},
      const std::function<void()>& after = [] {}) {
    for (const bool leader : {true, false}) {
      Renew();
      const bool acts = leader == side_.leads;
      if (!acts) {
        before();
      }
      Meet();
      if (acts) {
        const ibv_wc wc = active();
        Check(wc.status == status, what, ": ", ibv_wc_status_str(wc.status),
              ", not ", ibv_wc_status_str(status));
      } else {
        after();
      }
      Meet();
    }
    Renew();
  }

  // What is no memory can not be brought in: an error of that work request.
  void Holes() {
    Memory memory;
    const MrPtr mr = Register(memory);
    const Target peer =
        side_.channel.Exchange(Target{memory.Address(), mr->rkey});
    const size_t hole = kLength / 2;
    const ibv_sge there = Sge(memory, mr, 0, 200);
    const ibv_sge none = Sge(memory, mr, hole - 100, 200);
    std::memset(memory.At(), 1, kLength);
    memory.Unmap(hole, 4 * kPage);
    Fail([&] { return Do(IBV_WR_SEND, none, peer, 0); }, IBV_WC_LOC_PROT_ERR,
         "SEND from a hole");
    Fail([&] { return Do(IBV_WR_RDMA_WRITE, there, peer, hole - 100); },
         IBV_WC_REM_ACCESS_ERR, "WRITE to a hole");
    Fail([&] { return Do(IBV_WR_RDMA_READ, there, peer, hole); },
         IBV_WC_REM_ACCESS_ERR, "READ of a hole");
    Fail([&] { return Do(IBV_WR_RDMA_READ, none, peer, 0); },
         IBV_WC_LOC_PROT_ERR, "READ into a hole");
    Fail(
        [&] {
          return DoBefore(IBV_WR_RDMA_READ, none, peer, 0,
                          Sge(memory, mr, hole + kPage, 200));
        },
        IBV_WC_LOC_PROT_ERR, "READ into a hole, and WRITE from it");
    Fail(
        [&] {
          return DoBefore(IBV_WR_RDMA_READ, there, peer, hole - 100, there,
                          hole + kPage);
        },
        IBV_WC_REM_ACCESS_ERR, "READ with a hole, and WRITE to it");
    Fail(
        [&] {
          return Do(IBV_WR_ATOMIC_FETCH_AND_ADD, Sge(memory, mr, 0, 8), peer,
                    hole);
        },
        IBV_WC_REM_ACCESS_ERR, "atomic in a hole");
    Fail([&] { return Do(IBV_WR_SEND, there, peer, 0); }, IBV_WC_REM_OP_ERR,
         "SEND to a hole", [&] { PostRecv(connection_->qp.get(), 1, {none}); },
         [&] {
           ExpectStatus(connection_->recv_cq.get(), IBV_WC_LOC_PROT_ERR,
                        "a receive in a hole");
         });
    // All else of the region is of use, and the hole when it is filled.
    InTurn([&] { Succeed(IBV_WR_RDMA_WRITE, there, peer, kPage); }, [] {});
    memory.Replace();
    InTurn([&] { Succeed(IBV_WR_RDMA_WRITE, there, peer, hole - 100); }, [] {});
  }

  // Both directions, while each side's memory goes all the time.
  void Churn() {
    const Memory memory;
    const MrPtr mr = Register(memory);
    const Target peer =
        side_.channel.Exchange(Target{memory.Address(), mr->rkey});
    const uint64_t number = side_.leads ? 1 : 2;
    const size_t half = kLength / 2;
    std::memcpy(memory.At(), pattern_.Bytes(number, 0), half);
    std::atomic<bool> stop = false;
    // So often for each operation: nothing is ever written to memory that is
    // gone again before the data come.
    std::atomic<int> drops = 0;
    std::thread dropper([&] {
      while (!stop) {
        if (drops > 0) {
          memory.Drop();
          drops--;
        }
        // Whoever is told too brings the same pages in.
        const ibv_sge all = Sge(memory, mr, 0, kLength);
        (void)Advise(IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, all);
        (void)Advise(IBV_ADVISE_MR_ADVICE_PREFETCH, all);
        usleep(500);
      }
    });
    // What the peer writes to is the second half.
    const int rounds = side_.options.quick ? 20 : 200;
    try {
      Meet();
      for (int i = 0; i < rounds; i++) {
        const size_t length = half >> (i % 8);
        drops = 5;
        Succeed(IBV_WR_RDMA_WRITE, Sge(memory, mr, 0, length), peer, half);
        Meet();
        CheckBytes(memory.At(half), 3 - number, length, "churned WRITE");
        Meet();
        drops = 5;
        Succeed(IBV_WR_RDMA_READ, Sge(memory, mr, half, length), peer, 0);
        CheckBytes(memory.At(half), 3 - number, length, "churned READ");
        Meet();
      }
    } catch (...) {
      stop = true;
      dropper.join();
      throw;
    }
    stop = true;
    dropper.join();
  }

  // A window shows a part of what comes and goes.
  void Window() {
    const Memory memory;
    const MrPtr mr = Register(memory, kAll | IBV_ACCESS_MW_BIND);
    const std::unique_ptr<ibv_mw, Destroyer<ibv_dealloc_mw>> window(
        ibv_alloc_mw(device_.pd.get(), IBV_MW_TYPE_1));
    if (window == nullptr && errno == EOPNOTSUPP) {
      std::cout << "windows: the device has none, not tested\n";
      return;
    }
    CheckErrno(window == nullptr ? errno : 0, "ibv_alloc_mw");
    ibv_mw_bind bind{};
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = {mr.get(), memory.Address(kLength / 4), kLength / 2,
                      kRemote};
    CheckErrno(ibv_bind_mw(connection_->qp.get(), window.get(), &bind),
               "ibv_bind_mw");
    WaitForSuccess(connection_->send_cq.get(), side_.options.timeout_s,
                   "binding");
    const Target peer = side_.channel.Exchange(
        Target{memory.Address(kLength / 4), window->rkey});
    const uint64_t number = side_.leads ? 1 : 2;
    const ibv_sge sge = Sge(memory, mr, 0, 5 * kPage);
    InTurn(
        [&] {
          Meet();
          std::memcpy(memory.At(), pattern_.Bytes(number, 0), sge.length);
          Succeed(IBV_WR_RDMA_WRITE, sge, peer, kPage - 3);
          Meet();
        },
        [&] {
          memory.Drop();
          Meet();
          Meet();
          CheckBytes(memory.At(kLength / 4 + kPage - 3), 3 - number, sge.length,
                     "WRITE through a window");
        });
  }

  // Pinned memory is what it was when it was registered; on demand it is what
  // the process has. A region becomes the one and the other.
  void Reregister() {
    Memory memory(4 * kPage);
    const MrPtr mr = RegisterMr(device_, memory.At(), memory.length(), kAll);
    const Memory own(4 * kPage);
    const MrPtr own_mr = Register(own);
    uint8_t seen = 0;
    for (const int access : {kAll | kOnDemand, kAll}) {
      CheckErrno(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr,
                              nullptr, 0, access) != 0
                     ? errno
                     : 0,
                 "ibv_rereg_mr");
      const Target peer =
          side_.channel.Exchange(Target{memory.Address(), mr->rkey});
      std::memset(memory.At(), 1, memory.length());
      seen = (access & kOnDemand) != 0 ? 2 : 1;
      // Of both sides, before either reads.
      Meet();
      Succeed(IBV_WR_RDMA_READ, Sge(own, own_mr, 0, own.length()), peer, 0);
      Meet();
      memory.Replace();
      std::memset(memory.At(), 2, memory.length());
      Meet();
      Succeed(IBV_WR_RDMA_READ, Sge(own, own_mr, 0, own.length()), peer, 0);
      for (const size_t offset : {size_t{0}, own.length() - 1}) {
        Check(own.At()[offset] == seen, "replaced memory of a region that ",
              seen == 2 ? "is on demand" : "is pinned", " is ",
              int{own.At()[offset]});
      }
      Meet();
    }
  }

  // A region that nobody may write to any more reads memory that is read only.
  void ReregisterForReading() {
    const Memory memory(4 * kPage);
    const MrPtr mr = Register(memory);
    const Memory own(4 * kPage);
    const MrPtr own_mr = Register(own);
    std::memset(memory.At(), 3, memory.length());
    memory.Drop();
    CheckErrno(
        mprotect(memory.At(), memory.length(), PROT_READ) != 0 ? errno : 0,
        "mprotect");
    CheckErrno(ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr,
                            nullptr, 0, IBV_ACCESS_REMOTE_READ | kOnDemand) != 0
                   ? errno
                   : 0,
               "ibv_rereg_mr for reading");
    const Target peer =
        side_.channel.Exchange(Target{memory.Address(), mr->rkey});
    Succeed(IBV_WR_RDMA_READ, Sge(own, own_mr, 0, own.length()), peer, 0);
    Check(own.At()[0] == 3 && own.At()[own.length() - 1] == 3,
          "a READ of what is read only is wrong");
    Meet();
  }

  // The receives of a shared queue, which are nobody's until a message comes.
  void SharedReceives() {
    constexpr int kMessages = 4;
    const Memory memory;
    const MrPtr mr = Register(memory);
    ibv_srq_init_attr init{};
    init.attr = {.max_wr = kMessages, .max_sge = 1, .srq_limit = 0};
    const SrqPtr srq(ibv_create_srq(device_.pd.get(), &init));
    CheckErrno(srq == nullptr ? errno : 0, "ibv_create_srq");
    QpConfig config;
    config.srq = srq.get();
    connection_.emplace(Connect(device_, side_, config));
    const uint64_t number = side_.leads ? 1 : 2;
    const size_t piece = kLength / 2 / kMessages;
    InTurn(
        [&] {
          for (int i = 0; i < kMessages; i++) {
            std::memcpy(memory.At(i * piece), pattern_.Bytes(number, 0),
                        piece - 3);
          }
          memory.Drop();
          Meet();
          for (int i = 0; i < kMessages; i++) {
            PostSend(connection_->qp.get(), 1,
                     {Sge(memory, mr, i * piece, piece - 3)});
          }
          for (const ibv_wc& wc :
               WaitFor(connection_->send_cq.get(), kMessages,
                       side_.options.timeout_s, "SENDs to an SRQ")) {
            CheckSuccess(wc, "a SEND to an SRQ");
          }
        },
        [&] {
          for (uint64_t i = 0; i < kMessages; i++) {
            ibv_sge sge = Sge(memory, mr, kLength / 2 + i * piece, piece);
            ibv_recv_wr wr{};
            wr.wr_id = i;
            wr.sg_list = &sge;
            wr.num_sge = 1;
            ibv_recv_wr* bad = nullptr;
            CheckErrno(ibv_post_srq_recv(srq.get(), &wr, &bad),
                       "ibv_post_srq_recv");
          }
          memory.Drop();
          Meet();
          for (const ibv_wc& wc :
               WaitFor(connection_->recv_cq.get(), kMessages,
                       side_.options.timeout_s, "receives of an SRQ")) {
            CheckSuccess(wc, "a receive of an SRQ");
            CheckBytes(memory.At(kLength / 2 + wc.wr_id * piece), 3 - number,
                       piece - 3, "a receive of an SRQ");
          }
        });
    Renew();
  }

  // What may not be written can be sent, and nothing else.
  void ReadOnly() {
    Memory memory(4 * kPage);
    memory.Replace(PROT_READ);
    const MrPtr constant = Register(memory, 0);
    const MrPtr writable = Register(memory);
    const Target peer =
        side_.channel.Exchange(Target{memory.Address(), writable->rkey});
    const Memory own(4 * kPage);
    const MrPtr own_mr = Register(own);
    Renew();
    InTurn(
        [&] {
          PostSend(connection_->qp.get(), 1,
                   {Sge(memory, constant, 0, 3 * kPage)});
          WaitForSuccess(connection_->send_cq.get(), side_.options.timeout_s,
                         "sending what is read-only");
        },
        [&] {
          PostRecv(connection_->qp.get(), 1,
                   {Sge(own, own_mr, 0, own.length())});
          WaitForSuccess(connection_->recv_cq.get(), side_.options.timeout_s,
                         "receiving what is read-only");
        });
    Fail(
        [&] {
          return Do(IBV_WR_RDMA_WRITE, Sge(own, own_mr, 0, kPage), peer, 0);
        },
        IBV_WC_REM_ACCESS_ERR, "WRITE to read-only memory");
  }

  // Memory that the kernel can not reach must not be reached.
  void Secret() {
#ifdef SYS_memfd_secret
    const int file = static_cast<int>(syscall(SYS_memfd_secret, O_CLOEXEC));
    const bool there = side_.channel.Exchange(file >= 0) && file >= 0;
    if (!there) {
      std::cout << "secret memory: this kernel has none, not tested\n";
      return;
    }
    CheckErrno(ftruncate(file, 4 * kPage) != 0 ? errno : 0, "ftruncate");
    void* const secret =
        mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CheckErrno(secret == MAP_FAILED ? errno : 0, "mmap of secret memory");
    std::memset(secret, 1, 4 * kPage);
    {
      const MrPtr mr = RegisterMr(device_, secret, 4 * kPage, kAll | kOnDemand);
      const Target peer = side_.channel.Exchange(
          Target{reinterpret_cast<uintptr_t>(secret), mr->rkey});
      const Memory own(kPage);
      const MrPtr own_mr = Register(own);
      Fail(
          [&] {
            return Do(IBV_WR_RDMA_READ, Sge(own, own_mr, 0, kPage), peer,
                      kPage);
          },
          IBV_WC_REM_ACCESS_ERR, "READ of secret memory");
    }
    munmap(secret, 4 * kPage);
    close(file);
#endif
  }

  // Memory that another thread of the process brings when it is missed.
  void Supplied() {
    Memory memory(64 * kPage);
    memory.Replace();
    const Supplier supplier(memory);
    if (!side_.channel.Exchange(supplier.works()) || !supplier.works()) {
      std::cout << "userfaultfd: this kernel has none, not tested\n";
      return;
    }
    const MrPtr mr = Register(memory);
    const Target peer =
        side_.channel.Exchange(Target{memory.Address(), mr->rkey});
    const Memory own(memory.length());
    const MrPtr own_mr = Register(own);
    Renew();
    InTurn(
        [&] {
          Succeed(IBV_WR_RDMA_READ, Sge(own, own_mr, 0, own.length()), peer, 0);
          for (uint64_t page = 0; page * kPage < own.length(); page++) {
            uint64_t number = 0;
            std::memcpy(&number, own.At(page * kPage), sizeof(number));
            Check(number == page, "page ", page, " came as ", number);
          }
        },
        [] {});
  }

  int Advise(ibv_advise_mr_advice advice, ibv_sge sge,
             uint32_t flags = IBV_ADVISE_MR_FLAG_FLUSH) const {
    return ibv_advise_mr(device_.pd.get(), advice, flags, &sge, 1);
  }

  void Advice() {
    const Memory memory;
    const MrPtr mr = Register(memory);
    const MrPtr constant = Register(memory, 0);
    const MrPtr pinned = RegisterMr(device_, memory.At(), kLength);
    const PdPtr other(ibv_alloc_pd(device_.context.get()));
    const auto expect = [&](int got, int right, const std::string& what) {
      Check(got == right, what, ": ", std::strerror(got), ", not ",
            std::strerror(right));
    };
    const ibv_sge all = Sge(memory, mr, 0, kLength);
    for (const auto advice :
         {IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ADVISE_MR_ADVICE_PREFETCH,
          IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE}) {
      memory.Drop();
      expect(Advise(advice, all, 0), 0, Text("advice ", int{advice}));
      expect(Advise(advice, all), 0, Text("advice ", int{advice}, ", flush"));
    }
    ibv_sge wrong = all;
    wrong.lkey ^= 0x80;
    expect(Advise(IBV_ADVISE_MR_ADVICE_PREFETCH, wrong), ENOENT, "no key");
    wrong = all;
    wrong.addr += 1;
    expect(Advise(IBV_ADVISE_MR_ADVICE_PREFETCH, wrong), EFAULT,
           "bytes behind the region");
    expect(Advise(IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
                  Sge(memory, constant, 0, kPage)),
           EPERM, "writing to what is for reading");
    expect(Advise(IBV_ADVISE_MR_ADVICE_PREFETCH, Sge(memory, pinned, 0, kPage)),
           EINVAL, "memory that is pinned");
    ibv_sge sge = all;
    expect(ibv_advise_mr(other.get(), IBV_ADVISE_MR_ADVICE_PREFETCH,
                         IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1),
           EPERM, "another protection domain");
  }

  void Refused() const {
    const ibv_mr* const mr = ibv_reg_mr_iova2(
        device_.pd.get(), nullptr, SIZE_MAX, 0, IBV_ACCESS_ON_DEMAND);
    Check(mr == nullptr, "all of the address space is registered");
    Check(errno == EOPNOTSUPP,
          "all of the address space: ", std::strerror(errno));
  }

  Side& side_;
  Device device_;
  Pattern pattern_;
  std::optional<Connection> connection_;
  uint32_t step_ = 0;
  pid_t child_ = 0;
  int child_pipe_ = -1;
};

// Both ends of three connections wait for a page that never comes: to send it,
// to read it, to fill it. The first starts again, with the next page of that
// region; the others are left to the kernel.
void Stuck(Side& side) {
  constexpr int kWait = 1;  // s
  const int file = open(side.options.stuck.c_str(), O_RDONLY | O_CLOEXEC);
  CheckErrno(file < 0 ? errno : 0, side.options.stuck);
  void* const memory = mmap(nullptr, 2 * kPage, PROT_READ, MAP_SHARED, file, 0);
  CheckErrno(memory == MAP_FAILED ? errno : 0, "mmap of ", side.options.stuck);
  uint8_t* const next = static_cast<uint8_t*>(memory) + kPage;
  const void* const good = mmap(next, kPage, PROT_READ,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  CheckErrno(good == MAP_FAILED ? errno : 0, "mmap of the next page");
  const Device device = OpenDevice(side);
  const MrPtr mr =
      RegisterMr(device, memory, 2 * kPage, IBV_ACCESS_REMOTE_READ | kOnDemand);
  void* const hole =
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  CheckErrno(hole == MAP_FAILED ? errno : 0, "mmap of a copy");
  const MrPtr hole_mr =
      RegisterMr(device, hole, kPage, IBV_ACCESS_LOCAL_WRITE | kOnDemand);
  const Memory own(kPage);
  const MrPtr own_mr = RegisterMr(
      device, own.At(), kPage, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  const ibv_sge own_sge = {own.Address(), kPage, own_mr->lkey};
  const Target peer = side.channel.Exchange(
      Target{reinterpret_cast<uintptr_t>(memory), mr->rkey});
  const Target good_peer =
      side.channel.Exchange(Target{own.Address(), own_mr->rkey});
  QpConfig config;
  config.access = IBV_ACCESS_REMOTE_READ;
  config.rd_atomic = 1;
  config.min_rnr_timer = 24;  // 41 ms: whoever counts timers sees few
  const Connection sends = Connect(device, side, config);
  const Connection reads = Connect(device, side, config);
  const Connection fills = Connect(device, side, config);
  ibv_qp* const qp = sends.qp.get();
  PostRecv(qp, 1, {own_sge});
  side.channel.Barrier(1);
  PostSend(qp, 2, {{reinterpret_cast<uintptr_t>(memory), kPage, mr->lkey}});
  PostOneSided(reads, IBV_WR_RDMA_READ, own_sge, peer, 0);
  // Its answer has come; whose memory does not come is not the peer's to say.
  PostOneSided(fills, IBV_WR_RDMA_READ,
               {reinterpret_cast<uintptr_t>(hole), kPage, hole_mr->lkey},
               good_peer, 0);
  std::cout << "stuck\n" << std::flush;
  sleep(kWait);
  ibv_wc wc{};
  for (ibv_cq* const cq :
       {sends.send_cq.get(), reads.send_cq.get(), fills.send_cq.get()}) {
    Check(ibv_poll_cq(cq, 1, &wc) == 0,
          "memory came that does not: ", ibv_wc_status_str(wc.status));
  }

  side.channel.Barrier(2);
  ToState(qp, IBV_QPS_RESET);
  side.channel.Barrier(3);
  ToInit(qp, config);
  const QpAddress mine = AddressOf(device, qp);
  ToRts(qp, device, mine, side.channel.Exchange(mine), config);
  PostRecv(qp, 3, {own_sge});
  side.channel.Barrier(4);
  PostSend(qp, 4, {{reinterpret_cast<uintptr_t>(next), kPage, mr->lkey}});
  WaitForSuccess(sends.send_cq.get(), side.options.timeout_s, "the next page");
  WaitForSuccess(sends.recv_cq.get(), side.options.timeout_s, "receiving");
  side.channel.Barrier(5);
  _exit(0);
}

void Run(Side& side) {
  if (side.options.stuck.empty()) {
    Paging(side).Run();
  } else {
    Stuck(side);
  }
}

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(argc, argv, "on-demand paging between two sides",
                            ropcie::Run);
}
