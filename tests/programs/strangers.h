// SPDX-License-Identifier: GPL-2.0
// What a stranger tries with the numbers of a process that is none of its
// business, and what has to come of it.
#ifndef ROPCIE_TESTS_PROGRAMS_STRANGERS_H_
#define ROPCIE_TESTS_PROGRAMS_STRANGERS_H_

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mappings.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie::strangers {

// Those of libibverbs are another function in each file.
int DeallocMw(ibv_mw* mw);
int CloseXrcd(ibv_xrcd* xrcd);
using MwPtr = std::unique_ptr<ibv_mw, Destroyer<DeallocMw>>;
using XrcdPtr = std::unique_ptr<ibv_xrcd, Destroyer<CloseXrcd>>;

constexpr size_t kPiece = 256;  // what an attempt is for
constexpr size_t kGrh = 40;
constexpr int kDepth = 16;
constexpr uint32_t kOwnQkey = 0x00c0ffee;
constexpr unsigned int kAllAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
    IBV_ACCESS_REMOTE_ATOMIC;

// Objects as the commands of uverbs name them.
struct Handles {
  uint32_t pd;
  uint32_t mr;
  uint32_t mw;
  uint32_t cq;
  uint32_t qp;
  uint32_t ud;
  uint32_t srq;
  uint32_t ah;
  uint32_t xrcd;
  uint32_t dm;
};

// Memory of kPiece bytes.
struct Region {
  uint32_t lkey;
  uint32_t rkey;
  uint64_t addr;
};

// A queue pair, and the number of the next request that it takes.
struct Queue {
  uint32_t qpn;
  uint32_t psn;
};

// All that there is to know of the victim.
struct Numbers {
  ibv_gid gid;
  Region pinned;
  Region on_demand;
  Region device_memory;
  Region window_1;
  Region window_2;
  uint32_t unbound;  // key of a window of type 2
  Handles used;
  Handles spare;  // objects that nobody uses
  Queue rc;
  Queue uc;
  Queue xrc;
  uint32_t srqn;
  uint32_t ud_qpn;
  uint32_t qkey;
  uint32_t ah_number;
  std::array<Mapping, 48> mappings;
  uint32_t num_mappings;
  std::array<char, 64> xrcd_file;
};

// Who tries: the stranger, or the victim itself.
struct Actor {
  Actor(const Device& of, ibv_xrcd* domain, const Device* from);

  // Forgets what has come.
  void Clear();
  [[nodiscard]] bool Came() const;
  [[nodiscard]] ibv_sge Out(uint32_t length = kPiece) const;
  [[nodiscard]] ibv_sge In(uint32_t length = kPiece) const;

  const Device& device;
  ibv_xrcd* xrcd;
  // The device of the victim's partner; the victim has none.
  const Device* elsewhere;
  // Of a stranger on another node: a process of the same user on the victim's.
  Side* accomplice = nullptr;
  Handles own{};
  std::vector<uint8_t> memory;
  MrPtr mr;

  [[nodiscard]] bool IsStranger() const { return elsewhere != nullptr; }
};

// An attempt of which something comes: "success", the status of a completion,
// an error. Nobody else may see anything of it.
struct Attempt {
  std::string name;
  std::function<std::string(Actor&, const Numbers&)> run;
  std::string stranger;
  std::string owner;  // when the victim tries the same; empty: it does not
  // What the victim may, and the stranger may not.
  bool changes = false;  // the victim's memory
  int owner_heard = 0;   // messages for the victim
  int stranger_heard = 0;
};

inline const std::string kAccepted = "accepted";
inline const std::string kRefused = "refused";
// What requests complete with.
inline std::string Of(ibv_wc_status status) {
  return ibv_wc_status_str(status);
}
inline const std::string kSuccess = Of(IBV_WC_SUCCESS);
// "accepted", or "refused" to who has named what there is not.
std::string Answer(int error);

std::vector<Attempt> KeyAttempts(const Device& device);
std::vector<Attempt> QueueAttempts();
std::vector<Attempt> CommandAttempts();
// What is left to a stranger on another node.
std::vector<Attempt> FarAttempts();
std::vector<Attempt> FarQueueAttempts();
// Connects queue pairs to the stranger's, and shows it memory of its own.
void Accomplice(Side& stranger);

// Objects that nobody uses, made by commands that libibverbs knows nothing of.
Handles MakeSpares(const Device& device);
// A handle for the domain of a file, which libibverbs keeps to itself.
uint32_t XrcdHandle(const Device& device, int fd);
// Makes the kernel look at a queue that was filled behind libibverbs' back.
void RingDoorbell(const ibv_qp* qp);

ibv_send_wr Request(ibv_wr_opcode opcode, ibv_sge* sge,
                    const Region& to = Region());

ibv_send_wr DatagramRequest(ibv_sge* sge, ibv_ah* ah, uint32_t qpn,
                            uint32_t qkey);

// Posts, and says what comes of it.
std::string Send(ibv_qp* qp, ibv_send_wr wr);
// The same of the next completion.
std::string Next(ibv_cq* cq);
// Waits for a moment for what is not to come.
bool NothingComes(ibv_cq* cq);

XrcdPtr OpenXrcd(const Device& device, int fd);
SrqPtr CreateXrcSrq(const Device& device, ibv_xrcd* xrcd, ibv_cq* cq);
// A queue pair of extended reliable connections, in RESET.
QpPtr CreateInitiator(const Device& device, ibv_cq* cq);
QpPtr CreateTarget(const Device& device, ibv_xrcd* xrcd);
// Those that send, and those that receive.
void ConnectInitiator(ibv_qp* qp, const Device& device, uint32_t psn,
                      const QpAddress& peer, const QpConfig& config);
void ConnectTarget(ibv_qp* qp, const Device& device, const QpAddress& peer,
                   const QpConfig& config);

// Two queue pairs of one process, connected to each other.
struct Pair {
  explicit Pair(const Actor& actor, ibv_qp_type type = IBV_QPT_RC,
                ibv_srq* srq = nullptr);

  CqPtr sent;
  CqPtr received;
  CqPtr unused;
  QpPtr from;
  QpPtr to;
};

// A window of one's own that shows one's own memory by way of that queue pair,
// which alone may take it away.
MwPtr OwnWindow(Actor& actor, ibv_qp* qp, uint32_t* key);

// A queue pair for datagrams, in RTS.
struct Datagrams {
  Datagrams(const Device& device, uint32_t qkey);

  CqPtr sent;
  CqPtr received;
  QpPtr qp;
};

// A mapped send queue that is written by hand.
class HandWritten {
 public:
  // `ah` leads anywhere.
  HandWritten(const Device& device, ibv_ah* ah);

  // What the queue calls that address handle.
  [[nodiscard]] uint32_t number() const { return number_; }
  // Sends to where the number leads.
  std::string SendTo(uint32_t number);

 private:
  std::array<uint8_t, 8> data_{};
  Datagrams datagrams_;
  uint8_t* ring_ = nullptr;
  uint8_t* first_ = nullptr;
  size_t stride_ = 0;
  uint32_t number_ = 0;
};

}  // namespace ropcie::strangers

#endif  // ROPCIE_TESTS_PROGRAMS_STRANGERS_H_
