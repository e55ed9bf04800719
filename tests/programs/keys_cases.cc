// SPDX-License-Identifier: GPL-2.0
// Which combinations rop_keys tries.
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "keys.h"

namespace ropcie::keys {
namespace {

struct Use {
  Op op;
  Where where;
};

constexpr Use kUses[] = {
    {Op::kSend, Where::kLocal},        {Op::kSend, Where::kReceive},
    {Op::kSendImm, Where::kLocal},     {Op::kSendImm, Where::kReceive},
    {Op::kWrite, Where::kLocal},       {Op::kWrite, Where::kRemote},
    {Op::kWriteImm, Where::kLocal},    {Op::kWriteImm, Where::kRemote},
    {Op::kRead, Where::kLocal},        {Op::kRead, Where::kRemote},
    {Op::kFetchAdd, Where::kLocal},    {Op::kFetchAdd, Where::kRemote},
    {Op::kCompareSwap, Where::kLocal}, {Op::kCompareSwap, Where::kRemote},
    {Op::kAtomicWrite, Where::kLocal}, {Op::kAtomicWrite, Where::kRemote},
};

constexpr Kind kAllKinds[] = {
    Kind::kPinned,       Kind::kOnDemand,    Kind::kLow,  Kind::kHigh,
    Kind::kDeviceMemory, Kind::kDmaBuf,      Kind::kNull, Kind::kWindow1,
    Kind::kWindow2,      Kind::kWindow2Zero,
};

constexpr uint64_t kMany = 101;
constexpr uint64_t kMiddle = 4136;
// What a message can have at most.
constexpr uint64_t kHuge = uint64_t{1} << 31;

uint64_t LengthOf(Op op) { return IsAtomic(op) ? kWord : kMany; }

// Every set of rights for peers.
std::vector<unsigned int> RemoteSets() {
  std::vector<unsigned int> sets;
  for (const unsigned int write : {0, int{IBV_ACCESS_REMOTE_WRITE}}) {
    for (const unsigned int read : {0, int{IBV_ACCESS_REMOTE_READ}}) {
      for (const unsigned int atomic : {0, int{IBV_ACCESS_REMOTE_ATOMIC}}) {
        sets.push_back(write | read | atomic);
      }
    }
  }
  return sets;
}

// Every set of rights that a region can have.
std::vector<unsigned int> RegionSets() {
  std::vector<unsigned int> sets = {0, IBV_ACCESS_REMOTE_READ};
  for (const unsigned int remote : RemoteSets()) {
    sets.push_back(IBV_ACCESS_LOCAL_WRITE | remote);
  }
  return sets;
}

// The most that a region can be registered with for windows to be bound to it;
// some can not be registered for that.
unsigned int BindableAs(Kind kind) {
  switch (kind) {
    case Kind::kNull:
      return 0;
    case Kind::kDeviceMemory:
    case Kind::kDmaBuf:
      return kAllAccess;
    default:
      return IsWindow(kind) ? kRemoteAccess : kAllAccess | IBV_ACCESS_MW_BIND;
  }
}

// What the queue pair is asked for, nothing else, all else, and all.
std::vector<unsigned int> QueuePairSets(const Case& one) {
  if (one.where != Where::kRemote) {
    return {kAllAccess};
  }
  const unsigned int right = one.op == Op::kRead ? IBV_ACCESS_REMOTE_READ
                             : IsFetch(one.op)   ? IBV_ACCESS_REMOTE_ATOMIC
                                                 : IBV_ACCESS_REMOTE_WRITE;
  return {0, right, kRemoteAccess & ~right, kAllAccess};
}

// The first and the last byte, all, one too many at either end, none of them,
// and around where addresses end.
std::vector<Range> CrossRanges(Op op) {
  constexpr uint64_t kLast = (kRegion / kWord - 1) * kWord;
  if (IsAtomic(op)) {
    return {{0, kWord},
            {kLast, kWord},
            {kLast + kWord, kWord},
            {kLast + 2 * kWord, kWord},
            {-kWord, kWord},
            {UINT64_MAX - kWord + 1, kWord, true}};
  }
  return {{0, 1},
          {kRegion - 1, 1},
          {0, kRegion},
          {kRegion, 1},
          {kRegion - kMany + 1, kMany},
          {-uint64_t{1}, kMany},
          {UINT64_MAX - kMany / 2, kMany, true}};
}

class Cases {
 public:
  explicit Cases(const Abilities& has) : has_(has) {}

