// SPDX-License-Identifier: GPL-2.0
// What an operation costs in all: one thread, two connected RC queue pairs, and
// nobody waits. A SEND is: post a receive, post the send, poll both
// completions; a WRITE or a READ is posted and polled. Qps: a SEND when there
// are that many pairs of queue pairs, and what memory of the machine each queue
// pair takes. Copy: memcpy(), without any device. The devices are RDMA_DEV and,
// for the other end, RDMA_DEV2 of the environment.
#include <benchmark/benchmark.h>
#include <infiniband/verbs.h>
#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace ropcie {
namespace {

constexpr uint32_t kDepth = 16;
constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// It ends with the process.
[[noreturn]] void Fail(const std::string& what) {
  std::perror(what.c_str());
  std::exit(1);
}

ibv_context* Open(const char* name) {
  ibv_device** list = ibv_get_device_list(nullptr);
  for (ibv_device** at = list; at != nullptr && *at != nullptr; ++at) {
    if (std::strcmp(ibv_get_device_name(*at), name) == 0) {
      return ibv_open_device(*at);
    }
  }
  Fail(std::string("no device ") + name);
}

// The first RoCE v2 GID that stands for an IPv4 address.
uint8_t GidIndex(ibv_context* context) {
  std::vector<ibv_gid_entry> table(256);
  const ssize_t count =
      ibv_query_gid_table(context, table.data(), table.size(), 0);
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = table.at(static_cast<size_t>(i));
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
        entry.gid.global.subnet_prefix == 0) {
      return static_cast<uint8_t>(entry.gid_index);
    }
  }
  Fail("no RoCE v2 GID");
}

struct End {
  End(const char* name, size_t size) : memory(size + 4096) {
    context = Open(name);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 4 * kDepth, nullptr, nullptr, 0);
    mr = ibv_reg_mr(pd, memory.data(), memory.size(), kAccess);
    if (mr == nullptr || cq == nullptr) {
      Fail("no memory region or completion queue");
    }
    gid_index = GidIndex(context);
    ibv_query_gid(context, 1, gid_index, &gid);
    if (ibv_query_port(context, 1, &port) != 0) {
      Fail("no port");
    }
  }

  End(const End&) = delete;
  End& operator=(const End&) = delete;
  ~End() {
    for (ibv_qp* const qp : qps) {
      ibv_destroy_qp(qp);
    }
    ibv_dereg_mr(mr);
    ibv_destroy_cq(cq);
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
  }

  void CreateQp(uint32_t depth) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {depth, depth, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    qps.push_back(ibv_create_qp(pd, &init));
    if (qps.back() == nullptr) {
      Fail("no queue pair");
    }
  }

  // The newest queue pair with the other end's newest.
  void Connect(const End& other) const {
    ibv_qp* const qp = qps.back();
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kAccess;
    if (ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                          IBV_QP_ACCESS_FLAGS) != 0) {
      Fail("to INIT");
    }
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = port.active_mtu;
    attr.dest_qp_num = other.qps.back()->qp_num;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = other.gid;
    attr.ah_attr.grh.sgid_index = gid_index;
    attr.ah_attr.grh.hop_limit = 64;
    attr.ah_attr.port_num = 1;
    if (ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                          IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) !=
        0) {
      Fail("to RTR");
    }
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    if (ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
                          IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_MAX_QP_RD_ATOMIC) != 0) {
      Fail("to RTS");
    }
  }

  [[nodiscard]] ibv_sge Sge(uint32_t length) const {
    return {reinterpret_cast<uintptr_t>(memory.data()), length, mr->lkey};
  }

  void Receive(uint32_t length) const {
    ibv_sge sge = Sge(length);
    ibv_recv_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(qps.front(), &wr, &bad) != 0) {
      Fail("ibv_post_recv");
    }
  }

  void Post(ibv_wr_opcode opcode, uint32_t length, const End& other) const {
    ibv_sge sge = Sge(length);
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(other.memory.data());
    wr.wr.rdma.rkey = other.mr->rkey;
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(qps.front(), &wr, &bad) != 0) {
      Fail("ibv_post_send");
    }
  }

  void Poll() const {
    ibv_wc wc{};
    int count = 0;
    do {
      count = ibv_poll_cq(cq, 1, &wc);
    } while (count == 0);
    if (count < 0 || wc.status != IBV_WC_SUCCESS) {
      std::fprintf(stderr, "completed with: %s\n",
                   ibv_wc_status_str(wc.status));
      std::exit(1);
    }
  }

  std::vector<uint8_t> memory;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  std::vector<ibv_qp*> qps;  // the first one has the traffic
  uint8_t gid_index = 0;
  ibv_gid gid{};
  ibv_port_attr port{};
};

