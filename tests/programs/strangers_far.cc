// SPDX-License-Identifier: GPL-2.0
// Attempts of a stranger on another node. It has the victim's numbers, and
// queue pairs of its own that are connected to an accomplice's on the victim's
// node.
#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "side.h"
#include "strangers.h"
#include "verbs_util.h"

namespace ropcie::strangers {
namespace {

using Which = Region Numbers::*;

constexpr bool kMore = true;

// What the accomplice has: memory, and a window that shows it.
struct Offer {
  Region region;
  uint32_t window;
};

QpConfig Config() {
  QpConfig config;
  config.cap.max_send_wr = kDepth;
  config.cap.max_recv_wr = kDepth;
  config.access = kAllAccess;
  config.rd_atomic = 4;
  return config;
}

// One request over a queue pair that is connected as it should be, with a key
// of the victim's, or one of the accomplice's when there is no `victims`.
std::string Through(Actor& actor, ibv_wr_opcode opcode, const Region* victims) {
  Side& accomplice = *actor.accomplice;
  accomplice.channel.Write(&kMore, sizeof(kMore));
  const Connection connection = Connect(actor.device, accomplice, Config());
  Offer offer{};
  accomplice.channel.Read(&offer, sizeof(offer));
  const bool word = opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
                    opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  ibv_sge sge = opcode == IBV_WR_RDMA_READ || word ? actor.In(word ? 8 : kPiece)
                                                   : actor.Out();
  ibv_send_wr wr =
      Request(opcode, &sge, victims != nullptr ? *victims : offer.region);
  if (opcode == IBV_WR_SEND_WITH_INV) {
    wr.invalidate_rkey = victims != nullptr ? victims->rkey : offer.window;
  }
  std::string status = Send(connection.qp.get(), wr);
  accomplice.channel.Barrier(connection.qp->qp_num);
  return actor.Came() ? status + ", bytes came" : status;
}

}  // namespace

std::vector<Attempt> FarAttempts() {
  std::vector<Attempt> attempts = FarQueueAttempts();
  const std::string denied = Of(IBV_WC_REM_ACCESS_ERR);
  std::vector<std::pair<std::string, Which>> keys = {
      {"a region", &Numbers::pinned},
      {"a region on demand", &Numbers::on_demand},
      {"device memory", &Numbers::device_memory}};
  std::vector<std::pair<std::string, ibv_wr_opcode>> operations = {
      {"WRITE to ", IBV_WR_RDMA_WRITE},
      {"READ of ", IBV_WR_RDMA_READ},
      {"compare-and-swap of ", IBV_WR_ATOMIC_CMP_AND_SWP},
      {"fetch-and-add to ", IBV_WR_ATOMIC_FETCH_AND_ADD}};
  if (HasMappedQueues()) {
    keys.emplace_back("a window of type 1", &Numbers::window_1);
    keys.emplace_back("a window of type 2", &Numbers::window_2);
    operations.emplace_back("SEND that invalidates ", IBV_WR_SEND_WITH_INV);
  }
  for (const auto& [operation, opcode] : operations) {
    for (const auto& [of, which] : keys) {
      attempts.push_back({.name = operation + of + ", from another node",
                          .run =
                              [opcode = opcode, which = which](
                                  Actor& actor, const Numbers& numbers) {
                                return Through(actor, opcode,
                                               &(numbers.*which));
                              },
                          .stranger = denied,
                          .owner = {}});
    }
    // With a key of the accomplice's it works: so it is the key that matters.
    const bool fetches =
        opcode != IBV_WR_RDMA_WRITE && opcode != IBV_WR_SEND_WITH_INV;
    attempts.push_back(
        {.name = operation + "what the accomplice has, from another node",
         .run =
             [opcode = opcode](Actor& actor, const Numbers& /*numbers*/) {
               return Through(actor, opcode, nullptr);
             },
         .stranger = fetches ? kSuccess + ", bytes came" : kSuccess,
         .owner = {}});
  }
  return attempts;
}

void Accomplice(Side& stranger) {
  const Device device = OpenDevice(stranger);
  Actor actor(device, nullptr, &device);
  for (;;) {
    bool more = false;
    stranger.channel.Read(&more, sizeof(more));
    if (more != kMore) {
      return;
    }
    const Connection connection = Connect(device, stranger, Config());
    Offer offer{{actor.mr->lkey, actor.mr->rkey, actor.Out().addr}, 0};
    MwPtr window;
    if (HasMappedQueues()) {
      window = OwnWindow(actor, connection.qp.get(), &offer.window);
    }
    PostRecv(connection.qp.get(), 1, {actor.In()});
    stranger.channel.Write(&offer, sizeof(offer));
    // The stranger's queue pair has the number that it was connected to.
    stranger.channel.Barrier(connection.peer.qpn);
  }
}

}  // namespace ropcie::strangers
