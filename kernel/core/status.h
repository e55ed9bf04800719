/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Completion statuses that the engines give (IBTA 11.6.2). Numbers equal to
 * enum ib_wc_status; the driver asserts that.
 */
#ifndef ROPCIE_CORE_STATUS_H
#define ROPCIE_CORE_STATUS_H

enum ropcie_wc_status {
	ROPCIE_WC_SUCCESS = 0,
	ROPCIE_WC_LOC_LEN_ERR = 1,
	ROPCIE_WC_LOC_QP_OP_ERR = 2,
	ROPCIE_WC_LOC_PROT_ERR = 4,
	ROPCIE_WC_WR_FLUSH_ERR = 5,
	ROPCIE_WC_MW_BIND_ERR = 6,
	ROPCIE_WC_BAD_RESP_ERR = 7,
	ROPCIE_WC_REM_INV_REQ_ERR = 9,
	ROPCIE_WC_REM_ACCESS_ERR = 10,
	ROPCIE_WC_REM_OP_ERR = 11,
	ROPCIE_WC_RETRY_EXC_ERR = 12,
	ROPCIE_WC_RNR_RETRY_EXC_ERR = 13
};

#endif /* ROPCIE_CORE_STATUS_H */
