// SPDX-License-Identifier: GPL-2.0
// Every call of the control path, with each of the kernel's allocations and
// copies in it failing in turn (CONFIG_FAULT_INJECTION): the call fails with an
// errno that says so, or does without; what was there is as before, and the
// same call works when it is made again. When all is done, it says "done" and
// waits for a line, so that somebody can look whether anything is left.
// Wants a device that reaches itself, and --nodes 1.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include "failure.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr int kMost = 5000;  // of one call; none has so many
constexpr size_t kMemory = size_t{64} * 4096;
constexpr int kEntries = 200;

using AhPtr = std::unique_ptr<ibv_ah, Destroyer<ibv_destroy_ah>>;
using MwPtr = std::unique_ptr<ibv_mw, Destroyer<ibv_dealloc_mw>>;
using DmPtr = std::unique_ptr<ibv_dm, Destroyer<ibv_free_dm>>;
using XrcdPtr = std::unique_ptr<ibv_xrcd, Destroyer<ibv_close_xrcd>>;

// Has the N-th of this thread's allocations and copies fail, once.
class Injector {
 public:
  Injector()
      : fd_(open(
            Text("/proc/self/task/", syscall(SYS_gettid), "/fail-nth").c_str(),
            O_RDWR | O_CLOEXEC)) {}
  ~Injector() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  Injector(const Injector&) = delete;
  Injector(Injector&&) = delete;
  Injector& operator=(const Injector&) = delete;
  Injector& operator=(Injector&&) = delete;

  [[nodiscard]] bool works() const { return fd_ >= 0; }

  void Arm(int nth) const {
    const std::string text = std::to_string(nth);
    const auto length = static_cast<ssize_t>(text.size());
    ssize_t written = pwrite(fd_, text.data(), text.size(), 0);
    if (written < 0 && errno == EFAULT) {
      // It was the copy of this that has failed, once.
      written = pwrite(fd_, text.data(), text.size(), 0);
    }
    CheckErrno(written != length ? errno : 0, "cannot ask for a failure");
  }

  // True if it has failed something.
  [[nodiscard]] bool Disarm() const {
    // The copy of the answer may be what fails.
    std::array<char, 32> text{};
    ssize_t length = pread(fd_, text.data(), text.size() - 1, 0);
    if (length < 0) {
      length = pread(fd_, text.data(), text.size() - 1, 0);
      CheckErrno(length < 0 ? errno : 0, "cannot read fail-nth");
      return false;
    }
    const bool failed = std::atoi(text.data()) == 0;
    if (!failed) {
      Arm(0);
    }
    return failed;
  }

 private:
  int fd_;
};

class Sweep {
 public:
  Sweep(const Device& device, const Injector& injector)
      : device_(device),
        injector_(injector),
        context_(device.context.get()),
        memory_(static_cast<uint8_t*>(
            mmap(nullptr, kMemory, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0))) {
    CheckErrno(memory_ == MAP_FAILED ? errno : 0, "mmap");
  }
  ~Sweep() { munmap(memory_, kMemory); }
  Sweep(const Sweep&) = delete;
  Sweep(Sweep&&) = delete;
  Sweep& operator=(const Sweep&) = delete;
  Sweep& operator=(Sweep&&) = delete;

