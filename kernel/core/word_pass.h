/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The link words of core/peer_link.h, written one by one to where a word may not be
 * taken just now, as by a message register that is still full.
 *
 * A pass that could not end is gone on with: were it begun anew, a register that takes
 * most messages, but not all, would hardly ever take all of a pass.
 */
#ifndef ROPCIE_CORE_WORD_PASS_H
#define ROPCIE_CORE_WORD_PASS_H

#include "peer_link.h"

/**
 * struct ropcie_word_pass - how far the words have got; all zero at first
 * @left: words still to write, those with the lowest numbers; 0: a pass begins
 * @words: what they are, heartbeat apart
 */
struct ropcie_word_pass {
	u32 left;
	u32 words[ROPCIE_LW_HEARTBEAT];
};

/**
 * ropcie_word_pass_anew() - begin with the first word again
 * @pass: pass
 *
 * For words that may be lost, as the link was down, and those that are all out and
 * are repeated: nobody waits for the others, but for the heartbeat.
 */
static inline void ropcie_word_pass_anew(struct ropcie_word_pass *pass)
{
	pass->left = 0;
}

/**
 * ropcie_word_pass_write() - write what is left of a pass, or all of the next one
 * @pass: pass
 * @val: words by their numbers; those behind the heartbeat do not change in a pass
 * @nwords: number of words, at least ROPCIE_LW_NUM
 * @write: writes one of them; 0, or an error and it has not been taken
 * @ctx: for @write
 *
 * They go backwards: what lies behind the link words is there when those say "ready".
 * The heartbeat of a pass may be an earlier one.
 *
 * Return: 0, and all words of a pass have been written, or what @write says.
 */
static inline int
ropcie_word_pass_write(struct ropcie_word_pass *pass, const u32 *val,
		       u32 nwords,
		       int (*write)(void *ctx, u32 word, u32 val), void *ctx)
{
	u32 left = pass->left;
	int ret = 0;

	if (!left || memcmp(pass->words, val, sizeof(pass->words))) {
		memcpy(pass->words, val, sizeof(pass->words));
		left = nwords;
	}
	while (left) {
		ret = write(ctx, left - 1, val[left - 1]);
		if (ret)
			break;
		left--;
	}
	pass->left = left;
	return ret;
}

#endif /* ROPCIE_CORE_WORD_PASS_H */
