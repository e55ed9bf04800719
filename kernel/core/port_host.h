/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Host side of port.h: the few kernel names that kernel/core uses, for C11
 * and C++20 programs. Compiled by the tests, never by Kbuild.
 */
#ifndef ROPCIE_CORE_PORT_HOST_H
#define ROPCIE_CORE_PORT_HOST_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/types.h> /* __le16, __le32, __le64 */

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the host build supports little-endian machines"
#endif
#define cpu_to_le16(x) ((__le16)(x))
#define cpu_to_le32(x) ((__le32)(x))
#define cpu_to_le64(x) ((__le64)(x))
#define le16_to_cpu(x) ((u16)(x))
#define le32_to_cpu(x) ((u32)(x))
#define le64_to_cpu(x) ((u64)(x))

/*
 * Relaxed atomics where the kernel has volatile accesses, so that
 * ThreadSanitizer sees the same intent.
 */
#define READ_ONCE(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELAXED)
#define smp_load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define smp_store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define smp_wmb() __atomic_thread_fence(__ATOMIC_RELEASE)
#define smp_rmb() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define smp_mb() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define barrier() __asm__ __volatile__("" ::: "memory")
#define wmb() __atomic_thread_fence(__ATOMIC_SEQ_CST)

/* The host's tests want a broken invariant to end the program. */
#define WARN_ON_ONCE(cond)                                                     \
	({                                                                     \
		bool ropcie_bad_ = !!(cond);                                   \
		if (ropcie_bad_) {                                             \
			fprintf(stderr, "%s:%d: invariant broken: %s\n",       \
				__FILE__, __LINE__, #cond);                    \
			abort();                                               \
		}                                                              \
		ropcie_bad_;                                                   \
	})

#ifndef __cplusplus
#define static_assert _Static_assert
#endif
#define U32_MAX UINT32_MAX
#define BIT(n) (1UL << (n))
#define BIT_ULL(n) (1ULL << (n))
#define ALIGN(x, a) (((x) + (a) - 1) & ~((__typeof__((x) + 0))(a) - 1))
#define IS_ALIGNED(x, a) (((x) & ((__typeof__(x))(a) - 1)) == 0)
#define min_t(type, a, b) ((type)(a) < (type)(b) ? (type)(a) : (type)(b))
#define max_t(type, a, b) ((type)(a) > (type)(b) ? (type)(a) : (type)(b))
#define unlikely(x) __builtin_expect(!!(x), 0)
#define likely(x) __builtin_expect(!!(x), 1)
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define DIV_ROUND_UP(n, d) (((n) + (d) - 1) / (d))
/* Speculation past a bounds check is not the host's concern. */
#define array_index_nospec(index, size) (index)
#define fallthrough __attribute__((__fallthrough__))

#endif /* ROPCIE_CORE_PORT_HOST_H */
