// SPDX-License-Identifier: GPL-2.0
// RC SEND/RECV with every byte verified: sizes from nothing to 8 MiB, every
// alignment of both buffers, scatter/gather lists with empty elements,
// immediate and inline data, read-only sources, both directions at once. Every
// receive buffer lies between guards that must stay as they were.
//
// Both sides compute the same list of messages from the seed. They go through
// it in batches: receives are posted, then the sends, then all is compared.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "failure.h"
#include "options.h"
#include "pattern.h"
#include "side.h"
#include "verbs_util.h"

namespace ropcie {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;
constexpr size_t kLongest = 8 * kMiB;
constexpr size_t kReadOnly = size_t{3} * 4096;
constexpr size_t kArena = 20 * kMiB;
constexpr size_t kBatchBytes = 16 * kMiB;
constexpr size_t kBatchCount = 32;
constexpr uint32_t kSges = 16;
constexpr uint32_t kInline = 128;
constexpr unsigned int kSignaled = IBV_SEND_SIGNALED;
constexpr unsigned int kInlineFlag = IBV_SEND_INLINE;

struct Message {
  uint64_t number;
  // Length of each element; their sums are the same on both sides.
  std::vector<size_t> from;
  std::vector<size_t> to;
  size_t from_misaligned;
  size_t to_misaligned;
  bool crossing;
  bool immediate;
  bool inline_data;
};

size_t LengthOf(const Message& message) {
  size_t length = 0;
  for (const size_t part : message.from) {
    length += part;
  }
  return length;
}

std::string NameOf(const Message& message) {
  return Text("message ", message.number, " (", LengthOf(message), " bytes, ",
              message.from.size(), " SGEs at +", message.from_misaligned,
              " to ", message.to.size(), " SGEs at +", message.to_misaligned,
              message.crossing ? ", across a page's end" : "",
              message.immediate ? ", immediate" : "",
              message.inline_data ? ", inline" : "", ")");
}

Message Plain(size_t length, size_t from_misaligned, size_t to_misaligned) {
  static uint64_t number = 0;
  return {++number,      {length}, {length}, from_misaligned,
          to_misaligned, false,    false,    false};
}

// Every size with each of the 64 alignments on both sides; large ones with
// fewer when it has to be quick.
std::vector<Message> Sizes(bool quick) {
  std::vector<Message> messages;
  std::vector<size_t> sizes = {0,    1,    2,    3,    4,    7,    8,    9,
                               15,   16,   17,   31,   32,   33,   63,   64,
                               65,   127,  128,  129,  255,  256,  257,  511,
                               512,  513,  1023, 1024, 1025, 2047, 2048, 2049,
                               4095, 4096, 4097, 8191, 8192, 8193};
  for (size_t size = 16 * kKiB; size <= kLongest; size *= 2) {
    sizes.insert(sizes.end(), {size - 1, size});
    if (size < kLongest) {
      sizes.push_back(size + 1);
    }
  }
  for (const size_t size : sizes) {
    const size_t step = quick && size > 64 * kKiB ? 21 : 1;
    for (size_t from = 0; from < 64; from += step) {
      // An odd factor: the other side has each alignment once, too.
      messages.push_back(Plain(size, from, (from * 37 + size) % 64));
      messages.back().crossing = from % 2 == 1;
    }
  }
  return messages;
}

// Each alignment of the source with each of the target.
std::vector<Message> Alignments() {
  std::vector<Message> messages;
  for (size_t from = 0; from < 64; ++from) {
    for (size_t to = 0; to < 64; ++to) {
      messages.push_back(Plain(61 + from + to, from, to));
    }
  }
  return messages;
}

std::vector<size_t> Split(size_t length, size_t parts,
                          std::mt19937_64* random) {
  std::vector<size_t> cuts = {0, length};
  while (cuts.size() <= parts) {
    cuts.push_back((*random)() % (length + 1));
  }
  // Two equal cuts are an empty element.
  if (parts > 2) {
    cuts[2] = cuts[3];
  }
  std::sort(cuts.begin(), cuts.end());
  std::vector<size_t> lengths;
  for (size_t i = 1; i < cuts.size(); ++i) {
    lengths.push_back(cuts[i] - cuts[i - 1]);
  }
  return lengths;
}

std::vector<Message> Lists(int count, uint32_t max_from, uint32_t max_to,
                           uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Message> messages;
  for (int i = 0; i < count; ++i) {
    const size_t length = random() % (i % 8 == 0 ? 256 * kKiB : 8 * kKiB);
    Message message = Plain(length, random() % 64, random() % 64);
    message.from = Split(length, 1 + random() % max_from, &random);
    message.to = Split(length, 1 + random() % max_to, &random);
    message.crossing = random() % 2 == 0;
    messages.push_back(message);
  }
  return messages;
}

std::vector<Message> Immediates() {
  std::vector<Message> messages;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, 64 * kKiB}) {
    messages.push_back(Plain(size, 0, 0));
    messages.back().immediate = true;
  }
  return messages;
}

