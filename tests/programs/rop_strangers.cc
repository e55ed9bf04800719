// SPDX-License-Identifier: GPL-2.0
// One process can neither use nor reach another's objects. A victim has one of
// each kind, and traffic with a partner; a stranger, a process of another user,
// is told all their numbers and tries what it can with them. Each attempt has
// to be refused as the standard has it; not a byte of the victim's memory
// changes, its traffic goes on, and nothing happens to its queue pairs. Then
// the victim tries the same, and must have success: so it was the stranger who
// was refused, and not the attempt. With two nodes the stranger is on the other
// one, where the partner is, and has an accomplice on the victim's.
#include <fcntl.h>
#include <grp.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "failure.h"
#include "mappings.h"
#include "options.h"
#include "report.h"
#include "side.h"
#include "strangers.h"
#include "strangers_traffic.h"
#include "verbs_util.h"

namespace ropcie::strangers {
namespace {

constexpr uid_t kNobody = 65534;
constexpr size_t kPage = 4096;
constexpr size_t kBegin = 3 * kPiece;  // of a page, where its piece is
// So many handles and bytes of the file the victim has before all others: the
// stranger's own are less.
constexpr size_t kFillers = 300;
constexpr int kFillerCqe = 16384;
constexpr int kEnd = -1;

using Outcome = std::array<char, 200>;

// A piece of memory for each use, one on each page.
enum Slot : uint8_t { kPinned, kOnDemand, kShown, kRc, kUc, kXrc, kUd, kSlots };

std::vector<Attempt> AllAttempts(const Options& options, const Device& device) {
  if (options.nodes > 1) {
    return FarAttempts();
  }
  std::vector<Attempt> all = KeyAttempts(device);
  for (std::vector<Attempt> more : {QueueAttempts(), CommandAttempts()}) {
    std::move(more.begin(), more.end(), std::back_inserter(all));
  }
  return all;
}

// Memory that has the same bytes after each attempt, its guards too.
class Vault {
 public:
  explicit Vault(const Device& device) : device_(device) {
    void* const memory =
        mmap(nullptr, kSlots * kPage, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    CheckErrno(memory == MAP_FAILED ? errno : 0, "mmap");
    memory_ = static_cast<uint8_t*>(memory);
    ibv_alloc_dm_attr attr{};
    attr.length = kSlots * kPage;
    dm_ = ibv_alloc_dm(device.context.get(), &attr);
    CheckErrno(dm_ == nullptr ? errno : 0, "ibv_alloc_dm");
    right_.resize(kSlots * kPage);
    for (size_t i = 0; i < right_.size(); ++i) {
      right_[i] = static_cast<uint8_t>(i);
    }
    Restore();
    pinned_ = RegisterMr(device, At(kPinned), kPiece,
                         static_cast<int>(kAllAccess | IBV_ACCESS_MW_BIND));
    on_demand_ =
        RegisterMr(device, At(kOnDemand), kPiece,
                   static_cast<int>(kAllAccess | IBV_ACCESS_ON_DEMAND));
    shown_ = RegisterMr(device, At(kShown), kPiece,
                        static_cast<int>(kAllAccess | IBV_ACCESS_MW_BIND));
    receives_ = RegisterMr(device, memory_, kSlots * kPage);
    device_memory_.reset(ibv_reg_dm_mr(device.pd.get(), dm_, kBegin, kPiece,
                                       kAllAccess | IBV_ACCESS_ZERO_BASED));
    CheckErrno(device_memory_ == nullptr ? errno : 0, "ibv_reg_dm_mr");
    // What is sent unreliably does not wait for memory.
    ibv_sge sge{.addr = reinterpret_cast<uintptr_t>(At(kOnDemand)),
                .length = kPiece,
                .lkey = on_demand_->lkey};
    CheckErrno(
        ibv_advise_mr(device.pd.get(), IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
                      IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1),
        "ibv_advise_mr");
  }
  ~Vault() {
    device_memory_.reset();
    ibv_free_dm(dm_);
  }
  Vault(const Vault&) = delete;
  Vault(Vault&&) = delete;
  Vault& operator=(const Vault&) = delete;
  Vault& operator=(Vault&&) = delete;

  // Anything but the pieces that messages have been received to.
  [[nodiscard]] bool Changed(const std::vector<Slot>& received) const {
    std::vector<uint8_t> copy(right_.size());
    CheckErrno(ibv_memcpy_from_dm(copy.data(), dm_, 0, copy.size()),
               "ibv_memcpy_from_dm");
    if (copy != right_) {
      return true;
    }
    std::memcpy(copy.data(), memory_, copy.size());
    for (const Slot slot : received) {
      const size_t at = slot * kPage + kBegin;
      std::memcpy(copy.data() + at, right_.data() + at, kPiece);
    }
    return copy != right_;
  }

  void Restore() {
    std::memcpy(memory_, right_.data(), right_.size());
    CheckErrno(ibv_memcpy_to_dm(dm_, 0, right_.data(), right_.size()),
               "ibv_memcpy_to_dm");
  }

  [[nodiscard]] ibv_sge Receive(Slot slot) const {
    return {.addr = reinterpret_cast<uintptr_t>(At(slot)),
            .length = kPiece,
            .lkey = receives_->lkey};
  }

  [[nodiscard]] ibv_mr* shown() const { return shown_.get(); }

  void Tell(Numbers* numbers) const {
    numbers->pinned = RegionOf(*pinned_, kPinned);
    numbers->on_demand = RegionOf(*on_demand_, kOnDemand);
    numbers->device_memory = {device_memory_->lkey, device_memory_->rkey, 0};
    numbers->used.mr = pinned_->handle;
    numbers->used.dm = dm_->handle;
  }

 private:
  [[nodiscard]] uint8_t* At(Slot slot) const {
    return memory_ + slot * kPage + kBegin;
  }
  [[nodiscard]] Region RegionOf(const ibv_mr& mr, Slot slot) const {
    return {mr.lkey, mr.rkey, reinterpret_cast<uintptr_t>(At(slot))};
  }

  const Device& device_;
  uint8_t* memory_ = nullptr;
  ibv_dm* dm_ = nullptr;
  std::vector<uint8_t> right_;
  MrPtr pinned_;
  MrPtr on_demand_;
  MrPtr shown_;
  MrPtr receives_;
  MrPtr device_memory_;
};

// A file that only its owner may open.
class OwnFile {
 public:
  OwnFile() : fd_(mkostemp(name_.data(), O_CLOEXEC)) {
    CheckErrno(fd_ < 0 ? errno : 0, "mkostemp");
  }
  ~OwnFile() {
    unlink(name_.data());
    close(fd_);
  }
  OwnFile(const OwnFile&) = delete;
  OwnFile(OwnFile&&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;
  OwnFile& operator=(OwnFile&&) = delete;

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] const std::array<char, 64>& name() const { return name_; }

