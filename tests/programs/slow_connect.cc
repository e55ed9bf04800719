// SPDX-License-Identifier: GPL-2.0
// To be preloaded: all calls of rdma_connect() but the first come a second
// late.
//
// perftest with -R connects twice. Between the two its server destroys one
// listener and makes another; a client that is quicker than that is rejected,
// and crashes.
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <thread>

// NOLINTNEXTLINE(readability-identifier-naming): librdmacm's
extern "C" int rdma_connect(void* id, void* param) {
  static std::atomic<bool> again{false};
  if (again.exchange(true)) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  using Connect = int (*)(void*, void*);
  const auto connect =
      reinterpret_cast<Connect>(dlsym(RTLD_NEXT, "rdma_connect"));
  return connect(id, param);
}