  std::vector<Case> Axes() {
    ForEachUse(&Cases::Vary);
    if (has_.windows) {
      Binds();
      Invalidates();
    }
    return cases_;
  }

  std::vector<Case> Services() {
    for (const Service service :
         {Service::kUnreliable, Service::kDatagram, Service::kShared}) {
      service_ = service;
      ForEachUse(&Cases::VaryService);
    }
    cases_.erase(std::remove_if(cases_.begin(), cases_.end(), IsTooLong),
                 cases_.end());
    return cases_;
  }

  std::vector<Case> Cross() {
    ForEachUse(&Cases::CrossOne);
    return cases_;
  }

 private:
  [[nodiscard]] bool Has(Kind kind) const {
    return has_.kinds[static_cast<int>(kind)];
  }

  void ForEachUse(void (Cases::*with)()) {
    for (const Use& use : kUses) {
      if (use.op == Op::kAtomicWrite && !has_.atomic_write) {
        continue;
      }
      for (const Kind kind : kAllKinds) {
        if (Has(kind)) {
          SetBase(use, kind);
          (this->*with)();
        }
      }
    }
  }

  void SetBase(const Use& use, Kind kind) {
    base_ = {.service = service_,
             .op = use.op,
             .where = use.where,
             .kind = kind,
             .access = IsWindow(kind) ? kRemoteAccess : kAllAccess,
             .range = {kMiddle, LengthOf(use.op)}};
  }

  void Vary() {
    Rights();
    Domains();
    QueuePairs();
    Ranges();
    States();
    if (IsWindow(base_.kind) && base_.where == Where::kRemote) {
      Parents();
    }
  }

  [[nodiscard]] static bool ServiceHas(const Case& one) {
    switch (one.service) {
      case Service::kUnreliable:
        return IsSend(one.op) || one.op == Op::kWrite ||
               one.op == Op::kWriteImm;
      case Service::kDatagram:
        return IsSend(one.op);
      default:
        return one.where == Where::kReceive ||
               (one.where == Where::kRemote && one.op == Op::kWrite);
    }
  }

  // Who is not told that pages have to be brought in first loses the message.
  [[nodiscard]] static bool MayBeLost(const Case& one) {
    return IsUnreliable(one.service) && one.where != Where::kLocal &&
           one.kind == Kind::kOnDemand;
  }

  // For a datagram; or a peer that would send all of it, because nobody says
  // no.
  [[nodiscard]] static bool IsTooLong(const Case& one) {
    return (one.service == Service::kDatagram && one.range.length > kShort) ||
           (one.service == Service::kUnreliable &&
            one.where == Where::kRemote && LengthIsHuge(one));
  }

  void VaryService() {
    if (!ServiceHas(base_) || MayBeLost(base_)) {
      return;
    }
    if (base_.service == Service::kShared && base_.where == Where::kReceive) {
      base_.domain = Domain::kOther;
      Add([](Case* one) { one->domain = Domain::kSame; });
    }
    Rights();
    Domains();
    Ranges();
    Forgeries();
    if (base_.where == Where::kRemote) {
      QueuePairs();
    }
    if (has_.recycled && base_.service != Service::kShared) {
      Recycled();
    }
  }

  void CrossOne() {
    const std::vector<unsigned int> sets =
        base_.kind == Kind::kNull ? std::vector{kAllAccess}
        : IsWindow(base_.kind)    ? RemoteSets()
                                  : RegionSets();
    for (const unsigned int qp_access : QueuePairSets(base_)) {
      for (const Domain domain : CrossDomains()) {
        for (const Range& range : CrossRanges(base_.op)) {
          for (const unsigned int access : sets) {
            Add([&](Case* one) {
              one->qp_access = qp_access;
              one->domain = domain;
              one->range = range;
              one->access = access;
            });
          }
        }
      }
    }
    CrossDead(sets);
    if (has_.recycled) {
      CrossRecycled();
    }
  }

