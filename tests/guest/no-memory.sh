#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# lab: --nodes 2 --timeout 5400 -- 100
# lab-long: --nodes 2 --timeout 14400 -- 1
# lab-long: --nodes 2 --flat --module-params ropcie_ntb_if:direct_placement=1 -- 100 placed
#
# no-memory.sh [EVERY [PHASE...]]: memory is short where no program's verbs ask for it
# (fail-nth.sh has those): modules that load and probe, the interface, links that
# come up, connection management, the kernel's own verbs, what runs in interrupts, also
# under TCP and NVMe over Fabrics.
# With direct placement: payload that is placed (PHASE placed).
# Of the failures of long calls one of EVERY. Each is told, or done without; afterwards all works.
# Left out where the kernel has no fault injection, as all but the debug kernel.
# shellcheck source=tests/guest/lib/rdma.sh
. "$(dirname "$0")/lib/rdma.sh"
# shellcheck source=tests/guest/lib/modules.sh
. "$(dirname "$0")/lib/modules.sh"
# shellcheck source=tests/guest/lib/tcp.sh
. "$(dirname "$0")/lib/tcp.sh"
# shellcheck source=tests/guest/lib/nvmet.sh
. "$(dirname "$0")/lib/nvmet.sh"
# shellcheck source=tests/guest/lib/ulps.sh
. "$(dirname "$0")/lib/ulps.sh"

every=${1:-1}
some=$(((every + 7) / 8)) # where there are not that many
faults=/sys/kernel/debug
said=$LAB_OUT/failcall.$NODE
state=/sys/kernel/debug/ropcie_ntb_if
of_linux='vmalloc error|page allocation failure|percpu: allocation failed'
most=20000 # failures of one call; none has so many

[ -e /proc/self/fail-nth ] || left_out "this kernel has no fault injection"

# knobs NAME VALUE: of both kinds of memory.
knobs() {
	local fault

	for fault in failslab fail_page_alloc; do
		[ ! -e "$faults/$fault/$1" ] || echo "$2" >"$faults/$fault/$1"
	done
}

# Linux tells of memory that it does not get, with a trace as a fault of ours would be,
# or with nothing but a trace (sysctl; a file of /proc/irq that was not made, when it is
# removed), or gives up debugging DMA: it is kept from the console, and what is none of that is
# shown there afterwards.
quiet() {
	dmesg -C
	echo 2 >/proc/sys/kernel/printk
	trap loud EXIT
}

loud() {
	trap - EXIT
	echo 8 >/proc/sys/kernel/printk
	dmesg -c | awk -v of_linux="$of_linux" '$0 ~ of_linux { skip = 80 }
		skip-- > 0 { if (/<\/TASK>/) skip = 0; next }
		{ skip = 0 }
		/DMA-API: cacheline tracking ENOMEM/ { next }
		!trace && / CPU: .* Comm: |\[ cut here \]/ { trace = $0; next }
		!trace { print; next }
		{ trace = trace "\n" $0 }
		/<\/TASK>/ { if (trace !~ /__register_sysctl_table|name \047.*unregister_irq_proc/) print trace; trace = "" }
		END { if (trace) print trace }' >/dev/console
}

# told: has the kernel said what it could not do?
told() {
	grep -qE 'error -[0-9]+|: -12$|failed|can not be mapped' <<<"$(dmesg | grep -vE "$of_linux")"
}

# try N CALL WORD...: in $status what rop_failcall makes of it.
try() {
	status=0
	quiet
	timeout "$patience" rop_failcall "$@" >"$said" 2>&1 || status=$?
	calls=$((calls + 1))
	case $status in
	0 | 3) ;;
	1)
		refused=$((refused + 1))
		grep -qE 'Cannot allocate memory|Bad address|No buffer space' "$said" ||
			wrong+=$(<"$said")$'\n'
		;;
	*) fail "$* ended with status $status: $(<"$said")" ;;
	esac
}

# sweep STEP NAME UNDO CALL WORD...: with one failure of STEP, until none is left; UNDO is
# called each time with the status in $status.
sweep() {
	local step=$1 name=$2 undo=$3 first=$((1 + RANDOM % $1))
	local nth=$first calls=0 refused=0 status=0 wrong=

	shift 3
	while [ $status != 3 ]; do
		[ "$nth" -lt $most ] || fail "$name: there is no end of failures"
		try "$nth" "$@"
		$undo
		loud
		nth=$((nth + step))
	done
	[ -z "$wrong" ] || fail "$name: the errno does not say that memory is short: $wrong"
	[ $calls -gt 1 ] || fail "$name: nothing has failed"
	pass "$name: $calls calls with failures $first, $((first + step)), ..., $refused were refused"
}

