#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2
#
# SMC-R: stream sockets of the stock kernel that move to RDMA after TCP has
# connected them. A program on AF_SMC sockets sends a file to and fro, both ends
# compare; the kernel's queue pairs and the device's counters tell that it did
# not stay on TCP.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"

port=8080
mib=16
file=$LAB_OUT/file

# smc serve|connect: the file goes both ways at once, CONNECTIONS times.
smc() {
	timeout "$patience" python3 - "$1" "$SERVER" $port "$file" <<'END'
import socket, sys, threading
AF_SMC, SMCPROTO_SMC, CONNECTIONS = 43, 0, 4
role, address, port, path = sys.argv[1:]
with open(path, "rb") as source:
    data = source.read()

def both_ways(sock):
    sender = threading.Thread(target=sock.sendall, args=(data,))
    sender.start()
    got = bytearray()
    while len(got) < len(data):
        part = sock.recv(1 << 20)
        if not part:
            break
        got += part
    sender.join()
    # Both have all before one closes.
    sock.shutdown(socket.SHUT_WR)
    assert sock.recv(1) == b"", "there is more than was sent"
    sock.close()
    assert got == data, f"{len(got)} bytes came, and not the right ones"

# Its addresses are those of AF_INET, which Python has to be told.
def new():
    raw = socket.socket(AF_SMC, socket.SOCK_STREAM, SMCPROTO_SMC)
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=raw.detach())

if role == "serve":
    listener = new()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, int(port)))
    listener.listen(8)
    for _ in range(CONNECTIONS):
        both_ways(listener.accept()[0])
else:
    for _ in range(CONNECTIONS):
        sock = new()
        sock.connect((address, int(port)))
        both_ways(sock)
END
}

smc_qps() {
	rdma res show qp link "$RDMA_DEV" | grep -c 'comm \[smc' || true
}

modprobe smc || fail "smc does not load"
[ "$NODE" != 1 ] || head -c ${mib}M /dev/urandom >"$file"
before=$(rdma_bytes "$RDMA_DEV")
if [ "$NODE" = 1 ]; then
	smc serve &
	server=$!
	retry "$patience" listening $port || fail "nobody listens"
fi
lab-barrier server
[ "$NODE" != 2 ] || smc connect || fail "the client ended with status $?"
[ "$NODE" != 1 ] || wait "$server" || fail "the server ended with status $?"
# The link between the two outlives the last connection by some minutes.
[ "$(smc_qps)" -ge 1 ] || fail "SMC has no queue pair: it fell back to TCP"
[ $(($(rdma_bytes "$RDMA_DEV") - before)) -gt $((2 * 4 * mib << 20)) ] ||
	fail "the data did not come over $RDMA_DEV"
lab-barrier over
modprobe -r smc || fail "smc does not unload"
pass "$mib MiB to and fro, four times, over SMC-R"
