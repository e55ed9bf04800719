// SPDX-License-Identifier: GPL-2.0
// Memory windows: what a peer may do through one, what becomes of its keys, and
// which binds are refused (IBTA volume 1, chapter 10.6.7.2).
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "failure.h"
#include "pattern.h"
#include "rop_errors.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

using MwPtr = std::unique_ptr<ibv_mw, Destroyer<ibv_dealloc_mw>>;

constexpr size_t kRegion = 9000;
constexpr size_t kFirst = 4000;  // what the window shows
constexpr size_t kLength = 1000;
constexpr unsigned int kAll = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

struct Target {
  uint64_t addr;
  uint32_t rkey;
};

// A region with a window on one side, and who writes through it on the other.
class Windowed {
 public:
  Windowed(ErrorCase& test, ibv_mw_type type,
           unsigned int mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)
      : test_(test),
        connection_(Connect(test.device, test.side, Config())),
        pattern_(test.side.options.seed, kRegion),
        piece_(test.arena.Take(kRegion, 0, true)),
        mr_(RegisterMr(test.device, Memory(), kRegion,
                       static_cast<int>(mr_access))) {
    std::memcpy(Memory(), pattern_.Bytes(test.requester ? 1 : 2, 0), kRegion);
    if (!test.requester) {
      mw_.reset(ibv_alloc_mw(test.device.pd.get(), type));
      Check(mw_ != nullptr, "ibv_alloc_mw: ", std::strerror(errno));
    }
  }

  [[nodiscard]] ibv_qp* qp() const { return connection_.qp.get(); }
  [[nodiscard]] ibv_mw* mw() const { return mw_.get(); }
  [[nodiscard]] ibv_mr* mr() const { return mr_.get(); }
  [[nodiscard]] uint8_t* Memory() const {
    return test_.arena.At(piece_.offset);
  }

  // Binds the window and returns the key; the bind completes with `right`.
  uint32_t Bind(unsigned int access, size_t length = kLength,
                ibv_wc_status right = IBV_WC_SUCCESS) {
    return BindOn(connection_, access, length, right);
  }

  uint32_t BindOn(const Connection& on, unsigned int access,
                  size_t length = kLength,
                  ibv_wc_status right = IBV_WC_SUCCESS) {
    const ibv_mw_bind_info info = {
        .mr = mr(),
        .addr = reinterpret_cast<uintptr_t>(Memory()) + kFirst,
        .length = length,
        .mw_access_flags = access};
    uint32_t key = ibv_inc_rkey(mw()->rkey);
    if (mw()->type == IBV_MW_TYPE_1) {
      ibv_mw_bind bind = {
          .wr_id = 5, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
      CheckErrno(ibv_bind_mw(on.qp.get(), mw(), &bind), "ibv_bind_mw");
      test_.report.Expect(mw()->rkey == key,
                          "the window's key is not the next");
    } else {
      ibv_send_wr wr{};
      wr.wr_id = 5;
      wr.opcode = IBV_WR_BIND_MW;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.bind_mw.mw = mw();
      wr.bind_mw.rkey = key;
      wr.bind_mw.bind_info = info;
      Post(test_, on.qp.get(), wr);
    }
    ExpectCompletions(test_, on.send_cq.get(), {{5, right}}, "bind");
    return key;
  }

  void LocalInvalidate(uint32_t key) {
    ibv_send_wr wr{};
    wr.wr_id = 6;
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.invalidate_rkey = key;
    Post(test_, qp(), wr);
    ExpectCompletions(test_, connection_.send_cq.get(), {{6, IBV_WC_SUCCESS}},
                      "LOCAL_INV");
  }

  // Both sides: a WRITE with this key, which the other side knows.
  void Write(uint32_t key, ibv_wc_status right, size_t length = kLength) {
    const Target target = test_.side.channel.Exchange(
        Target{reinterpret_cast<uintptr_t>(Memory()) + kFirst, key});
    if (test_.requester) {
      ibv_sge sge = test_.arena.Sge({piece_.offset + kFirst, length});
      ibv_send_wr wr{};
      wr.wr_id = 1;
      wr.opcode = IBV_WR_RDMA_WRITE;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.sg_list = &sge;
      wr.num_sge = 1;
      wr.wr.rdma.remote_addr = target.addr;
      wr.wr.rdma.rkey = target.rkey;
      Post(test_, qp(), wr);
      ExpectCompletions(test_, connection_.send_cq.get(), {{1, right}},
                        "WRITE");
    }
    test_.Step();
    if (test_.requester) {
      return;
    }
    const bool good = right == IBV_WC_SUCCESS;
    ExpectState(test_, qp(), good ? IBV_QPS_RTS : IBV_QPS_ERR);
    for (size_t i = 0; i < kRegion; ++i) {
      const bool inside = i >= kFirst && i < kFirst + kLength;
      const int side = good && inside ? 1 : 2;
      if (Memory()[i] != *pattern_.Bytes(side, i)) {
        test_.report.Expect(false, "byte ", i, " of the region is wrong");
        return;
      }
    }
  }

  static QpConfig Config() {
    QpConfig config;
    config.access = IBV_ACCESS_LOCAL_WRITE | kAll;
    return config;
  }

 private:
  ErrorCase& test_;
  Connection connection_;
  Pattern pattern_;
  Piece piece_;
  MrPtr mr_;
  MwPtr mw_;
};

// A WRITE with the key that `prepare` makes on the window's side.
NamedCase WriteCase(std::string name, ibv_mw_type type, ibv_wc_status right,
                    std::function<uint32_t(Windowed*)> prepare,
                    size_t length = kLength) {
  return {std::move(name),
          [type, right, prepare = std::move(prepare), length](ErrorCase& test) {
            Windowed window(test, type);
            window.Write(test.requester ? 0 : prepare(&window), right, length);
            test.Step();
          }};
}

// A bind that is refused ends the queue pair, and nothing else.
NamedCase BindCase(std::string name, ibv_mw_type type, unsigned int mr_access,
                   size_t length, bool twice = false) {
  return {std::move(name), [=](ErrorCase& test) {
            Windowed window(test, type, mr_access);
            if (!test.requester) {
              if (twice) {
                window.Bind(IBV_ACCESS_REMOTE_WRITE);
              }
              window.Bind(IBV_ACCESS_REMOTE_WRITE, length, IBV_WC_MW_BIND_ERR);
              ExpectState(test, window.qp(), IBV_QPS_ERR);
            }
            test.Step();
          }};
}

void RegionStaysWhileItIsShown(ErrorCase& test) {
  Windowed window(test, IBV_MW_TYPE_2);
  if (!test.requester) {
    const uint32_t key = window.Bind(kAll);
    test.report.ExpectErrno(ibv_dereg_mr(window.mr()), {EBUSY},
                            "a region that a window shows");
    window.LocalInvalidate(key);
  }
  test.Step();
}

// Only a peer has use for a window's key.
void WindowIsNoLkey(ErrorCase& test) {
  Windowed window(test, IBV_MW_TYPE_1);
  if (!test.requester) {
    const uint32_t key = window.Bind(kAll);
    PostSend(window.qp(), 1,
             {{reinterpret_cast<uintptr_t>(window.Memory()) + kFirst, 8, key}});
    test.Step();
    ExpectState(test, window.qp(), IBV_QPS_ERR);
  } else {
    test.Step();
  }
  test.Step();
}

void WindowOfAnotherQueuePair(ErrorCase& test) {
  Windowed window(test, IBV_MW_TYPE_2);
  const Connection other = Connect(test.device, test.side, Windowed::Config());
  window.Write(test.requester ? 0 : window.BindOn(other, kAll),
               IBV_WC_REM_ACCESS_ERR);
  test.Step();
}

}  // namespace