# A module that loads although something failed has its device, or the log says why not.
check_load() {
	if [ "$status" = 1 ]; then
		[ ! -d "/sys/module/$module" ] || fail "$module was refused, and is there"
		return
	fi
	case $module in
	ntb_hw_ivshmem) device="/sys/bus/pci/drivers/ntb_hw_ivshmem/0000:*" ;;
	ropcie_ntb_if) device="/sys/bus/ntb/drivers/ropcie_ntb_if/0000:*" ;;
	ropcie_device) device="/sys/bus/ropcie/devices/*" ;;
	ropcie) device="/sys/class/infiniband/ropcie*" ;;
	*) device="/sys/bus/ropcie" ;;
	esac
	compgen -G "$device" >/dev/null || told || fail "$module has no device, and nobody says why: $(<"$said")"
	timeout "$patience" rmmod "$module" || fail "rmmod $module after: $(<"$said")"
}

modules_load() {
	local module device params

	unload_modules ntb_hw_ivshmem
	for module in "${modules[@]}"; do
		params=
		[ "$module" != ntb_hw_ivshmem ] || params="${hw_params[*]}"
		sweep "$every" "$module loads" check_load load "$(echo "$MODDIR"/*/"$module.ko")" "$params"
		insmod "$(echo "$MODDIR"/*/"$module.ko")" ${params:+$params} || fail "insmod $module"
	done
	bring_up
}

nothing() {
	:
}

end_link() {
	[ ! -e /sys/class/infiniband/lap0 ] || rdma link delete lap0 || fail "lap0 does not go: $(<"$said")"
}

interface_and_link() {
	sweep "$some" "$NETDEV goes up" nothing up "$NETDEV"
	retry "$patience" reachable $((3 - NODE)) || fail "node$((3 - NODE)) does not answer"
	sweep 1 "a short datagram" nothing send "10.77.0.$((3 - NODE))" 100
	sweep 1 "a long datagram" nothing send "10.77.0.$((3 - NODE))" 60000
	ip link add lap type dummy
	ip link set lap up
	sweep "$every" "rdma link add" end_link link lap0 lap
	ip link del lap
}

end_own() {
	[ "$status" != 1 ] || grep -q '^FAIL' /sys/kernel/debug/ropcie_ktest/*/result ||
		fail "the kernel's verbs do not say what failed: $(<"$said")"
}

kernel_verbs() {
	insmod "$MODDIR/ropcie_ktest/ropcie_ktest.ko" || fail "insmod ropcie_ktest"
	sweep "$some" "verbs of the kernel" end_own write "/sys/kernel/debug/ropcie_ktest/$RDMA_DEV/own" 8
	rmmod ropcie_ktest || fail "rmmod ropcie_ktest"
}

# Those of the kernel's workers that no processor owns: links and tables of GIDs are theirs.
workers() {
	pgrep '^kworker/u'
}

# for_workers FILE VALUE
for_workers() {
	local worker

	for worker in $(workers); do
		echo "$2" 2>/dev/null >"/proc/$worker/$1" || true # it has ended
	done
}

# How many of those that $armed lists have had their failure.
hit_workers() {
	local worker count=0

	for worker in $armed; do
		[ "$(cat "/proc/$worker/fail-nth" 2>/dev/null)" != 0 ] || count=$((count + 1))
	done
	echo $count
}

link_is_up() {
	grep -q 'link up,.* announced' "$state"/*/state &&
		[ "$(cat "/sys/class/net/$NETDEV/carrier" 2>/dev/null)" = 1 ]
}

# A link that does not come up for lack of memory comes up when there is some.
links_come_up() {
	local nth armed hits=0

	for ((nth = 1; nth <= 16; nth++)); do
		unbind_from ropcie ropcie
		quiet
		armed=$(workers)
		for_workers fail-nth $nth
		bind_to ropcie ropcie
		retry "$patience" link_is_up || fail "the link does not come up after failure $nth of the workers"
		hits=$((hits + $(hit_workers)))
		for_workers fail-nth 0
		loud
	done
	[ $hits -ge 8 ] || fail "only $hits failures of the workers"
	pass "links come up after $hits single failures of the workers"

	unbind_from ropcie ropcie
	quiet
	for_workers make-it-fail 1
	knobs task-filter Y
	knobs probability 100
	bind_to ropcie ropcie
	sleep 3
	! link_is_up || fail "the link needs no memory"
	knobs probability 0
	for_workers make-it-fail 0
	retry "$patience" link_is_up || fail "the link does not come up when there is memory again"
	loud
	pass "a link comes up when there is memory again"
	# Linux does not try again to enter a GID.
	rebind ropcie ropcie
}

