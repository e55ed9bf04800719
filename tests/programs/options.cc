// SPDX-License-Identifier: GPL-2.0
#include "options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace ropcie {

Options ParseOptions(int argc, char** argv, const std::string& description) {
  Options options;
  options.program = std::filesystem::path(argv[0]).filename();

  CLI::App app(description);
  app.add_option("-d,--device", options.device, "RDMA device")
      ->envname("RDMA_DEV")
      ->required();
  app.add_option("--device2", options.device2,
                 "the peer's device when this node talks to itself "
                 "(default: the same)")
      ->envname("RDMA_DEV2");
  app.add_option("--server", options.server, "address of node 1")
      ->envname("SERVER");
  app.add_option("--node", options.node, "number of this node, from 1")
      ->envname("NODE")
      ->check(CLI::PositiveNumber);
  app.add_option("--nodes", options.nodes,
                 "how many nodes take part; 1: this one, with itself")
      ->envname("NODES")
      ->check(CLI::PositiveNumber);
  app.add_option("--tcp-port", options.tcp_port, "port of the side channel");
  app.add_option("--gid-index", options.gid_index, "GID to use");
  app.add_option("--seed", options.seed, "seed of all that is random");
  app.add_option("--sample", options.sample,
                 "rop_keys: which of the samples to try; 0: any");
  app.add_option("--timeout", options.timeout_s,
                 "seconds after which something awaited counts as lost")
      ->check(CLI::PositiveNumber);
  app.add_option("--stuck", options.stuck,
                 "rop_odp: only memory of this file, whose pages do not come");
  app.add_option("--stage", options.stage,
                 "rop_stage, rop_hostile: what it does until it ends");
  app.add_option("--rounds", options.rounds, "how often; 0: as the test wants");
  app.add_option("--qps", options.qps, "number of queue pairs")
      ->check(CLI::PositiveNumber);
  app.add_flag("--quick", options.quick, "fewer of the slow cases");
  app.add_flag("--tolerate", options.tolerate,
               "print differences from the standard and go on");
  app.add_flag("--peer-may-die", options.peer_may_die,
               "losing the peer is no failure");
  app.add_flag("--loses-device", options.loses_device,
               "rop_faults, rop_fuzz: it is the device that goes");
  app.add_flag("--device-returns", options.device_returns,
               "rop_faults: the device that goes is given back, and the side "
               "channel with it");
  app.add_flag("--port-stays", options.port_stays,
               "rop_faults: other peers keep the port active");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  if (options.device2.empty()) {
    options.device2 = options.device;
  }
  if (options.nodes > 1 && options.node > 1 && options.server.empty()) {
    std::cerr << options.program << ": --server is needed on node "
              << options.node << "\n";
    std::exit(2);
  }
  return options;
}

}  // namespace ropcie
