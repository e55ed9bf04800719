// SPDX-License-Identifier: GPL-2.0
#include "nldev.h"

#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ropcie {
namespace {

struct Attribute {
  nlattr header;
  uint32_t value;
};

struct Question {
  nlmsghdr header;
  std::array<Attribute, 2> about;
};

Attribute About(uint16_t type, uint32_t value) {
  return {{sizeof(Attribute), type}, value};
}

// Counts the messages of one datagram. Returns true at the last of all.
bool Count(const std::vector<uint8_t>& bytes, size_t length, size_t* answers) {
  for (size_t at = 0; at + sizeof(nlmsghdr) <= length;) {
    const auto* const header =
        reinterpret_cast<const nlmsghdr*>(bytes.data() + at);
    if (header->nlmsg_type == NLMSG_DONE || header->nlmsg_type == NLMSG_ERROR) {
      return true;
    }
    ++*answers;
    if ((header->nlmsg_flags & NLM_F_MULTI) == 0 ||
        header->nlmsg_len < sizeof(nlmsghdr)) {
      return true;
    }
    at += NLMSG_ALIGN(header->nlmsg_len);
  }
  return false;
}

}  // namespace

const std::array<uint16_t, 17> kNldevQuestions = {
    RDMA_NLDEV_CMD_GET,
    RDMA_NLDEV_CMD_PORT_GET,
    RDMA_NLDEV_CMD_SYS_GET,
    RDMA_NLDEV_CMD_RES_GET,
    RDMA_NLDEV_CMD_RES_QP_GET,
    RDMA_NLDEV_CMD_RES_CM_ID_GET,
    RDMA_NLDEV_CMD_RES_CQ_GET,
    RDMA_NLDEV_CMD_RES_MR_GET,
    RDMA_NLDEV_CMD_RES_PD_GET,
    RDMA_NLDEV_CMD_GET_CHARDEV,
    RDMA_NLDEV_CMD_STAT_GET,
    RDMA_NLDEV_CMD_RES_QP_GET_RAW,
    RDMA_NLDEV_CMD_RES_CQ_GET_RAW,
    RDMA_NLDEV_CMD_RES_MR_GET_RAW,
    RDMA_NLDEV_CMD_RES_CTX_GET,
    RDMA_NLDEV_CMD_RES_SRQ_GET,
    RDMA_NLDEV_CMD_STAT_GET_STATUS,
};

int OpenNldev() {
  return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
}

size_t AskNldev(int socket, uint16_t question, bool dump, uint32_t device) {
  Question message{};
  message.header.nlmsg_len = sizeof(message);
  message.header.nlmsg_type =
      static_cast<uint16_t>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, question));
  message.header.nlmsg_flags = NLM_F_REQUEST;
  if (dump) {
    message.header.nlmsg_flags |= NLM_F_DUMP;
    message.header.nlmsg_len -= sizeof(Attribute);  // of all ports
  }
  message.about = {About(RDMA_NLDEV_ATTR_DEV_INDEX, device),
                   About(RDMA_NLDEV_ATTR_PORT_INDEX, 1)};
  if (send(socket, &message, message.header.nlmsg_len, 0) < 0) {
    return 0;
  }
  std::vector<uint8_t> bytes(1 << 15);
  size_t answers = 0;
  ssize_t got = 0;
  // What has come is answered: a kernel that says nothing more is not waited
  // for.
  do {
    got = recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
  } while (got > 0 && !Count(bytes, static_cast<size_t>(got), &answers));
  return answers;
}

}  // namespace ropcie