 private:
  std::array<char, 64> name_{"/tmp/rop_strangers.XXXXXX"};
  int fd_;
};

// A device whose objects have numbers of their own.
class Offset {
 public:
  explicit Offset(const Side& side) : device_(OpenDevice(side)) {
    for (size_t i = 0; i < kFillers; ++i) {
      fillers_.push_back(std::move(device_.pd));
      device_.pd.reset(ibv_alloc_pd(device_.context.get()));
      CheckErrno(device_.pd == nullptr ? errno : 0, "ibv_alloc_pd");
    }
    cq_ = CreateCq(device_, kFillerCqe);
    for (const Mapping& one : MappingsOf(device_.context->cmd_fd)) {
      end_ = std::max(end_, one.offset + one.length);
    }
  }

  [[nodiscard]] const Device& device() const { return device_; }
  // Where mappings begin that are not a filler's.
  [[nodiscard]] uint64_t end() const { return end_; }

 private:
  Device device_;
  std::vector<PdPtr> fillers_;
  CqPtr cq_;
  uint64_t end_ = 0;
};

class Victim {
 public:
  Victim(Side& partner, const Channel& stranger)
      : partner_(partner),
        stranger_(stranger),
        offset_(partner),
        device_(offset_.device()),
        xrcd_(OpenXrcd(device_, file_.fd())),
        vault_(device_),
        traffic_(partner, device_, {xrcd_.get(), vault_.shown()}),
        actor_(device_, xrcd_.get(), nullptr),
        report_(true) {
    numbers_.gid = device_.gid;
    numbers_.spare = MakeSpares(device_);
    actor_.own = MakeSpares(device_);
    numbers_.used.pd = device_.pd->handle;
    numbers_.used.xrcd = XrcdHandle(device_, file_.fd());
    numbers_.xrcd_file = file_.name();
    vault_.Tell(&numbers_);
    traffic_.Tell(&numbers_);
    if (HasMappedQueues()) {
      xrc_cq_ = CreateCq(device_, 2 * kDepth);
      xrc_srq_ = CreateXrcSrq(device_, xrcd_.get(), xrc_cq_.get());
      CheckErrno(ibv_get_srq_num(xrc_srq_.get(), &numbers_.srqn),
                 "ibv_get_srq_num");
      unbound_.reset(ibv_alloc_mw(device_.pd.get(), IBV_MW_TYPE_2));
      CheckErrno(unbound_ == nullptr ? errno : 0, "ibv_alloc_mw");
      numbers_.unbound = unbound_->rkey;
      const HandWritten queue(device_, traffic_.ah());
      numbers_.ah_number = queue.number();
      PostSrqRecv(xrc_srq_.get(), kXrc, {vault_.Receive(kXrc)});
    } else {
      numbers_.used.mw = numbers_.spare.mw;
    }
    PostRecv(traffic_.rc(), kRc, {vault_.Receive(kRc)});
    PostRecv(traffic_.uc(), kUc, {vault_.Receive(kUc)});
    PostRecv(traffic_.ud(), kUd, {vault_.Receive(kUd)});
    for (const Mapping& one : MappingsOf(device_.context->cmd_fd)) {
      if (one.offset >= offset_.end() &&
          numbers_.num_mappings < numbers_.mappings.size()) {
        numbers_.mappings.at(numbers_.num_mappings++) = one;
      }
    }
  }

