// SPDX-License-Identifier: GPL-2.0
// The cases of rop_keys: one operation on one region (or window), its key, and
// what must come of it.
#ifndef ROPCIE_TESTS_PROGRAMS_KEYS_H_
#define ROPCIE_TESTS_PROGRAMS_KEYS_H_

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "pattern.h"
#include "side.h"
#include "verbs_util.h"
#include "vgem.h"

namespace ropcie::keys {

// Memory of each side: every byte outside of the region is a guard. The region
// begins and ends within a page, and its last word is not whole.
constexpr size_t kArea = 65536;
constexpr size_t kBegin = 4096 + 264;
constexpr size_t kRegion = 20004;
// What is used at the other end of a transfer: allowed in every way.
constexpr size_t kPartner = 32768 + 40;
constexpr size_t kWord = 8;
// Transfers up to this length take one record, or nothing is placed of them.
constexpr size_t kShort = 1024;

constexpr unsigned int kRemoteAccess =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned int kAllAccess = IBV_ACCESS_LOCAL_WRITE | kRemoteAccess;

enum class Op {
  kSend,
  kSendImm,
  kWrite,
  kWriteImm,
  kRead,
  kFetchAdd,
  kCompareSwap,
  kAtomicWrite,
  kBind1,  // of a window of type 1 to the region
  kBind2,
  kLocalInv,  // takes the key away
  kSendInv,   // so that the peer does it
};

// Where the region is: whose key the operation uses.
enum class Where { kLocal, kRemote, kReceive };

enum class Kind {
  kPinned,
  kOnDemand,
  kLow,           // its first page has the address 0
  kHigh,          // it ends where addresses end, nearly
  kDeviceMemory,  // zero based
  kDmaBuf,        // a buffer of the vgem driver
  kNull,
  kWindow1,
  kWindow2,
  kWindow2Zero,
};
constexpr int kKinds = 10;

enum class Domain {
  kSame,     // the queue pair's protection domain
  kOther,    // another one of the same context
  kForeign,  // one of another context
};

enum class State {
  kValid,
  kTag,                // another tag, see Case::tag
  kIndex,              // another index
  kZero,               // the key 0
  kOnes,               // the key of all ones
  kDeregistered,       // or the window is deallocated
  kRecycled,           // deregistered, and the index is another's, see `now`
  kRecycledNow,        // the key of that other one
  kReregistered,       // was registered with other rights, in another domain
  kMoved,              // was registered elsewhere, see kPartner
  kNotBound,           // windows from here on
  kUnbound,            // bound to nothing after that (type 1)
  kRebound,            // bound again: the key of before
  kInvalidated,        // by LOCAL_INV (type 2)
  kInvalidatedByPeer,  // by SEND with invalidate (type 2)
  kOtherQueuePair,     // bound on another queue pair of the domain
};

// Over which queue pairs.
enum class Service {
  kReliable,
  kUnreliable,
  kDatagram,
  kShared,  // reliable; receives come from a shared queue of the other domain
};

// From the region's first byte on; or, if absolute, from address 0 on.
struct Range {
  uint64_t offset = 0;
  uint64_t length = 0;
  bool absolute = false;
};

struct Case {
  Service service = Service::kReliable;
  Op op = Op::kWrite;
  Where where = Where::kRemote;
  Kind kind = Kind::kPinned;
  unsigned int access = kAllAccess;  // of the region or window
  Domain domain = Domain::kSame;
  Range range = {};
  State state = State::kValid;
  uint8_t tag = 0;
  unsigned int qp_access = kAllAccess;  // of the responder's queue pair
  unsigned int window_access = 0;       // that is bound
  Domain window_domain = Domain::kSame;
  bool own = false;             // it shares its region with no other case
  Kind now = Kind::kPinned;     // who has the index of a recycled key
  Kind parent = Kind::kPinned;  // what a window shows a part of
  bool exact = false;           // it shows all of it
};

enum class Placed {
  kNothing,
  kAll,
  kPerhaps,  // each byte is the old or the new one
};

// What must come of a case.
struct Outcome {
  ibv_wc_status status = IBV_WC_SUCCESS;
  ibv_wc_status receive = IBV_WC_SUCCESS;  // if one was posted
  bool responder_fails = false;
  bool dropped = false;                      // as if it had never been sent
  std::optional<ibv_event_type> event = {};  // at the responder
  Placed local = Placed::kNothing;           // at the requester
  Placed remote = Placed::kNothing;
};

bool IsWindow(Kind kind);
bool IsAtomic(Op op);  // acts on one word
bool IsBind(Op op);
bool IsInvalidate(Op op);
bool IsSend(Op op);
bool IsFetch(Op op);       // brings data back
bool TakesReceive(Op op);  // a receive is consumed
bool LengthIsHuge(const Case& one);
// Who requests is not told what came of it.
bool IsUnreliable(Service service);

// The rules.
Outcome Judge(const Case& one);

// One line for people.
std::string Name(const Case& one);
std::string Name(Kind kind);

// What a device has.
struct Abilities {
  bool kinds[kKinds];
  bool windows;
  bool atomic_write;
  bool reregister;
  bool recycled;
};

// Each axis varied around one base.
std::vector<Case> AxisCases(const Abilities& has);
// The same for what is not reliable, and for shared receive queues.
std::vector<Case> ServiceCases(const Abilities& has);
// Kinds, rights of the region and the queue pair, domains, bounds and
// operations, all with all.
std::vector<Case> CrossCases(const Abilities& has);

// What destroys these is inline, and no name for a template in a header.
struct Freer {
  void operator()(ibv_mw* window) const;
  void operator()(ibv_dm* memory) const;
};
using MwPtr = std::unique_ptr<ibv_mw, Freer>;
using DmPtr = std::unique_ptr<ibv_dm, Freer>;

// A key, and what is behind it as long as the case runs.
struct Subject {
  uint64_t base = 0;  // address of the region's first byte
  uint32_t key = 0;
  uint32_t own_key = 0;  // before the case spoilt it
  MrPtr mr = {};
  MwPtr window = {};
};

// Seconds after which something awaited counts as missing; the other side waits
// for longer.
int PatienceOf(const Side& side);

// The first byte that a case names.
uint64_t AddressFor(const Case& one, const Subject& subject);

// The memory of one side and the regions in it.
class Regions {
 public:
  Regions(const Side& side, const Device& device);
  ~Regions();
  Regions(const Regions&) = delete;
  Regions(Regions&&) = delete;
  Regions& operator=(const Regions&) = delete;
  Regions& operator=(Regions&&) = delete;