std::vector<Message> Inlines(size_t longest) {
  std::vector<Message> messages;
  for (size_t size = 0; size <= longest; ++size) {
    messages.push_back(Plain(size, size % 64, (size * 7) % 64));
    messages.back().inline_data = true;
  }
  return messages;
}

class Traffic {
 public:
  explicit Traffic(Side& side)
      : side_(side),
        device_(OpenDevice(side)),
        pattern_(side.options.seed, kLongest),
        source_(device_, kArena, 0),
        target_(device_, kArena) {
    QpConfig config;
    config.cap.max_send_sge =
        std::min<uint32_t>(kSges, static_cast<uint32_t>(device_.attr.max_sge));
    config.cap.max_recv_sge = config.cap.max_send_sge;
    config.cap.max_inline_data = kInline;
    connection_ = Connect(device_, side, config);
  }

  void Run() {
    const Options& options = side_.options;
    const ibv_qp_cap& cap = connection_.config.cap;
    const ibv_qp_cap other = side_.channel.Exchange(cap);
    const uint32_t from = std::min(cap.max_send_sge, other.max_send_sge);
    const uint32_t to = std::min(cap.max_recv_sge, other.max_recv_sge);
    const size_t longest_inline =
        std::min(cap.max_inline_data, other.max_inline_data);

    OneWay("sizes", Sizes(options.quick));
    OneWay("alignments", Alignments());
    OneWay("lists", Lists(options.quick ? 500 : 2000, from, to, options.seed));
    if (CanSendImmediate()) {
      OneWay("immediate", Immediates());
    }
    OneWay("inline", Inlines(longest_inline));
    ReadOnlySource();
    BothWays(options.quick ? 50 : 200);
  }

 private:
  // First from the leader to the other side, then back.
  void OneWay(const std::string& name, const std::vector<Message>& messages) {
    for (const bool leader_sends : {true, false}) {
      const bool sends = leader_sends == side_.leads;
      for (size_t done = 0; done < messages.size();) {
        done = sends ? SendBatch(messages, done) : ReceiveBatch(messages, done);
      }
    }
    if (side_.leads) {
      std::cout << name << ": " << messages.size()
                << " messages each way are right\n"
                << std::flush;
    }
  }

  static size_t BatchEnd(const std::vector<Message>& messages, size_t begin) {
    size_t bytes = 0;
    size_t end = begin;
    while (end < messages.size() && end - begin < kBatchCount) {
      bytes += LengthOf(messages[end]);
      if (end > begin && bytes > kBatchBytes) {
        break;
      }
      ++end;
    }
    return end;
  }

  // The elements of one message's buffer; empty ones get an address as well.
  static std::vector<Piece> Place(Arena* arena,
                                  const std::vector<size_t>& parts,
                                  size_t misaligned, bool crossing) {
    std::vector<Piece> pieces;
    for (const size_t part : parts) {
      pieces.push_back(arena->Take(part, misaligned, crossing));
      crossing = false;
    }
    return pieces;
  }

  static std::vector<ibv_sge> Sges(const Arena& arena,
                                   const std::vector<Piece>& pieces) {
    std::vector<ibv_sge> sges;
    sges.reserve(pieces.size());
    for (const Piece& piece : pieces) {
      sges.push_back(arena.Sge(piece));
    }
    return sges;
  }

