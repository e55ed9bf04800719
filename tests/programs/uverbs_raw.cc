// SPDX-License-Identifier: GPL-2.0
#include "uverbs_raw.h"

#include <infiniband/verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace ropcie {

int WriteBytes(const ibv_context* context, Bytes bytes) {
  return write(context->cmd_fd, bytes.data(), bytes.size()) < 0 ? errno : 0;
}

ib_uverbs_attr Attribute(uint16_t id, uint64_t data, uint16_t length) {
  ib_uverbs_attr attr{};
  attr.attr_id = id;
  attr.len = length;
  attr.flags = UVERBS_ATTR_F_MANDATORY;
  attr.data = data;
  return attr;
}

int Ioctl(const ibv_context* context, uint16_t object, uint16_t method,
          std::initializer_list<ib_uverbs_attr> attrs, uint32_t* made) {
  ib_uverbs_ioctl_hdr header{};
  header.length = static_cast<uint16_t>(sizeof(header) +
                                        attrs.size() * sizeof(ib_uverbs_attr));
  header.object_id = object;
  header.method_id = method;
  header.num_attrs = static_cast<uint16_t>(attrs.size());
  Bytes bytes;
  bytes.Append(header);
  for (const ib_uverbs_attr& attr : attrs) {
    bytes.Append(attr);
  }
  const int error =
      ioctl(context->cmd_fd, RDMA_VERBS_IOCTL, bytes.data()) < 0 ? errno : 0;
  if (made != nullptr) {
    std::memcpy(made,
                bytes.data() + sizeof(header) + offsetof(ib_uverbs_attr, data),
                sizeof(*made));
  }
  return error;
}

}  // namespace ropcie
