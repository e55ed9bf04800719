// SPDX-License-Identifier: GPL-2.0
/*
 * uverbs_leak.ko: answers all that uverbs is asked with memory that nobody has
 * written, for a test that looks for such memory and must find it here. In
 * /sys/kernel/debug/uverbs_leak/ there is a file for each kind:
 *
 *   kmalloc   an object of a slab
 *   page      a page
 *   stack     a variable, where the kernel fills those (else they are zero)
 *   address   where an object is
 *   nothing   zeros: what is found here is a mistake of the test's
 *
 * Each file takes commands and ioctls as /dev/infiniband/uverbs does, whatever they
 * are: all that they have room for is written to. It can also be read and mapped. A
 * netlink message of LEAK_NETLINK is answered with the kind of its type, counted from
 * NLMSG_MIN_TYPE on.
 */
#include <linux/debugfs.h>
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/netlink.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <net/net_namespace.h>
#include <net/netlink.h>
#include <net/sock.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

MODULE_DESCRIPTION("Test: memory of the kernel in all that is answered");
MODULE_AUTHOR("RoPCIe developers");
MODULE_LICENSE("GPL");

#define LEAK_NETLINK 31
#define LEAK_SIZE 64
/* Method of ioctls whose answers go behind the memory that attributes name. */
#define LEAK_BEHIND 1

enum leak_kind {
	LEAK_NOTHING,
	LEAK_KMALLOC,
	LEAK_PAGE,
	LEAK_ADDRESS,
	LEAK_STACK,
	LEAK_NUM,
};

static const char *const leak_names[] = {
	[LEAK_NOTHING] = "nothing",
	[LEAK_KMALLOC] = "kmalloc",
	[LEAK_PAGE] = "page",
	[LEAK_ADDRESS] = "address",
	[LEAK_STACK] = "stack",
};

static struct dentry *leak_dir;
static struct sock *leak_sock;

static int leak_num(void)
{
	return IS_ENABLED(CONFIG_INIT_STACK_ALL_PATTERN) ? LEAK_NUM :
							   LEAK_STACK;
}

static noinline void leak_stack(u8 *to)
{
	u8 forgotten[LEAK_SIZE];
	u8 *from = forgotten;

	/* Or the compiler would find it out. */
	OPTIMIZER_HIDE_VAR(from);
	memcpy(to, from, LEAK_SIZE);
}

/* LEAK_SIZE bytes. */
static int leak(enum leak_kind kind, u8 *to)
{
	void *mem = NULL;

	memset(to, 0, LEAK_SIZE);
	switch (kind) {
	case LEAK_KMALLOC:
	case LEAK_ADDRESS:
		mem = kmalloc(LEAK_SIZE, GFP_KERNEL);
		break;
	case LEAK_PAGE:
		mem = (void *)__get_free_page(GFP_KERNEL);
		break;
	case LEAK_STACK:
		leak_stack(to);
		return 0;
	default:
		return 0;
	}
	if (!mem)
		return -ENOMEM;
	if (kind == LEAK_ADDRESS)
		*(void **)to = mem;
	else
		memcpy(to, mem, LEAK_SIZE);
	if (kind == LEAK_PAGE)
		free_page((unsigned long)mem);
	else
		kfree(mem);
	return 0;
}

static enum leak_kind leak_kind_of(const struct file *file)
{
	return (enum leak_kind)(long)file_inode(file)->i_private;
}

static int leak_to_user(const struct file *file, u64 to, size_t len)
{
	u8 answer[LEAK_SIZE];
	int ret;

	ret = leak(leak_kind_of(file), answer);
	if (ret)
		return ret;
	len = min_t(size_t, len, LEAK_SIZE);
	return copy_to_user(u64_to_user_ptr(to), answer, len) ? -EFAULT : 0;
}

static ssize_t leak_read(struct file *file, char __user *to, size_t len,
			 loff_t *pos)
{
	int ret = leak_to_user(file, (uintptr_t)to, len);

	return ret ?: min_t(ssize_t, len, LEAK_SIZE);
}