  [[nodiscard]] Abilities Probe();
  // Lets indices be used again, each by another kind.
  [[nodiscard]] bool Recycle(const Abilities& has);

  // The region of a case; windows are bound on this queue pair.
  Subject Prepare(const Case& one, const Connection& connection);
  // What is allowed in every way; the null region if it would be too long.
  Subject Partner(const Case& one);

  // Can a region or window still be used, by others than the test's connection?
  bool StillWorks(const Case& one, const Subject& subject);

  // Binds a new window to the region of a case; returns how that completed.
  ibv_wc_status TryBind(const Case& one, const Connection& connection);

  // Of WRITEs through a window of type 2, over the queue pair that it was bound
  // on: before and after that is reset and connected again.
  std::array<ibv_wc_status, 2> WriteAroundReset();

  // nullptr if it is refused.
  MrPtr Register(Kind kind, unsigned int access, Domain domain,
                 size_t begin = kBegin, size_t length = kRegion);
  [[nodiscard]] uint64_t BaseOf(Kind kind) const;
  [[nodiscard]] ibv_pd* pd(Domain domain) const;

  [[nodiscard]] uint8_t* host() const { return host_; }
  [[nodiscard]] ibv_dm* device_memory() const { return dm_.get(); }
  [[nodiscard]] uint8_t* dma_buf() const {
    return buffer_ == nullptr ? nullptr : buffer_->memory();
  }

 private:
  // An index that was another's; regions and windows have theirs in one table.
  struct Recycled {
    Kind before;
    Kind now;
    uint32_t old_key;
    Subject heir;
  };

  ibv_mr* Pooled(Kind kind, unsigned int access, Domain domain,
                 bool around = false);
  bool Inherit(Recycled* one);
  const Recycled& Find(const Case& one) const;
  MrPtr Reregistered(const Case& one);
  Subject PrepareRegion(const Case& one);
  Subject PrepareWindow(const Case& one, const Connection& connection);
  MwPtr AllocateWindow(ibv_mw_type type, Domain domain) const;
  ibv_wc_status Bind(const Connection& connection, ibv_mw* window,
                     ibv_mw_bind_info info) const;
  void BindWell(const Connection& connection, ibv_mw* window,
                const ibv_mw_bind_info& info) const;
  void Invalidate(const Connection& connection, uint32_t key) const;
  ibv_wc_status Await(const Connection& connection) const;
  [[nodiscard]] Connection Binder(Domain domain) const;
  [[nodiscard]] uint32_t Spoil(const Case& one, uint32_t key) const;

  const Side& side_;
  const Device& device_;
  Device foreign_;
  PdPtr other_;
  uint8_t* host_;
  DmPtr dm_;
  std::unique_ptr<VgemBuffer> buffer_;
  File buffer_file_{-1};
  std::vector<Connection> binders_;  // one for each domain, with themselves
  std::map<std::tuple<Kind, unsigned int, Domain, bool>, MrPtr> pool_;
  MrPtr partner_;
  std::vector<Recycled> recycled_;
  std::array<uint64_t, 1> scratch_ = {};
  std::vector<MrPtr> scratches_;  // of it, one for each domain
};

// The index of a key is the rest of it.
constexpr uint32_t kTagBits = 8;

// What becomes another's, and the others.
inline constexpr std::array kRecycledKinds = {
    Kind::kPinned,  Kind::kOnDemand, Kind::kDeviceMemory, Kind::kDmaBuf,
    Kind::kWindow1, Kind::kWindow2,  Kind::kWindow2Zero};
inline constexpr std::array kHeirs = {Kind::kPinned, Kind::kOnDemand,
                                      Kind::kDeviceMemory, Kind::kWindow1};

}  // namespace ropcie::keys

#endif  // ROPCIE_TESTS_PROGRAMS_KEYS_H_
