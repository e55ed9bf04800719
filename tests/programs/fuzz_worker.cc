// SPDX-License-Identifier: GPL-2.0
#include "fuzz_worker.h"

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <vector>

#include "fuzz_hook.h"
#include "nldev.h"
#include "vgem.h"

namespace ropcie {
namespace {

constexpr size_t kPage = 4096;
constexpr uint32_t kDmaBufSide = 64;  // four pages
constexpr size_t kPool = 12;          // most objects of a kind and thread

// Numbers that programs use, and a few that they do not.
template <typename T = uint32_t>
T Any() {
  switch (Below(8)) {
    case 0:
      return static_cast<T>(Random());
    case 1:
      return static_cast<T>(~uint64_t{0});
    case 2:
      return static_cast<T>(uint64_t{1} << Below(8 * sizeof(T)));
    case 3:
      return static_cast<T>(Below(kFuzzMemory));
    default:
      return static_cast<T>(Below(16));
  }
}

template <typename T>
T* Pick(const std::vector<T*>& pool) {
  return pool.empty() ? nullptr : pool[Below(pool.size())];
}

// Fault injection, where a kernel has it and it is on, is for this thread.
void SetFailures(bool on) {
  std::ofstream("/proc/thread-self/make-it-fail") << (on ? 1 : 0);
}

// One thread's objects, and what it does with them.
class Worker {
 public:
  Worker(ibv_context* context, uint8_t* memory, uint64_t seed,
         std::atomic<uint64_t>* created)
      : context_(context), memory_(memory), created_(created) {
    SeedRandom(seed);
    channel_ = ibv_create_comp_channel(context_);
    if (channel_ != nullptr) {
      fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
    }
    fcntl(context_->async_fd, F_SETFL, O_NONBLOCK);
    (void)ibv_query_gid(context_, 1, 0, &gid_);
    if (HasVgem()) {
      dma_buf_.Open(VgemBuffer(kDmaBufSide).Export(OneIn(2) ? O_RDWR : 0));
    }
  }

  [[noreturn]] void Run() {
    for (;;) {
      switch (Below(6)) {
        case 0:
          Create();
          break;
        case 1:
          if (OneIn(3)) {
            Destroy();
          }
          break;
        case 2:
          Change();
          break;
        case 3:
          Look();
          break;
        default:
          Post();
      }
    }
  }

