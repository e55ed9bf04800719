// SPDX-License-Identifier: GPL-2.0
// The regions and windows of rop_keys, and what is done to their keys.
#include <drm.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "failure.h"
#include "keys.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie::keys {
namespace {

// uverbs wants an address that has the memory's place in its page.
constexpr size_t kPage = 4096;
constexpr uint64_t kLowBase = kBegin % kPage;
// In the last pages that there are.
constexpr uint64_t kHighBase =
    kLowBase - (kLowBase + kRegion + kPage - 1) / kPage * kPage;
constexpr uint64_t kBufferBase = 0x40000000 + kBegin;
constexpr uint32_t kBufferSide = 128;  // pixels of 4 bytes: kArea
constexpr unsigned int kBindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
// More than a device has keys.
constexpr int kManyKeys = 200000;

Domain DomainBefore(Domain domain) {
  return domain == Domain::kSame ? Domain::kOther : Domain::kSame;
}

ibv_mw_type TypeOf(Kind kind) {
  return kind == Kind::kWindow1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2;
}

}  // namespace

void Freer::operator()(ibv_mw* window) const {
  Destroyer<ibv_dealloc_mw>()(window);
}

void Freer::operator()(ibv_dm* memory) const {
  Destroyer<ibv_free_dm>()(memory);
}

int PatienceOf(const Side& side) {
  constexpr int kTolerant = 2;  // seconds: much of it may not come
  return side.options.tolerate ? kTolerant
                               : std::max(1, side.options.timeout_s / 2);
}

uint64_t AddressFor(const Case& one, const Subject& subject) {
  return (one.range.absolute ? 0 : subject.base) + one.range.offset;
}