  void Run() {
    stranger_.Write(&numbers_, sizeof(numbers_));
    // The first messages of targets are events.
    traffic_.Round(true);
    AckEvents();
    const std::vector<Attempt> attempts =
        AllAttempts(partner_.options, device_);
    for (size_t i = 0; i < attempts.size(); ++i) {
      report_.Case(attempts[i].name,
                   [&] { Try(attempts[i], static_cast<int>(i)); });
    }
    stranger_.Write(&kEnd, sizeof(kEnd));
    End();
    std::cout << report_.cases() - report_.failed() << " of " << report_.cases()
              << " attempts end as they must\n";
    Check(report_.failed() == 0 || partner_.options.tolerate, report_.failed(),
          " attempts do not end as they must");
  }

 private:
  void Try(const Attempt& attempt, int number) {
    stranger_.Write(&number, sizeof(number));
    // At least once during the attempt, and once after it.
    do {
      traffic_.Round(true);
    } while (!stranger_.Readable());
    Outcome outcome{};
    stranger_.Read(outcome.data(), outcome.size());
    traffic_.Round(true);
    ExpectOutcome("the stranger", outcome.data(), attempt.stranger);
    Expect("the stranger", false, attempt.stranger_heard);
    traffic_.ExpectStates();
    ExpectNoEvent();
    if (attempt.owner.empty()) {
      return;
    }
    actor_.Clear();
    ExpectOutcome("the victim", attempt.run(actor_, numbers_), attempt.owner);
    traffic_.Round(true);
    Expect("the victim", attempt.changes, attempt.owner_heard);
    traffic_.ExpectStates();
    AckEvents();
  }

  void ExpectOutcome(const std::string& who, const std::string& outcome,
                     const std::string& right) {
    report_.Expect(outcome == right, who, ": ", outcome, ", expected: ", right);
  }

  // After an attempt: the victim's memory, and what its quiet queues received.
  void Expect(const std::string& who, bool changes, int heard) {
    const std::vector<Slot> received = Hear();
    report_.Expect(std::ssize(received) == heard, who,
                   ": the victim has received ", received.size(),
                   " messages, expected ", heard);
    const bool changed = vault_.Changed(received);
    report_.Expect(changed == changes, who, ": memory has ",
                   changed ? "" : "not ", "changed");
    vault_.Restore();
  }

  // Takes what has come, and receives again. Returns where it is.
  std::vector<Slot> Hear() {
    std::vector<Slot> received;
    std::vector<ibv_cq*> cqs = {traffic_.rc()->recv_cq, traffic_.uc()->recv_cq,
                                traffic_.ud()->recv_cq};
    if (xrc_cq_ != nullptr) {
      cqs.push_back(xrc_cq_.get());
    }
    for (ibv_cq* const cq : cqs) {
      ibv_wc wc{};
      while (ibv_poll_cq(cq, 1, &wc) > 0) {
        CheckSuccess(wc, "the victim");
        const auto slot = static_cast<Slot>(wc.wr_id);
        received.push_back(slot);
        if (slot == kXrc) {
          PostSrqRecv(xrc_srq_.get(), slot, {vault_.Receive(slot)});
        } else {
          ibv_qp* const qp = slot == kRc   ? traffic_.rc()
                             : slot == kUc ? traffic_.uc()
                                           : traffic_.ud();
          PostRecv(qp, slot, {vault_.Receive(slot)});
        }
      }
    }
    return received;
  }

