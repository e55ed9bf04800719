// SPDX-License-Identifier: GPL-2.0
/*
 * Families of NTB hardware, as Linux's drivers show them to clients: how many
 * there is of everything, which calls are missing, and what they do oddly. The
 * sources are those of Linux 6.1; docs/ntb-emulation.md says what is imitated
 * of each, and what is not.
 */
#include <linux/sizes.h>
#include <linux/string.h>

#include "ivntb.h"

static const struct ivntb_family ivntb_families[] = {
	/* Everything that ntb.h has. */
	{
		.name = "",
		.topo = { NTB_TOPO_SWITCH, NTB_TOPO_SWITCH },
		.max_ports = IVNTB_MAX_PORTS,
		.spads = 16,
		.mw_count = 1,
		.interrupts = IVNTB_MAX_VECTORS,
		.db_bits = { IVNTB_DB_BITS, IVNTB_DB_BITS },
		.flags = IVNTB_ALL_CALLS | IVNTB_PORT_NUMBERS |
			 IVNTB_READ_MASK | IVNTB_SPAD_ADDR | IVNTB_SHUTDOWN,
	},
	/*
	 * drivers/ntb/hw/intel/ntb_hw_gen1.c, back to back: XEON_SPAD_COUNT,
	 * XEON_DB_COUNT, four vectors of five bits (the last one is the link's),
	 * addr_align is the size of the BAR.
	 */
	{
		.name = "intel1",
		.topo = { NTB_TOPO_B2B_USD, NTB_TOPO_B2B_DSD },
		.max_ports = 2,
		.spads = 16,
		.mw_count = 2,
		.interrupts = IVNTB_MAX_VECTORS,
		.db_bits = { 15, 15 },
		.vectors = 4,
		.vector_bits = 5,
		.flags = IVNTB_BAR_ALIGNED | IVNTB_SPAD_ADDR,
	},
	/* .../ntb_hw_gen3.c, and gen4.c with its erratum: a vector for each bit. */
	{
		.name = "intel3",
		.topo = { NTB_TOPO_B2B_USD, NTB_TOPO_B2B_DSD },
		.max_ports = 2,
		.spads = 16,
		.mw_count = 2,
		.interrupts = IVNTB_MAX_VECTORS,
		.db_bits = { 32, 32 },
		.vectors = 33,
		.vector_bits = 1,
		.flags = IVNTB_BAR_ALIGNED | IVNTB_SPAD_ADDR,
	},
	/*
	 * drivers/ntb/hw/amd/ntb_hw_amd.c: both sides share 16 scratchpads, the
	 * driver keeps one of 16 doorbells. The link is up when both drivers are
	 * there, whatever their clients do; the secondary side's link_enable
	 * and link_disable answer -EINVAL.
	 */
	{
		.name = "amd",
		.topo = { NTB_TOPO_PRI, NTB_TOPO_SEC },
		.max_ports = 2,
		.spads = 8,
		.mw_count = 2,
		.interrupts = IVNTB_MAX_VECTORS,
		.db_bits = { 15, 15 },
		.vectors = 15,
		.vector_bits = 1,
		.link = { { .always = true },
			  { .always = true, .answer = -EINVAL } },
		.flags = IVNTB_SHUTDOWN,
	},
	/*
	 * drivers/ntb/hw/mscc/ntb_hw_switchtec.c: struct shared_mw, max_mw_size,
	 * 0x0FFFFFFF doorbells. link_enable and link_disable call the client
	 * from within (switchtec_ntb_link_status_update()).
	 */
	{
		.name = "switchtec",
		.topo = { NTB_TOPO_SWITCH, NTB_TOPO_SWITCH },
		.max_ports = 2,
		.spads = 128,
		.mw_count = 2,
		.mw_size = SZ_2M,
		.interrupts = 1,
		.db_bits = { 28, 28 },
		.vectors = 1,
		.vector_bits = 28,
		.flags = IVNTB_READ_MASK | IVNTB_SPAD_ADDR | IVNTB_LINK_INSIDE,
	},
	/*
	 * drivers/ntb/hw/idt/ntb_hw_idt.c, with windows of a lookup table: the
	 * sender translates, and whole windows only (idt_scan_mws()). One
	 * interrupt, when the doorbell register was empty (idt_db_isr()), which
	 * all ports have in common ("5. Doorbell operations").
	 */
	{
		.name = "idt",
		.topo = { NTB_TOPO_SWITCH, NTB_TOPO_SWITCH },
		.max_ports = 9,
		.msgs = 4,
		.mw_count = 1,
		.mw_size = SZ_1M,
		.interrupts = 1,
		.db_bits = { 32, 32 },
		.vector_bits = 32,
		.flags = IVNTB_PORT_NUMBERS | IVNTB_READ_MASK |
			 IVNTB_SENDER_TRANSLATES | IVNTB_WHOLE_WINDOWS |
			 IVNTB_EMPTY_RINGS | IVNTB_BELLS_FOR_ALL,
	},
	/*
	 * drivers/ntb/hw/epf/ntb_hw_epf.c at port 0, with 16 interrupts; at
	 * port 1 drivers/pci/endpoint/functions/pci-epf-vntb.c as
	 * Documentation/PCI/endpoint/pci-vntb-howto.rst configures it.
	 * Doorbells are interrupts: no mask, only the lowest bit of those asked
	 * for (ffs()). Port 1's link_enable does nothing, port 0's is for both.
	 * What port 0 receives comes through a part of the endpoint's outbound
	 * memory (pci_epc_mem_alloc_addr()), and port 1's mw_clear_trans does
	 * nothing: no flat window.
	 */
	{
		.name = "epf",
		.topo = { NTB_TOPO_NONE, NTB_TOPO_NONE },
		.max_ports = 2,
		.spads = 128,
		.mw_count = 1,
		.mw_size = SZ_1M,
		.interrupts = IVNTB_MAX_VECTORS,
		.db_bits = { 14, 4 },
		.vector_bits = 1,
		.link = { { }, { .always = true } },
		.flags = IVNTB_BELLS_ARE_INTERRUPTS | IVNTB_NO_FLAT,
	},
	/*
	 * No hardware: what is poorest and oddest above, as far as it goes together
	 * (of doorbells that is the endpoint's), and less of it where any may be less.
	 */
	{
		.name = "worst",
		.topo = { NTB_TOPO_NONE, NTB_TOPO_NONE },
		.max_ports = 2,
		.msgs = 1,
		.mw_count = 1,
		.mw_size = SZ_256K,
		.interrupts = 1,
		.db_bits = { 2, 3 },
		.vector_bits = 1,
		.link = { { }, { .always = true, .answer = -EINVAL } },
		.flags = IVNTB_SENDER_TRANSLATES | IVNTB_WHOLE_WINDOWS |
			 IVNTB_LINK_INSIDE | IVNTB_BELLS_ARE_INTERRUPTS |
			 IVNTB_NO_FLAT,
	},
};