Regions::Regions(const Side& side, const Device& device)
    : side_(side),
      device_(device),
      foreign_(OpenDevice(side)),
      other_(ibv_alloc_pd(device.context.get())),
      host_(static_cast<uint8_t*>(mmap(nullptr, kArea, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
  CheckErrno(other_ == nullptr ? errno : 0, "ibv_alloc_pd");
  Check(host_ != MAP_FAILED, "mmap: ", std::strerror(errno));
  ibv_alloc_dm_attr attr{.length = kArea, .log_align_req = 0, .comp_mask = 0};
  dm_.reset(ibv_alloc_dm(device.context.get(), &attr));
  if (HasVgem()) {
    buffer_ = std::make_unique<VgemBuffer>(kBufferSide);
    Check(buffer_->size() == kArea, "a buffer of ", buffer_->size(), " bytes");
    buffer_file_.Open(buffer_->Export(DRM_CLOEXEC | DRM_RDWR));
  }
  partner_ = RegisterMr(device, host_, kArea, kAllAccess);
  for (const Domain domain :
       {Domain::kSame, Domain::kOther, Domain::kForeign}) {
    binders_.push_back(Binder(domain));
    const auto scratch = reinterpret_cast<uintptr_t>(scratch_.data());
    scratches_.emplace_back(ibv_reg_mr_iova2(pd(domain), scratch_.data(),
                                             sizeof(scratch_), scratch,
                                             unsigned{IBV_ACCESS_LOCAL_WRITE}));
    CheckErrno(scratches_.back() == nullptr ? errno : 0, "ibv_reg_mr");
  }
}

Regions::~Regions() {
  // Windows and regions before what they are of.
  recycled_.clear();
  pool_.clear();
  partner_.reset();
  munmap(host_, kArea);
}

Connection Regions::Binder(Domain domain) const {
  const Device& device = domain == Domain::kForeign ? foreign_ : device_;
  Connection binder{};
  binder.config.access = kAllAccess;
  binder.config.rd_atomic = 1;
  binder.send_cq = CreateCq(device, 4);
  ibv_qp_init_attr init{};
  init.send_cq = binder.send_cq.get();
  init.recv_cq = binder.send_cq.get();
  init.cap = {.max_send_wr = 4,
              .max_recv_wr = 1,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  init.qp_type = IBV_QPT_RC;
  binder.qp.reset(ibv_create_qp(pd(domain), &init));
  CheckErrno(binder.qp == nullptr ? errno : 0, "ibv_create_qp");
  ToInit(binder.qp.get(), binder.config);
  binder.peer = AddressOf(device, binder.qp.get());
  ToRts(binder.qp.get(), device, binder.peer, binder.peer, binder.config);
  return binder;
}

ibv_pd* Regions::pd(Domain domain) const {
  switch (domain) {
    case Domain::kSame:
      return device_.pd.get();
    case Domain::kOther:
      return other_.get();
    default:
      return foreign_.pd.get();
  }
}

uint64_t Regions::BaseOf(Kind kind) const {
  switch (kind) {
    case Kind::kLow:
      return kLowBase;
    case Kind::kDeviceMemory:
    case Kind::kWindow2Zero:
      return 0;
    case Kind::kHigh:
      return kHighBase;
    case Kind::kDmaBuf:
      return kBufferBase;
    default:
      return reinterpret_cast<uintptr_t>(host_) + kBegin;
  }
}

MrPtr Regions::Register(Kind kind, unsigned int access, Domain domain,
                        size_t begin, size_t length) {
  ibv_pd* const pd = this->pd(domain);
  switch (kind) {
    case Kind::kNull:
      return MrPtr(ibv_alloc_null_mr(pd));
    case Kind::kDeviceMemory:
      return MrPtr(dm_ == nullptr
                       ? nullptr
                       : ibv_reg_dm_mr(pd, dm_.get(), begin, length,
                                       access | IBV_ACCESS_ZERO_BASED));
    case Kind::kDmaBuf:
      return MrPtr(buffer_ == nullptr
                       ? nullptr
                       : ibv_reg_dmabuf_mr(pd, begin, length, kBufferBase,
                                           buffer_file_.get(),
                                           static_cast<int>(access)));
    case Kind::kLow:
    case Kind::kHigh:
      return MrPtr(
          ibv_reg_mr_iova2(pd, host_ + begin, length, BaseOf(kind), access));
    default:
      return MrPtr(ibv_reg_mr_iova2(
          pd, host_ + begin, length, reinterpret_cast<uintptr_t>(host_) + begin,
          access |
              (kind == Kind::kOnDemand ? unsigned{IBV_ACCESS_ON_DEMAND} : 0U)));
  }
}

Abilities Regions::Probe() {
  Abilities has{};
  ibv_device_attr_ex attr{};
  CheckErrno(ibv_query_device_ex(device_.context.get(), nullptr, &attr),
             "ibv_query_device_ex");
  has.windows =
      (attr.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0;
  // <infiniband/verbs.h> has no name for it yet.
  has.atomic_write = (attr.device_cap_flags_ex & uint64_t{1} << 40) != 0;
  const MrPtr mr = Register(Kind::kPinned, kAllAccess, Domain::kSame);
  has.reregister =
      mr != nullptr && ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_ACCESS,
                                    nullptr, nullptr, 0, 0) == 0;
  for (int i = 0; i < kKinds; ++i) {
    const Kind kind{i};
    has.kinds[i] = IsWindow(kind)
                       ? has.windows
                       : Register(kind, kAllAccess, Domain::kSame) != nullptr;
  }
  return has;
}

// Indices are used again as late as possible, and in the order in which they
// were given up.
bool Regions::Recycle(const Abilities& has) {
  MrPtr first = Register(Kind::kNull, 0, Domain::kSame);
  const uint32_t index = first->lkey >> kTagBits;
  std::vector<Subject> gone;
  for (const Kind before : kRecycledKinds) {
    for (const Kind now : kHeirs) {
      if (has.kinds[static_cast<int>(before)] &&
          has.kinds[static_cast<int>(now)]) {
        gone.push_back(Prepare({.kind = before, .own = true},
                               binders_[static_cast<size_t>(Domain::kSame)]));
        recycled_.push_back({before, now, gone.back().key, {}});
      }
    }
  }
  first.reset();
  for (Subject& subject : gone) {
    subject.mr.reset();
    subject.window.reset();
  }
  for (int i = 0; i < kManyKeys; ++i) {
    const MrPtr next = Register(Kind::kNull, 0, Domain::kSame);
    if (next != nullptr && next->lkey >> kTagBits == index) {
      return std::all_of(recycled_.begin(), recycled_.end(),
                         [this](Recycled& one) { return Inherit(&one); });
    }
  }
  return false;
}

// Has it got the index? The heir allows everything, so that it is only the
// key's tag that is refused.
bool Regions::Inherit(Recycled* one) {
  one->heir = Prepare({.kind = one->now, .own = true},
                      binders_[static_cast<size_t>(Domain::kSame)]);
  return one->heir.key >> kTagBits == one->old_key >> kTagBits &&
         one->heir.key != one->old_key;
}

// The heir's own key is the same whose index it was.
const Regions::Recycled& Regions::Find(const Case& one) const {
  const bool old = one.state == State::kRecycled;
  const auto found = std::find_if(
      recycled_.begin(), recycled_.end(), [&](const Recycled& other) {
        return old ? other.before == one.kind && other.now == one.now
                   : other.now == one.kind;
      });
  Check(found != recycled_.end(), "no index is used again for this");
  return *found;
}

ibv_mr* Regions::Pooled(Kind kind, unsigned int access, Domain domain,
                        bool around) {
  MrPtr& mr = pool_[{kind, access, domain, around}];
  if (mr == nullptr) {
    mr = around ? Register(kind, access, domain, 0, kArea)
                : Register(kind, access, domain);
    CheckErrno(mr == nullptr ? errno : 0, "a region of kind ",
               static_cast<int>(kind), ", access ", access);
  }
  return mr.get();
}

MrPtr Regions::Reregistered(const Case& one) {
  const bool moved = one.state == State::kMoved;
  const unsigned int access =
      moved ? one.access : kAllAccess & ~(one.access & kRemoteAccess);
  MrPtr mr =
      Register(one.kind, access, moved ? one.domain : DomainBefore(one.domain),
               moved ? kPartner : kBegin);
  Check(mr != nullptr, "ibv_reg_mr: ", std::strerror(errno));
  const int flags = moved ? IBV_REREG_MR_CHANGE_TRANSLATION
                          : IBV_REREG_MR_CHANGE_ACCESS | IBV_REREG_MR_CHANGE_PD;
  const unsigned int on_demand =
      one.kind == Kind::kOnDemand ? IBV_ACCESS_ON_DEMAND : 0;
  const unsigned int after = moved ? 0 : one.access | on_demand;
  const int error =
      ibv_rereg_mr(mr.get(), flags, pd(one.domain), host_ + kBegin, kRegion,
                   static_cast<int>(after));
  Check(error == 0, "ibv_rereg_mr: ", error, ", ", std::strerror(errno));
  return mr;
}

Subject Regions::PrepareRegion(const Case& one) {
  Subject subject{.base = BaseOf(one.kind)};
  const ibv_mr* mr = nullptr;
  switch (one.state) {
    case State::kReregistered:
    case State::kMoved:
      subject.mr = Reregistered(one);
      mr = subject.mr.get();
      break;
    case State::kDeregistered: {
      const MrPtr gone = Register(one.kind, one.access, one.domain);
      Check(gone != nullptr, "ibv_reg_mr: ", std::strerror(errno));
      subject.key = one.where == Where::kRemote ? gone->rkey : gone->lkey;
      return subject;
    }
    default:
      if (one.own) {
        subject.mr = Register(one.kind, one.access, one.domain);
        CheckErrno(subject.mr == nullptr ? errno : 0, "ibv_reg_mr");
      }
      mr =
          one.own ? subject.mr.get() : Pooled(one.kind, one.access, one.domain);
  }
  subject.key = one.where == Where::kRemote ? mr->rkey : mr->lkey;
  return subject;
}

ibv_wc_status Regions::Await(const Connection& connection) const {
  const std::vector<ibv_wc> done =
      WaitUpTo(connection.send_cq.get(), 1, PatienceOf(side_), "a window");
  return done.empty() ? IBV_WC_GENERAL_ERR : done.front().status;
}

MwPtr Regions::AllocateWindow(ibv_mw_type type, Domain domain) const {
  MwPtr window(ibv_alloc_mw(pd(domain), type));
  CheckErrno(window == nullptr ? errno : 0, "ibv_alloc_mw");
  return window;
}

ibv_wc_status Regions::Bind(const Connection& connection, ibv_mw* window,
                            ibv_mw_bind_info info) const {
  int error = 0;
  if (window->type == IBV_MW_TYPE_1) {
    ibv_mw_bind bind = {
        .wr_id = 0, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
    error = ibv_bind_mw(connection.qp.get(), window, &bind);
  } else {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw.mw = window;
    wr.bind_mw.rkey = ibv_inc_rkey(window->rkey);
    wr.bind_mw.bind_info = info;
    ibv_send_wr* bad = nullptr;
    error = ibv_post_send(connection.qp.get(), &wr, &bad);
    window->rkey = wr.bind_mw.rkey;
  }
  return error != 0 ? IBV_WC_GENERAL_ERR : Await(connection);
}

void Regions::BindWell(const Connection& connection, ibv_mw* window,
                       const ibv_mw_bind_info& info) const {
  const ibv_wc_status status = Bind(connection, window, info);
  Check(status == IBV_WC_SUCCESS, "bind: ", ibv_wc_status_str(status));
}

void Regions::Invalidate(const Connection& connection, uint32_t key) const {
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_LOCAL_INV;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = key;
  ibv_send_wr* bad = nullptr;
  CheckErrno(ibv_post_send(connection.qp.get(), &wr, &bad), "LOCAL_INV");
  const ibv_wc_status status = Await(connection);
  Check(status == IBV_WC_SUCCESS, "LOCAL_INV: ", ibv_wc_status_str(status));
}

std::array<ibv_wc_status, 2> Regions::WriteAroundReset() {
  const Connection self = Binder(Domain::kSame);
  const MwPtr window = AllocateWindow(IBV_MW_TYPE_2, Domain::kSame);
  const uint64_t base = BaseOf(Kind::kPinned);
  ibv_mr* const mr = Pooled(Kind::kPinned, kBindable, Domain::kSame);
  ibv_sge sge = {.addr = base, .length = kRegion, .lkey = mr->lkey};
  BindWell(self, window.get(),
           {.mr = mr,
            .addr = base,
            .length = kRegion,
            .mw_access_flags = IBV_ACCESS_REMOTE_WRITE});
  const auto write = [&] {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = base;
    wr.wr.rdma.rkey = window->rkey;
    ibv_send_wr* bad = nullptr;
    CheckErrno(ibv_post_send(self.qp.get(), &wr, &bad), "ibv_post_send");
    return Await(self);
  };
  const ibv_wc_status before = write();
  ToState(self.qp.get(), IBV_QPS_RESET);
  ToInit(self.qp.get(), self.config);
  ToRts(self.qp.get(), device_, self.peer, self.peer, self.config);
  return {before, write()};
}

Subject Regions::PrepareWindow(const Case& one, const Connection& connection) {
  const auto domain = static_cast<size_t>(one.domain);
  const Connection& on = one.domain == Domain::kSame &&
                                 one.state != State::kOtherQueuePair &&
                                 one.service != Service::kDatagram
                             ? connection
                             : binders_[domain];
  const bool zero = one.kind == Kind::kWindow2Zero;
  const unsigned int access = one.access & kRemoteAccess;
  ibv_mw_bind_info info = {
      .mr = Pooled(one.parent, kBindable, one.domain, !one.exact),
      .addr = BaseOf(one.parent),
      .length = kRegion,
      .mw_access_flags =
          access | (zero ? unsigned{IBV_ACCESS_ZERO_BASED} : 0U)};
  Subject subject{.base = zero ? 0 : info.addr,
                  .window = AllocateWindow(TypeOf(one.kind), one.domain)};
  ibv_mw* const window = subject.window.get();
  if (one.state != State::kNotBound) {
    BindWell(on, window, info);
  }
  subject.key = window->rkey;
  switch (one.state) {
    case State::kUnbound:
      info.length = 0;
      BindWell(on, window, info);
      break;
    case State::kRebound:
      if (one.kind != Kind::kWindow1) {
        Invalidate(on, subject.key);
      }
      BindWell(on, window, info);
      break;
    case State::kInvalidated:
      Invalidate(on, subject.key);
      break;
    case State::kDeregistered:
      subject.window.reset();
      break;
    default:
      break;
  }
  return subject;
}

// Another key, of which nothing is known here.
uint32_t Regions::Spoil(const Case& one, uint32_t key) const {
  const auto known = [&](uint32_t other) {
    return std::any_of(pool_.begin(), pool_.end(), [other](const auto& entry) {
      return entry.second != nullptr &&
             (entry.second->lkey == other || entry.second->rkey == other);
    });
  };
  switch (one.state) {
    case State::kTag:
      return key ^ one.tag;
    case State::kIndex:
      do {
        key += 1U << kTagBits;
      } while (known(key) || key == partner_->lkey || key == partner_->rkey);
      return key;
    case State::kZero:
      return 0;
    case State::kOnes:
      return UINT32_MAX;
    default:
      return key;
  }
}

Subject Regions::Prepare(const Case& one, const Connection& connection) {
  if (one.state == State::kRecycled || one.state == State::kRecycledNow) {
    const Recycled& found = Find(one);
    return {
        .base = found.heir.base,
        .key = one.state == State::kRecycled ? found.old_key : found.heir.key,
        .own_key = found.heir.key};
  }
  Subject subject =
      IsWindow(one.kind) ? PrepareWindow(one, connection) : PrepareRegion(one);
  subject.own_key = subject.key;
  subject.key = Spoil(one, subject.key);
  return subject;
}

Subject Regions::Partner(const Case& one) {
  // So that nothing here ends the operation before it is refused there.
  if (one.where == Where::kRemote && LengthIsHuge(one)) {
    return {.base = reinterpret_cast<uintptr_t>(host_),
            .key = Pooled(Kind::kNull, 0, Domain::kSame)->lkey};
  }
  return {.base = reinterpret_cast<uintptr_t>(host_) + kPartner,
          .key = one.where == Where::kLocal && !IsSend(one.op)
                     ? partner_->rkey
                     : partner_->lkey};
}

bool Regions::StillWorks(const Case& one, const Subject& subject) {
  const auto domain = static_cast<size_t>(one.domain);
  ibv_sge sge = {reinterpret_cast<uintptr_t>(scratch_.data()), kWord,
                 scratches_[domain]->lkey};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_READ;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma.remote_addr = subject.base;
  wr.wr.rdma.rkey = subject.own_key;
  ibv_send_wr* bad = nullptr;
  const Connection& binder = binders_[domain];
  CheckErrno(ibv_post_send(binder.qp.get(), &wr, &bad), "READ");
  if (Await(binder) == IBV_WC_SUCCESS) {
    return true;
  }
  ToState(binder.qp.get(), IBV_QPS_RESET);
  const Device& device = one.domain == Domain::kForeign ? foreign_ : device_;
  ToInit(binder.qp.get(), binder.config);
  ToRts(binder.qp.get(), device, binder.peer, binder.peer, binder.config);
  return false;
}

ibv_wc_status Regions::TryBind(const Case& one, const Connection& connection) {
  const MwPtr window = AllocateWindow(
      one.op == Op::kBind1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2, one.window_domain);
  const Subject subject = Prepare(one, connection);
  // The library looks at the domain, and at nothing else.
  ibv_mr region{};
  region.context = device_.context.get();
  region.pd = window->pd;
  region.lkey = subject.key;
  return Bind(connection, window.get(),
              {.mr = &region,
               .addr = AddressFor(one, subject),
               .length = one.range.length,
               .mw_access_flags = one.window_access});
}

}  // namespace ropcie::keys