  void Post(const Message& message, bool last) {
    const std::vector<Piece> pieces = Place(
        &source_, message.from, message.from_misaligned, message.crossing);
    size_t from = 0;
    for (const Piece& piece : pieces) {
      std::memcpy(source_.At(piece.offset),
                  pattern_.Bytes(message.number, from), piece.length);
      from += piece.length;
    }
    std::vector<ibv_sge> sges = Sges(source_, pieces);
    ibv_send_wr wr{};
    wr.wr_id = message.number;
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(sges.size());
    wr.opcode = message.immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
    wr.imm_data = htonl(static_cast<uint32_t>(message.number));
    wr.send_flags =
        (last ? kSignaled : 0U) | (message.inline_data ? kInlineFlag : 0U);
    ibv_send_wr* bad = nullptr;
    CheckErrno(ibv_post_send(connection_.qp.get(), &wr, &bad), "ibv_post_send",
               " of ", NameOf(message));
    if (message.inline_data) {
      // Inline data is the caller's again as soon as it was posted.
      for (const Piece& piece : pieces) {
        std::memset(source_.At(piece.offset), 0, piece.length);
      }
    }
  }

  size_t SendBatch(const std::vector<Message>& messages, size_t begin) {
    const size_t end = BatchEnd(messages, begin);
    source_.Clear();
    side_.channel.Barrier(static_cast<uint32_t>(begin));
    for (size_t i = begin; i < end; ++i) {
      Post(messages[i], i + 1 == end);
    }
    WaitForSuccess(connection_.send_cq.get(), side_.options.timeout_s,
                   Text("sending up to ", NameOf(messages[end - 1])));
    source_.CheckGuards("source");
    side_.channel.Barrier(static_cast<uint32_t>(end));
    return end;
  }

  size_t ReceiveBatch(const std::vector<Message>& messages, size_t begin) {
    const size_t end = BatchEnd(messages, begin);
    std::vector<std::vector<Piece>> buffers;
    target_.Clear();
    for (size_t i = begin; i < end; ++i) {
      buffers.push_back(Place(&target_, messages[i].to,
                              messages[i].to_misaligned, messages[i].crossing));
      PostRecv(connection_.qp.get(), messages[i].number,
               Sges(target_, buffers.back()));
    }
    side_.channel.Barrier(static_cast<uint32_t>(begin));
    const std::vector<ibv_wc> done =
        WaitFor(connection_.recv_cq.get(), end - begin, side_.options.timeout_s,
                Text("receiving up to ", NameOf(messages[end - 1])));
    for (size_t i = begin; i < end; ++i) {
      Verify(messages[i], done[i - begin], buffers[i - begin]);
    }
    target_.CheckGuards(Text("up to ", NameOf(messages[end - 1])));
    side_.channel.Barrier(static_cast<uint32_t>(end));
    return end;
  }

  void Verify(const Message& message, const ibv_wc& wc,
              const std::vector<Piece>& pieces) {
    const std::string name = NameOf(message);
    CheckSuccess(wc, name);
    Check(wc.wr_id == message.number, name, ": completion of ", wc.wr_id);
    Check(wc.opcode == IBV_WC_RECV, name, ": opcode ", wc.opcode);
    Check(wc.qp_num == connection_.qp->qp_num, name, ": QPN ", wc.qp_num);
    Check(wc.byte_len == LengthOf(message), name, ": byte_len ", wc.byte_len);
    Check(((wc.wc_flags & IBV_WC_WITH_IMM) != 0) == message.immediate, name,
          ": wc_flags ", wc.wc_flags);
    Check(!message.immediate ||
              ntohl(wc.imm_data) == static_cast<uint32_t>(message.number),
          name, ": immediate data ", ntohl(wc.imm_data));
    size_t from = 0;
    for (const Piece& piece : pieces) {
      const uint8_t* right = pattern_.Bytes(message.number, from);
      const uint8_t* got = target_.At(piece.offset);
      if (std::memcmp(got, right, piece.length) != 0) {
        const size_t wrong = static_cast<size_t>(
            std::mismatch(got, got + piece.length, right).first - got);
        throw Failure(Text(name, ": byte ", from + wrong, " is ",
                           int{got[wrong]}, ", not ", int{right[wrong]}));
      }
      from += piece.length;
    }
  }

  // A device need not have SEND with immediate; if it takes it, it is tested.
  [[nodiscard]] bool CanSendImmediate() const {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    PostRecv(connection_.qp.get(), 0, {});
    side_.channel.Barrier(1);
    const int error = ibv_post_send(connection_.qp.get(), &wr, &bad);
    const int other = side_.channel.Exchange(error);
    Check(error == other, "SEND with immediate: we may (", error,
          "), the peer may (", other, ")");
    if (error == 0) {
      WaitForSuccess(connection_.send_cq.get(), side_.options.timeout_s,
                     "empty SEND with immediate");
    } else {
      Check(bad == &wr, "a refused ibv_post_send did not set bad_wr");
      std::cout << "immediate: refused by the device (" << std::strerror(error)
                << "), not tested\n";
      side_.channel.Barrier(2);
      PostSend(connection_.qp.get(), 0, {});
      WaitForSuccess(connection_.send_cq.get(), side_.options.timeout_s,
                     "empty SEND");
    }
    WaitForSuccess(connection_.recv_cq.get(), side_.options.timeout_s,
                   "empty message");
    side_.channel.Barrier(3);
    return error == 0;
  }