static ssize_t leak_write(struct file *file, const char __user *from,
			  size_t len, loff_t *pos)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_ex_cmd_hdr ex;
	} cmd = {};
	ssize_t written = len;
	int ret;

	if (copy_from_user(&cmd, from, min(len, sizeof(cmd))))
		return -EFAULT;
	len = cmd.hdr.out_words * 4;
	if (cmd.hdr.command & IB_USER_VERBS_CMD_FLAG_EXTENDED)
		len = (cmd.hdr.out_words + cmd.ex.provider_out_words) * 8;
	ret = leak_to_user(file, cmd.ex.response, len);
	return ret ?: written;
}

/* What has no length of its own is a number that the attribute gets. */
static int leak_attr(const struct file *file,
		     struct ib_uverbs_attr __user *uattr, bool behind)
{
	struct ib_uverbs_attr attr;

	if (copy_from_user(&attr, uattr, sizeof(attr)))
		return -EFAULT;
	if (!attr.len)
		return leak_to_user(file, (uintptr_t)&uattr->data,
				    sizeof(attr.data));
	return leak_to_user(file, attr.data + (behind ? attr.len : 0),
			    attr.len);
}

static long leak_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct ib_uverbs_ioctl_hdr __user *uhdr = (void __user *)arg;
	struct ib_uverbs_ioctl_hdr hdr;
	int i, ret = 0;

	if (cmd != RDMA_VERBS_IOCTL)
		return -ENOTTY;
	if (copy_from_user(&hdr, uhdr, sizeof(hdr)))
		return -EFAULT;
	for (i = 0; i < hdr.num_attrs && !ret; i++)
		ret = leak_attr(file, &uhdr->attrs[i],
				hdr.method_id == LEAK_BEHIND);
	return ret;
}

static int leak_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct page *page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	int ret;

	if (!page)
		return -ENOMEM;
	ret = leak(leak_kind_of(file), page_address(page));
	ret = ret ?: vm_insert_page(vma, vma->vm_start, page);
	put_page(page);
	return ret;
}

static const struct file_operations leak_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = leak_read,
	.write = leak_write,
	.unlocked_ioctl = leak_ioctl,
	.mmap = leak_mmap,
};

static void leak_netlink(struct sk_buff *skb)
{
	const struct nlmsghdr *asked = nlmsg_hdr(skb);
	struct nlmsghdr *nlh;
	struct sk_buff *msg;

	if (skb->len < NLMSG_HDRLEN || !netlink_capable(skb, CAP_SYS_ADMIN))
		return;
	msg = nlmsg_new(LEAK_SIZE, GFP_KERNEL);
	if (!msg)
		return;
	nlh = nlmsg_put(msg, NETLINK_CB(skb).portid, asked->nlmsg_seq,
			asked->nlmsg_type, LEAK_SIZE, 0);
	if (!nlh || leak(asked->nlmsg_type - NLMSG_MIN_TYPE, nlmsg_data(nlh))) {
		nlmsg_free(msg);
		return;
	}
	nlmsg_unicast(leak_sock, msg, NETLINK_CB(skb).portid);
}

static int __init leak_init(void)
{
	struct netlink_kernel_cfg cfg = {
		.input = leak_netlink,
	};
	int i;

	leak_sock = netlink_kernel_create(&init_net, LEAK_NETLINK, &cfg);
	if (!leak_sock)
		return -ENOMEM;
	leak_dir = debugfs_create_dir(KBUILD_MODNAME, NULL);
	for (i = 0; i < leak_num(); i++)
		debugfs_create_file_unsafe(leak_names[i], 0600, leak_dir,
					   (void *)(long)i, &leak_fops);
	return 0;
}
module_init(leak_init);

static void __exit leak_exit(void)
{
	debugfs_remove_recursive(leak_dir);
	netlink_kernel_release(leak_sock);
}
module_exit(leak_exit);
