// SPDX-License-Identifier: GPL-2.0
// The command line of the test programs: one set of options for all of them, so
// that scripts treat them alike. Defaults come from the environment that
// scripts/lab gives to a script.
#ifndef ROPCIE_TESTS_PROGRAMS_OPTIONS_H_
#define ROPCIE_TESTS_PROGRAMS_OPTIONS_H_

#include <cstdint>
#include <string>

namespace ropcie {

struct Options {
  std::string program;  // argv[0] without its directory
  std::string device;   // $RDMA_DEV
  std::string device2;  // $RDMA_DEV2: the other end when one node is both
  std::string server;   // $SERVER: where node 1 listens
  int node = 1;         // $NODE
  int nodes = 1;        // $NODES; 1: this node talks to itself
  uint16_t tcp_port = 18600;
  int gid_index = -1;  // -1: the first RoCE v2 GID
  uint64_t seed = 1;
  uint64_t sample = 0;    // rop_keys: which cases --quick takes; 0: any
  int timeout_s = 60;     // for each thing that is waited for
  int rounds = 0;         // 0: the program's own number
  int qps = 100;          // rop_many_qps, rop_hog, rop_guarded
  std::string stuck;      // rop_odp: a file whose pages do not come
  std::string stage;      // rop_stage, rop_hostile: what it does until the end
  bool quick = false;     // fewer of the large and slow cases
  bool tolerate = false;  // differences from the standard are only printed
  bool peer_may_die = false;
  bool loses_device = false;    // rop_faults, rop_fuzz: not only the link
  bool device_returns = false;  // rop_faults: the one that goes is given back
  bool port_stays = false;      // rop_faults: there are other peers
};

// Exits with a message on a wrong option (status 2) and on --help (0).
Options ParseOptions(int argc, char** argv, const std::string& description);

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_OPTIONS_H_