 private:
  template <typename T>
  void Keep(std::vector<T*>& pool, T* object) {
    if (object != nullptr) {
      pool.push_back(object);
      ++*created_;
    }
  }
  template <typename T, typename F>
  static void Drop(std::vector<T*>& pool, F destroy) {
    if (pool.empty()) {
      return;
    }
    const size_t at = Below(pool.size());
    if (destroy(pool[at]) == 0) {
      pool.erase(pool.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }

  uint8_t* Somewhere() { return memory_ + Below(kFuzzMemory); }

  void Create() {
    ibv_pd* const pd = Pick(pds_);
    ibv_cq* const cq = Pick(cqs_);
    switch (Below(14)) {
      case 0:
        if (pds_.size() < kPool) {
          Keep(pds_, ibv_alloc_pd(context_));
        }
        break;
      case 1:
        if (cqs_.size() < kPool) {
          Keep(cqs_, ibv_create_cq(context_, Any<uint16_t>(), nullptr, channel_,
                                   OneIn(8) ? Any<int>() : 0));
        }
        break;
      case 2:
      case 3:
        if (pd != nullptr && mrs_.size() < kPool) {
          Keep(mrs_, ibv_reg_mr_iova2(
                         pd, OneIn(16) ? nullptr : Somewhere(),
                         OneIn(8) ? Any<size_t>() : Below(16 * kPage),
                         OneIn(4) ? Any<uint64_t>()
                                  : reinterpret_cast<uintptr_t>(Somewhere()),
                         OneIn(4) ? Any() : AnyAccess()));
        }
        break;
      case 4:
      case 5:
        if (pd != nullptr && cq != nullptr && qps_.size() < kPool) {
          CreateQp(pd, cq);
        }
        break;
      case 6:
        if (pd != nullptr && srqs_.size() < kPool) {
          ibv_srq_init_attr init{};
          init.attr.max_wr = OneIn(8) ? Any() : Below(64);
          init.attr.max_sge = OneIn(8) ? Any() : Below(4);
          Keep(srqs_, ibv_create_srq(pd, &init));
        }
        break;
      case 7:
        if (pd != nullptr && mws_.size() < kPool) {
          Keep(mws_, ibv_alloc_mw(pd, static_cast<ibv_mw_type>(Below(3))));
        }
        break;
      case 8:
        if (pd != nullptr && ahs_.size() < kPool) {
          ibv_ah_attr attr = Address();
          Keep(ahs_, ibv_create_ah(pd, &attr));
        }
        break;
      case 9:
        if (pd != nullptr && mrs_.size() < kPool) {
          Keep(mrs_, ibv_reg_dmabuf_mr(
                         pd, OneIn(8) ? Any<size_t>() : Below(4) * kPage,
                         OneIn(8) ? Any<size_t>() : Below(4 * kPage), Any(),
                         OneIn(8) ? Any<int>() : dma_buf_.get(),
                         static_cast<int>(OneIn(8) ? Any() : AnyAccess())));
        }
        break;
      case 10:
        if (pd != nullptr && cq != nullptr && qps_.size() < kPool) {
          CreateXrc(pd, cq);
        }
        break;
      case 11:
        CreateSpecial(pd);
        break;
      case 12:
        Import();
        break;
      default:
        CreateDm(pd);
    }
  }

  // What has calls of its own beside the usual ones.
  void CreateSpecial(ibv_pd* pd) {
    if (pd != nullptr && mrs_.size() < kPool) {
      Keep(mrs_, ibv_alloc_null_mr(pd));
    }
    ibv_parent_domain_init_attr domain{};
    domain.pd = pd;
    domain.comp_mask = OneIn(8) ? Any() : 0;
    if (pd != nullptr && pds_.size() < kPool) {
      Keep(pds_, ibv_alloc_parent_domain(context_, &domain));
    }
    ibv_cq_init_attr_ex init{};
    init.cqe = Any<uint16_t>();
    init.channel = channel_;
    init.comp_vector = OneIn(8) ? Any() : 0;
    init.wc_flags = OneIn(2) ? uint64_t{IBV_WC_STANDARD_FLAGS} : Any();
    init.comp_mask =
        static_cast<uint32_t>(Below(2)) * IBV_CQ_INIT_ATTR_MASK_FLAGS;
    init.flags = OneIn(8) ? Any() : Below(4);
    if (cqs_.size() < kPool) {
      ibv_cq_ex* const cq = ibv_create_cq_ex(context_, &init);
      Keep(cqs_, cq != nullptr ? ibv_cq_ex_to_cq(cq) : nullptr);
    }
  }

  // Objects by their numbers, as a process does that was given the device's
  // file.
  void Import() {
    ibv_context* const twin =
        ibv_import_device(fcntl(context_->cmd_fd, F_DUPFD_CLOEXEC, 0));
    if (twin == nullptr) {
      return;
    }
    const ibv_pd* const pd = Pick(pds_);
    const ibv_mr* const mr = Pick(mrs_);
    ibv_pd* const domain =
        ibv_import_pd(twin, OneIn(8) || pd == nullptr ? Any() : pd->handle);
    if (domain != nullptr) {
      ibv_mr* const region =
          ibv_import_mr(domain, OneIn(8) || mr == nullptr ? Any() : mr->handle);
      if (region != nullptr) {
        ibv_unimport_mr(region);
      }
      ibv_unimport_pd(domain);
    }
    ibv_dm* const dm = ibv_import_dm(twin, static_cast<uint32_t>(Below(64)));
    if (dm != nullptr) {
      (void)ibv_memcpy_to_dm(dm, 4 * Below(kPage), memory_, 4 * Below(64));
      ibv_unimport_dm(dm);
    }
    ibv_close_device(twin);
  }

  // A domain, a queue of receives of it, and a pair of queue pairs; as far as
  // they can be had.
  void CreateXrc(ibv_pd* pd, ibv_cq* cq) {
    ibv_xrcd_init_attr domain{};
    domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    domain.fd = OneIn(8) ? Any<int>() : -1;
    domain.oflags = OneIn(8) ? Any<int>() : O_CREAT;
    if (xrcds_.size() < kPool) {
      Keep(xrcds_, ibv_open_xrcd(context_, &domain));
    }
    ibv_xrcd* const xrcd = Pick(xrcds_);
    ibv_srq_init_attr_ex srq{};
    srq.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                    IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    srq.srq_type = OneIn(8) ? IBV_SRQT_BASIC : IBV_SRQT_XRC;
    srq.attr = {static_cast<uint32_t>(Below(64)),
                static_cast<uint32_t>(Below(4)), 0};
    srq.pd = pd;
    srq.xrcd = xrcd;
    srq.cq = Pick(cqs_);
    if (xrcd != nullptr && srqs_.size() < kPool) {
      Keep(srqs_, ibv_create_srq_ex(context_, &srq));
    }
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_XRC_SEND;
    init.comp_mask = IBV_QP_INIT_ATTR_PD;
    init.pd = pd;
    init.send_cq = cq;
    init.cap.max_send_wr = OneIn(8) ? Any() : Below(64);
    init.cap.max_send_sge = OneIn(8) ? Any() : Below(4);
    ibv_qp* const sender = ibv_create_qp_ex(context_, &init);
    Keep(qps_, sender);
    init = {};
    init.qp_type = IBV_QPT_XRC_RECV;
    init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    init.xrcd = xrcd;
    // Linux (create_xrc_qp_user()) keeps the domain for ever where memory for
    // the last of that is short.
    SetFailures(false);
    ibv_qp* const receiver =
        xrcd != nullptr ? ibv_create_qp_ex(context_, &init) : nullptr;
    SetFailures(true);
    Keep(qps_, receiver);
    if (sender != nullptr && receiver != nullptr) {
      Connect(sender, receiver);
      Connect(receiver, sender);
    }
    OpenQp(xrcd);
  }

  // Linux (ib_uverbs_open_qp()) does not make the lock of a queue pair's groups
  // when it is opened: a process joins groups, or it opens queue pairs.
  static bool JoinsGroups() {
    static const bool joins = OneIn(2);
    return joins;
  }

  // Somebody's receiving end, by its number.
  void OpenQp(ibv_xrcd* xrcd) {
    const ibv_qp* const other = Pick(qps_);
    if (xrcd == nullptr || other == nullptr || JoinsGroups()) {
      return;
    }
    ibv_qp_open_attr attr{};
    attr.comp_mask =
        IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    attr.qp_num = OneIn(8) ? Any() : other->qp_num;
    attr.xrcd = xrcd;
    attr.qp_type = IBV_QPT_XRC_RECV;
    Keep(qps_, ibv_open_qp(context_, &attr));
  }

  void CreateDm(ibv_pd* pd) {
    if (dms_.size() < kPool) {
      ibv_alloc_dm_attr attr{OneIn(8) ? Any<size_t>() : Below(4 * kPage),
                             OneIn(8) ? Any() : 0, 0};
      Keep(dms_, ibv_alloc_dm(context_, &attr));
    }
    ibv_dm* const dm = Pick(dms_);
    if (dm == nullptr) {
      return;
    }
    if (pd != nullptr && mrs_.size() < kPool) {
      Keep(mrs_, ibv_reg_dm_mr(pd, dm, OneIn(2) ? 0 : Any(), Below(4 * kPage),
                               AnyAccess() | IBV_ACCESS_ZERO_BASED));
    }
    (void)ibv_memcpy_to_dm(dm, 4 * Below(kPage), memory_, 4 * Below(64));
  }

  void CreateQp(ibv_pd* pd, ibv_cq* cq) {
    ibv_qp_init_attr init{};
    init.send_cq = cq;
    init.recv_cq = Pick(cqs_);
    init.srq = OneIn(4) ? Pick(srqs_) : nullptr;
    init.cap.max_send_wr = OneIn(8) ? Any() : Below(64);
    init.cap.max_recv_wr = OneIn(8) ? Any() : Below(64);
    init.cap.max_send_sge = OneIn(8) ? Any() : Below(4);
    init.cap.max_recv_sge = OneIn(8) ? Any() : Below(4);
    init.cap.max_inline_data = OneIn(8) ? Any() : Below(256);
    init.qp_type =
        OneIn(8) ? static_cast<ibv_qp_type>(Any<uint8_t>())
                 : std::array{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}[Below(3)];
    init.sq_sig_all = static_cast<int>(Below(2));
    ibv_qp* const qp = ibv_create_qp(pd, &init);
    Keep(qps_, qp);
    if (qp != nullptr && !OneIn(4)) {
      Connect(qp, OneIn(2) ? qp : Pick(qps_));
    }
  }

  static unsigned int AnyAccess() {
    auto access = static_cast<unsigned int>(Below(16));
    access |= OneIn(4) ? IBV_ACCESS_ON_DEMAND : 0;
    access |= OneIn(4) ? IBV_ACCESS_MW_BIND : 0;
    return access | (OneIn(2) ? IBV_ACCESS_LOCAL_WRITE : 0);
  }

  ibv_ah_attr Address() {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = OneIn(16) ? Any<uint8_t>() : 1;
    attr.grh.dgid = gid_;
    attr.grh.hop_limit = 1;
    if (OneIn(8)) {
      attr.grh.dgid.raw[Below(16)] = Any<uint8_t>();
      attr.grh.sgid_index = Any<uint8_t>();
    }
    return attr;
  }

  // To RTS, of its type, and to that queue pair of the same device.
  void Connect(ibv_qp* qp, const ibv_qp* peer) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = static_cast<unsigned int>(Below(16));
    attr.qkey = 1;
    const bool ud = qp->qp_type == IBV_QPT_UD;
    const bool asks =
        qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_SEND;
    const bool answers =
        qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_RECV;
    (void)ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                            (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer->qp_num;
    attr.max_dest_rd_atomic = static_cast<uint8_t>(Below(5));
    attr.min_rnr_timer = 1;
    attr.ah_attr = Address();
    (void)ibv_modify_qp(
        qp, &attr,
        IBV_QP_STATE | (ud ? 0
                           : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                 IBV_QP_RQ_PSN |
                                 (answers ? IBV_QP_MAX_DEST_RD_ATOMIC |
                                                IBV_QP_MIN_RNR_TIMER
                                          : 0)));
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 8;
    attr.retry_cnt = static_cast<uint8_t>(Below(8));
    attr.rnr_retry = static_cast<uint8_t>(Below(8));
    attr.max_rd_atomic = static_cast<uint8_t>(Below(5));
    (void)ibv_modify_qp(
        qp, &attr,
        IBV_QP_STATE | IBV_QP_SQ_PSN | (asks || answers ? IBV_QP_TIMEOUT : 0) |
            (asks
                 ? IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                 : 0));
  }

  void Destroy() {
    switch (Below(9)) {
      case 0:
        Drop(qps_, ibv_destroy_qp);
        break;
      case 1:
        Drop(mrs_, ibv_dereg_mr);
        break;
      case 2:
        Drop(srqs_, ibv_destroy_srq);
        break;
      case 3:
        Drop(mws_, ibv_dealloc_mw);
        break;
      case 4:
        Drop(ahs_, ibv_destroy_ah);
        break;
      case 5:
        // It would wait for events that nobody acknowledges.
        if (channel_ == nullptr) {
          Drop(cqs_, ibv_destroy_cq);
        }
        break;
      case 6:
        Drop(dms_, ibv_free_dm);
        break;
      case 7:
        Drop(xrcds_, ibv_close_xrcd);
        break;
      default:
        Drop(pds_, ibv_dealloc_pd);
    }
  }

  void Change() {
    ibv_qp* const qp = Pick(qps_);
    switch (Below(7)) {
      case 0:
        if (ibv_cq* const cq = Pick(cqs_)) {
          (void)ibv_resize_cq(cq, Any<uint16_t>());
          ibv_modify_cq_attr attr{IBV_CQ_ATTR_MODERATE,
                                  {Any<uint16_t>(), Any<uint16_t>()}};
          (void)ibv_modify_cq(cq, &attr);
        }
        break;
      case 1:
        if (ibv_srq* const srq = Pick(srqs_)) {
          ibv_srq_attr attr{Any<uint16_t>(), 0, Any<uint16_t>()};
          (void)ibv_modify_srq(srq, &attr, static_cast<int>(Below(4)));
        }
        break;
      case 2:
        if (ibv_mr* const mr = Pick(mrs_)) {
          (void)ibv_rereg_mr(mr, static_cast<int>(Below(8)), Pick(pds_),
                             Somewhere(), Below(16 * kPage),
                             static_cast<int>(AnyAccess()));
        }
        break;
      case 3:
        if (qp != nullptr) {
          ibv_qp_attr attr{};
          auto* const bytes = reinterpret_cast<uint8_t*>(&attr);
          for (size_t i = 0; i + 4 <= sizeof(attr); i += 4) {
            const uint32_t word = Any();
            std::memcpy(bytes + i, &word, sizeof(word));
          }
          (void)ibv_modify_qp(qp, &attr, Any<int>() | IBV_QP_STATE);
        }
        break;
      case 4:
        if (qp != nullptr) {
          ibv_qp_attr attr{};
          attr.qp_state = static_cast<ibv_qp_state>(Below(8));
          (void)ibv_modify_qp(qp, &attr, IBV_QP_STATE);
          if (OneIn(2)) {
            attr.qp_state = IBV_QPS_RESET;
            (void)ibv_modify_qp(qp, &attr, IBV_QP_STATE);
            Connect(qp, Pick(qps_));
          }
        }
        break;
      case 5:
        if (qp != nullptr && JoinsGroups()) {
          ibv_gid group = gid_;
          group.raw[0] = OneIn(4) ? Any<uint8_t>() : 0xff;
          const auto lid = static_cast<uint16_t>(Below(3));
          (void)(OneIn(2) ? ibv_attach_mcast(qp, &group, lid)
                          : ibv_detach_mcast(qp, &group, lid));
        }
        break;
      default:
        ChangeMemory();
    }
  }

  // What is registered goes, or becomes something else.
  void ChangeMemory() {
    uint8_t* const at = memory_ + Below(kFuzzMemory / kPage) * kPage;
    switch (Below(3)) {
      case 0:
        (void)madvise(at, kPage, MADV_DONTNEED);
        break;
      case 1:
        (void)mmap(at, kPage, OneIn(3) ? PROT_READ : PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        break;
      default:
        if (ibv_pd* const pd = Pick(pds_)) {
          ibv_sge sge = AnySge();
          (void)ibv_advise_mr(pd, static_cast<ibv_advise_mr_advice>(Below(3)),
                              static_cast<uint32_t>(Below(2)), &sge, 1);
        }
    }
  }

  void Look() {
    std::array<ibv_wc, 8> wcs{};
    if (ibv_cq* const cq = Pick(cqs_)) {
      (void)ibv_poll_cq(cq, static_cast<int>(Below(wcs.size())), wcs.data());
      if (OneIn(4)) {
        (void)ibv_req_notify_cq(cq, static_cast<int>(Below(2)));
      }
    }
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    ibv_srq_attr srq_attr{};
    ibv_device_attr_ex device{};
    ibv_cq* cq = nullptr;
    void* user = nullptr;
    ibv_async_event event{};
    switch (Below(8)) {
      case 0:
        if (ibv_qp* const qp = Pick(qps_)) {
          (void)ibv_query_qp(qp, &attr, Any<int>(), &init);
        }
        break;
      case 1:
        if (ibv_srq* const srq = Pick(srqs_)) {
          (void)ibv_query_srq(srq, &srq_attr);
        }
        break;
      case 2:
        (void)ibv_query_device_ex(context_, nullptr, &device);
        break;
      case 3:
        if (channel_ != nullptr) {
          (void)ibv_get_cq_event(channel_, &cq, &user);
        }
        break;
      case 4:
        if (ibv_context* const other = ibv_open_device(context_->device)) {
          ibv_close_device(other);
        }
        break;
      case 5:
        if (ibv_get_async_event(context_, &event) == 0) {
          ibv_ack_async_event(&event);
        }
        break;
      case 6:
        (void)AskNldev(nldev_, kNldevQuestions[Below(kNldevQuestions.size())],
                       OneIn(2), static_cast<uint32_t>(Below(4)));
        break;
      default:
        break;
    }
  }

  ibv_sge AnySge() {
    const ibv_mr* const mr = Pick(mrs_);
    ibv_sge sge{};
    sge.addr = reinterpret_cast<uintptr_t>(Somewhere());
    sge.length = OneIn(8) ? Any() : static_cast<uint32_t>(Below(kPage));
    if (mr != nullptr) {
      sge.lkey = OneIn(16) ? Any() : mr->lkey;
      if (!OneIn(4) && mr->length != 0) {
        sge.addr = reinterpret_cast<uintptr_t>(mr->addr) + Below(mr->length);
      }
    }
    return sge;
  }

  // The number of one that can be posted to by XRC.
  uint32_t AnySrq() {
    ibv_srq* const srq = Pick(srqs_);
    uint32_t number = 0;
    return srq != nullptr && !OneIn(8) && ibv_get_srq_num(srq, &number) == 0
               ? number
               : Any();
  }

  void Post() {
    std::array<ibv_sge, 4> sges{AnySge(), AnySge(), AnySge(), AnySge()};
    ibv_qp* const qp = Pick(qps_);
    if (qp == nullptr) {
      return;
    }
    if (OneIn(3)) {
      ibv_recv_wr wr{};
      ibv_recv_wr* bad = nullptr;
      wr.wr_id = Random();
      wr.sg_list = sges.data();
      wr.num_sge = static_cast<int>(Below(4));
      ibv_srq* const srq = Pick(srqs_);
      (void)(srq != nullptr && OneIn(2) ? ibv_post_srq_recv(srq, &wr, &bad)
                                        : ibv_post_recv(qp, &wr, &bad));
      return;
    }
    std::array<ibv_send_wr, 3> wrs{};
    for (size_t i = 0; i < wrs.size(); ++i) {
      ibv_send_wr& wr = wrs[i];
      const ibv_mr* const mr = Pick(mrs_);
      const ibv_sge remote = AnySge();
      wr.next = i + 1 < wrs.size() && OneIn(2) ? &wrs[i + 1] : nullptr;
      wr.wr_id = Random();
      wr.sg_list = sges.data();
      wr.num_sge = static_cast<int>(Below(4));
      wr.opcode = static_cast<ibv_wr_opcode>(Below(OneIn(8) ? 256 : 12));
      wr.send_flags = OneIn(8) ? Any() : static_cast<unsigned int>(Below(16));
      if (qp->qp_type == IBV_QPT_UD) {
        wr.wr.ud.ah = Pick(ahs_);
        wr.wr.ud.remote_qpn = OneIn(2) ? qp->qp_num : Any();
        wr.wr.ud.remote_qkey = 1;
        if (wr.wr.ud.ah == nullptr) {
          return;
        }
      } else if (wr.opcode == IBV_WR_BIND_MW) {
        wr.bind_mw.mw = Pick(mws_);
        wr.bind_mw.rkey = Any();
        if (mr == nullptr || wr.bind_mw.mw == nullptr) {
          return;
        }
        wr.bind_mw.bind_info = {Pick(mrs_), remote.addr, remote.length,
                                AnyAccess()};
      } else {
        wr.wr.atomic = {remote.addr & ~uint64_t{7}, Any(), Any(),
                        mr != nullptr && !OneIn(8) ? mr->rkey : Any()};
        wr.qp_type.xrc.remote_srqn = AnySrq();
      }
    }
    ibv_send_wr* bad = nullptr;
    (void)ibv_post_send(qp, wrs.data(), &bad);
  }

  ibv_context* context_;
  uint8_t* memory_;
  std::atomic<uint64_t>* created_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_gid gid_{};
  std::vector<ibv_pd*> pds_;
  std::vector<ibv_cq*> cqs_;
  std::vector<ibv_mr*> mrs_;
  std::vector<ibv_qp*> qps_;
  std::vector<ibv_srq*> srqs_;
  std::vector<ibv_mw*> mws_;
  std::vector<ibv_ah*> ahs_;
  std::vector<ibv_dm*> dms_;
  std::vector<ibv_xrcd*> xrcds_;
  File dma_buf_{-1};
  int nldev_ = OpenNldev();
};

}  // namespace

void FuzzForever(ibv_context* context, uint8_t* memory, uint64_t seed,
                 std::atomic<uint64_t>* created) {
  Worker worker(context, memory, seed, created);
  SetFailures(true);
  worker.Run();
}

}  // namespace ropcie
