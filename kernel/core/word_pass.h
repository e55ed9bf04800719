/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The link words of core/peer_link.h, written part by part to where a part may not
 * be taken just now, as by a message register that is still full.
 *
 * A pass that could not end is gone on with: were it begun anew, a register that takes
 * most messages, but not all, would hardly ever take all of a pass.
 */
#ifndef ROPCIE_CORE_WORD_PASS_H
#define ROPCIE_CORE_WORD_PASS_H

#include "peer_link.h"

/**
 * struct ropcie_word_pass - how far the words have got; zero it with ropcie_link_init()
 * @left: parts still to write, those with the lowest numbers; 0: a pass begins
 * @beat_left: parts of the heartbeat that goes before them; 0: the next one does
 * @hw_changes: the link's, of what is written
 * @words: what they are, heartbeat apart
 */
struct ropcie_word_pass {
	u32 left;
	u32 beat_left;
	u32 hw_changes;
	u32 words[ROPCIE_LW_HEARTBEAT];
};

/* The *@left parts from number @first on, backwards. */
static inline int
ropcie_word_pass_parts(u32 *left, u32 first, const u32 *val, u32 parts,
		       int (*write)(void *ctx, u32 word, u32 part, u32 val),
		       void *ctx)
{
	u32 next;
	int ret;

	for (; *left; --*left) {
		next = first + *left - 1;
		ret = write(ctx, next / parts, next % parts, val[next / parts]);
		if (ret)
			return ret;
	}
	return 0;
}

/**
 * ropcie_word_pass_write() - write what is left of a pass, or all of the next one
 * @pass: pass
 * @l: link that the words are of
 * @val: words by their numbers: the link's own, and what lies behind them, which
 *	does not change while those do not
 * @nwords: number of words, at least ROPCIE_LW_NUM
 * @parts: in how many parts a word travels
 * @write: writes one of them; 0, or an error and it has not been taken
 * @ctx: for @write
 *
 * Words and parts go backwards: what lies behind the link words is there when those
 * say "ready". Other words, and those that may be lost as the link was down, begin
 * anew. Once all are out they are repeated, and the peer waits for nothing but the
 * heartbeat: it goes before what is left then. It may be an earlier one.
 *
 * Return: 0, and all words of a pass have been written, or what @write says.
 */
static inline int
ropcie_word_pass_write(struct ropcie_word_pass *pass,
		       const struct ropcie_peer_link *l, const u32 *val,
		       u32 nwords, u32 parts,
		       int (*write)(void *ctx, u32 word, u32 part, u32 val),
		       void *ctx)
{
	int ret;

	if (pass->hw_changes != l->hw_changes ||
	    memcmp(pass->words, val, sizeof(pass->words))) {
		pass->hw_changes = l->hw_changes;
		memcpy(pass->words, val, sizeof(pass->words));
		pass->left = 0;
	}
	if (!pass->left)
		pass->left = nwords * parts;
	if (l->told) {
		if (!pass->beat_left)
			pass->beat_left = parts;
		ret = ropcie_word_pass_parts(&pass->beat_left,
					     ROPCIE_LW_HEARTBEAT * parts, val,
					     parts, write, ctx);
		if (ret)
			return ret;
	}
	return ropcie_word_pass_parts(&pass->left, 0, val, parts, write, ctx);
}

#endif /* ROPCIE_CORE_WORD_PASS_H */