# Connections that librdmacm makes, while the workers that make them have too little:
# they come or not. Each program ends or can be killed. Who listens has enough in those
# of a processor: Linux's ucma_connect_event_handler() waits for itself when it has not.
connections() {
	local round worked=0 rounds=$((every > 10 ? 10 : 60)) before short='^kworker/'

	before=$(left)
	[ "$NODE" != 1 ] || short='^kworker/u'

	knobs task-filter Y
	quiet
	for ((round = 0; round < rounds; round++)); do
		lab-barrier "connection-$round"
		for worker in $(pgrep "$short"); do
			echo 1 2>/dev/null >"/proc/$worker/make-it-fail" || true
		done
		knobs probability 4
		if [ "$NODE" = 1 ]; then
			! timeout -k 5 $((patience / 6)) rping -s -C 3 >/dev/null 2>&1 || worked=$((worked + 1))
		else
			sleep 1
			! timeout -k 5 $((patience / 6 - 2)) rping -c -a "$SERVER" -C 3 >/dev/null 2>&1 || worked=$((worked + 1))
		fi
		knobs probability 0
		expect_no_user_objects "rping, round $round"
	done
	loud
	for worker in $(pgrep '^kworker/'); do
		echo 0 2>/dev/null >"/proc/$worker/make-it-fail" || true
	done
	lab-barrier connections-over
	[ $worked -gt 0 ] || fail "no connection has worked in spite of failures"
	[ "$NODE" = 1 ] || expect_failures connections "$before" # who listens has too few to be sure of one
	pass "connections: $worked of $rounds in spite of failures"
}

# left: how many failures are to come of each kind, as far as the kernel counts them down.
left() {
	cat $faults/fail{slab,_page_alloc}/times 2>/dev/null
}

# expect_failures WHAT BEFORE: some allocations have failed since `left` said BEFORE.
expect_failures() {
	[ "$(left)" != "$2" ] || fail "$1: no allocation was made to fail"
}

# short_in_interrupts: from here on what may not wait for memory has none now and then, in
# interrupts and elsewhere.
short_in_interrupts() {
	quiet
	knobs ignore-gfp-wait Y
	knobs task-filter N
	knobs probability 10
}

# What runs in interrupts may not wait for memory: traffic goes on without.
interrupts() {
	local end pings=0 answers=0 before

	before=$(left)
	start_strict_hog 4
	lab-barrier interrupts
	short_in_interrupts
	end=$((SECONDS + 10))
	while [ $SECONDS -lt $end ]; do
		answers=$((answers + $({ ping -q -c20 -i0.01 -W1 -s 5000 "10.77.0.$((3 - NODE))" || true; } | sed -n 's/.* \([0-9]*\) received.*/\1/p')))
		pings=$((pings + 20))
	done
	knobs probability 0
	knobs ignore-gfp-wait N
	loud
	expect_failures interrupts "$before"
	expect_traffic "failures in interrupts"
	lab-barrier interrupts-over
	kill_hog || true # its peer may have been killed first
	expect_no_user_objects "failures in interrupts"
	pass "traffic goes on without memory in interrupts, beside $pings pings, of which $answers were answered"
}

# The same under TCP and NVMe over Fabrics, every byte of which is verified.
ulps() {
	local before

	before=$(left)
	start_ulps
	short_in_interrupts
	sleep 10
	knobs probability 0
	knobs ignore-gfp-wait N
	loud
	expect_failures ulps "$before"
	expect_ulps "failures in interrupts"
	end_ulps
	pass "TCP and NVMe over Fabrics go on without memory in interrupts"
}

# Payload that is placed past the lanes takes memory for each piece that it may go to; where
# there is none it goes through them. Every byte is verified.
placed() {
	local before direct status=0

	before=$(left) direct=$(direct_bytes)
	lab-barrier placed
	short_in_interrupts
	# None of two is connected with itself, for which Linux makes a new route each time.
	rop_churn --qps 2 --timeout "$patience" --rounds 60 >"$said" 2>&1 || status=$?
	knobs probability 0
	knobs ignore-gfp-wait N
	loud
	[ $status = 0 ] || fail "rop_churn ended with status $status: $(<"$said")"
	expect_failures placed "$before"
	[ "$(direct_bytes)" -gt "$direct" ] || fail "nothing was placed"
	pass "$(($(direct_bytes) - direct)) bytes were placed, without memory now and then"
}

# all_works WHEN
all_works() {
	knobs task-filter N
	lab-barrier "$1"
	expect_reachable "$1"
	lab-barrier "$1-reached"
	rop_sendrecv --rounds 1 >/dev/null || fail "rop_sendrecv ended with status $? after $1"
	expect_no_user_objects "$1"
}

linux_loses uapi # devices come while memory is short
knobs verbose 0
[ ! -e $faults/fail_usercopy/verbose ] || echo 0 >$faults/fail_usercopy/verbose
knobs times 1000000000
knobs ignore-gfp-wait N
knobs ignore-gfp-highmem N
knobs min-order 0

phases=("${@:2}")
[ $# -ge 2 ] || phases=(modules_load interface_and_link kernel_verbs links_come_up connections interrupts ulps)
for phase in "${phases[@]}"; do
	case $phase in
	connections | interrupts | ulps | placed) $phase ;;
	*) [ "$NODE" != 1 ] || $phase ;;
	esac
	all_works "$phase"
done
pass "memory that is not there is told or done without, and afterwards all works"