  // Memory that may not be written can be sent from, and only that.
  void ReadOnlySource() {
    void* memory = mmap(nullptr, kReadOnly, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CheckErrno(memory == MAP_FAILED ? errno : 0, "mmap");
    std::memcpy(memory, pattern_.Bytes(1, 0), kReadOnly);
    CheckErrno(mprotect(memory, kReadOnly, PROT_READ) != 0 ? errno : 0,
               "mprotect");

    ibv_mr* refused = ibv_reg_mr_iova2(device_.pd.get(), memory, kReadOnly,
                                       reinterpret_cast<uintptr_t>(memory),
                                       IBV_ACCESS_LOCAL_WRITE);
    Check(refused == nullptr,
          "a read-only mapping was registered with local write access");
    {
      const MrPtr mr = RegisterMr(device_, memory, kReadOnly, 0);
      target_.Clear();
      const Piece piece = target_.Take(kReadOnly, 5, false);
      PostRecv(connection_.qp.get(), 1, {target_.Sge(piece)});
      side_.channel.Barrier(4);
      PostSend(connection_.qp.get(), 1,
               {{reinterpret_cast<uintptr_t>(memory), kReadOnly, mr->lkey}});
      WaitForSuccess(connection_.send_cq.get(), side_.options.timeout_s,
                     "send from read-only memory");
      WaitForSuccess(connection_.recv_cq.get(), side_.options.timeout_s,
                     "receive from read-only memory");
      Check(std::memcmp(target_.At(piece.offset), pattern_.Bytes(1, 0),
                        kReadOnly) == 0,
            "data from read-only memory is wrong");
      target_.CheckGuards("from read-only memory");
      side_.channel.Barrier(5);
    }
    munmap(memory, kReadOnly);
    if (side_.leads) {
      std::cout << "read-only source: right\n" << std::flush;
    }
  }

  // Batches that cross each other on the link.
  void BothWays(int rounds) {
    std::mt19937_64 random(side_.options.seed + 1);
    for (int round = 0; round < rounds; ++round) {
      std::vector<Message> messages;
      std::vector<std::vector<Piece>> buffers;
      target_.Clear();
      source_.Clear();
      for (size_t i = 0; i < kBatchCount / 2; ++i) {
        messages.push_back(
            Plain(random() % (64 * kKiB), random() % 64, random() % 64));
        buffers.push_back(
            Place(&target_, messages[i].to, messages[i].to_misaligned, false));
        PostRecv(connection_.qp.get(), messages[i].number,
                 Sges(target_, buffers[i]));
      }
      side_.channel.Barrier(static_cast<uint32_t>(round));
      for (const Message& message : messages) {
        Post(message, true);
      }
      for (const ibv_wc& wc :
           WaitFor(connection_.send_cq.get(), messages.size(),
                   side_.options.timeout_s, "sending both ways")) {
        CheckSuccess(wc, "sending both ways");
      }
      const std::vector<ibv_wc> done =
          WaitFor(connection_.recv_cq.get(), messages.size(),
                  side_.options.timeout_s, "receiving both ways");
      for (size_t i = 0; i < messages.size(); ++i) {
        Verify(messages[i], done[i], buffers[i]);
      }
      target_.CheckGuards("both ways");
    }
    side_.channel.Barrier(6);
    if (side_.leads) {
      std::cout << "both ways at once: " << rounds * (kBatchCount / 2)
                << " messages each way are right\n"
                << std::flush;
    }
  }

  Side& side_;
  Device device_;
  Pattern pattern_;
  Arena source_;
  Arena target_;
  Connection connection_;
};

void Run(Side& side) { Traffic(side).Run(); }

}  // namespace
}  // namespace ropcie

int main(int argc, char** argv) {
  return ropcie::RunProgram(
      argc, argv, "RC SEND/RECV between two sides, every byte verified",
      ropcie::Run);
}
