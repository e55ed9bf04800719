// SPDX-License-Identifier: GPL-2.0
// Who runs a test's body, and the side channel between its two sides.
//
// A test has two sides. They are processes on two nodes that talk over TCP, or
// on one node, over a socket pair, when there is only one. With more nodes than
// two, node 1 is a side of one pair with each of the others, all at once.
#ifndef ROPCIE_TESTS_PROGRAMS_SIDE_H_
#define ROPCIE_TESTS_PROGRAMS_SIDE_H_

#include <cstddef>
#include <functional>
#include <string>
#include <type_traits>

#include "options.h"

namespace ropcie {

// A stream between the two sides of a test. Every wait has an end.
class Channel {
 public:
  Channel(int fd, int timeout_s);
  ~Channel();
  Channel(Channel&& other) noexcept;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  Channel& operator=(Channel&&) = delete;

  void Write(const void* data, size_t length) const;
  void Read(void* data, size_t length) const;

  // Gives our value to the peer and returns his.
  template <typename T>
  T Exchange(const T& mine) const {
    static_assert(std::is_trivially_copyable_v<T>);
    Write(&mine, sizeof(mine));
    T other;
    Read(&other, sizeof(other));
    return other;
  }

  // Returns when the peer has called it with the same number.
  void Barrier(uint32_t number) const;

  // Something to read, or the peer is gone?
  [[nodiscard]] bool Readable() const;

  // To wait with poll(2) until it is.
  [[nodiscard]] int fd() const { return fd_; }

  // Has the peer ended? What it has written before may still be there.
  [[nodiscard]] bool PeerIsGone() const;

 private:
  int fd_;
};

struct Side {
  const Options& options;
  std::string device;
  // One side of each pair leads: it goes first where the test has an order.
  bool leads;
  Channel channel;
};

// A channel between node 1, which listens, and another node.
Channel Meet(const Options& options, uint16_t tcp_port);

// Parses the command line, runs the body for each side that lives on this node
// and returns the exit status: 0, or 1 after a line on standard error.
int RunProgram(int argc, char** argv, const std::string& description,
               const std::function<void(Side&)>& body);

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_SIDE_H_
