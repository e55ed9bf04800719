// SPDX-License-Identifier: GPL-2.0
//
// The ivshmem server over real sockets: good clients, and those that talk,
// die in the middle or stop reading.

#include "server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace ropcie::ivshmem {
namespace {

constexpr std::uint64_t kSize = 1 << 20;
// Long enough for any machine; reached only when the test fails.
constexpr int kTimeoutMs = 20000;

struct Received {
  std::int64_t value = 0;
  SharedFd fd;
};

class Client {
 public:
  explicit Client(const std::string& path)
      : socket_(OwnFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0))) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path.begin(), path.end(), std::begin(address.sun_path));
    if (connect(*socket_, reinterpret_cast<sockaddr*>(&address),
                sizeof(address)) != 0) {
      throw std::runtime_error("connect failed");
    }
  }

  // The next message; nothing when the server has hung up.
  std::optional<Received> Read() {
    pollfd polled{.fd = *socket_, .events = POLLIN, .revents = 0};
    if (poll(&polled, 1, kTimeoutMs) != 1) {
      throw std::runtime_error("no message from the server");
    }
    std::uint64_t bytes = 0;
    iovec vec{.iov_base = &bytes, .iov_len = sizeof(bytes)};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr header{};
    header.msg_iov = &vec;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t got =
        recvmsg(*socket_, &header, MSG_WAITALL | MSG_CMSG_CLOEXEC);
    if (got <= 0) {
      return std::nullopt;
    }
    if (got != sizeof(bytes)) {
      throw std::runtime_error("short message");
    }
    Received received;
    received.value = static_cast<std::int64_t>(le64toh(bytes));
    if (const cmsghdr* rights = CMSG_FIRSTHDR(&header)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights), sizeof(fd));
      received.fd = OwnFd(fd);
    }
    return received;
  }

  Received Expect(std::int64_t value, bool with_fd) {
    auto received = Read();
    EXPECT_TRUE(received.has_value()) << "server hung up";
    if (!received) {
      return {};
    }
    EXPECT_EQ(received->value, value);
    EXPECT_EQ(received->fd != nullptr, with_fd);
    return *received;
  }

  // Reads the hand-shake and returns the shared memory.
  SharedFd Handshake(std::int64_t id) {
    Expect(kProtocolVersion, false);
    Expect(id, false);
    return Expect(kSharedMemoryId, true).fd;
  }

  void Write(const std::string& text) {
    EXPECT_EQ(send(*socket_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }

 private:
  SharedFd socket_;
};

class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        std::filesystem::temp_directory_path() / "ropcie-ivshmem-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    stop_ = OwnFd(eventfd(0, EFD_CLOEXEC));
  }

  void TearDown() override {
    Stop();
    std::filesystem::remove_all(directory_);
  }

  [[nodiscard]] ServerOptions Options(unsigned vectors) const {
    return {.socket_path = directory_ + "/socket",
            .shm_path = directory_ + "/shm",
            .size = kSize,
            .vectors = vectors};
  }

  void Start(unsigned vectors) {
    server_ = std::make_unique<Server>(Options(vectors));
    thread_ = std::thread([this] { server_->Run(*stop_); });
  }

  void Stop() {
    if (!thread_.joinable()) {
      return;
    }
    EXPECT_EQ(eventfd_write(*stop_, 1), 0);
    thread_.join();
    server_.reset();
  }

  Client Connect() { return Client(directory_ + "/socket"); }

  std::string directory_;
  SharedFd stop_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

