// SPDX-License-Identifier: GPL-2.0
//
// ropcie-ivshmem-server: joins QEMU's ivshmem-doorbell devices.  Command line
// and signals only; the work is done by Server.

#include <getopt.h>
#include <sys/signalfd.h>

#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>

#include "server.h"

namespace {

using ropcie::ivshmem::OwnFd;
using ropcie::ivshmem::Server;
using ropcie::ivshmem::ServerOptions;

constexpr std::uint64_t kMinSize = 4096;
constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 40;
constexpr unsigned kMaxVectors = 64;
constexpr int kUsageError = 2;

constexpr std::string_view kUsage =
    "usage: ropcie-ivshmem-server --socket PATH --size BYTES --vectors N "
    "--shm FILE\n"
    "  --socket PATH   Unix socket that QEMU's ivshmem chardev connects to\n"
    "  --size BYTES    shared memory, a power of two from 4096 on\n"
    "  --vectors N     interrupt vectors of each device, 1 to 64\n"
    "  --shm FILE      file that holds the shared memory (emptied at start,\n"
    "                  removed at the end if the server made it)\n";

template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) {
    return std::nullopt;
  }
  return value;
}

int Usage(const std::string& complaint) {
  std::cerr << "ropcie-ivshmem-server: " << complaint << "\n" << kUsage;
  return kUsageError;
}

// Returns a complaint, or nothing if the options are good.
std::optional<std::string> Check(const ServerOptions& options) {
  if (options.socket_path.empty()) {
    return "--socket is missing";
  }
  if (options.shm_path.empty()) {
    return "--shm is missing";
  }
  const bool power_of_two = (options.size & (options.size - 1)) == 0;
  if (options.size < kMinSize || options.size > kMaxSize || !power_of_two) {
    return "--size must be a power of two from 4096 on";
  }
  if (options.vectors < 1 || options.vectors > kMaxVectors) {
    return "--vectors must be 1 to 64";
  }
  return std::nullopt;
}

int Serve(const ServerOptions& options) {
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    sigaddset(&stop_signals, number);
  }
  // Blocked before the socket exists, so that none is ever left behind.
  sigprocmask(SIG_BLOCK, &stop_signals, nullptr);
  const auto stop = OwnFd(signalfd(-1, &stop_signals, SFD_CLOEXEC));
  if (!stop) {
    std::cerr << "ropcie-ivshmem-server: signalfd failed\n";
    return EXIT_FAILURE;
  }
  Server server(options);
  std::cout << "listening on " << options.socket_path << std::endl;
  server.Run(*stop);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) try {
  static const option kOptions[] = {
      {"socket", required_argument, nullptr, 's'},
      {"size", required_argument, nullptr, 'l'},
      {"vectors", required_argument, nullptr, 'v'},
      {"shm", required_argument, nullptr, 'm'},
      {"help", no_argument, nullptr, 'h'},
      {nullptr, 0, nullptr, 0}};
  ServerOptions options;
  for (;;) {
    const int opt = getopt_long(argc, argv, "", kOptions, nullptr);
    if (opt == -1) {
      break;
    }
    switch (opt) {
      case 's':
        options.socket_path = optarg;
        break;
      case 'l':
        options.size = ParseNumber<std::uint64_t>(optarg).value_or(0);
        break;
      case 'v':
        options.vectors = ParseNumber<unsigned>(optarg).value_or(0);
        break;
      case 'm':
        options.shm_path = optarg;
        break;
      case 'h':
        std::cout << kUsage;
        return EXIT_SUCCESS;
      default:
        std::cerr << kUsage;
        return kUsageError;
    }
  }
  if (optind != argc) {
    return Usage("unexpected argument");
  }
  if (const auto complaint = Check(options)) {
    return Usage(*complaint);
  }
  return Serve(options);
} catch (const std::exception& error) {
  std::cerr << "ropcie-ivshmem-server: " << error.what() << "\n";
  return EXIT_FAILURE;
}