  [[nodiscard]] bool HasEvent() const {
    pollfd ready{device_.context->async_fd, POLLIN, 0};
    return poll(&ready, 1, 0) == 1;
  }

  std::string AckEvent() {
    ibv_async_event event{};
    CheckErrno(
        ibv_get_async_event(device_.context.get(), &event) != 0 ? errno : 0,
        "ibv_get_async_event");
    std::string name = ibv_event_type_str(event.event_type);
    // What commands have made has no structure of libibverbs'.
    if (event.element.qp != nullptr) {
      ibv_ack_async_event(&event);
    }
    return name;
  }

  void AckEvents() {
    while (HasEvent()) {
      AckEvent();
    }
  }

  void ExpectNoEvent() {
    while (HasEvent()) {
      report_.Expect(false, "an event of the victim's: ", AckEvent());
    }
  }

  // All works as if nobody had ever tried.
  void End() {
    traffic_.Round(false);
    partner_.channel.Write(&numbers_, sizeof(numbers_));
    traffic_.EndQuiet(numbers_);
    const size_t quiet = HasMappedQueues() ? 4 : 3;
    const size_t heard = Hear().size();
    Check(heard == quiet, heard, " of ", quiet,
          " quiet queue pairs have received what their peer sent");
    if (HasMappedQueues()) {
      traffic_.EndWindow();
    }
  }