std::vector<NamedCase> WindowCases() {
  constexpr unsigned int kGood = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
  const ibv_wc_status denied = IBV_WC_REM_ACCESS_ERR;
  std::vector<NamedCase> cases;
  for (const auto& [type, name] :
       {std::pair{IBV_MW_TYPE_1, "window of type 1"},
        std::pair{IBV_MW_TYPE_2, "window of type 2"}}) {
    const auto bind = [](Windowed* w) { return w->Bind(kAll); };
    const std::string of(name);
    cases.push_back(
        WriteCase("WRITE through a " + of, type, IBV_WC_SUCCESS, bind));
    cases.push_back(
        WriteCase("WRITE beyond a " + of, type, denied, bind, kLength + 1));
    cases.push_back(
        WriteCase("WRITE through a " + of + " for reading", type, denied,
                  [](Windowed* w) { return w->Bind(IBV_ACCESS_REMOTE_READ); }));
    cases.push_back(WriteCase("WRITE through a " + of + " that was not bound",
                              type, denied,
                              [](Windowed* w) { return w->mw()->rkey; }));
    cases.push_back(BindCase("bind of a " + of + " to a region without MW_BIND",
                             type, IBV_ACCESS_LOCAL_WRITE, kLength));
    cases.push_back(BindCase(
        "bind of a " + of + " for writing to a region without LOCAL_WRITE",
        type, IBV_ACCESS_MW_BIND, kLength));
    cases.push_back(BindCase("bind of a " + of + " beyond the region", type,
                             kGood, kRegion));
  }
  cases.push_back(WriteCase("WRITE with the key of an earlier bind",
                            IBV_MW_TYPE_1, denied, [](Windowed* w) {
                              const uint32_t old = w->Bind(kAll);
                              w->Bind(kAll);
                              return old;
                            }));
  cases.push_back(WriteCase("WRITE after a second bind", IBV_MW_TYPE_1,
                            IBV_WC_SUCCESS, [](Windowed* w) {
                              w->Bind(0);
                              return w->Bind(kAll);
                            }));
  cases.push_back(WriteCase("WRITE after a bind to nothing", IBV_MW_TYPE_1,
                            denied, [](Windowed* w) {
                              const uint32_t key = w->Bind(kAll);
                              w->Bind(0, 0);
                              return key;
                            }));
  cases.push_back(WriteCase("WRITE after LOCAL_INV of the window",
                            IBV_MW_TYPE_2, denied, [](Windowed* w) {
                              const uint32_t key = w->Bind(kAll);
                              w->LocalInvalidate(key);
                              return key;
                            }));
  cases.push_back(BindCase("second bind of a window of type 2", IBV_MW_TYPE_2,
                           kGood, kLength, true));
  cases.push_back({"region that a window shows", RegionStaysWhileItIsShown});
  cases.push_back({"key of a window in a SEND", WindowIsNoLkey});
  cases.push_back({"window of another queue pair", WindowOfAnotherQueuePair});
  return cases;
}

}  // namespace ropcie