  [[nodiscard]] std::vector<Domain> CrossDomains() const {
    std::vector<Domain> domains = {Domain::kSame, Domain::kOther};
    // Device memory belongs to its context.
    if (base_.kind != Kind::kDeviceMemory) {
      domains.push_back(Domain::kForeign);
    }
    return domains;
  }

  // Whoever has the index now, it is of the queue pair's domain and has all
  // rights.
  void CrossRecycled() {
    const Case base = base_;
    for (const unsigned int qp_access : QueuePairSets(base)) {
      for (const Range& range : CrossRanges(base.op)) {
        base_.qp_access = qp_access;
        base_.range = range;
        Recycled();
      }
    }
    base_ = base;
  }

  // Keys that are none, or none any more, whatever rights, domain and bounds
  // were.
  void CrossDead(const std::vector<unsigned int>& sets) {
    for (const State state : DeadStates()) {
      for (const Domain domain : CrossDomains()) {
        for (const Range& range : CrossRanges(base_.op)) {
          for (const unsigned int access : {sets.front(), sets.back()}) {
            // To a peer without any right, or in another domain, it is
            // refused.
            if (state == State::kInvalidatedByPeer &&
                (domain != Domain::kSame || access == 0)) {
              continue;
            }
            Add([&](Case* one) {
              one->state = state;
              one->domain = domain;
              one->range = range;
              one->access = access;
            });
          }
        }
      }
    }
  }

  [[nodiscard]] std::vector<State> DeadStates() const {
    if (base_.kind == Kind::kNull) {
      return {};
    }
    if (!IsWindow(base_.kind)) {
      return {State::kIndex, State::kDeregistered};
    }
    std::vector<State> states = {
        State::kDeregistered, State::kNotBound, State::kRebound,
        base_.kind == Kind::kWindow1 ? State::kUnbound : State::kInvalidated};
    if (base_.kind != Kind::kWindow1 && base_.where == Where::kRemote) {
      states.push_back(State::kInvalidatedByPeer);
    }
    return states;
  }

  template <typename Change>
  void Add(Change change) {
    Case one = base_;
    change(&one);
    cases_.push_back(one);
  }

  void Rights() {
    if (base_.kind == Kind::kNull) {
      Add([](Case*) {});
      return;
    }
    for (const unsigned int set :
         IsWindow(base_.kind) ? RemoteSets() : RegionSets()) {
      Add([set](Case* one) { one->access = set; });
    }
  }

  void Domains() {
    for (const Domain domain : {Domain::kOther, Domain::kForeign}) {
      // Device memory belongs to its context.
      if (domain == Domain::kForeign && base_.kind == Kind::kDeviceMemory) {
        continue;
      }
      Add([domain](Case* one) { one->domain = domain; });
      if (!IsAtomic(base_.op)) {
        Add([domain](Case* one) {
          one->domain = domain;
          one->range.length = 0;
        });
      }
    }
  }

  void QueuePairs() {
    for (const unsigned int set : RemoteSets()) {
      Add([set](Case* one) { one->qp_access = set; });
      Add([set](Case* one) { one->qp_access = IBV_ACCESS_LOCAL_WRITE | set; });
      if (base_.where != Where::kRemote || base_.kind != Kind::kPinned) {
        continue;
      }
      for (const unsigned int region : RegionSets()) {
        Add([set, region](Case* one) {
          one->qp_access = set;
          one->access = region;
        });
      }
    }
  }

  void AddRange(uint64_t offset, uint64_t length, bool absolute = false) {
    Add([=](Case* one) { one->range = {offset, length, absolute}; });
  }

  void Ranges() {
    if (base_.kind == Kind::kNull) {
      AddRange(0, LengthOf(base_.op));
      AddRange(10 * kRegion, IsAtomic(base_.op) ? kWord : kRegion);
    } else if (IsAtomic(base_.op)) {
      WordRanges();
    } else {
      ByteRanges();
    }
  }