const struct ivntb_family *ivntb_family_find(const char *name)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(ivntb_families); i++)
		if (!strcmp(name, ivntb_families[i].name))
			return &ivntb_families[i];
	return NULL;
}

/* For the layout word: ports of different families never link. */
int ivntb_family_number(const struct ivntb_dev *ndev)
{
	return ndev->family - ivntb_families;
}

/* Takes away of all the calls those that the family's driver has not. */
void ivntb_family_ops(struct ivntb_dev *ndev, const struct ntb_dev_ops *all)
{
	const struct ivntb_family *family = ndev->family;
	struct ntb_dev_ops *ops = &ndev->ops;

	*ops = *all;
	if (family->flags & IVNTB_SENDER_TRANSLATES) {
		ops->mw_set_trans = NULL;
	} else {
		ops->peer_mw_set_trans = NULL;
		ops->peer_mw_clear_trans = NULL;
	}
	if (family->flags & IVNTB_ALL_CALLS)
		return;
	ops->db_set = NULL;
	if (!(family->flags & IVNTB_BELLS_ARE_INTERRUPTS))
		ops->mw_clear_trans = NULL;
	if (!(family->flags & IVNTB_PORT_NUMBERS)) {
		ops->port_number = NULL;
		ops->peer_port_count = NULL;
		ops->peer_port_number = NULL;
		ops->peer_port_idx = NULL;
	}
	if (!(family->flags & IVNTB_READ_MASK))
		ops->db_read_mask = NULL;
	if (!(family->flags & IVNTB_SPAD_ADDR))
		ops->peer_spad_addr = NULL;
	if (!family->vectors) {
		ops->db_vector_count = NULL;
		ops->db_vector_mask = NULL;
	}
	if (!ndev->spad_count) {
		ops->spad_count = NULL;
		ops->spad_read = NULL;
		ops->spad_write = NULL;
		ops->peer_spad_addr = NULL;
		ops->peer_spad_read = NULL;
		ops->peer_spad_write = NULL;
	}
	if (!ndev->msg_count) {
		ops->msg_count = NULL;
		ops->msg_inbits = NULL;
		ops->msg_outbits = NULL;
		ops->msg_read_sts = NULL;
		ops->msg_clear_sts = NULL;
		ops->msg_set_mask = NULL;
		ops->msg_clear_mask = NULL;
		ops->msg_read = NULL;
		ops->peer_msg_write = NULL;
	}
}

/*
 * The bits that the peer gets of those that a client rings. Port 0 of the
 * endpoint rings slot b + 2 for bit b (ntb_epf_peer_db_set()), port 1 shows
 * slot i as bit i - 1 and looks at slots 1 to db_count - 1
 * (epf_ntb_cmd_handler()).
 */
u64 ivntb_family_rung(const struct ivntb_dev *ndev, u64 bits)
{
	if (!(ndev->family->flags & IVNTB_BELLS_ARE_INTERRUPTS))
		return bits;
	bits &= -bits;
	if (ndev->port == 0)
		bits = bits << 1 & GENMASK_ULL(2, 0);
	return bits;
}

/* The event's number: port 1 of the endpoint counts slots (epf_ntb_cmd_handler()). */
int ivntb_family_event(const struct ivntb_dev *ndev, int index)
{
	return ivntb_is(ndev, IVNTB_BELLS_ARE_INTERRUPTS) ?
	       index + ivntb_side(ndev) : index;
}
