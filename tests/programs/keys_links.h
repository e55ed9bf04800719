// SPDX-License-Identifier: GPL-2.0
// The queue pairs of rop_keys, one of each service.
#ifndef ROPCIE_TESTS_PROGRAMS_KEYS_LINKS_H_
#define ROPCIE_TESTS_PROGRAMS_KEYS_LINKS_H_

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <vector>

#include "keys.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie::keys {

class Links {
 public:
  Links(Side& side, const Device& device, const Regions& regions);

  Connection& Of(Service service) {
    return links_[static_cast<size_t>(service)];
  }

  // What a datagram needs besides.
  void Address(ibv_send_wr* wr);
  void PostReceive(Service service, uint64_t wr_id, const ibv_sge& sge);
  void SetAccess(Service service, unsigned int access);

  // From whatever state to RTS, with nothing posted. Both sides do it after the
  // same case.
  void Renew(Service service);

 private:
  Connection ConnectDatagrams();
  void ToReady(Service service, const QpAddress& mine);

  Side& side_;
  const Device& device_;
  std::array<uint8_t, sizeof(ibv_grh)> header_ = {};  // of a datagram
  MrPtr header_mr_;
  AhPtr ah_;
  SrqPtr srq_;
  std::vector<Connection> links_;
  uint32_t lives_ = 0;
};

}  // namespace ropcie::keys

#endif  // ROPCIE_TESTS_PROGRAMS_KEYS_LINKS_H_