TEST_F(ServerTest, SharedMemoryOfAnotherServerIsRefused) {
  Start(1);
  ServerOptions other = Options(1);
  other.socket_path += "2";
  Client client = Connect();
  const SharedFd memory = client.Handshake(0);
  char byte = 'x';
  ASSERT_EQ(pwrite(*memory, &byte, 1, 0), 1);
  EXPECT_THROW(Server{other}, std::runtime_error);
  byte = 0;
  ASSERT_EQ(pread(*memory, &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x') << "it is emptied";
}

TEST_F(ServerTest, SharedMemoryIsOneZeroedFileOfTheSizeAsked) {
  std::ofstream(directory_ + "/shm") << "left over";
  Start(1);
  Client first = Connect();
  Client second = Connect();
  const SharedFd a = first.Handshake(0);
  const SharedFd b = second.Handshake(1);
  struct stat info {};
  ASSERT_EQ(fstat(*a, &info), 0);
  EXPECT_EQ(static_cast<std::uint64_t>(info.st_size), kSize);
  std::array<char, 16> bytes{};
  ASSERT_EQ(pread(*a, bytes.data(), bytes.size(), 0), 16);
  for (const char byte : bytes) {
    EXPECT_EQ(byte, 0);
  }
  ASSERT_EQ(pwrite(*a, "x", 1, 77), 1);
  ASSERT_EQ(pread(*b, bytes.data(), 1, 77), 1);
  EXPECT_EQ(bytes[0], 'x');
}

TEST_F(ServerTest, APeersEventReachesItsOwner) {
  Start(2);
  Client first = Connect();
  first.Handshake(0);
  const SharedFd own0 = first.Expect(0, true).fd;
  const SharedFd own1 = first.Expect(0, true).fd;
  Client second = Connect();
  second.Handshake(1);
  second.Expect(0, true);
  const SharedFd ring = second.Expect(0, true).fd;
  ASSERT_EQ(eventfd_write(*ring, 1), 0);
  eventfd_t count = 0;
  EXPECT_EQ(eventfd_read(*own1, &count), 0);
  EXPECT_EQ(count, 1U);
  EXPECT_NE(eventfd_read(*own0, &count), 0);  // the other vector is silent
}

TEST_F(ServerTest, AnIdThatIsUsedAgainHasItsOldEvents) {
  Start(1);
  Client first = Connect();
  first.Handshake(0);
  first.Expect(0, true);
  SharedFd ring;
  {
    Client second = Connect();
    second.Handshake(1);
    ring = first.Expect(1, true).fd;
  }
  // The server may not have seen yet that it has gone.
  for (;;) {
    Client again = Connect();
    again.Expect(kProtocolVersion, false);
    const auto id = again.Read();
    ASSERT_TRUE(id.has_value());
    if (id->value != 1) {
      continue;
    }
    again.Expect(kSharedMemoryId, true);
    again.Expect(0, true);
    SharedFd own = again.Expect(1, true).fd;
    ASSERT_EQ(eventfd_write(*ring, 1), 0);
    eventfd_t count = 0;
    EXPECT_EQ(eventfd_read(*own, &count), 0);
    return;
  }
}

TEST_F(ServerTest, ClientsThatDieInTheHandshakeDoNoHarm) {
  constexpr unsigned kVectors = 4;
  Start(kVectors);
  Client first = Connect();
  first.Handshake(0);
  for (unsigned i = 0; i < kVectors; ++i) {
    first.Expect(0, true);
  }
  for (int round = 0; round < 200; ++round) {
    Connect();
  }
  Client last = Connect();
  last.Expect(kProtocolVersion, false);
  const auto id = last.Read();
  ASSERT_TRUE(id.has_value());

  // The first has been told of each ID once, up to the last one's at least.
  std::map<std::int64_t, unsigned> told;
  while (told[id->value] < kVectors) {
    const auto notice = first.Read();
    ASSERT_TRUE(notice.has_value());
    ASSERT_NE(notice->fd, nullptr);
    ++told[notice->value];
  }
  for (const auto& [about, count] : told) {
    EXPECT_LE(count, kVectors) << about;
  }
}

TEST_F(ServerTest, AClientThatTalksIsDropped) {
  Start(1);
  Client first = Connect();
  first.Handshake(0);
  first.Expect(0, true);
  Client second = Connect();
  second.Handshake(1);
  first.Expect(1, true);
  second.Write("GET / HTTP/1.0\r\n\r\n");
  second.Expect(0, true);
  second.Expect(1, true);
  EXPECT_EQ(second.Read(), std::nullopt);
}

}  // namespace
}  // namespace ropcie::ivshmem
