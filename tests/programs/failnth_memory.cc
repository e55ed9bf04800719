// SPDX-License-Identifier: GPL-2.0
// rop_failnth: regions, memory windows, device memory, dma-bufs, on-demand
// paging, and what another process is given of them.
#include <drm.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

#include "failnth.h"
#include "failure.h"
#include "verbs_util.h"
#include "vgem.h"

namespace ropcie {
namespace {

constexpr size_t kDm = size_t{3} * 4096;
constexpr uint32_t kPixels = 64;  // 16 KiB
constexpr int kPatience = 300;    // s; a slow kernel has time, too

class Memory {
 public:
  explicit Memory(Sweep& sweep) : sweep_(sweep) {}

  void Run() {
    Regions();
    Reregistration();
    if (HasMappedQueues()) {
      Windows();
    }
    DeviceMemory();
    DmaBuf();
    Paging();
    Imports();
  }

 private:
  using Step = Sweep::Step;

  ibv_mr* Register(int access) const {
    return ibv_reg_mr_iova2(sweep_.pd(), sweep_.memory(), Sweep::kMemory,
                            sweep_.address(),
                            static_cast<unsigned int>(access));
  }

  void Regions() {
    sweep_.CreateAndDestroy<MrPtr>("MR", ibv_dereg_mr, [&] {
      return Register(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    });
    sweep_.CreateAndDestroy<MrPtr>("MR on demand", ibv_dereg_mr, [&] {
      return Register(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
    });
    sweep_.CreateAndDestroy<MrPtr>("null MR", ibv_dereg_mr, [&] {
      return ibv_alloc_null_mr(sweep_.pd());
    });
  }

  int Rereg(ibv_mr* mr, int flags, size_t length) const {
    errno = 0;
    const int ret =
        ibv_rereg_mr(mr, flags, sweep_.pd(), sweep_.memory(), length,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    return ret == 0 ? 0 : errno;
  }

  // A call that fails while it changes the memory leaves none to be changed.
  void Reregistration() {
    MrPtr mr;
    const Step fresh = [&] {
      mr = RegisterMr(sweep_.device(), sweep_.memory(), Sweep::kMemory);
    };
    const Step gone = [&] { mr.reset(); };
    sweep_.Each(
        "rereg MR, access", fresh,
        [&] {
          return Rereg(mr.get(), IBV_REREG_MR_CHANGE_ACCESS, Sweep::kMemory);
        },
        gone);
    sweep_.Each(
        "rereg MR, memory", fresh,
        [&] {
          return Rereg(
              mr.get(),
              IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS,
              Sweep::kMemory / 2);
        },
        gone);
  }

  void Windows() {
    for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
      sweep_.CreateAndDestroy<MwPtr>(
          Text("MW of type ", int{type}), ibv_dealloc_mw,
          [&] { return ibv_alloc_mw(sweep_.pd(), type); });
    }

    const CqPtr cq = CreateCq(sweep_.device(), Sweep::kEntries);
    QpConfig config;
    const QpPtr qp = CreateQp(sweep_.device(), cq.get(), cq.get(), &config);
    const QpAddress own = AddressOf(sweep_.device(), qp.get());
    ToInit(qp.get(), config);
    ToRts(qp.get(), sweep_.device(), own, own, config);
    const MrPtr mr =
        RegisterMr(sweep_.device(), sweep_.memory(), Sweep::kMemory,
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    const ibv_mw_bind_info info = {.mr = mr.get(),
                                   .addr = sweep_.address(),
                                   .length = 4096,
                                   .mw_access_flags = IBV_ACCESS_REMOTE_READ};
    Binds(cq.get(), qp.get(), info);
  }

  void Binds(ibv_cq* cq, ibv_qp* qp, const ibv_mw_bind_info& info) {
    MwPtr mw(ibv_alloc_mw(sweep_.pd(), IBV_MW_TYPE_1));
    CheckErrno(mw == nullptr ? errno : 0, "ibv_alloc_mw");
    sweep_.Each(
        "bind MW of type 1", [] {},
        [&] {
          ibv_mw_bind bind = {
              .wr_id = 1, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
          return ibv_bind_mw(qp, mw.get(), &bind);
        },
        [&] { WaitForSuccess(cq, kPatience, "a bind of type 1"); });

    // It is bound once in its life.
    sweep_.Each(
        "bind MW of type 2",
        [&] {
          mw.reset(ibv_alloc_mw(sweep_.pd(), IBV_MW_TYPE_2));
          CheckErrno(mw == nullptr ? errno : 0, "ibv_alloc_mw");
        },
        [&] {
          ibv_send_wr wr{};
          wr.opcode = IBV_WR_BIND_MW;
          wr.send_flags = IBV_SEND_SIGNALED;
          wr.bind_mw.mw = mw.get();
          wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
          wr.bind_mw.bind_info = info;
          ibv_send_wr* bad = nullptr;
          return ibv_post_send(qp, &wr, &bad);
        },
        [&] {
          WaitForSuccess(cq, kPatience, "a bind of type 2");
          mw.reset();
        });
  }

  DmPtr AllocDm() const {
    ibv_alloc_dm_attr attr{};
    attr.length = kDm;
    return DmPtr(ibv_alloc_dm(sweep_.context(), &attr));
  }

  void DeviceMemory() {
    sweep_.CreateAndDestroy<DmPtr>("device memory", ibv_free_dm,
                                   [&] { return AllocDm().release(); });
    DmPtr dm;
    const Step fresh = [&] {
      dm = AllocDm();
      CheckErrno(dm == nullptr ? errno : 0, "ibv_alloc_dm");
    };
    const Step gone = [&] { dm.reset(); };
    std::array<uint8_t, kDm> data{};
    sweep_.Each(
        "copy to device memory", fresh,
        [&] { return ibv_memcpy_to_dm(dm.get(), 0, data.data(), kDm); }, gone);
    sweep_.Each(
        "copy from device memory", fresh,
        [&] { return ibv_memcpy_from_dm(data.data(), dm.get(), 0, kDm); },
        gone);
    fresh();
    sweep_.CreateAndDestroy<MrPtr>("MR of device memory", ibv_dereg_mr, [&] {
      return ibv_reg_dm_mr(sweep_.pd(), dm.get(), 0, kDm,
                           IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
    });
  }

  // The buffer stays mapped: Linux warns when an exporter can not map it
  // (dma_buf_vmap()).
  void DmaBuf() {
    const VgemBuffer buffer(kPixels);
    const File file(buffer.Export(DRM_CLOEXEC | DRM_RDWR));
    const auto create = [&] {
      return ibv_reg_dmabuf_mr(sweep_.pd(), 0, buffer.size(), 0, file.get(),
                               IBV_ACCESS_LOCAL_WRITE);
    };
    const MrPtr keeper(create());
    CheckErrno(keeper == nullptr ? errno : 0, "ibv_reg_dmabuf_mr");
    sweep_.CreateAndDestroy<MrPtr>("MR of a dma-buf", ibv_dereg_mr, create);
  }

  // Of memory that is brought in anew each time.
  void Paging() {
    const MrPtr mr(Register(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND));
    CheckErrno(mr == nullptr ? errno : 0, "ibv_reg_mr on demand");
    sweep_.Each(
        "advise MR",
        [&] {
          CheckErrno(
              madvise(sweep_.memory(), Sweep::kMemory, MADV_DONTNEED) != 0
                  ? errno
                  : 0,
              "madvise");
        },
        [&] {
          ibv_sge sge{sweep_.address(), Sweep::kMemory, mr->lkey};
          return ibv_advise_mr(sweep_.pd(), IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
                               IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);
        },
        [] {});
  }

  // What a process does that was given the file of a context.
  void Imports() {
    const MrPtr mr(Register(IBV_ACCESS_LOCAL_WRITE));
    CheckErrno(mr == nullptr ? errno : 0, "ibv_reg_mr");
    const DmPtr dm = AllocDm();
    CheckErrno(dm == nullptr ? errno : 0, "ibv_alloc_dm");

    ibv_context* given = nullptr;
    int fd = -1;
    const Step dup_file = [&] {
      fd = fcntl(sweep_.context()->cmd_fd, F_DUPFD_CLOEXEC, 0);
      CheckErrno(fd < 0 ? errno : 0, "dup");
    };
    // The context has the file for its own, also one that could not be made.
    const auto import = [&] {
      errno = 0;
      given = ibv_import_device(fd);
      const int error = given == nullptr ? errno : 0;
      if (error != 0) {
        dup_file();
      }
      return error;
    };
    sweep_.Each(
        "import device", dup_file, import,
        [&] { CheckErrno(ibv_close_device(given), "ibv_close_device"); }, true);

    dup_file();
    CheckErrno(import(), "ibv_import_device");
    const ContextPtr context(given);
    ibv_pd* pd = nullptr;
    ibv_mr* region = nullptr;
    ibv_dm* memory = nullptr;
    sweep_.Each(
        "import PD", [] {},
        [&] {
          errno = 0;
          pd = ibv_import_pd(given, sweep_.pd()->handle);
          return pd == nullptr ? errno : 0;
        },
        [&] { ibv_unimport_pd(pd); });
    pd = ibv_import_pd(given, sweep_.pd()->handle);
    CheckErrno(pd == nullptr ? errno : 0, "ibv_import_pd");
    sweep_.Each(
        "import MR", [] {},
        [&] {
          errno = 0;
          region = ibv_import_mr(pd, mr->handle);
          return region == nullptr ? errno : 0;
        },
        [&] { ibv_unimport_mr(region); });
    sweep_.Each(
        "import device memory", [] {},
        [&] {
          errno = 0;
          memory = ibv_import_dm(given, dm->handle);
          return memory == nullptr ? errno : 0;
        },
        [&] { ibv_unimport_dm(memory); });
    ibv_unimport_pd(pd);
  }

  Sweep& sweep_;
};

}  // namespace

void SweepMemory(Sweep& sweep) { Memory(sweep).Run(); }

}  // namespace ropcie
