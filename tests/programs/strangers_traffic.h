// SPDX-License-Identifier: GPL-2.0
// What the victim does with its partner while a stranger tries: verified
// traffic on some queue pairs, and nothing at all on others.
#ifndef ROPCIE_TESTS_PROGRAMS_STRANGERS_TRAFFIC_H_
#define ROPCIE_TESTS_PROGRAMS_STRANGERS_TRAFFIC_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "pattern.h"
#include "side.h"
#include "strangers.h"
#include "verbs_util.h"

namespace ropcie::strangers {

// Extended reliable connections need the victim's domain, and are only made
// when queues are mapped; as are windows, which show `shown`.
struct Domain {
  ibv_xrcd* xrcd;
  ibv_mr* shown;
};

// One end; the victim leads. Both call the same.
class Traffic {
 public:
  Traffic(Side& side, const Device& device, const Domain& domain);

  // Messages in both directions over all queue pairs, and WRITEs of the
  // partner through the victim's windows. The victim says if there are more.
  bool Round(bool more);
  // The partner sends over what was quiet until now. The victim counts.
  void EndQuiet(const Numbers& numbers);
  // A window of type 2 is taken away by who may, and shows nothing then.
  void EndWindow();

  // The victim's: nothing has become of them.
  void ExpectStates() const;
  // Where a stranger finds objects that are in use.
  void Tell(Numbers* numbers) const;
  // Of the quiet ones.
  [[nodiscard]] ibv_qp* rc() const { return quiet_rc_.qp.get(); }
  [[nodiscard]] ibv_qp* uc() const { return quiet_uc_.qp.get(); }
  [[nodiscard]] ibv_qp* ud() const { return quiet_ud_.qp.get(); }
  [[nodiscard]] ibv_ah* ah() const { return ah_.get(); }

 private:
  struct Kind {
    ibv_qp* qp;
    ibv_cq* sent;
    ibv_cq* received;
    ibv_srq* srq;
    Piece out;
    Piece in;
    size_t grh;
    uint8_t number;
    bool sends;
    bool receives;
  };
  struct Keys {
    uint32_t window_1;
    uint32_t window_2;
    uint64_t shown;
    uint32_t ud_qpn;
    uint32_t srqn;
  };

  void ConnectXrc(QpPtr* qp, Queue* queue);
  void BindWindows();
  void AddKind(ibv_qp* qp, ibv_cq* sent, ibv_cq* received, size_t grh = 0,
               ibv_srq* srq = nullptr);
  void PostReceive(const Kind& kind, size_t length);
  void Post(const Kind& kind);
  void WriteThroughWindows();
  void CheckWindows() const;
  [[nodiscard]] uint64_t Number(const Kind& kind, bool of_leader) const;
  [[nodiscard]] uint64_t WindowNumber(int window) const;
  [[nodiscard]] Region WindowPart(int window) const;

  Side& side_;
  const Device& device_;
  Domain domain_;
  Pattern pattern_;
  Arena arena_;
  SrqPtr shared_srq_;
  CqPtr xrc_cq_;
  SrqPtr xrc_srq_;
  Connection plain_{};
  Connection shared_{};
  Datagrams datagrams_;
  QpPtr xrc_;
  Connection quiet_rc_{};
  Connection quiet_uc_{};
  Datagrams quiet_ud_;
  QpPtr quiet_xrc_;
  Queue quiet_target_{};
  MwPtr window_1_;
  MwPtr window_2_;
  Keys mine_{};
  Keys peer_{};
  AhPtr ah_;
  std::vector<Kind> kinds_;
  uint32_t round_ = 0;
};

}  // namespace ropcie::strangers

#endif  // ROPCIE_TESTS_PROGRAMS_STRANGERS_TRAFFIC_H_