  // Words at multiples of their length from the beginning on.
  void WordRanges() {
    constexpr uint64_t kLast = (kRegion / kWord - 1) * kWord;
    AddRange(0, kWord);
    AddRange(kLast, kWord);
    AddRange(kLast + kWord, kWord);  // half of it is behind the end
    AddRange(kLast + 2 * kWord, kWord);
    AddRange(kRegion + 4096 + 4, kWord);
    AddRange(-kWord, kWord);
    AddRange(UINT64_MAX - kWord + 1, kWord, true);
    if (base_.where == Where::kRemote) {
      AddRange(4, kWord);
      AddRange(kLast + 4, kWord);
    } else {
      AddRange(1, kWord);
      AddRange(kRegion - kWord, kWord);
      AddRange(kRegion - kWord + 1, kWord);
      AddRange(-uint64_t{1}, kWord);
    }
  }

  void ByteRanges() {
    AddRange(0, 1);
    AddRange(0, kMany);
    AddRange(kRegion - 1, 1);
    AddRange(kRegion - kMany, kMany);
    AddRange(0, kRegion);
    AddRange(1, kRegion - 1);
    AddRange(kRegion, 1);
    AddRange(kRegion - kMany + 1, kMany);
    AddRange(0, kRegion + 1);
    AddRange(kRegion, kMany);
    AddRange(kRegion + 4096, kMany);
    AddRange(-uint64_t{1}, 1);
    AddRange(-uint64_t{1}, kMany);
    AddRange(-uint64_t{1}, kRegion + 1);
    AddRange(-kMany, kMany);
    AddRange(UINT64_MAX - kMany / 2, kMany, true);
    AddRange(UINT64_MAX, 1, true);
    AddRange(kMiddle, 0);
    AddRange(kRegion, 0);
    AddRange(UINT64_MAX, 0, true);
    if (base_.where == Where::kRemote &&
        has_.kinds[static_cast<int>(Kind::kNull)]) {
      AddRange(0, kHuge);
      AddRange(-uint64_t{1}, kHuge);
    }
    // So that no record of it can be sent.
    if (base_.where == Where::kLocal && !IsFetch(base_.op)) {
      AddRange(kRegion - kMany + 1, kHuge);
      AddRange(-uint64_t{1}, kHuge);
    }
  }

  void AddState(State state) {
    Add([state](Case* one) { one->state = state; });
  }

  void Forgeries() {
    for (const State state :
         {State::kIndex, State::kZero, State::kOnes, State::kDeregistered}) {
      AddState(state);
    }
    Tags();
  }

  void States() {
    Forgeries();
    // The key of no bytes is not looked at.
    if (!IsAtomic(base_.op)) {
      Add([](Case* one) {
        one->state = State::kOnes;
        one->range.length = 0;
      });
    }
    if (IsWindow(base_.kind)) {
      WindowStates();
    } else if (has_.reregister &&
               (base_.kind == Kind::kPinned || base_.kind == Kind::kOnDemand)) {
      Reregistered();
    }
    if (has_.recycled) {
      Recycled();
    }
  }

  void Recycled() {
    const auto has = [this](const auto& kinds) {
      return std::find(kinds.begin(), kinds.end(), base_.kind) != kinds.end();
    };
    if (has(kRecycledKinds)) {
      for (const Kind now : kHeirs) {
        if (Has(now)) {
          Add([now](Case* one) {
            one->state = State::kRecycled;
            one->now = now;
          });
        }
      }
    }
    if (has(kHeirs)) {
      AddState(State::kRecycledNow);
    }
  }

  // Windows of other regions than the pinned one around theirs.
  void Parents() {
    struct Parent {
      Kind kind;
      bool exact;
    };
    constexpr std::array kParents = {
        Parent{Kind::kOnDemand, false}, Parent{Kind::kPinned, true},
        Parent{Kind::kOnDemand, true}, Parent{Kind::kLow, true},
        Parent{Kind::kHigh, true}};
    const Case base = base_;
    for (const Parent& parent : kParents) {
      if (Has(parent.kind)) {
        base_.parent = parent.kind;
        base_.exact = parent.exact;
        Rights();
        Domains();
        Ranges();
        WindowStates();
      }
    }
    base_ = base;
  }

  // All of them for some.
  void Tags() {
    const bool all =
        base_.kind == Kind::kPinned &&
        ((base_.op == Op::kWrite && base_.where == Where::kRemote) ||
         (base_.op == Op::kSend && base_.where == Where::kLocal));
    for (int tag = 1; tag <= UINT8_MAX; tag += all ? 1 : 127) {
      Add([tag](Case* one) {
        one->state = State::kTag;
        one->tag = static_cast<uint8_t>(tag);
      });
    }
  }

