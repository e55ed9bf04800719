// SPDX-License-Identifier: GPL-2.0
// Is memory of the kernel found in what it answers (fuzz_hook.h)?
// uverbs_leak.ko, of tests/kernel, gives such memory away by every way there
// is.
#ifndef ROPCIE_TESTS_PROGRAMS_LEAK_PROOF_H_
#define ROPCIE_TESTS_PROGRAMS_LEAK_PROOF_H_

namespace ropcie {

// Throws if some is not found, or some where there is none.
void ProveThatLeaksAreFound();

}  // namespace ropcie

#endif  // ROPCIE_TESTS_PROGRAMS_LEAK_PROOF_H_
