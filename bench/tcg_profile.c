// SPDX-License-Identifier: GPL-2.0
// A plugin of QEMU's TCG: how often each translated block of a guest was executed.
// At the end it writes a line for each to the file of its argument out=: address
// (hexadecimal), instructions in the block, executions. See bench/profile.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What is used of qemu-plugin.h, which Debian has in no package. The numbers are
// version 1 of its interface, which QEMU has had since 6.0.
typedef uint64_t qemu_plugin_id_t;
struct qemu_info;
struct qemu_plugin_tb;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   void (*cb)(qemu_plugin_id_t,
						      struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb,
					      enum qemu_plugin_op op, void *ptr,
					      uint64_t imm);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id,
				    void (*cb)(qemu_plugin_id_t, void *),
				    void *userdata);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);

#define EXPORT __attribute__((visibility("default")))

EXPORT int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info,
			       int argc, char **argv);

#define BUCKETS (1u << 18)

struct block {
	uint64_t address;
	uint64_t length; // instructions
	uint64_t executions;
	struct block *next;
};

static struct block *blocks[BUCKETS];
static const char *out;

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	uint64_t address = qemu_plugin_tb_vaddr(tb);
	uint64_t length = qemu_plugin_tb_n_insns(tb);
	struct block **bucket =
		&blocks[(address * 0x9e3779b97f4a7c15u + length) >> 46];
	struct block *block;

	(void)id;
	for (block = *bucket; block; block = block->next)
		if (block->address == address && block->length == length)
			break;
	if (!block) {
		block = calloc(1, sizeof(*block));
		if (!block)
			return;
		block->address = address;
		block->length = length;
		block->next = *bucket;
		*bucket = block;
	}
	qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64,
						 &block->executions, 1);
}

static void ended(qemu_plugin_id_t id, void *unused)
{
	FILE *file = fopen(out, "w");
	const struct block *block;
	size_t i;

	(void)id;
	(void)unused;
	if (!file)
		return;
	for (i = 0; i < BUCKETS; i++)
		for (block = blocks[i]; block; block = block->next)
			if (block->executions)
				fprintf(file, "%" PRIx64 " %" PRIu64 " %" PRIu64 "\n",
					block->address, block->length,
					block->executions);
	fclose(file);
}

int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_info *info,
			int argc, char **argv)
{
	(void)info;
	if (argc != 1 || strncmp(argv[0], "out=", 4) != 0) {
		fprintf(stderr, "tcg_profile: the argument is out=FILE\n");
		return 1;
	}
	out = strdup(argv[0] + 4);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, ended, NULL);
	return 0;
}