  void WindowStates() {
    AddState(State::kNotBound);
    AddState(State::kOtherQueuePair);
    AddState(State::kRebound);
    if (base_.kind == Kind::kWindow1) {
      AddState(State::kUnbound);
    } else {
      AddState(State::kInvalidated);
      if (base_.where == Where::kRemote) {
        AddState(State::kInvalidatedByPeer);
      }
    }
  }

  void Reregistered() {
    for (const unsigned int set : RegionSets()) {
      Add([set](Case* one) {
        one->state = State::kReregistered;
        one->access = set;
      });
    }
    Add([](Case* one) {
      one->state = State::kReregistered;
      one->domain = Domain::kOther;
    });
    AddState(State::kMoved);
    Add([](Case* one) {
      one->state = State::kMoved;
      one->range.offset = kPartner - kBegin;
    });
  }

  void AddBind(unsigned int access, unsigned int window_access) {
    Add([=](Case* one) {
      one->access = access;
      one->window_access = window_access;
    });
  }

  void Binds() {
    for (const Op op : {Op::kBind1, Op::kBind2}) {
      for (const Kind kind : kAllKinds) {
        if (!has_.kinds[static_cast<int>(kind)]) {
          continue;
        }
        base_ = {.op = op,
                 .where = Where::kLocal,
                 .kind = kind,
                 .access = BindableAs(kind),
                 .range = {kMiddle, kMany},
                 .window_access = kRemoteAccess};
        BindsTo();
        ForeignWindows();
      }
    }
  }

  void ForeignWindows() {
    for (const Domain window : {Domain::kOther, Domain::kForeign}) {
      for (const Domain domain : {Domain::kSame, window}) {
        // Device memory belongs to its context.
        if (domain == Domain::kForeign && base_.kind == Kind::kDeviceMemory) {
          continue;
        }
        for (const uint64_t length : {kMany, uint64_t{0}}) {
          Add([=](Case* one) {
            one->window_domain = window;
            one->domain = domain;
            one->range.length = length;
          });
        }
      }
    }
  }

  // The key of any kind, of its owner or not, of a window in all of its states.
  void Invalidates() {
    for (const Use& use : {Use{Op::kLocalInv, Where::kLocal},
                           Use{Op::kSendInv, Where::kRemote}}) {
      for (const Kind kind : kAllKinds) {
        if (!Has(kind)) {
          continue;
        }
        SetBase(use, kind);
        Rights();
        for (const Domain domain : {Domain::kOther, Domain::kForeign}) {
          if (domain != Domain::kForeign || kind != Kind::kDeviceMemory) {
            Add([domain](Case* one) { one->domain = domain; });
          }
        }
        Forgeries();
        if (IsWindow(kind)) {
          WindowStates();
        }
        if (has_.recycled) {
          Recycled();
        }
      }
    }
  }

  void BindsTo() {
    if (base_.kind == Kind::kNull || IsWindow(base_.kind)) {
      AddBind(base_.access, kRemoteAccess);
      return;
    }
    const bool never = (BindableAs(base_.kind) & IBV_ACCESS_MW_BIND) == 0;
    for (const unsigned int set : RegionSets()) {
      for (const unsigned int window : RemoteSets()) {
        AddBind(set, window);
        if (!never) {
          AddBind(set | IBV_ACCESS_MW_BIND, window);
          AddBind(set | IBV_ACCESS_MW_BIND, window | IBV_ACCESS_ZERO_BASED);
        }
      }
    }
    if (never) {
      return;
    }
    Domains();
    ByteRanges();
    Forgeries();
  }

  const Abilities& has_;
  Service service_ = Service::kReliable;
  Case base_;
  std::vector<Case> cases_;
};

}  // namespace

std::vector<Case> AxisCases(const Abilities& has) { return Cases(has).Axes(); }

std::vector<Case> ServiceCases(const Abilities& has) {
  return Cases(has).Services();
}

std::vector<Case> CrossCases(const Abilities& has) {
  return Cases(has).Cross();
}

}  // namespace ropcie::keys