  void Run() {
    Contexts();
    Domains();
    Regions();
    Windows();
    CompletionQueues();
    SharedQueues();
    Addresses();
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
      QueuePairs(type);
    }
    Posting();
    std::cout << injected_ << " failures in " << calls_ << " calls, of which "
              << told_ << " were told\n";
    Check(injected_ > calls_, "hardly anything has failed");
    Check(wrong_ == 0, wrong_, " failures have an errno that does not say so");
  }

 private:
  using Call = std::function<int()>;
  using Step = std::function<void()>;

  // `call` returns an errno; `before` and `after` make and clean up what it
  // needs. It fails at each place in turn until there is no further one.
  void Each(const std::string& name, const Step& before, const Call& call,
            const Step& after) {
    int nth = 0;
    bool more = true;
    int told = 0;
    while (more) {
      ++nth;
      Check(nth < kMost, name, ": there is no end of failures");
      before();
      injector_.Arm(nth);
      const int error = call();
      more = injector_.Disarm();
      if (error != 0) {
        const std::string what =
            Text(name, ", failure ", nth, ": ", std::strerror(error));
        Check(more, what, ", although nothing has failed");
        // Linux's table of neighbours says ENOBUFS when it has no memory.
        if (error != ENOMEM && error != EFAULT && error != ENOBUFS) {
          std::cout << "WRONG: " << what << "\n";
          ++wrong_;
        }
        ++told;
        const int again = call();
        CheckErrno(again, what, ", and the next call");
      }
      after();
    }
    std::cout << name << ": " << nth - 1 << " failures, " << told << " told\n"
              << std::flush;
    ++calls_;
    injected_ += nth - 1;
    told_ += told;
  }

  template <typename Pointer>
  void Create(const std::string& name, Pointer* object,
              const std::function<typename Pointer::pointer()>& create) {
    Each(
        name, [] {},
        [&] {
          errno = 0;
          object->reset(create());
          return *object == nullptr ? errno : 0;
        },
        [&] { object->reset(); });
  }

  template <typename Pointer, typename Destroy>
  void CreateAndDestroy(
      const std::string& name, const Destroy& destroy,
      const std::function<typename Pointer::pointer()>& create) {
    Pointer object;
    int last = 0;
    Create("create " + name, &object, create);
    Each(
        "destroy " + name,
        [&] {
          object.reset(create());
          CheckErrno(object == nullptr ? errno : 0, "create ", name);
        },
        [&] {
          int error = destroy(object.get());
          // The copy of the answer has failed, behind the object's end.
          error = error == ENOENT && last == EFAULT ? 0 : error;
          last = error;
          if (error == 0) {
            static_cast<void>(object.release());
          }
          return error;
        },
        [] {});
  }

  void Query(const std::string& name, const Call& call) {
    Each(
        name, [] {}, call, [] {});
  }

  void Contexts() {
    // libibverbs looks elsewhere when it cannot open a file, and tells of that.
    Query("open device", [&] {
      const ContextPtr context(ibv_open_device(context_->device));
      return context == nullptr ? ENOMEM : 0;
    });
    ibv_device_attr attr{};
    Query("query device", [&] { return ibv_query_device(context_, &attr); });
    ibv_port_attr port{};
    Query("query port",
          [&] { return ibv_query_port(context_, Device::kPort, &port); });
    ChannelPtr channel;
    Create("create channel", &channel,
           [&] { return ibv_create_comp_channel(context_); });
  }

  void Domains() {
    CreateAndDestroy<PdPtr>("PD", ibv_dealloc_pd,
                            [&] { return ibv_alloc_pd(context_); });
    CreateAndDestroy<XrcdPtr>("XRC domain", ibv_close_xrcd, [&] {
      ibv_xrcd_init_attr init{};
      init.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
      init.fd = -1;
      init.oflags = O_CREAT;
      return ibv_open_xrcd(context_, &init);
    });
    CreateAndDestroy<DmPtr>("device memory", ibv_free_dm, [&] {
      ibv_alloc_dm_attr attr{};
      attr.length = 4096;
      return ibv_alloc_dm(context_, &attr);
    });
  }

  ibv_mr* Register(int access) {
    return ibv_reg_mr_iova2(device_.pd.get(), memory_, kMemory,
                            reinterpret_cast<uintptr_t>(memory_),
                            static_cast<unsigned int>(access));
  }

  void Regions() {
    CreateAndDestroy<MrPtr>("MR", ibv_dereg_mr, [&] {
      return Register(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    });
    CreateAndDestroy<MrPtr>("MR on demand", ibv_dereg_mr, [&] {
      return Register(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
    });
    MrPtr mr;
    const Step fresh = [&] { mr = RegisterMr(device_, memory_, kMemory); };
    // A call that fails while it changes the memory leaves none to be changed.
    Each(
        "rereg MR, access", fresh,
        [&] { return Rereg(mr.get(), IBV_REREG_MR_CHANGE_ACCESS, kMemory); },
        [&] { mr.reset(); });
    Each(
        "rereg MR, memory", fresh,
        [&] {
          return Rereg(
              mr.get(),
              IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS,
              kMemory / 2);
        },
        [&] { mr.reset(); });
  }

  int Rereg(ibv_mr* mr, int flags, size_t length) {
    errno = 0;
    const int ret =
        ibv_rereg_mr(mr, flags, device_.pd.get(), memory_, length,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    return ret == 0 ? 0 : errno;
  }

  void Windows() {
    for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
      CreateAndDestroy<MwPtr>(
          Text("MW of type ", int{type}), ibv_dealloc_mw,
          [&] { return ibv_alloc_mw(device_.pd.get(), type); });
    }
  }

  void CompletionQueues() {
    CreateAndDestroy<CqPtr>("CQ", ibv_destroy_cq, [&] {
      return ibv_create_cq(context_, kEntries, nullptr, nullptr, 0);
    });
    CqPtr cq;
    Each(
        "resize CQ", [&] { cq = CreateCq(device_, kEntries); },
        [&] { return ibv_resize_cq(cq.get(), 4 * kEntries); },
        [&] { cq.reset(); });
    cq = CreateCq(device_, kEntries);
    Query("request event", [&] { return ibv_req_notify_cq(cq.get(), 0); });
    cq = CreateCq(device_, kEntries);
    Query("poll", [&] {
      ibv_wc wc{};
      const int count = ibv_poll_cq(cq.get(), 1, &wc);
      return count < 0 ? -count : 0;
    });
  }

  SrqPtr MakeSrq() {
    ibv_srq_init_attr init{};
    init.attr.max_wr = kEntries;
    init.attr.max_sge = 1;
    return SrqPtr(ibv_create_srq(device_.pd.get(), &init));
  }

  void SharedQueues() {
    CreateAndDestroy<SrqPtr>("SRQ", ibv_destroy_srq,
                             [&] { return MakeSrq().release(); });
    SrqPtr srq;
    const Step fresh = [&] {
      srq = MakeSrq();
      CheckErrno(srq == nullptr ? errno : 0, "ibv_create_srq");
    };
    Each(
        "resize SRQ", fresh,
        [&] {
          ibv_srq_attr attr{};
          attr.max_wr = 4 * kEntries;
          return ibv_modify_srq(srq.get(), &attr, IBV_SRQ_MAX_WR);
        },
        [&] { srq.reset(); });
    fresh();
    Query("query SRQ", [&] {
      ibv_srq_attr attr{};
      return ibv_query_srq(srq.get(), &attr);
    });
  }

  ibv_ah_attr Self() {
    return RtrAttr(device_, {device_.gid, 0, 0, device_.port.active_mtu}, {})
        .ah_attr;
  }

  void Addresses() {
    CreateAndDestroy<AhPtr>("AH", ibv_destroy_ah, [&] {
      ibv_ah_attr attr = Self();
      return ibv_create_ah(device_.pd.get(), &attr);
    });
  }

  ibv_qp* MakeQp(ibv_qp_type type, ibv_cq* cq) {
    ibv_qp_init_attr init{};
    init.send_cq = cq;
    init.recv_cq = cq;
    init.qp_type = type;
    init.cap = {.max_send_wr = 64,
                .max_recv_wr = 64,
                .max_send_sge = 2,
                .max_recv_sge = 2,
                .max_inline_data = 64};
    return ibv_create_qp(device_.pd.get(), &init);
  }

  // From RESET, with itself.
  static int Step1(ibv_qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = Device::kPort;
    attr.qkey = 1;
    return ibv_modify_qp(
        qp, &attr,
        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
            (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
  }

  int Step2(ibv_qp* qp) {
    ibv_qp_attr attr = RtrAttr(
        device_, {device_.gid, qp->qp_num, 0, device_.port.active_mtu}, {});
    constexpr int kUcMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                            IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    return ibv_modify_qp(qp, &attr,
                         qp->qp_type == IBV_QPT_RC   ? kRtrMask
                         : qp->qp_type == IBV_QPT_UC ? kUcMask
                                                     : int{IBV_QP_STATE});
  }

  static int Step3(ibv_qp* qp) {
    ibv_qp_attr attr = RtsAttr(0, {});
    return ibv_modify_qp(
        qp, &attr,
        qp->qp_type == IBV_QPT_RC ? kRtsMask : IBV_QP_STATE | IBV_QP_SQ_PSN);
  }

  static int StepTo(ibv_qp* qp, ibv_qp_state state) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
  }

  void QueuePairs(ibv_qp_type type) {
    const std::string name = Text("QP of type ", int{type});
    const CqPtr cq = CreateCq(device_, kEntries);
    CreateAndDestroy<QpPtr>(name, ibv_destroy_qp,
                            [&] { return MakeQp(type, cq.get()); });
    QpPtr qp;
    const std::array<std::function<int(ibv_qp*)>, 5> steps = {
        [](ibv_qp* one) { return Step1(one); },
        [this](ibv_qp* one) { return Step2(one); },
        [](ibv_qp* one) { return Step3(one); },
        [](ibv_qp* one) { return StepTo(one, IBV_QPS_ERR); },
        [](ibv_qp* one) { return StepTo(one, IBV_QPS_RESET); }};
    const std::array<ibv_qp_state, 6> states = {IBV_QPS_RESET, IBV_QPS_INIT,
                                                IBV_QPS_RTR,   IBV_QPS_RTS,
                                                IBV_QPS_ERR,   IBV_QPS_RESET};
    for (size_t step = 0; step < steps.size(); ++step) {
      Each(
          Text("modify ", name, " to ", int{states.at(step + 1)}),
          [&] {
            qp.reset(MakeQp(type, cq.get()));
            CheckErrno(qp == nullptr ? errno : 0, "ibv_create_qp");
            for (size_t i = 0; i < step; ++i) {
              CheckErrno(steps.at(i)(qp.get()), "modify, step ", i);
            }
          },
          [&] {
            const int error = steps.at(step)(qp.get());
            Check(error == 0 || qp->state == states.at(step), name,
                  " was not modified, and has state ", int{qp->state});
            return error;
          },
          [&] {
            Check(StateOf(qp.get()) == states.at(step + 1), name,
                  " has another state than it was given");
            qp.reset();
          });
    }
    qp.reset(MakeQp(type, cq.get()));
    Query("query " + name, [&] {
      ibv_qp_attr attr{};
      ibv_qp_init_attr init{};
      return ibv_query_qp(qp.get(), &attr, IBV_QP_STATE | IBV_QP_CAP, &init);
    });
  }

  // With itself. What was posted completes, whatever has failed.
  void Posting() {
    const CqPtr cq = CreateCq(device_, kEntries);
    const QpPtr qp(MakeQp(IBV_QPT_RC, cq.get()));
    CheckErrno(qp == nullptr ? errno : 0, "ibv_create_qp");
    CheckErrno(Step1(qp.get()), "modify to INIT");
    CheckErrno(Step2(qp.get()), "modify to RTR");
    CheckErrno(Step3(qp.get()), "modify to RTS");
    const MrPtr mr = RegisterMr(device_, memory_, kMemory);
    const Step receive = [&] {
      PostRecv(qp.get(), 1,
               {{reinterpret_cast<uintptr_t>(memory_), 8, mr->lkey}});
    };
    const auto send = [&] {
      ibv_sge sge{reinterpret_cast<uintptr_t>(memory_) + 4096, 8, mr->lkey};
      ibv_send_wr wr{};
      wr.sg_list = &sge;
      wr.num_sge = 1;
      wr.opcode = IBV_WR_SEND;
      wr.send_flags = IBV_SEND_SIGNALED;
      ibv_send_wr* bad = nullptr;
      return ibv_post_send(qp.get(), &wr, &bad);
    };
    const Step both = [&] {
      for (const ibv_wc& wc : WaitFor(cq.get(), 2, 60, "a message to itself")) {
        CheckSuccess(wc, "a message to itself");
      }
    };
    Each("post send", receive, send, both);
    Each(
        "post receive", [] {},
        [&] {
          ibv_recv_wr wr{};
          ibv_sge sge{reinterpret_cast<uintptr_t>(memory_), 8, mr->lkey};
          wr.sg_list = &sge;
          wr.num_sge = 1;
          ibv_recv_wr* bad = nullptr;
          return ibv_post_recv(qp.get(), &wr, &bad);
        },
        [&] {
          CheckErrno(send(), "ibv_post_send");
          both();
        });
  }

  const Device& device_;
  const Injector& injector_;
  ibv_context* context_;
  uint8_t* memory_;
  int calls_ = 0;
  int injected_ = 0;
  int told_ = 0;
  int wrong_ = 0;
};

void Run(Side& side) {
  if (!side.leads) {
    return;
  }
  const Injector injector;
  Check(injector.works(), "this kernel has no fault injection");
  const Device device = OpenDevice(side);
  Sweep(device, injector).Run();
  std::cout << "done\n" << std::flush;
  std::string line;
  std::getline(std::cin, line);
}

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(argc, argv,
                            "every call with everything in it failing in turn",
                            ropcie::Run);
}