const char* Name(const char* variable, const char* otherwise) {
  const char* const name = std::getenv(variable);
  return name != nullptr ? name : otherwise;
}

// Pairs of queue pairs of the two ends.
void Connect(End* a, End* b, int64_t count, uint32_t depth) {
  for (int64_t i = 0; i < count; ++i) {
    a->CreateQp(depth);
    b->CreateQp(depth);
    a->Connect(*b);
    b->Connect(*a);
  }
}

void Op(benchmark::State& state, ibv_wr_opcode opcode) {
  const auto length = static_cast<uint32_t>(state.range(0));
  const char* const name = Name("RDMA_DEV", "ropcie0");
  End a(name, length);
  End b(Name("RDMA_DEV2", name), length);
  Connect(&a, &b, 1, kDepth);
  for ([[maybe_unused]] auto _ : state) {
    if (opcode == IBV_WR_SEND) {
      b.Receive(length);
    }
    a.Post(opcode, length, b);
    a.Poll();
    if (opcode == IBV_WR_SEND) {
      b.Poll();
    }
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

// Memory of the machine that nobody uses, KiB.
double FreeKib() {
  std::ofstream("/proc/sys/vm/drop_caches") << 3;
  std::ifstream info("/proc/meminfo");
  std::string name;
  for (double value = 0; info >> name;) {
    if (name == "MemFree:" && info >> value) {
      return value;
    }
  }
  Fail("no MemFree in /proc/meminfo");
}

void Qps(benchmark::State& state, uint32_t depth) {
  constexpr uint32_t kLength = 64;
  const int64_t count = state.range(0);
  const char* const name = Name("RDMA_DEV", "ropcie0");
  End a(name, kLength);
  End b(Name("RDMA_DEV2", name), kLength);
  Connect(&a, &b, 1, depth);
  const double before = FreeKib();
  Connect(&a, &b, count - 1, depth);
  if (count >= 100) {  // of fewer, what else the machine does would be seen
    state.counters["KiB"] =
        (before - FreeKib()) / (2 * static_cast<double>(count - 1));
  }
  for ([[maybe_unused]] auto _ : state) {
    b.Receive(kLength);
    a.Post(IBV_WR_SEND, kLength, b);
    a.Poll();
    b.Poll();
  }
}

// What the machine itself makes of one copy, to compare bandwidths with.
void Copy(benchmark::State& state) {
  const auto length = static_cast<size_t>(state.range(0));
  const std::vector<uint8_t> from(length, 1);
  std::vector<uint8_t> to(length);
  for ([[maybe_unused]] auto _ : state) {
    std::memcpy(to.data(), from.data(), length);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

// Operations of each; bench/profile subtracts what is not theirs.
int64_t Count() { return std::strtol(Name("BENCH_OPS", "200"), nullptr, 10); }

void Sizes(benchmark::internal::Benchmark* bench) {
  bench->Arg(64)
      ->Arg(4096)
      ->Arg(16384)
      ->Arg(65536)
      ->Arg(1 << 18)
      ->Arg(1 << 20)
      ->Arg(8 << 20)
      ->Iterations(Count())
      ->UseRealTime();
}

BENCHMARK_CAPTURE(Op, send, IBV_WR_SEND)->Apply(Sizes);
BENCHMARK_CAPTURE(Op, write, IBV_WR_RDMA_WRITE)->Apply(Sizes);
BENCHMARK_CAPTURE(Op, read, IBV_WR_RDMA_READ)->Apply(Sizes);
BENCHMARK(Copy)
    ->RangeMultiplier(4)
    ->Range(4096, 1 << 20)
    ->Arg(8 << 20)
    ->UseRealTime();
void Counts(benchmark::internal::Benchmark* bench) {
  bench->Arg(1)
      ->Arg(10)
      ->Arg(100)
      ->Arg(1000)
      ->Iterations(Count())
      ->UseRealTime();
}

BENCHMARK_CAPTURE(Qps, 16, 16)->Apply(Counts);
BENCHMARK_CAPTURE(Qps, 128, 128)->Apply(Counts);

}  // namespace
}  // namespace ropcie
