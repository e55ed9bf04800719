/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* What the provider registered itself with; NULL if it did not. */
#ifndef ROPCIE_TESTS_PROVIDER_REGISTERED_H_
#define ROPCIE_TESTS_PROVIDER_REGISTERED_H_

#include <stdint.h> /* NOLINT(modernize-deprecated-headers): C too */

struct registered {
	const char *name;
	uint32_t min_abi;
	uint32_t max_abi;
	int has_all_calls;
};

#ifdef __cplusplus
extern "C" {
#endif
const struct registered *registered(void);
/* Does it take the device of this directory of sysfs? */
int registered_matches(const char *ibdev_path);
/* Open a device under a library that lays queue pairs out otherwise: the errno. */
int registered_opens(void);
#ifdef __cplusplus
}
#endif

#endif /* ROPCIE_TESTS_PROVIDER_REGISTERED_H_ */