  Side& partner_;
  const Channel& stranger_;
  OwnFile file_;
  Offset offset_;
  const Device& device_;
  XrcdPtr xrcd_;
  Vault vault_;
  Traffic traffic_;
  Actor actor_;
  CqPtr xrc_cq_;
  SrqPtr xrc_srq_;
  MwPtr unbound_;
  Numbers numbers_{};
  Report report_;
};

void Partner(Side& victim) {
  const Device device = OpenDevice(victim);
  Traffic traffic(victim, device, {});
  while (traffic.Round(true)) {
  }
  Numbers numbers{};
  victim.channel.Read(&numbers, sizeof(numbers));
  traffic.EndQuiet(numbers);
  if (HasMappedQueues()) {
    traffic.EndWindow();
  }
}

// No handle of the victim's is one of the stranger's.
void CheckHandles(const Handles& own, const Numbers& victims) {
  for (const auto which :
       {&Handles::pd, &Handles::mr, &Handles::mw, &Handles::cq, &Handles::qp,
        &Handles::ud, &Handles::srq, &Handles::ah, &Handles::xrcd,
        &Handles::dm}) {
    Check(own.*which < kFillers && victims.used.*which >= kFillers &&
              victims.spare.*which >= kFillers,
          "the stranger has a handle ", own.*which, ", the victim ",
          victims.used.*which, " and ", victims.spare.*which);
  }
}

void BecomeNobody() {
  CheckErrno(
      setgroups(0, nullptr) < 0 || setgid(kNobody) < 0 || setuid(kNobody) < 0
          ? errno
          : 0,
      "setuid");
}

// Tries what the victim says, until it is the end.
void Obey(const Side& victim, Actor& actor, const Numbers& numbers) {
  const std::vector<Attempt> attempts =
      AllAttempts(victim.options, actor.device);
  for (;;) {
    int number = 0;
    victim.channel.Read(&number, sizeof(number));
    if (number == kEnd) {
      return;
    }
    actor.Clear();
    std::string text;
    try {
      text = attempts.at(static_cast<size_t>(number)).run(actor, numbers);
    } catch (const std::exception& error) {
      text = Text("gave up: ", error.what());
    }
    Outcome outcome{};
    text.copy(outcome.data(), outcome.size() - 1);
    victim.channel.Write(outcome.data(), outcome.size());
  }
}

void Stranger(Side& victim) {
  // Whoever changes its user with the file open may not use it.
  BecomeNobody();
  const Device device = OpenDevice(victim);
  const Side there{victim.options, victim.options.device2, false,
                   Channel(-1, victim.options.timeout_s)};
  const Device elsewhere = OpenDevice(there);
  const XrcdPtr xrcd = OpenXrcd(device, -1);
  Actor actor(device, xrcd.get(), &elsewhere);
  actor.own = MakeSpares(device);
  Numbers numbers{};
  victim.channel.Read(&numbers, sizeof(numbers));
  CheckHandles(actor.own, numbers);
  Obey(victim, actor, numbers);
}

// The third of the ports that the nodes meet on.
uint16_t AccomplicePort(const Options& options) {
  return static_cast<uint16_t>(options.tcp_port + 2);
}

void FarStranger(Side& victim) {
  BecomeNobody();
  Side accomplice{victim.options, victim.device, false,
                  Meet(victim.options, AccomplicePort(victim.options))};
  const Device device = OpenDevice(victim);
  Actor actor(device, nullptr, &device);
  actor.accomplice = &accomplice;
  Numbers numbers{};
  victim.channel.Read(&numbers, sizeof(numbers));
  Obey(victim, actor, numbers);
  constexpr bool kNoMore = false;
  accomplice.channel.Write(&kNoMore, sizeof(kNoMore));
}

using Body = std::function<void(Side&)>;

int RunOne(Side side, const char* name, const Body& body) {
  int status = 0;
  try {
    body(side);
  } catch (const std::exception& error) {
    std::cout << std::flush;
    std::cerr << "FAILED: the " << name << ": " << error.what() << "\n";
    status = 1;
  }
  std::cout << std::flush;
  return status;
}

struct Child {
  pid_t pid;
  int fd;
};

// A process of its own, and the victim's end of a channel to it. `others`: of
// those before it.
Child Start(const Options& options, const std::string& device, const char* name,
            const Body& body, int others) {
  std::array<int, 2> fds{};
  CheckErrno(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) < 0
                 ? errno
                 : 0,
             "socketpair");
  std::cout << std::flush;
  const pid_t pid = fork();
  CheckErrno(pid < 0 ? errno : 0, "fork");
  if (pid == 0) {
    close(fds[0]);
    if (others >= 0) {
      close(others);
    }
    _exit(RunOne({options, device, false, Channel(fds[1], options.timeout_s)},
                 name, body));
  }
  close(fds[1]);
  return {pid, fds[0]};
}

int WaitFor(const std::vector<pid_t>& children) {
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    CheckErrno(waitpid(child, &status, 0) < 0 ? errno : 0, "waitpid");
    worst |= status != 0 ? 1 : 0;
  }
  return worst;
}

int RunAlone(const Options& options) {
  const Child partner = Start(options, options.device2, "partner", Partner, -1);
  const Child stranger =
      Start(options, options.device, "stranger", Stranger, partner.fd);
  int worst = 0;
  {
    const Channel to_stranger(stranger.fd, options.timeout_s);
    worst = RunOne(
        {options, options.device, true, Channel(partner.fd, options.timeout_s)},
        "victim", [&](Side& side) { Victim(side, to_stranger).Run(); });
  }
  return WaitFor({partner.pid, stranger.pid}) | worst;
}

// A process of its own, which meets one on the other node.
pid_t StartFar(const Options& options, int port, const char* name,
               const Body& body) {
  std::cout << std::flush;
  const pid_t pid = fork();
  CheckErrno(pid < 0 ? errno : 0, "fork");
  if (pid == 0) {
    const auto tcp_port = static_cast<uint16_t>(port);
    _exit(RunOne({options, options.device, false, Meet(options, tcp_port)},
                 name, body));
  }
  return pid;
}

int RunFar(const Options& options) {
  const int port = options.tcp_port;
  if (options.node > 1) {
    return WaitFor({StartFar(options, port, "partner", Partner),
                    StartFar(options, port + 1, "stranger", FarStranger)});
  }
  const pid_t accomplice = StartFar(options, AccomplicePort(options),
                                    "accomplice", [](Side& stranger) {
                                      BecomeNobody();
                                      Accomplice(stranger);
                                    });
  int worst = 0;
  {
    Side partner{options, options.device, true,
                 Meet(options, options.tcp_port)};
    const Channel stranger = Meet(options, static_cast<uint16_t>(port + 1));
    worst = RunOne(std::move(partner), "victim",
                   [&](Side& side) { Victim(side, stranger).Run(); });
  }
  return WaitFor({accomplice}) | worst;
}

}  // namespace
}  // namespace ropcie::strangers

int main(int argc, char** argv) {
  const ropcie::Options options = ropcie::ParseOptions(
      argc, argv, "one process and the objects of another");
  try {
    return options.nodes > 1 ? ropcie::strangers::RunFar(options)
                             : ropcie::strangers::RunAlone(options);
  } catch (const std::exception& error) {
    std::cerr << "FAILED: " << options.program << ": " << error.what() << "\n";
    return 1;
  }
}
